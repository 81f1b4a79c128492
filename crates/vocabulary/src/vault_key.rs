//! The id of a key in a vault or in a managed HSM.

use std::fmt;
use std::str::FromStr;

use crate::cloud::Cloud;
use crate::identifier::{KeyVersion, SecretName, VaultName};

/// A key, or one version of it: `https://VAULT.vault.azure.net/keys/NAME[/VERSION]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultKeyId {
    /// The name of the vault or of the managed HSM.
    pub vault: VaultName,
    /// The name of the key.
    pub name: SecretName,
    /// The version; `None` for the current one.
    pub version: Option<KeyVersion>,
    /// Whether the key is in a managed HSM.
    pub is_managed_hsm: bool,
    /// The cloud of the host name.
    pub cloud: Cloud,
}

/// A text is not the id of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not the id of a key: {reason}; write https://VAULT.vault.azure.net/keys/NAME/VERSION"
)]
pub struct ParseVaultKeyIdError {
    text: String,
    reason: &'static str,
}

impl FromStr for VaultKeyId {
    type Err = ParseVaultKeyIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|reason| ParseVaultKeyIdError { text: text.to_owned(), reason })
    }
}

fn parse(text: &str) -> Result<VaultKeyId, &'static str> {
    let rest = text.strip_prefix("https://").ok_or("it is not an https URL")?;
    if rest.contains(['?', '#', '@']) {
        return Err("it has more than a host and a path");
    }
    let (host, path) = rest.split_once('/').ok_or("it has no path")?;
    let (vault, suffix) = host.split_once('.').ok_or("it has no host")?;
    let (cloud, is_managed_hsm) = store_of_suffix(suffix)
        .ok_or("the host is neither a vault nor a managed HSM of a known cloud")?;
    let (name, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["keys", name] => (*name, None),
        ["keys", name, version] => {
            let version = version.parse().map_err(|_source| "the version of the key is invalid")?;
            (*name, Some(version))
        }
        _ => return Err("the path is not /keys/NAME/VERSION"),
    };
    Ok(VaultKeyId {
        vault: vault.parse().map_err(|_source| "the name of the vault is invalid")?,
        name: name.parse().map_err(|_source| "the name of the key is invalid")?,
        version,
        is_managed_hsm,
        cloud,
    })
}

/// The cloud of a host suffix, and whether it belongs to managed HSMs.
fn store_of_suffix(suffix: &str) -> Option<(Cloud, bool)> {
    Cloud::ALL.into_iter().find_map(|cloud| {
        let endpoints = cloud.endpoints()?;
        if suffix.eq_ignore_ascii_case(endpoints.vault_suffix) {
            Some((cloud, false))
        } else if suffix.eq_ignore_ascii_case(endpoints.managed_hsm_suffix) {
            Some((cloud, true))
        } else {
            None
        }
    })
}

impl fmt::Display for VaultKeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vault, name, version, is_managed_hsm, cloud } = self;
        let endpoints = cloud.endpoints().unwrap_or(&crate::cloud::PUBLIC);
        let suffix =
            if *is_managed_hsm { endpoints.managed_hsm_suffix } else { endpoints.vault_suffix };
        write!(formatter, "https://{vault}.{suffix}/keys/{name}")?;
        version.as_ref().map_or(Ok(()), |version| write!(formatter, "/{version}"))
    }
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
                for (version, expected) in [("", None), ("/0a1b", Some("0a1b"))] {
                    let text = format!("https://harbour.{store}.{suffix}/keys/etcd{version}");
                    let id: VaultKeyId = text.parse().unwrap();
                    assert_eq!((id.cloud, id.is_managed_hsm), (cloud, is_managed_hsm), "{text}");
                    assert_eq!((id.vault.as_str(), id.name.as_str()), ("harbour", "etcd"));
                    assert_eq!(id.version.as_ref().map(KeyVersion::as_str), expected);
                    assert_eq!(id.to_string(), text);
                }
            }
        }
    }

    #[test]
    fn other_urls_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("harbour", "not an https URL"),
            ("http://har.vault.azure.net/keys/k/v", "not an https URL"),
            ("https://har.vault.azure.net", "no path"),
            ("https://har.vault.azure.net:8443/keys/k/v", "neither a vault nor a managed HSM"),
            ("https://har.vault.azure.net/keys/k/v?x=y", "more than a host and a path"),
            ("https://user@har.vault.azure.net/keys/k/v", "more than a host and a path"),
            ("https://har.example.com/keys/k/v", "neither a vault nor a managed HSM"),
            ("https://har.x.vault.azure.net/keys/k/v", "neither a vault nor a managed HSM"),
            ("https://har.vault.azure.net.example.com/keys/k/v", "neither a vault nor a managed"),
            ("https://har.vault.azure.net/keys", "the path is not"),
            ("https://har.vault.azure.net/keys/k/", "the version of the key"),
            ("https://har.vault.azure.net/keys/k/v/", "the path is not"),
            ("https://har.vault.azure.net/secrets/k/v", "the path is not"),
            ("https://har.vault.azure.net/keys/k_k/v", "the name of the key"),
            ("https://har.vault.azure.net/keys/k/v-v", "the version of the key"),
        ] {
            let error = text.parse::<VaultKeyId>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
