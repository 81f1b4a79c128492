//! A collector of validation problems with the messages of the API server.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use lanyard_vocabulary::EntraClientId;

use crate::problem::{ProblemSeverity, ValidationProblems};

/// Checks values and collects problems.
#[derive(Debug, Default)]
pub(super) struct FieldChecker {
    pub(super) problems: ValidationProblems,
}

impl FieldChecker {
    /// Checks that a required value is present. An empty string is present: other rules check
    /// whether it may be empty.
    pub(super) fn check_required<T>(&mut self, field: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            let name = field.rsplit('.').next().unwrap_or(field);
            self.problems.error_with_hint(field, "Required value", format!("set `{name}`"));
        }
        value
    }

    /// Checks that a required string is present and has an allowed length.
    pub(super) fn check_text<'a>(
        &mut self,
        field: &str,
        value: Option<&'a String>,
        lengths: RangeInclusive<usize>,
    ) -> Option<&'a str> {
        let text = self.check_required(field, value)?;
        self.check_length(field, text, lengths);
        Some(text)
    }

    /// Checks the length of a string. Like the API server, it counts characters, although the
    /// message says bytes.
    pub(super) fn check_length(&mut self, field: &str, text: &str, lengths: RangeInclusive<usize>) {
        let (count, shortest) = (text.chars().count(), *lengths.start());
        if count < shortest {
            let message = format!(
                "Invalid value: \"{text}\": {field} in body should be at least {shortest} chars long"
            );
            self.problems.error(field, message);
        }
        if count > *lengths.end() {
            let message = format!("Too long: may not be more than {} bytes", lengths.end());
            self.problems.error(field, message);
        }
    }

    /// Checks that a number is in a range.
    pub(super) fn check_number(&mut self, field: &str, number: i64, range: RangeInclusive<i64>) {
        let (least, most) = (*range.start(), *range.end());
        let bound = if number < least {
            format!("greater than or equal to {least}")
        } else if number > most {
            format!("less than or equal to {most}")
        } else {
            return;
        };
        let message = format!("Invalid value: {number}: {field} in body should be {bound}");
        self.problems.error(field, message);
    }

    /// Checks the number of items of a list.
    pub(super) fn check_item_count(
        &mut self,
        field: &str,
        count: usize,
        counts: RangeInclusive<usize>,
    ) {
        let (fewest, most) = (*counts.start(), *counts.end());
        if count < fewest {
            let message = format!(
                "Invalid value: {count}: {field} in body should have at least {fewest} items"
            );
            self.problems.error(field, message);
        }
        if count > most {
            let message = format!("Too many: {count}: must have at most {most} items");
            self.problems.error(field, message);
        }
    }

    /// Checks that a string is one of the known values.
    pub(super) fn check_one_of(&mut self, field: &str, text: &str, known: &[&str]) {
        if known.contains(&text) {
            return;
        }
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

    /// Checks that a required string is present and one of the known values.
    pub(super) fn check_required_one_of<'a>(
        &mut self,
        field: &str,
        value: Option<&'a String>,
        known: &[&str],
    ) -> Option<&'a str> {
        let text = self.check_required(field, value)?;
        self.check_one_of(field, text, known);
        Some(text)
    }

    /// Checks that a string matches a pattern of the schema. Like the API server, it skips the
    /// pattern if the length is invalid.
    pub(super) fn check_pattern(&mut self, field: &str, text: &str, pattern: &str, matches: bool) {
        if !matches && !self.has_error(field) {
            let message =
                format!("Invalid value: \"{text}\": {field} in body should match '{pattern}'");
            self.problems.error(field, message);
        }
    }

    /// Reports a violated CEL rule.
    pub(super) fn check_rule(&mut self, field: &str, holds: bool, message: &str) {
        if !holds {
            self.problems.error(field, message);
        }
    }

    /// Parses a value. An invalid value is an error, even if the schema accepts it. A field that
    /// already has an error gets no second one.
    pub(super) fn check_parsed<T: FromStr<Err: Display>>(
        &mut self,
        field: &str,
        text: &str,
    ) -> Option<T> {
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.has_error(field) {
                    self.problems.error(field, T::Err::to_string(&error));
                }
                None
            }
        }
    }

    /// Returns whether the field already has an error.
    pub(super) fn has_error(&self, field: &str) -> bool {
        let at_field = |problem: &crate::ValidationProblem| {
            problem.severity == ProblemSeverity::Error && problem.field == field
        };
        self.problems.iter().any(at_field)
    }

    /// Lints a string that should be a UUID and that the schema accepts.
    pub(super) fn lint_non_uuid(&mut self, field: &str, text: &str) {
        if !is_uuid(text) {
            self.problems.lint(
                field,
                format!("`{text}` is not a UUID; the API accepts it, but Azure rejects it"),
                "write the id in the form 8-4-4-4-12",
            );
        }
    }

    pub(super) fn check_dns_label(&mut self, field: &str, text: &str) {
        let message = format!(
            "Invalid value: \"{text}\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"
        );
        self.check_rule(field, is_dns_label(text), &message);
    }

    pub(super) fn check_dns_subdomain(&mut self, field: &str, text: &str) {
        let message = format!(
            "Invalid value: \"{text}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        );
        let holds = text.len() <= 253 && text.split('.').all(is_dns_label);
        self.check_rule(field, holds, &message);
    }
}

/// Returns whether the text is a UUID of the form 8-4-4-4-12.
pub(super) fn is_uuid(text: &str) -> bool {
    text.parse::<EntraClientId>().is_ok()
}

/// Returns whether the text is a lower-case DNS label (RFC 1123).
pub(super) fn is_dns_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns whether the text is a resource id of this form, in which every `*` stands for one
/// segment without a slash.
pub(super) fn matches_resource_id_form(text: &str, form: &str) -> bool {
    let (parts, expected): (Vec<_>, Vec<_>) =
        (text.split('/').collect(), form.split('/').collect());
    parts.len() == expected.len()
        && parts.iter().zip(expected).all(|(part, expected)| expected == "*" || *part == expected)
}
