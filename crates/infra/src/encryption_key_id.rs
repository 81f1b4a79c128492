//! The URL of a vault key that encrypts the secrets of a cluster (`--encryption-key-id`).

use std::str::FromStr;

use lanyard_vocabulary::{Cloud, KeyVersion, SecretName, VaultName};
use url::Url;

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

/// A text is not the URL of a key version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not the id of a key version: {reason}; write https://VAULT.vault.azure.net/keys/NAME/VERSION"
)]
pub struct ParseEncryptionKeyIdError {
    text: String,
    reason: &'static str,
}

impl FromStr for EncryptionKeyId {
    type Err = ParseEncryptionKeyIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_key_id(text)
            .map_err(|reason| ParseEncryptionKeyIdError { text: text.to_owned(), reason })
    }
}

fn parse_key_id(text: &str) -> Result<EncryptionKeyId, &'static str> {
    let url = Url::parse(text).map_err(|_source| "it is not a URL")?;
    let is_plain = url.scheme() == "https"
        && url.username().is_empty()
        && url.password().is_none()
        && url.port().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !is_plain {
        return Err("it is not an https URL with only host and path");
    }
    let (vault, suffix) =
        url.host_str().and_then(|host| host.split_once('.')).ok_or("it has no host")?;
    let (cloud, is_managed_hsm) = store_of_suffix(suffix)
        .ok_or("the host is neither a vault nor a managed HSM of a known cloud")?;
    let path: Vec<_> = url.path().split('/').collect();
    let ["", "keys", key, version] = path.as_slice() else {
        return Err("the path is not /keys/NAME/VERSION");
    };
    Ok(EncryptionKeyId {
        vault: vault.parse().map_err(|_source| "the name of the vault is invalid")?,
        key: key.parse().map_err(|_source| "the name of the key is invalid")?,
        version: version.parse().map_err(|_source| "the version of the key is invalid")?,
        is_managed_hsm,
        cloud,
    })
}

/// The cloud of a host suffix, and whether it belongs to managed HSMs.
fn store_of_suffix(suffix: &str) -> Option<(Cloud, bool)> {
    Cloud::ALL.into_iter().find_map(|cloud| {
        let endpoints = cloud.endpoints()?;
        if suffix == endpoints.vault_suffix {
            Some((cloud, false))
        } else if suffix == endpoints.managed_hsm_suffix {
            Some((cloud, true))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_of_every_cloud_tells_vaults_from_managed_hsms() {
        for (suffix, cloud) in [
            ("azure.net", Cloud::Public),
            ("usgovcloudapi.net", Cloud::UsGovernment),
            ("azure.cn", Cloud::China),
            ("microsoftazure.de", Cloud::German),
            ("sovcloud-api.fr", Cloud::Bleu),
        ] {
            for (store, is_managed_hsm) in [("vault", false), ("managedhsm", true)] {
                let text = format!("https://harbour.{store}.{suffix}/keys/etcd/0a1b");
                let key: EncryptionKeyId = text.parse().unwrap();
                let expected = (cloud, is_managed_hsm, "harbour", "etcd", "0a1b");
                let found = (
                    key.cloud,
                    key.is_managed_hsm,
                    key.vault.as_str(),
                    key.key.as_str(),
                    key.version.as_str(),
                );
                assert_eq!(found, expected, "{text}");
            }
        }
    }

    #[test]
    fn other_urls_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("harbour", "not a URL"),
            ("http://h.vault.azure.net/keys/k/v", "not an https URL"),
            ("https://har.vault.azure.net:443a/keys/k/v", "not a URL"),
            ("https://har.vault.azure.net:8443/keys/k/v", "not an https URL"),
            ("https://har.vault.azure.net/keys/k/v?x=y", "not an https URL"),
            ("https://har.example.com/keys/k/v", "neither a vault nor a managed HSM"),
            ("https://har.x.vault.azure.net/keys/k/v", "neither a vault nor a managed HSM"),
            ("https://har.vault.azure.net/keys/k", "the path is not"),
            ("https://har.vault.azure.net/keys/k/v/", "the path is not"),
            ("https://har.vault.azure.net/secrets/k/v", "the path is not"),
            ("https://har.vault.azure.net/keys/k_k/v", "the name of the key"),
            ("https://har.vault.azure.net/keys/k/v-v", "the version of the key"),
        ] {
            let error = text.parse::<EncryptionKeyId>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
