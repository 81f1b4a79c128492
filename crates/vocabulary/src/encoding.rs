//! The encodings of a file's bytes in a vault secret, whose values are text.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The encoding of a vault object: `objectEncoding` of a HostedCluster's identity and of an entry
/// in a SecretProviderClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObjectEncoding {
    /// The value is the content.
    #[serde(rename = "utf-8")]
    Utf8,
    /// Hexadecimal digits of either case.
    #[serde(rename = "hex")]
    Hex,
    /// Standard base64 with padding (RFC 4648, section 4).
    #[serde(rename = "base64")]
    Base64,
}

impl ObjectEncoding {
    /// Every encoding.
    pub const ALL: [Self; 3] = [Self::Utf8, Self::Hex, Self::Base64];

    /// The name as the APIs spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }

    /// Parses a name in any case, as the Key Vault provider does; the HostedCluster API accepts only the
    /// exact spelling ([`FromStr`]).
    pub fn parse_any_case(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.name().eq_ignore_ascii_case(text))
    }
}

crate::display_text!(ObjectEncoding, name());

/// The text is not the name of an object encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of `utf-8`, `hex`, `base64`")]
pub struct ParseObjectEncodingError(pub String);

impl FromStr for ObjectEncoding {
    type Err = ParseObjectEncodingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.name() == text)
            .ok_or_else(|| ParseObjectEncodingError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_takes_the_exact_spelling_and_the_provider_any_case() {
        assert_eq!("utf-8".parse(), Ok(ObjectEncoding::Utf8));
        assert!("UTF-8".parse::<ObjectEncoding>().is_err());
        assert_eq!(ObjectEncoding::parse_any_case("UTF-8"), Some(ObjectEncoding::Utf8));
        assert_eq!(ObjectEncoding::parse_any_case("Base64"), Some(ObjectEncoding::Base64));
        assert_eq!(ObjectEncoding::parse_any_case(""), None);
        assert_eq!(ObjectEncoding::parse_any_case("utf8"), None);
    }
}
