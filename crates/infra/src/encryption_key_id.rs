//! The version of a key that encrypts the secrets of a cluster (`--encryption-key-id`).

use std::str::FromStr;

use lanyard_vocabulary::{
    Cloud, KeyVersion, ParseVaultKeyIdError, SecretName, VaultKeyId, VaultName,
};

/// A version of a key in a vault or a managed HSM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionKeyId {
    /// The name of the vault or of the managed HSM.
    pub vault: VaultName,
    /// The name of the key.
    pub key: SecretName,
    /// The version of the key.
    pub version: KeyVersion,
    /// Whether the key is in a managed HSM.
    pub is_managed_hsm: bool,
    /// The cloud of the host name.
    pub cloud: Cloud,
}

/// A text is not the id of a key version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseEncryptionKeyIdError {
    /// The text is not the id of a key.
    #[error(transparent)]
    NoKey(#[from] ParseVaultKeyIdError),
    /// The version is missing. HyperShift never follows the current version.
    #[error("`{0}` has no version; copy the id from `az keyvault key show --query key.kid`")]
    NoVersion(String),
}

impl FromStr for EncryptionKeyId {
    type Err = ParseEncryptionKeyIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let VaultKeyId { vault, name: key, version, is_managed_hsm, cloud } = text.parse()?;
        let version =
            version.ok_or_else(|| ParseEncryptionKeyIdError::NoVersion(text.to_owned()))?;
        Ok(Self { vault, key, version, is_managed_hsm, cloud })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_without_a_version_is_an_error() {
        let text = "https://harbour.managedhsm.azure.net/keys/etcd";
        let error = text.parse::<EncryptionKeyId>().unwrap_err();
        assert_eq!(error, ParseEncryptionKeyIdError::NoVersion(text.to_owned()));
        let key: EncryptionKeyId = format!("{text}/0a1b").parse().unwrap();
        assert_eq!((key.is_managed_hsm, key.version.as_str()), (true, "0a1b"));
    }
}
