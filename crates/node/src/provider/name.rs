//! Names of providers.

use std::fmt;
use std::str::FromStr;

/// The name of a provider: what its socket is called, without `.sock`.
///
/// The rule is that of the Secrets Store CSI driver, without the empty name that it lets pass. It
/// keeps the name one component of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderName(String);

/// A text is not the name of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of a provider: 1 to {LONGEST} letters, digits, `_` and `-`")]
pub struct ParseProviderNameError {
    /// The text as it came, cut where it is far too long.
    pub text: String,
}

/// The longest name.
const LONGEST: usize = 30;

impl ProviderName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProviderName {
    type Err = ParseProviderNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if (1..=LONGEST).contains(&text.len()) && text.chars().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(ParseProviderNameError { text: text.chars().take(2 * LONGEST).collect() })
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

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
