//! Which cloud a vault is in: where tokens come from and how vaults are called there.

use std::path::PathBuf;
use std::str::FromStr;

use lanyard_credential::identity::{Authority, ParseAuthorityError};
use lanyard_vocabulary::{Cloud, VaultName};
use serde::Deserialize;

/// The endpoints of a cloud that reading a vault needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VaultCloud {
    /// Who issues tokens.
    pub authority: Authority,
    /// The DNS suffix of vaults, without a leading dot.
    pub vault_suffix: String,
}

/// A cloud's endpoints are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloudError {
    /// The endpoints of an Azure Stack are in a file, and the class names none.
    #[error("`cloudName: AzureStackCloud` needs `cloudEnvFileName`, and it is not set")]
    NoFile,
    /// The file with the endpoints cannot be read.
    #[error("cannot read the environment file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file with the endpoints is larger than such a file can be.
    #[error("the environment file {} is larger than {LARGEST_FILE} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file with the endpoints does not hold them.
    #[error("the environment file {}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: EnvironmentProblem,
    },
    /// The cloud's authority is no URL; the tables of this program are wrong.
    #[error("the authority of {cloud} is malformed")]
    Authority {
        /// The cloud.
        cloud: Cloud,
        /// What is wrong with it.
        #[source]
        source: ParseAuthorityError,
    },
}

/// What is wrong with an environment file. It never quotes the file: a class names it, and it may
/// be any file of the node plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentProblem {
    /// It is not a JSON object with texts.
    #[error("it is not the JSON of an environment")]
    NotJson,
    /// `activeDirectoryEndpoint` is no https URL.
    #[error("`activeDirectoryEndpoint` is not an https url")]
    Authority,
    /// `keyVaultDNSSuffix` is no DNS name.
    #[error("`keyVaultDNSSuffix` is not a dns suffix")]
    VaultSuffix,
}

impl CloudError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoFile => "set cloudEnvFileName to a file that is mounted into the node plugin",
            Self::File { .. } | Self::TooLarge { .. } => {
                "mount the environment file into the node plugin, and name it by its full path"
            }
            Self::Content { .. } => {
                "write name, activeDirectoryEndpoint, keyVaultEndpoint and keyVaultDNSSuffix as \
                 the Azure Stack's ARM metadata tells them"
            }
            Self::Authority { .. } => "report it as a bug",
        }
    }
}

impl VaultCloud {
    /// The endpoints of `cloud`; those of an Azure Stack are read from `file`, anew for each call,
    /// so that two classes with two files do not see each other's.
    ///
    /// # Errors
    ///
    /// [`CloudError`] where the endpoints are not to be had.
    pub async fn load(cloud: Cloud, file: Option<&str>) -> Result<Self, CloudError> {
        if let Some(endpoints) = cloud.endpoints() {
            let authority = Authority::from_str(&endpoints.authority_url());
            let authority = authority.map_err(|source| CloudError::Authority { cloud, source })?;
            return Ok(Self { authority, vault_suffix: endpoints.vault_suffix.to_owned() });
        }
        let path = PathBuf::from(file.ok_or(CloudError::NoFile)?);
        let failed = |source| CloudError::File { path: path.clone(), source };
        let metadata = tokio::fs::metadata(&path).await.map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(std::io::ErrorKind::InvalidInput.into()));
        }
        if metadata.len() > LARGEST_FILE {
            return Err(CloudError::TooLarge { path });
        }
        let content = tokio::fs::read(&path).await.map_err(failed)?;
        Self::parse(&content).map_err(|problem| CloudError::Content { path, problem })
    }

    /// Reads an environment file, in the form of the Azure SDK for Go.
    ///
    /// # Errors
    ///
    /// [`EnvironmentProblem`].
    pub fn parse(content: &[u8]) -> Result<Self, EnvironmentProblem> {
        // The reader's own error quotes the file.
        let file: EnvironmentFile =
            serde_json::from_slice(content).or(Err(EnvironmentProblem::NotJson))?;
        let authority = file.active_directory_endpoint.trim().parse();
        let authority = authority.or(Err(EnvironmentProblem::Authority))?;
        let vault_suffix = file.key_vault_dns_suffix.trim().trim_start_matches('.');
        let vault_suffix = vault_suffix.to_ascii_lowercase();
        if is_dns_name(&vault_suffix) {
            Ok(Self { authority, vault_suffix })
        } else {
            Err(EnvironmentProblem::VaultSuffix)
        }
    }

    /// The URL of a vault.
    pub fn vault_url(&self, name: &VaultName) -> String {
        format!("https://{}/", self.vault_host(name))
    }

    /// The host of a vault, in the one spelling that tells vaults apart.
    pub fn vault_host(&self, name: &VaultName) -> String {
        format!("{}.{}", name.as_str().to_ascii_lowercase(), self.vault_suffix)
    }
}

#[derive(Deserialize)]
struct EnvironmentFile {
    #[serde(default, rename = "activeDirectoryEndpoint")]
    active_directory_endpoint: String,
    #[serde(default, rename = "keyVaultDNSSuffix")]
    key_vault_dns_suffix: String,
}

fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 220 && text.split('.').all(label)
}

/// An environment file has some dozens of lines.
const LARGEST_FILE: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cloud_with_a_name_needs_no_file() {
        let cloud = VaultCloud::load(Cloud::China, Some("/does/not/exist")).await.unwrap();
        assert_eq!(cloud.vault_url(&"KV-1".parse().unwrap()), "https://kv-1.vault.azure.cn/");
        assert_eq!(cloud.authority.to_string(), "https://login.chinacloudapi.cn/");
        let none = VaultCloud::load(Cloud::Stack, None).await.unwrap_err();
        assert!(matches!(none, CloudError::NoFile), "{none}");
    }

    #[test]
    fn an_azure_stack_is_known_by_its_file() {
        let file = br#"{"name": "AzureStackCloud",
            "activeDirectoryEndpoint": "https://login.microsoftonline.com/",
            "keyVaultEndpoint": "https://vault.local.azurestack.external/",
            "keyVaultDNSSuffix": "vault.local.azurestack.external", "more": 1}"#;
        let cloud = VaultCloud::parse(file).unwrap();
        let url = cloud.vault_url(&"kv1".parse().unwrap());
        assert_eq!(url, "https://kv1.vault.local.azurestack.external/");
    }

    #[test]
    fn a_file_that_is_something_else_is_not_quoted() {
        let cases: [(&[u8], EnvironmentProblem); 4] = [
            (b"root:x:0:0:planted:/root:/bin/sh", EnvironmentProblem::NotJson),
            (b"{}", EnvironmentProblem::Authority),
            (br#"{"activeDirectoryEndpoint": "http://planted"}"#, EnvironmentProblem::Authority),
            (
                br#"{"activeDirectoryEndpoint": "https://a", "keyVaultDNSSuffix": "b/planted"}"#,
                EnvironmentProblem::VaultSuffix,
            ),
        ];
        for (content, problem) in cases {
            assert_eq!(VaultCloud::parse(content).unwrap_err(), problem);
            assert!(!problem.to_string().contains("planted"));
        }
    }
}
