//! Where a component finds its credential file, and how it learns that.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// How a component learns where its credential file is.
///
/// The places are read when the component starts, and so they are here: a canary keeps to the path
/// that it learned, as a driver keeps to the configuration that it parsed. Only a place that gave
/// no path is asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialFileLocation {
    /// It is told the path.
    File(PathBuf),
    /// An environment variable holds the path.
    Variable {
        /// The name of the variable.
        name: String,
        /// Its value, if it is set.
        value: Option<OsString>,
    },
    /// The key `aadMSIDataPlaneIdentityPath` of a cloud configuration (`cloud.conf`, `azure.json`)
    /// holds the path.
    CloudConfig(PathBuf),
}

/// A component would not learn where its credential file is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialLocationError {
    /// The variable is not there.
    #[error("the environment variable {name} is not set")]
    Unset {
        /// The variable.
        name: String,
    },
    /// The variable holds something else than a path.
    #[error("the environment variable {name} holds a bare name and not a path")]
    BareName {
        /// The variable.
        name: String,
    },
    /// The cloud configuration cannot be read.
    #[error("cannot read the cloud configuration {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The cloud configuration leads to no credential file.
    #[error("the cloud configuration {} leads to no credential file", path.display())]
    CloudConfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CloudConfigError,
    },
}

/// Why a cloud configuration leads to no credential file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloudConfigError {
    /// It is not a mapping in JSON or YAML. What it holds is not repeated: it may be a secret.
    #[error("it is no mapping in JSON or YAML")]
    Unparsable,
    /// The key is absent or empty.
    #[error("`{IDENTITY_PATH}` is absent or empty")]
    NoPath,
    /// Another way to sign in stands before it.
    #[error("`{key}` comes before `{IDENTITY_PATH}`")]
    Overridden {
        /// The key that asks for the other way.
        key: &'static str,
    },
}

/// The key with the path.
const IDENTITY_PATH: &str = "aadMSIDataPlaneIdentityPath";

/// The ways to sign in that the readers of cloud configurations try before the credential file.
/// Source: `pkg/azclient/auth.go` of cloud-provider-azure; the KMS plugin spells the first one
/// differently.
const PRECEDING_AUTH_KEYS: [&str; 5] = [
    "useFederatedWorkloadIdentityExtension",
    "useWorkloadIdentityExtension",
    "useManagedIdentityExtension",
    "aadClientSecret",
    "aadClientCertPath",
];

impl CredentialFileLocation {
    /// The path, as the component would learn it now.
    ///
    /// # Errors
    ///
    /// Why it would learn none.
    pub fn resolve_path(&self) -> Result<PathBuf, CredentialLocationError> {
        match self {
            Self::File(path) => Ok(path.clone()),
            Self::Variable { name, value } => {
                let value = value.as_ref().filter(|value| !value.is_empty());
                let value =
                    value.ok_or_else(|| CredentialLocationError::Unset { name: name.clone() })?;
                let path = PathBuf::from(value);
                // The network operator's variable of this name holds the bare name of the secret.
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
    /// A stable word for it.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unset { .. } | Self::BareName { .. } => "CredentialPathUnknown",
            Self::Unreadable { .. } | Self::CloudConfig { .. } => "CloudConfigUnusable",
        }
    }

    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unset { .. } => "set it in the container to the path of the file in the mount",
            Self::BareName { .. } => {
                "give the full path: only the network operator takes the bare name of the secret"
            }
            Self::Unreadable { .. } => {
                "see that the Secret with the configuration is mounted there"
            }
            Self::CloudConfig { source: CloudConfigError::Unparsable, .. } => {
                "see what the Secret holds: it must be JSON"
            }
            Self::CloudConfig { source: CloudConfigError::NoPath, .. } => {
                "set it to the path of the file in the mount"
            }
            Self::CloudConfig { source: CloudConfigError::Overridden { .. }, .. } => {
                "set that key to false or to an empty text: the component would never read the file"
            }
        }
    }
}

fn load_from_cloud_config(path: &Path) -> Result<PathBuf, CredentialLocationError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| CredentialLocationError::Unreadable { path: path.to_owned(), source })?;
    parse_cloud_config(&text)
        .map_err(|source| CredentialLocationError::CloudConfig { path: path.to_owned(), source })
}

/// The path of the credential file in a cloud configuration.
fn parse_cloud_config(text: &str) -> Result<PathBuf, CloudConfigError> {
    let value: Value = serde_saphyr::from_str(text).or(Err(CloudConfigError::Unparsable))?;
    let config = value.as_object().ok_or(CloudConfigError::Unparsable)?;
    // Go reads the keys of JSON in any case, and prefers the one that is spelled as declared.
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
        let place = |value: Option<&str>| CredentialFileLocation::Variable {
            name: name.to_owned(),
            value: value.map(OsString::from),
        };
        let path = place(Some("/mnt/certs/ingress-creds")).resolve_path().unwrap();
        assert_eq!(path, Path::new("/mnt/certs/ingress-creds"));
        for (value, told) in
            [(Some("network-creds"), "bare name"), (Some(""), "not set"), (None, "not set")]
        {
            let error = place(value).resolve_path().unwrap_err();
            assert!(
                error.to_string().contains(told) && error.to_string().contains(name),
                "{error}"
            );
            assert!(!error.to_string().contains("network-creds"), "the value is not repeated");
        }
    }

    #[test]
    fn missing_cloud_configuration_is_named() {
        let place = CredentialFileLocation::CloudConfig("/nonexistent/cloud.conf".into());
        let error = place.resolve_path().unwrap_err();
        assert_eq!(error.code(), "CloudConfigUnusable");
        assert_eq!(
            error.to_string(),
            "cannot read the cloud configuration /nonexistent/cloud.conf"
        );
    }
}
