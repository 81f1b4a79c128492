//! Names of providers.

use std::str::FromStr;

/// The name of a provider: the name of its socket without `.sock`.
///
/// The rule is that of the Secrets Store CSI driver, except that the empty name is invalid. A valid name is a
/// single path component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderName(String);

/// The text is not a valid provider name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not the name of a provider: 1 to {MAX_NAME_LENGTH} letters, digits, `_` and `-`"
)]
pub struct ParseProviderNameError {
    /// The text, truncated if it is far too long.
    pub text: String,
}

/// The maximum length of a name.
const MAX_NAME_LENGTH: usize = 30;

impl ProviderName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProviderName {
    type Err = ParseProviderNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if (1..=MAX_NAME_LENGTH).contains(&text.len()) && text.chars().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(ParseProviderNameError { text: text.chars().take(2 * MAX_NAME_LENGTH).collect() })
    }
}

lanyard_vocabulary::display_text!(ProviderName, 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_plain_component_of_a_path() {
        for good in ["azure", "e2e-provider", "A_1", &"a".repeat(30)] {
            assert!(good.parse::<ProviderName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "a b", "a\0", "ä", "a.sock", &"a".repeat(31)] {
            assert!(bad.parse::<ProviderName>().is_err(), "{bad:?}");
        }
        let error = "x".repeat(100_000).parse::<ProviderName>().unwrap_err();
        assert!(error.to_string().len() < 200);
    }
}
