//! Words and texts that others told, made fit to be shown: short, in one line, of known form.

use lanyard_vocabulary::{Hop, OutcomeCode};

/// The hop of this name.
pub(crate) fn hop_named(name: &str) -> Option<Hop> {
    Hop::ALL.into_iter().find(|hop| hop.name() == name)
}

/// The code of this name.
pub(crate) fn outcome_named(name: &str) -> Option<OutcomeCode> {
    OutcomeCode::ALL.iter().copied().find(|code| code.name() == name)
}

/// The hop before another one.
pub(crate) fn hop_before(hop: Hop) -> Option<Hop> {
    Hop::ALL.into_iter().take_while(|it| *it < hop).last()
}

/// The hop after another one; the first, where none is.
pub(crate) fn hop_after(hop: Option<Hop>) -> Option<Hop> {
    Hop::ALL.into_iter().find(|it| hop.is_none_or(|hop| *it > hop))
}

/// The text in one line of at most so many bytes, without control characters. Annotations can be
/// written by whoever may write pods, and the Kubernetes API bounds what a status and an event hold.
pub(crate) fn one_line(text: &str, most: usize) -> String {
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
        line.truncate(line.floor_char_boundary(most.saturating_sub(CUT.len())));
        line.truncate(line.trim_end().len());
        line.push_str(CUT);
    }
    line
}

/// The word, if it can be the reason of a condition and of an event, or else `otherwise`.
///
/// Source: the pattern of `reason` in `metav1.Condition`, narrowed to what an event takes too.
pub(crate) fn reason(word: &str, otherwise: &str) -> String {
    let fits = word.len() <= LONGEST_REASON
        && word.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !word.ends_with('_');
    if fits { word.to_owned() } else { otherwise.to_owned() }
}

const LONGEST_REASON: usize = 128;
const CUT: &str = "…";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_hop_and_code_is_found_by_its_name() {
        for hop in Hop::ALL {
            assert_eq!(hop_named(hop.name()), Some(hop));
        }
        for code in OutcomeCode::ALL {
            assert_eq!(outcome_named(code.name()), Some(*code));
            assert_eq!(reason(code.name(), "Otherwise"), code.name());
        }
        assert_eq!(hop_named("token"), None);
        assert_eq!(outcome_named("AsExpected"), None);
    }

    #[test]
    fn hops_have_neighbours_except_at_the_ends() {
        assert_eq!(hop_before(Hop::HostedCluster), None);
        assert_eq!(hop_before(Hop::Credential), Some(Hop::File));
        assert_eq!(hop_after(None), Some(Hop::HostedCluster));
        assert_eq!(hop_after(Some(Hop::File)), Some(Hop::Credential));
        assert_eq!(hop_after(Some(Hop::Refused)), None);
    }

    #[test]
    fn a_word_that_is_no_reason_gives_way() {
        for (word, expected) in [
            ("AADSTS700027", "AADSTS700027"),
            ("invalid_client", "invalid_client"),
            ("", "Otherwise"),
            ("7000222", "Otherwise"),
            ("two words", "Otherwise"),
            ("ends_", "Otherwise"),
            ("über", "Otherwise"),
        ] {
            assert_eq!(reason(word, "Otherwise"), expected, "{word}");
        }
        assert_eq!(reason(&"a".repeat(129), "Otherwise"), "Otherwise");
    }

    proptest! {
        #[test]
        fn a_line_is_short_and_has_no_control_characters(text in ".{0,80}", most in 3_usize..40) {
            let line = one_line(&format!("{text}\r\n\u{1b}[31m\t{text}"), most);
            prop_assert!(line.len() <= most);
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert_eq!(one_line(&line, most), line);
        }
    }
}
