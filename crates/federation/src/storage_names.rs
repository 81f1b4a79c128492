//! Names of the storage account and the container of an issuer.

use std::borrow::Cow;
use std::str::FromStr;

use lanyard_clock::ErrorHint;

/// The name of a storage account: 3 to 24 lower-case letters and digits, unique in Azure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IssuerStorageAccount(String);

/// The name of a blob container: 3 to 63 lower-case letters, digits and single dashes between them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IssuerContainer(String);

/// A name violates a rule of Azure Storage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the name of a {kind}: {rule}")]
pub struct StorageNameError {
    /// The rejected name.
    pub text: String,
    /// `storage account` or `blob container`.
    pub kind: &'static str,
    /// The violated rule.
    pub rule: &'static str,
    /// A valid name that resembles the rejected one.
    pub suggestion: String,
}

impl ErrorHint for StorageNameError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Owned(format!("use a valid name, for example `{}`", self.suggestion)))
    }
}

impl IssuerStorageAccount {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl IssuerContainer {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IssuerStorageAccount {
    type Err = StorageNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_account_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(StorageNameError {
            text: text.to_owned(),
            kind: "storage account",
            rule: "3 to 24 lower-case letters and digits",
            suggestion: suggested_account_name(text),
        })
    }
}

impl FromStr for IssuerContainer {
    type Err = StorageNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_container_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(StorageNameError {
            text: text.to_owned(),
            kind: "blob container",
            rule: "3 to 63 lower-case letters, digits and single dashes, which are neither first nor last",
            suggestion: suggested_container_name(text),
        })
    }
}

lanyard_vocabulary::display_text!(IssuerStorageAccount, 0);

lanyard_vocabulary::display_text!(IssuerContainer, 0);

fn is_account_name(text: &str) -> bool {
    (3..=24).contains(&text.len()) && text.chars().all(is_lower_alphanumeric)
}

fn is_container_name(text: &str) -> bool {
    (3..=63).contains(&text.len())
        && text.split('-').all(|part| !part.is_empty() && part.chars().all(is_lower_alphanumeric))
}

/// The allowed characters of the name, padded or cut to a valid length.
fn suggested_account_name(text: &str) -> String {
    let mut name: String =
        text.to_ascii_lowercase().chars().filter(|c| is_lower_alphanumeric(*c)).take(24).collect();
    if name.len() < 3 {
        name.push_str("oidc");
    }
    name
}

/// The allowed characters of the name with a dash in place of others, padded or cut to a valid
/// length.
fn suggested_container_name(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let parts: Vec<_> =
        lower.split(|c| !is_lower_alphanumeric(c)).filter(|part| !part.is_empty()).collect();
    let joined: String = parts.join("-").chars().take(63).collect();
    match joined.trim_end_matches('-') {
        "" => "oidc".to_owned(),
        short if short.len() < 3 => format!("{short}-oidc"),
        name => name.to_owned(),
    }
}

const fn is_lower_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_names_come_with_a_valid_suggestion() {
        let account = |text: &str| text.parse::<IssuerStorageAccount>().unwrap_err().suggestion;
        assert_eq!(account("my-Cluster"), "mycluster");
        assert_eq!(account(""), "oidc");
        assert_eq!(account("a1234567890123456789012345"), "a12345678901234567890123");
        let container = |text: &str| text.parse::<IssuerContainer>().unwrap_err().suggestion;
        assert_eq!(container("My__Cluster-"), "my-cluster");
        assert_eq!(container("a--b"), "a-b");
        assert_eq!(container("ab"), "ab-oidc");
        let error = "My.Name".parse::<IssuerStorageAccount>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`My.Name` is not the name of a storage account: 3 to 24 lower-case letters and digits"
        );
        assert_eq!(error.hint().as_deref(), Some("use a valid name, for example `myname`"));
    }

    proptest! {
        #[test]
        fn suggestions_are_valid_and_valid_names_are_kept(text in "([a-z0-9A-Z_.é-]|-){0,80}") {
            match text.parse::<IssuerStorageAccount>() {
                Ok(name) => prop_assert_eq!(name.as_str(), text.as_str()),
                Err(error) => prop_assert!(is_account_name(&error.suggestion), "{error:?}"),
            }
            match text.parse::<IssuerContainer>() {
                Ok(name) => prop_assert_eq!(name.as_str(), text.as_str()),
                Err(error) => prop_assert!(is_container_name(&error.suggestion), "{error:?}"),
            }
        }
    }
}
