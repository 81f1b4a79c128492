//! The id of a key in a vault: its URL.

use crate::cloud::CloudEndpoints;
use crate::{KeyVersion, ParseIdentifierError, SecretName, VaultName};

/// A key of a vault, or one version of it: `https://VAULT.vault.azure.net/keys/NAME[/VERSION]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultKeyId {
    /// The vault.
    pub vault: VaultName,
    /// The name of the key.
    pub name: SecretName,
    /// The version; `None` for the current one.
    pub version: Option<KeyVersion>,
}

/// A text is not the id of a key in a vault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseVaultKeyIdError {
    /// The text has another form.
    #[error("`{text}` does not have the form https://VAULT.{suffix}/keys/NAME/VERSION")]
    Form {
        /// The text.
        text: String,
        /// The DNS suffix of vaults in the cloud.
        suffix: &'static str,
    },
    /// The key is in a managed HSM.
    #[error("`{text}` is a key of a managed HSM")]
    ManagedHsm {
        /// The text.
        text: String,
    },
    /// A name or the version is invalid.
    #[error(transparent)]
    Identifier(#[from] ParseIdentifierError),
}

impl VaultKeyId {
    /// Parses the id of a key in a vault of a cloud.
    ///
    /// # Errors
    ///
    /// [`ParseVaultKeyIdError`] for another form, another cloud, a managed HSM, and an invalid name.
    pub fn parse(text: &str, endpoints: &CloudEndpoints) -> Result<Self, ParseVaultKeyIdError> {
        let suffix = endpoints.vault_suffix;
        let form = || ParseVaultKeyIdError::Form { text: text.to_owned(), suffix };
        let rest = text.strip_prefix("https://").ok_or_else(form)?;
        let (host, path) = rest.split_once('/').ok_or_else(form)?;
        let (vault, domain) = host.split_once('.').ok_or_else(form)?;
        if domain.eq_ignore_ascii_case(endpoints.managed_hsm_suffix) {
            return Err(ParseVaultKeyIdError::ManagedHsm { text: text.to_owned() });
        }
        if !domain.eq_ignore_ascii_case(suffix) {
            return Err(form());
        }
        let (name, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["keys", name] => (*name, None),
            ["keys", name, version] => (*name, Some(version.parse()?)),
            _ => return Err(form()),
        };
        Ok(Self { vault: vault.parse()?, name: name.parse()?, version })
    }

    /// The id as text, in the cloud with these endpoints.
    pub fn url(&self, endpoints: &CloudEndpoints) -> String {
        let Self { vault, name, version } = self;
        let suffix = endpoints.vault_suffix;
        let version = version.as_ref().map(|version| format!("/{version}")).unwrap_or_default();
        format!("https://{vault}.{suffix}/keys/{name}{version}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{Cloud, PUBLIC};

    #[test]
    fn key_id_is_read_with_and_without_a_version() {
        for (version, expected) in [("", None), ("/4f9d", Some("4f9d"))] {
            let text = format!("https://harbour-keys.vault.azure.net/keys/etcd{version}");
            let id = VaultKeyId::parse(&text, &PUBLIC).unwrap();
            assert_eq!((id.vault.as_str(), id.name.as_str()), ("harbour-keys", "etcd"));
            assert_eq!(id.version.as_ref().map(KeyVersion::as_str), expected);
            assert_eq!(id.url(&PUBLIC), text);
        }
    }

    #[test]
    fn other_forms_and_other_clouds_are_errors() {
        let china = Cloud::China.endpoints().unwrap();
        assert!(VaultKeyId::parse("https://v12.vault.azure.cn/keys/k/1", china).is_ok());
        for text in [
            "harbour-keys",
            "http://v12.vault.azure.net/keys/k/1",
            "https://v12.vault.azure.net/keys",
            "https://v12.vault.azure.net/keys/k/1/2",
            "https://v12.vault.azure.net/keys/k/",
            "https://v12.vault.azure.net/secrets/k/1",
            "https://v12.vault.azure.net/keys/k?x=1",
            "https://v12.vault.azure.cn/keys/k/1",
            "https://v12.vault.azure.net.example.com/keys/k/1",
        ] {
            assert!(VaultKeyId::parse(text, &PUBLIC).is_err(), "{text}");
        }
        let hsm = VaultKeyId::parse("https://v12.managedhsm.azure.net/keys/k/1", &PUBLIC);
        assert!(matches!(hsm, Err(ParseVaultKeyIdError::ManagedHsm { .. })));
    }
}
