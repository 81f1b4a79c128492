//! The cloud of a vault: its token service and the DNS suffix of its vaults.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use lanyard_clock::ErrorHint;
use lanyard_credential::identity::{Authority, ParseAuthorityError};
use lanyard_vocabulary::{Cloud, VaultName};
use rustix::fs::OFlags;
use serde::Deserialize;

/// The endpoints of a cloud that vault reads need.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VaultCloud {
    /// The token service.
    pub authority: Authority,
    /// The DNS suffix of vaults, without a leading dot.
    pub vault_suffix: String,
}

/// Errors of determining a cloud's endpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultCloudError {
    /// The SecretProviderClass selects Azure Stack and names no environment file.
    #[error("`cloudName: AzureStackCloud` needs `cloudEnvFileName`, and it is not set")]
    EnvironmentFileNotSet,
    /// The environment file cannot be read.
    #[error("cannot read the environment file {}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The SecretProviderClass names a file outside the directory of environment files.
    #[error("the environment file {} is not one of those in {}", path.display(), directory.display())]
    OutsideEnvironmentDirectory {
        /// The path of the file.
        path: PathBuf,
        /// The directory for environment files.
        directory: PathBuf,
    },
    /// The environment file exceeds the size limit.
    #[error("the environment file {} is larger than {LARGEST_FILE} bytes", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
    },
    /// The environment file is invalid.
    #[error("the environment file {}: {problem}", path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The problem of the file.
        problem: EnvironmentFileError,
    },
    /// The cloud's authority is not a URL, which is a bug in this crate's tables.
    #[error("the authority of {cloud} is malformed")]
    Authority {
        cloud: Cloud,
        /// The parse error.
        #[source]
        source: ParseAuthorityError,
    },
}

/// The problem of an environment file. Never quotes the file: the SecretProviderClass names the path, which
/// may be any file of the node plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentFileError {
    /// The file is not a JSON object with string values.
    #[error("it is not the JSON of an environment")]
    NotJson,
    /// `activeDirectoryEndpoint` is not an `https` URL.
    #[error("`activeDirectoryEndpoint` is not an https url")]
    Authority,
    /// `keyVaultDNSSuffix` is not a DNS name.
    #[error("`keyVaultDNSSuffix` is not a dns suffix")]
    VaultSuffix,
}

impl ErrorHint for VaultCloudError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::EnvironmentFileNotSet => {
                "set cloudEnvFileName to a file that is mounted into the node plugin"
            }
            Self::File { .. } | Self::TooLarge { .. } => {
                "mount the environment file into the node plugin, and name it by its full path"
            }
            Self::OutsideEnvironmentDirectory { .. } => {
                "mount the environment file there, or have the owner of the node name its \
                 directory by --cloud-env-dir"
            }
            Self::Content { .. } => {
                "write name, activeDirectoryEndpoint, keyVaultEndpoint and keyVaultDNSSuffix as \
                 the Azure Stack's ARM metadata contains them"
            }
            Self::Authority { .. } => "report it as a bug",
        }))
    }
}

impl VaultCloud {
    /// Returns the endpoints of `cloud`. For Azure Stack it reads `file` on each call, so that classes with
    /// different files do not affect each other. The author of the class chooses the path, so the file must
    /// be below `directory`, which the node's owner provides.
    ///
    /// # Errors
    ///
    /// Returns a [`VaultCloudError`] if the endpoints cannot be determined.
    pub async fn load(
        cloud: Cloud,
        file: Option<&str>,
        directory: &Path,
    ) -> Result<Self, VaultCloudError> {
        if let Some(endpoints) = cloud.endpoints() {
            let authority = Authority::from_str(&endpoints.authority_url());
            let authority =
                authority.map_err(|source| VaultCloudError::Authority { cloud, source })?;
            return Ok(Self { authority, vault_suffix: endpoints.vault_suffix.to_owned() });
        }
        let path = PathBuf::from(file.ok_or(VaultCloudError::EnvironmentFileNotSet)?);
        let (named, directory) = (path.clone(), directory.to_owned());
        let read = tokio::task::spawn_blocking(move || read_environment(&named, &directory)).await;
        let failed =
            |ended| VaultCloudError::File { path: path.clone(), source: io::Error::other(ended) };
        let content = read.map_err(failed)??;
        Self::parse(&content).map_err(|problem| VaultCloudError::Content { path, problem })
    }

    /// Parses an environment file in the format of the Azure SDK for Go.
    ///
    /// # Errors
    ///
    /// Returns an [`EnvironmentFileError`] if a field is missing or malformed.
    pub fn parse(content: &[u8]) -> Result<Self, EnvironmentFileError> {
        // The parser's own error quotes the file.
        let file: EnvironmentFile =
            serde_json::from_slice(content).or(Err(EnvironmentFileError::NotJson))?;
        let authority = file.active_directory_endpoint.trim().parse();
        let authority = authority.or(Err(EnvironmentFileError::Authority))?;
        let vault_suffix = file.key_vault_dns_suffix.trim().trim_start_matches('.');
        let vault_suffix = vault_suffix.to_ascii_lowercase();
        if is_dns_name(&vault_suffix) {
            Ok(Self { authority, vault_suffix })
        } else {
            Err(EnvironmentFileError::VaultSuffix)
        }
    }

    pub fn vault_url(&self, name: &VaultName) -> String {
        format!("https://{}/", self.vault_host(name))
    }

    /// The host of a vault in lower case, for comparisons.
    pub fn vault_host(&self, name: &VaultName) -> String {
        format!("{}.{}", name.as_str().to_ascii_lowercase(), self.vault_suffix)
    }
}

/// Reads the file that a class names, if it is a regular file below `directory`. Never blocks on a pipe, and
/// never reads beyond the size limit: files of procfs report a size of zero and are not empty.
fn read_environment(path: &Path, directory: &Path) -> Result<Vec<u8>, VaultCloudError> {
    let elsewhere = || VaultCloudError::OutsideEnvironmentDirectory {
        path: path.to_owned(),
        directory: directory.to_owned(),
    };
    let failed = |source| VaultCloudError::File { path: path.to_owned(), source };
    // Check the path first: do not reveal whether files outside the directory exist.
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if climbs || !path.starts_with(directory) {
        return Err(elsewhere());
    }
    // A ConfigMap volume consists of links that stay in its directory.
    let real = path.canonicalize().map_err(failed)?;
    if !real.starts_with(directory.canonicalize().map_err(failed)?) {
        return Err(elsewhere());
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&real).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let mut content = Vec::new();
    let read = file.take(LARGEST_FILE + 1).read_to_end(&mut content).map_err(failed)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > LARGEST_FILE {
        return Err(VaultCloudError::TooLarge { path: path.to_owned() });
    }
    Ok(content)
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

/// An environment file has a few dozen lines.
const LARGEST_FILE: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    const FILE: &str = r#"{"activeDirectoryEndpoint": "https://login.local/",
        "keyVaultDNSSuffix": "vault.local"}"#;

    async fn load(path: &Path, directory: &Path) -> Result<VaultCloud, VaultCloudError> {
        VaultCloud::load(Cloud::Stack, path.to_str(), directory).await
    }

    #[tokio::test]
    async fn environment_file_must_be_below_the_configured_directory() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        for directory in [&ours, &theirs] {
            fs::write(directory.join("env.json"), FILE).unwrap();
        }
        // Like a ConfigMap volume.
        symlink("env.json", ours.join("link.json")).unwrap();
        symlink(theirs.join("env.json"), ours.join("planted.json")).unwrap();
        for name in ["env.json", "link.json"] {
            let cloud = load(&ours.join(name), &ours).await.unwrap();
            assert_eq!(cloud.vault_suffix, "vault.local", "{name}");
        }
        let missing = load(&ours.join("missing.json"), &ours).await.unwrap_err();
        assert!(matches!(missing, VaultCloudError::File { .. }), "{missing}");
        let outside = [
            theirs.join("env.json"),
            // The same error as for an existing file.
            theirs.join("missing.json"),
            ours.join("../theirs/env.json"),
            ours.join("planted.json"),
            PathBuf::from("env.json"),
        ];
        for path in outside {
            let error = load(&path, &ours).await.unwrap_err();
            assert!(
                matches!(error, VaultCloudError::OutsideEnvironmentDirectory { .. }),
                "{error}"
            );
            assert!(error.hint().unwrap().contains("--cloud-env-dir"));
        }
    }

    #[tokio::test]
    async fn fifo_oversized_and_procfs_files_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, large) = (folder.path().join("fifo"), folder.path().join("large"));
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let error = load(&fifo, folder.path()).await.unwrap_err();
        assert!(matches!(error, VaultCloudError::File { .. }), "{error}");
        fs::write(&large, vec![b' '; 64 * 1024 + 1]).unwrap();
        let error = load(&large, folder.path()).await.unwrap_err();
        assert!(matches!(error, VaultCloudError::TooLarge { .. }), "{error}");
        // The file reports a size of zero, and has as many bytes as the address space has pages.
        let pagemap = load(Path::new("/proc/self/pagemap"), Path::new("/proc")).await.unwrap_err();
        // The kernel returns multiples of eight bytes; the limit is not one.
        let is_cut =
            matches!(pagemap, VaultCloudError::TooLarge { .. } | VaultCloudError::File { .. });
        assert!(is_cut, "{pagemap}");
    }

    #[tokio::test]
    async fn named_cloud_needs_no_environment_file() {
        let cloud = VaultCloud::load(Cloud::China, Some("/does/not/exist"), Path::new("/etc"));
        let cloud = cloud.await.unwrap();
        assert_eq!(cloud.vault_url(&"KV-1".parse().unwrap()), "https://kv-1.vault.azure.cn/");
        assert_eq!(cloud.authority.to_string(), "https://login.chinacloudapi.cn/");
        let none = VaultCloud::load(Cloud::Stack, None, Path::new("/etc")).await.unwrap_err();
        assert!(matches!(none, VaultCloudError::EnvironmentFileNotSet), "{none}");
    }

    #[test]
    fn azure_stack_endpoints_come_from_the_environment_file() {
        let file = br#"{"name": "AzureStackCloud",
            "activeDirectoryEndpoint": "https://login.microsoftonline.com/",
            "keyVaultEndpoint": "https://vault.local.azurestack.external/",
            "keyVaultDNSSuffix": "vault.local.azurestack.external", "more": 1}"#;
        let cloud = VaultCloud::parse(file).unwrap();
        let url = cloud.vault_url(&"kv1".parse().unwrap());
        assert_eq!(url, "https://kv1.vault.local.azurestack.external/");
    }

    #[test]
    fn invalid_environment_file_is_not_quoted_in_errors() {
        let cases: [(&[u8], EnvironmentFileError); 4] = [
            (b"root:x:0:0:planted:/root:/bin/sh", EnvironmentFileError::NotJson),
            (b"{}", EnvironmentFileError::Authority),
            (br#"{"activeDirectoryEndpoint": "http://planted"}"#, EnvironmentFileError::Authority),
            (
                br#"{"activeDirectoryEndpoint": "https://a", "keyVaultDNSSuffix": "b/planted"}"#,
                EnvironmentFileError::VaultSuffix,
            ),
        ];
        for (content, problem) in cases {
            assert_eq!(VaultCloud::parse(content).unwrap_err(), problem);
            assert!(!problem.to_string().contains("planted"));
        }
    }
}
