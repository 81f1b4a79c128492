//! Sanitizing of names and texts from reports: single-line, bounded, and valid in conditions and
//! events.

use lanyard_vocabulary::{Hop, OutcomeCode};

/// Returns the hop of this name.
pub(crate) fn parse_hop(name: &str) -> Option<Hop> {
    Hop::CERTIFICATE_PATH.into_iter().find(|hop| hop.name() == name)
}

/// Returns the outcome code of this name.
pub(crate) fn parse_outcome_code(name: &str) -> Option<OutcomeCode> {
    OutcomeCode::ALL.iter().copied().find(|code| code.name() == name)
}

/// Returns the preceding hop.
pub(crate) fn previous_hop(hop: Hop) -> Option<Hop> {
    Hop::CERTIFICATE_PATH.into_iter().take_while(|it| *it < hop).last()
}

/// Returns the following hop; the first hop for `None`.
pub(crate) fn next_hop(hop: Option<Hop>) -> Option<Hop> {
    Hop::CERTIFICATE_PATH.into_iter().find(|it| hop.is_none_or(|hop| *it > hop))
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

/// Returns the text as [`single_line`] does. If that would cut the action or the scope of a missing
/// permission, the text before them is shortened instead, unless both are too long themselves.
pub(crate) fn single_line_with_scope(text: &str, most: usize) -> String {
    let line = single_line(text, usize::MAX);
    let Some((before, permission)) = split_at_permission(&line) else {
        return single_line(&line, most);
    };
    let has_rest = before.len() + permission.len() < line.len();
    let ellipsis = if has_rest { ELLIPSIS } else { "" };
    let is_complete =
        line.len() <= most || before.len() + permission.len() + ellipsis.len() <= most;
    let room = most.saturating_sub(" ".len() + permission.len() + ellipsis.len());
    if is_complete || room < MIN_BYTES_BEFORE_PERMISSION {
        return single_line(&line, most);
    }
    format!("{} {permission}{ellipsis}", single_line(before, room))
}

/// Finds a missing permission, and returns the text before it and its action with its scope.
///
/// Source: `service_message` of `lanyard-credential`, which formats the error messages of vaults and
/// of Azure Resource Manager.
fn split_at_permission(line: &str) -> Option<(&str, &str)> {
    line.match_indices(BEFORE_ACTION).find_map(|(start, _)| {
        let (before, permission) = line.split_at_checked(start)?;
        let (action, rest) =
            permission.strip_prefix(BEFORE_ACTION)?.split_once(BETWEEN_ACTION_AND_SCOPE)?;
        let (scope, _) = rest.split_once(AFTER_SCOPE)?;
        if action.contains(AFTER_SCOPE) {
            return None;
        }
        let length = BEFORE_ACTION.len()
            + action.len()
            + BETWEEN_ACTION_AND_SCOPE.len()
            + scope.len()
            + AFTER_SCOPE.len();
        Some((before, permission.get(..length)?))
    })
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
const BEFORE_ACTION: &str = "action '";
const BETWEEN_ACTION_AND_SCOPE: &str = "' at '";
const AFTER_SCOPE: &str = "'";
/// The longest name of a component, and the ellipsis.
const MIN_BYTES_BEFORE_PERMISSION: usize = 23;

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::Component;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_hop_and_code_is_found_by_its_name() {
        for hop in Hop::CERTIFICATE_PATH {
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
    fn text_before_a_missing_permission_is_shortened() {
        let permission = format!("action 'a/b/action' at '/{}'", "s".repeat(40));
        let after = "is not authorized for c); next: assign a role";
        let line = |before: &str| format!("{before} ({permission} {after}");
        let before = "disk at vault-read: \n Forbidden: could not read the secret";
        let text = line(before);
        assert_eq!(single_line_with_scope(&text, 1_000), single_line(&text, 1_000));
        let most = permission.len() + 40;
        let short = single_line_with_scope(&text, most);
        assert!(short.len() <= most, "{short}");
        assert!(short.starts_with("disk at vault-read: Forbidden: co"), "{short}");
        assert!(short.ends_with(&format!("… {permission}…")), "{short}");
        // Without a text after the scope, nothing is cut there.
        let short = single_line_with_scope(&format!("{before} ({permission}"), most);
        assert!(short.len() <= most, "{short}");
        assert!(short.starts_with("disk at vault-read: Forbidden: co"), "{short}");
        assert!(short.ends_with(&format!("… {permission}")), "{short}");
        // The end is cut as long as the scope is complete.
        assert_eq!(
            single_line_with_scope(&line("disk"), most),
            format!("disk ({permission} is not authorized for c); next…")
        );
        // A permission without room for the name of a component is cut as any other text.
        let most = permission.len() + 10;
        assert_eq!(single_line_with_scope(&text, most), single_line(&text, most));
        // Neither an unfinished scope nor another action is a permission.
        for text in ["x action 'a' at '/s", "x action 'a' failed at '/s'", "it''s"] {
            assert_eq!(split_at_permission(text), None, "{text}");
        }
        let second = format!("action 'a' failed: {permission}");
        assert_eq!(
            split_at_permission(&second),
            Some(("action 'a' failed: ", permission.as_str()))
        );
    }

    #[test]
    fn longest_component_fits_before_a_permission() {
        let longest = Component::ALL.iter().map(|it| it.name().len()).max();
        assert_eq!(longest, Some(MIN_BYTES_BEFORE_PERMISSION - ELLIPSIS.len()));
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

        #[test]
        fn a_line_with_a_permission_is_short_as_well(
            text in ".{0,80}",
            scope in ".{0,80}",
            most in 3_usize..200,
        ) {
            let report = format!("{text}action '{text}' at '{scope}'{text}");
            let line = single_line_with_scope(&report, most);
            prop_assert!(line.len() <= most);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
