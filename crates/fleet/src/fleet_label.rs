//! The names in a fleet.

use std::fmt;
use std::str::FromStr;

/// The name of a fleet, a cluster, an application, a namespace or a ServiceAccount: a DNS label (RFC 1123).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetLabel(String);

/// A text is not a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` does not have 1 to 63 small letters, digits and `-`, a letter or digit first and last"
)]
pub struct ParseFleetLabelError(String);

impl FleetLabel {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FleetLabel {
    type Err = ParseFleetLabelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = (1..=63).contains(&text.len())
            && text.chars().all(is_allowed)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if is_label {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseFleetLabelError(text.to_owned()))
        }
    }
}

impl fmt::Display for FleetLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}
