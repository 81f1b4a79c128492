//! The forms of domain names and addresses in the schema.
//!
//! The schema's regular expressions are more lenient than RFC 1123; these functions accept the same
//! texts.

/// Returns whether the text is one label or a [host name](is_hostname).
pub(super) fn is_domain_name(text: &str) -> bool {
    is_label(text) || is_hostname(text)
}

/// Returns whether the text has at least two labels, of which the last one consists of at least two
/// letters.
pub(super) fn is_hostname(text: &str) -> bool {
    ends_in_letters(text, is_label)
}

/// Returns whether the text has the form of a host name, an IPv4 or an IPv6 address.
pub(super) fn is_node_port_address(text: &str) -> bool {
    let starts_with_alphanumeric =
        |label: &str| is_label(label) && label.starts_with(|c: char| c.is_ascii_alphanumeric());
    text == "localhost"
        || ends_in_letters(text, starts_with_alphanumeric)
        || is_ipv4_form(text)
        || is_ipv6_form(text)
}

fn ends_in_letters(text: &str, is_other_label: impl Fn(&str) -> bool) -> bool {
    text.rsplit_once('.').is_some_and(|(labels, last)| {
        last.len() >= 2
            && last.chars().all(|c| c.is_ascii_alphabetic())
            && labels.split('.').all(is_other_label)
    })
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn is_ipv4_form(text: &str) -> bool {
    let is_number =
        |part: &str| (1..=3).contains(&part.len()) && part.chars().all(|c| c.is_ascii_digit());
    text.split('.').count() == 4 && text.split('.').all(is_number)
}

fn is_ipv6_form(text: &str) -> bool {
    // The number of groups; `None` if one of them has another form.
    let count = |text: &str| {
        let is_group = |group: &str| {
            (1..=4).contains(&group.len()) && group.chars().all(|c| c.is_ascii_hexdigit())
        };
        match text {
            "" => Some(0),
            text => text.split(':').all(is_group).then(|| text.split(':').count()),
        }
    };
    match text.split_once("::") {
        None => count(text) == Some(8),
        Some((left, right)) => {
            count(left).zip(count(right)).is_some_and(|(left, right)| left + right <= 7)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_of_the_schema_are_names_and_addresses() {
        for text in ["a", "-", "a-", "example.com", "1.co", "-.-.zz"] {
            assert!(is_domain_name(text), "{text}");
        }
        for text in ["", "a.b", "a.b1", ".com", "a..com", "a_b", "a.com.", "ä.com", "a.com\n"] {
            assert!(!is_domain_name(text), "{text}");
        }
        assert!(!is_hostname("localhost") && is_hostname("a.example"));
        for text in [
            "localhost",
            "a.example",
            "1.2.3.4",
            "999.1.1.1",
            "::",
            "::1",
            "1::",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::",
            "::2:3:4:5:6:7:8",
            "fe80::1:2",
        ] {
            assert!(is_node_port_address(text), "{text}");
        }
        for text in [
            "",
            "a",
            "-a.example",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.1234",
            ":",
            ":::",
            "1:::2",
            "1::2::3",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8:9",
            "1:2:3:4::5:6:7:8",
            "12345::",
            "g::",
        ] {
            assert!(!is_node_port_address(text), "{text}");
        }
    }
}
