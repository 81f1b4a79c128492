//! The rules of a structural schema, with the messages of the API server.

use std::fmt::Display;
use std::str::FromStr;

use lanyard_vocabulary::ClientId;

use crate::problem::Problems;

/// Collects problems while it checks.
#[derive(Debug, Default)]
pub(super) struct Checker {
    pub(super) problems: Problems,
}

impl Checker {
    /// A value that must be there. An empty text is there: whether it may be empty is another
    /// rule.
    pub(super) fn required<T>(&mut self, field: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            let name = field.rsplit('.').next().unwrap_or(field);
            self.problems.error_with_hint(field, "Required value", format!("set `{name}`"));
        }
        value
    }

    /// A text that must be there and within its length.
    pub(super) fn text<'a>(
        &mut self,
        field: &str,
        value: Option<&'a String>,
        lengths: std::ops::RangeInclusive<usize>,
    ) -> Option<&'a str> {
        let text = self.required(field, value)?.as_str();
        if text.len() < *lengths.start() {
            let message = format!(
                "Invalid value: \"{text}\": {field} in body should be at least {} chars long",
                lengths.start()
            );
            self.problems.error(field, message);
            return None;
        }
        self.at_most(field, text, *lengths.end()).then_some(text)
    }

    /// Whether the text is at most that long.
    pub(super) fn at_most(&mut self, field: &str, text: &str, longest: usize) -> bool {
        let fits = text.chars().count() <= longest;
        if !fits {
            let message = format!("Too long: may not be more than {longest} bytes");
            self.problems.error(field, message);
        }
        fits
    }

    /// A text that must be one of several.
    pub(super) fn one_of(&mut self, field: &str, text: &str, known: &[&str]) -> bool {
        let found = known.contains(&text);
        if !found {
            let listed: Vec<_> = known.iter().map(|value| format!("\"{value}\"")).collect();
            let listed = listed.join(", ");
            let near = known.iter().find(|value| value.eq_ignore_ascii_case(text));
            let hint = near.map_or_else(
                || "write one of the supported values".to_owned(),
                |near| format!("the case matters: write `{near}`"),
            );
            let message = format!("Unsupported value: \"{text}\": supported values: {listed}");
            self.problems.error_with_hint(field, message, hint);
        }
        found
    }

    /// A text that must match a pattern of the schema.
    pub(super) fn pattern(
        &mut self,
        field: &str,
        text: &str,
        pattern: &str,
        matches: bool,
    ) -> bool {
        if !matches {
            let message =
                format!("Invalid value: \"{text}\": {field} in body should match '{pattern}'");
            self.problems.error(field, message);
        }
        matches
    }

    /// A rule over a text or an object.
    pub(super) fn rule(&mut self, field: &str, holds: bool, message: &str) -> bool {
        if !holds {
            self.problems.error(field, message);
        }
        holds
    }

    /// A value of a type of ours; a text that is none cannot be used, whatever the schema says.
    pub(super) fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        field: &str,
        text: &str,
    ) -> Option<T> {
        text.parse().map_err(|error: T::Err| self.problems.error(field, error.to_string())).ok()
    }

    /// A text that the schema takes and that should be a UUID.
    pub(super) fn expect_uuid(&mut self, field: &str, text: &str) {
        if !is_uuid(text) {
            self.problems.lint(
                field,
                format!("`{text}` is not a UUID; the API takes it, and Azure will not"),
                "write the id in the form 8-4-4-4-12",
            );
        }
    }

    pub(super) fn dns_label(&mut self, field: &str, text: &str) {
        let message = format!(
            "Invalid value: \"{text}\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"
        );
        self.rule(field, is_dns_label(text), &message);
    }

    pub(super) fn dns_subdomain(&mut self, field: &str, text: &str) {
        let message = format!(
            "Invalid value: \"{text}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        );
        let holds = text.len() <= 253 && text.split('.').all(is_dns_label);
        self.rule(field, holds, &message);
    }
}

/// Whether the text is a UUID of the form 8-4-4-4-12.
pub(super) fn is_uuid(text: &str) -> bool {
    text.parse::<ClientId>().is_ok()
}

/// Whether the text is a DNS label of lower case (RFC 1123).
pub(super) fn is_dns_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
