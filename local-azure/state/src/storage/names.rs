//! The names of storage accounts, containers and blobs.
//!
//! Reference: "Naming and referencing containers, blobs, and metadata".

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of a storage account: 3 to 24 lower-case letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StorageAccountName(String);

/// The text is not the name of a storage account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} is not a valid storage account name. Storage account name must be between 3 and 24 characters in length and use numbers and lower-case letters only."
)]
pub struct ParseStorageAccountNameError {
    pub text: String,
}

impl StorageAccountName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StorageAccountName {
    type Err = ParseStorageAccountNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_valid = (3..=24).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseStorageAccountNameError { text: text.to_owned() })
        }
    }
}

impl TryFrom<String> for StorageAccountName {
    type Error = ParseStorageAccountNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StorageAccountName> for String {
    fn from(name: StorageAccountName) -> Self {
        name.0
    }
}

lanyard_vocabulary::display_text!(StorageAccountName, 0);

/// The container of blobs without a container in their URL.
pub const ROOT_CONTAINER: &str = "$root";
/// The container of a static website.
pub const WEB_CONTAINER: &str = "$web";

/// A text is not a valid name of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerNameError {
    /// The name has fewer than 3 or more than 63 characters.
    Length,
    /// The name has other characters than lower-case letters, digits and single hyphens between them.
    Characters,
}

/// Checks the name of a container: 3 to 63 lower-case letters, digits and single hyphens between them, or one
/// of the names with a special meaning.
pub fn check_container_name(name: &str) -> Result<(), ContainerNameError> {
    if matches!(name, ROOT_CONTAINER | WEB_CONTAINER | "$logs" | "$blobchangefeed") {
        return Ok(());
    }
    if !(3..=63).contains(&name.len()) {
        return Err(ContainerNameError::Length);
    }
    let is_valid = name.split('-').all(|part| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    if is_valid { Ok(()) } else { Err(ContainerNameError::Characters) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_names_have_3_to_24_lower_case_letters_and_digits() {
        for good in ["abc", "0a1", "abcdefghijklmnopqrstuvwx"] {
            assert!(good.parse::<StorageAccountName>().is_ok(), "{good}");
        }
        for bad in ["", "ab", "Abc", "a-c", "a.c", "äbc", "abcdefghijklmnopqrstuvwxy"] {
            assert!(bad.parse::<StorageAccountName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn container_names_have_single_hyphens_between_letters_and_digits() {
        for good in ["abc", "a-b-c", "$root", "$web", "$logs", "0-9"] {
            assert_eq!(check_container_name(good), Ok(()), "{good}");
        }
        let long = "a".repeat(64);
        let cases = [
            ("ab", ContainerNameError::Length),
            (long.as_str(), ContainerNameError::Length),
            ("-abc", ContainerNameError::Characters),
            ("abc-", ContainerNameError::Characters),
            ("a--b", ContainerNameError::Characters),
            ("aBc", ContainerNameError::Characters),
            ("$other", ContainerNameError::Characters),
        ];
        for (bad, expected) in cases {
            assert_eq!(check_container_name(bad), Err(expected), "{bad}");
        }
    }
}
