//! The name of a CSI driver.

use std::str::FromStr;

/// The name that identifies a driver to the kubelet, in the CSIDriver object and in volumes: at most 63
/// letters, digits, `-` and `.`, with a letter or digit at both ends (CSI v1, `GetPluginInfo`). It is part of
/// the name of the registration socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverName(String);

impl DriverName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DriverName {
    type Err = ParseDriverNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ends = [text.bytes().next(), text.bytes().next_back()];
        let good = text.len() <= MAX_NAME
            && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'.')
            && ends.iter().all(|end| end.is_some_and(|it| it.is_ascii_alphanumeric()));
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseDriverNameError { text: text.to_owned() })
        }
    }
}

lanyard_vocabulary::display_text!(DriverName, 0);

/// The text is not a valid CSI driver name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a valid CSI driver name: it must have 1 to 63 letters, digits, `-` and `.`, and a \
     letter or digit at both ends"
)]
pub struct ParseDriverNameError {
    /// The invalid text.
    pub text: String,
}

const MAX_NAME: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_csi_allows() {
        for good in ["secrets-store.csi.k8s.io", "a", "A-1"] {
            assert_eq!(good.parse::<DriverName>().map(|it| it.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "a.", "a/b", "a b", "ä", "../x", &"a".repeat(64)] {
            assert!(bad.parse::<DriverName>().is_err(), "{bad}");
        }
    }
}
