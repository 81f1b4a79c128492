//! Finds the credential file of a component as the component itself does.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use lanyard_clock::ErrorHint;
use serde_json::Value;

/// How a component finds its credential file.
///
/// A component resolves the path once, when it starts, and keeps it, as a driver keeps its parsed
/// configuration. The canary does the same; it resolves the path again only while that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialFileLocation {
    /// The path is given.
    File(PathBuf),
    /// An environment variable contains the path.
    Variable {
        /// The name of the variable.
        name: String,
        /// Its value, if it is set.
        value: Option<OsString>,
    },
    /// The key `aadMSIDataPlaneIdentityPath` of a cloud configuration (`cloud.conf`, `azure.json`)
    /// contains the path.
    CloudConfig(PathBuf),
}

/// A component could not find its credential file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialLocationError {
    /// The environment variable is not set or empty.
    #[error("the environment variable `{name}` is not set")]
    Unset {
        /// The variable.
        name: String,
    },
    /// The environment variable contains a file name without a directory.
    #[error("the environment variable `{name}` contains a bare name, not a path")]
    BareName {
        /// The variable.
        name: String,
    },
    /// The cloud configuration cannot be read.
    #[error("cannot read the cloud configuration {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The cloud configuration names no credential file.
    #[error("the cloud configuration {} names no credential file", path.display())]
    CloudConfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CloudConfigError,
    },
}

/// Why a cloud configuration names no credential file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloudConfigError {
    /// The content is not a JSON or YAML mapping. The error does not quote it, because it may
    /// contain secrets.
    #[error("it is not a JSON or YAML mapping")]
    Unparsable,
    /// The key is absent or empty.
    #[error("`{IDENTITY_PATH}` is absent or empty")]
    NoPath,
    /// The configuration enables an authentication method that takes precedence.
    #[error("`{key}` takes precedence over `{IDENTITY_PATH}`")]
    Overridden {
        /// The key that enables the other method.
        key: &'static str,
    },
}

const IDENTITY_PATH: &str = "aadMSIDataPlaneIdentityPath";

/// The authentication methods that readers of cloud configurations try before the credential file.
/// Source: `pkg/azclient/auth.go` of cloud-provider-azure; the KMS plugin spells the first key
/// differently.
const PRECEDING_AUTH_KEYS: [&str; 5] = [
    "useFederatedWorkloadIdentityExtension",
    "useWorkloadIdentityExtension",
    "useManagedIdentityExtension",
    "aadClientSecret",
    "aadClientCertPath",
];

impl CredentialFileLocation {
    /// Returns the path that the component would use if it started now.
    ///
    /// # Errors
    ///
    /// [`CredentialLocationError`] if the component would find no path.
    pub fn resolve_path(&self) -> Result<PathBuf, CredentialLocationError> {
        match self {
            Self::File(path) => Ok(path.clone()),
            Self::Variable { name, value } => {
                let value = value.as_ref().filter(|value| !value.is_empty());
                let value =
                    value.ok_or_else(|| CredentialLocationError::Unset { name: name.clone() })?;
                let path = PathBuf::from(value);
                // The network operator's variable of this name contains only the file name of the
                // credential.
                if path.components().count() == 1 {
                    return Err(CredentialLocationError::BareName { name: name.clone() });
                }
                Ok(path)
            }
            Self::CloudConfig(path) => load_from_cloud_config(path),
        }
    }
}

impl CredentialLocationError {
    /// The error code for reports.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unset { .. } | Self::BareName { .. } => "CredentialPathUnknown",
            Self::Unreadable { .. } | Self::CloudConfig { .. } => "CloudConfigUnusable",
        }
    }
}

impl ErrorHint for CredentialLocationError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unset { .. } => "set it in the container to the path of the file in the mount",
            Self::BareName { .. } => {
                "set it to the full path: only the network operator accepts the bare name of the secret"
            }
            Self::Unreadable { .. } => {
                "check that the Secret with the configuration is mounted there"
            }
            Self::CloudConfig { source: CloudConfigError::Unparsable, .. } => {
                "check the content of the Secret: it must be JSON"
            }
            Self::CloudConfig { source: CloudConfigError::NoPath, .. } => {
                "set it to the path of the file in the mount"
            }
            Self::CloudConfig { source: CloudConfigError::Overridden { .. }, .. } => {
                "set that key to false or to an empty string: with it, the component never reads the file"
            }
        }))
    }
}

fn load_from_cloud_config(path: &Path) -> Result<PathBuf, CredentialLocationError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| CredentialLocationError::Unreadable { path: path.to_owned(), source })?;
    parse_cloud_config(&text)
        .map_err(|source| CredentialLocationError::CloudConfig { path: path.to_owned(), source })
}

/// Extracts the path of the credential file from a cloud configuration.
fn parse_cloud_config(text: &str) -> Result<PathBuf, CloudConfigError> {
    let value: Value = serde_saphyr::from_str(text).or(Err(CloudConfigError::Unparsable))?;
    let config = value.as_object().ok_or(CloudConfigError::Unparsable)?;
    // Go matches JSON keys case-insensitively and prefers the key that is spelled as declared.
    let find = |name: &str| {
        let loose = || config.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        config.get(name).or_else(|| loose().map(|(_, value)| value))
    };
    let is_on = |name: &&&str| match find(name) {
        Some(Value::Bool(on)) => *on,
        Some(Value::String(text)) => !text.is_empty(),
        _ => false,
    };
    if let Some(key) = PRECEDING_AUTH_KEYS.iter().find(is_on) {
        return Err(CloudConfigError::Overridden { key });
    }
    match find(IDENTITY_PATH).and_then(Value::as_str) {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(CloudConfigError::NoPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_configuration_resolves_like_its_reader() {
        use CloudConfigError::{NoPath, Overridden, Unparsable};
        let cases = [
            (r#"{"aadMSIDataPlaneIdentityPath": "/mnt/certs/disk"}"#, Ok("/mnt/certs/disk")),
            ("aadMSIDataPlaneIdentityPath: /mnt/certs/kms\ncloud: x\n", Ok("/mnt/certs/kms")),
            (r#"{"aadmsidataplaneidentitypath": "/a/b"}"#, Ok("/a/b")),
            (
                r#"{"AADMSIDATAPLANEIDENTITYPATH": "/no", "aadMSIDataPlaneIdentityPath": "/yes"}"#,
                Ok("/yes"),
            ),
            (r#"{"aadMSIDataPlaneIdentityPath": ""}"#, Err(NoPath)),
            (r#"{"cloud": "AzurePublicCloud"}"#, Err(NoPath)),
            (r#"["a"]"#, Err(Unparsable)),
            ("{", Err(Unparsable)),
            (
                r#"{"useManagedIdentityExtension": true, "aadMSIDataPlaneIdentityPath": "/a"}"#,
                Err(Overridden { key: "useManagedIdentityExtension" }),
            ),
            (
                r#"{"useManagedIdentityExtension": false, "aadClientSecret": "", "aadMSIDataPlaneIdentityPath": "/a"}"#,
                Ok("/a"),
            ),
            (
                r#"{"aadClientSecret": "planted", "aadMSIDataPlaneIdentityPath": "/a"}"#,
                Err(Overridden { key: "aadClientSecret" }),
            ),
            (
                r#"{"useWorkloadIdentityExtension": true, "useManagedIdentityExtension": true}"#,
                Err(Overridden { key: "useWorkloadIdentityExtension" }),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_cloud_config(text), expected.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn bare_name_in_variable_is_rejected() {
        let name = "MANAGED_AZURE_HCP_CREDENTIALS_FILE_PATH";
        let location = |value: Option<&str>| CredentialFileLocation::Variable {
            name: name.to_owned(),
            value: value.map(OsString::from),
        };
        let path = location(Some("/mnt/certs/ingress-creds")).resolve_path().unwrap();
        assert_eq!(path, Path::new("/mnt/certs/ingress-creds"));
        for (value, expected) in
            [(Some("network-creds"), "bare name"), (Some(""), "not set"), (None, "not set")]
        {
            let error = location(value).resolve_path().unwrap_err();
            assert!(
                error.to_string().contains(expected) && error.to_string().contains(name),
                "{error}"
            );
            assert!(!error.to_string().contains("network-creds"), "the value is not repeated");
        }
    }

    #[test]
    fn missing_cloud_configuration_is_named() {
        let location = CredentialFileLocation::CloudConfig("/nonexistent/cloud.conf".into());
        let error = location.resolve_path().unwrap_err();
        assert_eq!(error.code(), "CloudConfigUnusable");
        assert_eq!(
            error.to_string(),
            "cannot read the cloud configuration /nonexistent/cloud.conf"
        );
    }
}
