//! Sanitizing of names and texts from reports: single-line, bounded, and valid in conditions and
//! events.

use lanyard_vocabulary::{Hop, OutcomeCode};

/// Returns the hop of this name.
pub(crate) fn parse_hop(name: &str) -> Option<Hop> {
    Hop::ALL.into_iter().find(|hop| hop.name() == name)
}

/// Returns the outcome code of this name.
pub(crate) fn parse_outcome_code(name: &str) -> Option<OutcomeCode> {
    OutcomeCode::ALL.iter().copied().find(|code| code.name() == name)
}

/// Returns the preceding hop.
pub(crate) fn previous_hop(hop: Hop) -> Option<Hop> {
    Hop::ALL.into_iter().take_while(|it| *it < hop).last()
}

/// Returns the following hop; the first hop for `None`.
pub(crate) fn next_hop(hop: Option<Hop>) -> Option<Hop> {
    Hop::ALL.into_iter().find(|it| hop.is_none_or(|hop| *it > hop))
}

/// Returns the text in one line of at most `most` bytes, without control characters. Any user who
/// may write pods controls their annotations, and the Kubernetes API limits the texts of a status
/// and an event.
pub(crate) fn single_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in text.split(|letter: char| letter.is_whitespace() || letter.is_control()) {
        if !word.is_empty() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    if line.len() > most {
        line.truncate(line.floor_char_boundary(most.saturating_sub(ELLIPSIS.len())));
        line.truncate(line.trim_end().len());
        line.push_str(ELLIPSIS);
    }
    line
}

/// Returns `word` if it is a valid reason of a condition and of an event, or else `otherwise`.
///
/// Source: the pattern of `reason` in `metav1.Condition`, restricted to values that are also valid
/// in an event.
pub(crate) fn valid_reason_or(word: &str, otherwise: &str) -> String {
    let fits = word.len() <= MAX_REASON_LENGTH
        && word.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !word.ends_with('_');
    if fits { word.to_owned() } else { otherwise.to_owned() }
}

const MAX_REASON_LENGTH: usize = 128;
const ELLIPSIS: &str = "…";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_hop_and_code_is_found_by_its_name() {
        for hop in Hop::ALL {
            assert_eq!(parse_hop(hop.name()), Some(hop));
        }
        for code in OutcomeCode::ALL {
            assert_eq!(parse_outcome_code(code.name()), Some(*code));
            assert_eq!(valid_reason_or(code.name(), "Otherwise"), code.name());
        }
        assert_eq!(parse_hop("token"), None);
        assert_eq!(parse_outcome_code("AsExpected"), None);
    }

    #[test]
    fn hops_have_neighbours_except_at_the_ends() {
        assert_eq!(previous_hop(Hop::HostedCluster), None);
        assert_eq!(previous_hop(Hop::Credential), Some(Hop::File));
        assert_eq!(next_hop(None), Some(Hop::HostedCluster));
        assert_eq!(next_hop(Some(Hop::File)), Some(Hop::Credential));
        assert_eq!(next_hop(Some(Hop::Refused)), None);
    }

    #[test]
    fn invalid_reason_is_replaced() {
        for (word, expected) in [
            ("AADSTS700027", "AADSTS700027"),
            ("invalid_client", "invalid_client"),
            ("", "Otherwise"),
            ("7000222", "Otherwise"),
            ("two words", "Otherwise"),
            ("ends_", "Otherwise"),
            ("über", "Otherwise"),
        ] {
            assert_eq!(valid_reason_or(word, "Otherwise"), expected, "{word}");
        }
        assert_eq!(valid_reason_or(&"a".repeat(129), "Otherwise"), "Otherwise");
    }

    proptest! {
        #[test]
        fn a_line_is_short_and_has_no_control_characters(text in ".{0,80}", most in 3_usize..40) {
            let line = single_line(&format!("{text}\r\n\u{1b}[31m\t{text}"), most);
            prop_assert!(line.len() <= most);
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert_eq!(single_line(&line, most), line);
        }
    }
}
