//! The configuration file: the cloud, and the identity that the plugin uses for the vault.
//!
//! Keys and precedence match kubernetes-kms v0.11.0 and its OpenShift fork. The file is the cloud
//! provider's configuration, so the plugin ignores most of its keys.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;
use lanyard_credential::ManagedIdentityId;
use lanyard_credential::identity::{ClientId, TenantId};
use lanyard_credential::secret::SecretText;
use lanyard_vocabulary::Cloud;
use lanyard_vocabulary::cloud::CloudEndpoints;
use serde::Deserialize;

/// The cloud and identity from the configuration file.
#[derive(Debug)]
pub struct KmsConfiguration {
    /// The endpoints of the cloud.
    pub endpoints: &'static CloudEndpoints,
    /// The identity that the plugin uses for the vault.
    pub identity: VaultIdentity,
}

/// The identity that the plugin uses for the vault, in the order of precedence.
#[derive(Debug)]
#[non_exhaustive]
pub enum VaultIdentity {
    /// A workload identity: the federated token of the pod, as the environment configures it.
    Workload,
    /// A managed identity of the host; without an id, the metadata service selects it.
    ManagedIdentity(Option<ManagedIdentityId>),
    /// An application with a client secret.
    ClientSecret {
        tenant: TenantId,
        /// The application.
        client: ClientId,
        secret: SecretText,
    },
    /// The credential file of a hosted control plane, which is reloaded after each rotation.
    CredentialFile(PathBuf),
}

/// The configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KmsConfigurationError {
    /// The file is neither YAML nor JSON. The error has only the position, because the parser's
    /// message may quote a secret.
    #[error("line {line}, column {column}: not the YAML or JSON of a cloud configuration")]
    Syntax {
        /// The line, from 1; 0 if it is not known.
        line: u64,
        /// The column, from 1; 0 if it is not known.
        column: u64,
    },
    /// Some keys have unusable values.
    #[error("{}", join_problems(problems))]
    Keys {
        /// The problems of all keys.
        problems: Vec<ConfigurationKeyProblem>,
    },
}

/// A problem of one key of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationKeyProblem {
    pub key: &'static str,
    /// The problem. It quotes no value except that of `cloud`.
    pub problem: String,
}

impl fmt::Display for ConfigurationKeyProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}`: {}", self.key, self.problem)
    }
}

fn join_problems(problems: &[ConfigurationKeyProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ErrorHint for KmsConfigurationError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "set one of useWorkloadIdentityExtension, useManagedIdentityExtension, aadClientId with aadClientSecret, and aadMSIDataPlaneIdentityPath",
        ))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigurationFile {
    cloud: Option<String>,
    #[serde(rename = "tenantId")]
    tenant: Option<String>,
    #[serde(rename = "aadClientId")]
    client: Option<String>,
    #[serde(rename = "aadClientSecret")]
    secret: Option<String>,
    #[serde(rename = "useManagedIdentityExtension")]
    managed_identity: Option<bool>,
    #[serde(rename = "userAssignedIdentityID")]
    user_assigned: Option<String>,
    #[serde(rename = "useWorkloadIdentityExtension")]
    workload_identity: Option<bool>,
    #[serde(rename = "aadClientCertPath")]
    certificate: Option<String>,
    #[serde(rename = "aadClientCertPassword")]
    password: Option<String>,
    #[serde(rename = "aadMSIDataPlaneIdentityPath")]
    data_plane_identity: Option<PathBuf>,
}

impl KmsConfiguration {
    /// Parses the content of the file. Ignores unknown keys.
    ///
    /// # Errors
    ///
    /// [`KmsConfigurationError`] with the problems of all keys that the plugin uses.
    pub fn parse(text: &str) -> Result<Self, KmsConfigurationError> {
        let file: Option<ConfigurationFile> = serde_saphyr::from_str(text).map_err(|error| {
            let position = error.location();
            KmsConfigurationError::Syntax {
                line: position.map_or(0, |position| position.line()),
                column: position.map_or(0, |position| position.column()),
            }
        })?;
        let file = file.unwrap_or_default();
        let mut problems = Vec::new();
        let endpoints = find_endpoints(&file, &mut problems);
        let identity = select_identity(file, &mut problems);
        match (endpoints, identity) {
            (Some(endpoints), Some(identity)) if problems.is_empty() => {
                Ok(Self { endpoints, identity })
            }
            _ => Err(KmsConfigurationError::Keys { problems }),
        }
    }
}

fn find_endpoints(
    file: &ConfigurationFile,
    problems: &mut Vec<ConfigurationKeyProblem>,
) -> Option<&'static CloudEndpoints> {
    let name = file.cloud.as_deref().unwrap_or_default().trim();
    let is_fork_name = name.eq_ignore_ascii_case("AzureGovernmentCloud");
    let cloud =
        if is_fork_name { Some(Cloud::UsGovernment) } else { Cloud::parse_provider_name(name) };
    let problem = match cloud {
        None => format!("`{name}` is not a known cloud"),
        Some(cloud) => match cloud.endpoints() {
            Some(endpoints) => return Some(endpoints),
            None => "Azure Stack is not supported: it has no fixed endpoints".to_owned(),
        },
    };
    problems.push(ConfigurationKeyProblem { key: "cloud", problem });
    None
}

/// Selects the first identity that the file configures, in the precedence of the other plugins.
fn select_identity(
    file: ConfigurationFile,
    problems: &mut Vec<ConfigurationKeyProblem>,
) -> Option<VaultIdentity> {
    let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    if file.workload_identity == Some(true) {
        return Some(VaultIdentity::Workload);
    }
    if file.managed_identity == Some(true) {
        let id = file.user_assigned.filter(|id| !id.is_empty());
        return Some(VaultIdentity::ManagedIdentity(id.map(managed_identity_id)));
    }
    let secret = file.secret.map(SecretText::from).filter(|secret| !secret.is_empty());
    if let (Some(secret), true) = (secret, given(&file.client)) {
        return client_secret(file.tenant, file.client, secret, problems);
    }
    let password = file.password.map(SecretText::from);
    let has_password = password.is_some_and(|password| !password.is_empty());
    if given(&file.certificate) && has_password {
        let problem = "a certificate file with a password is not supported: use aadMSIDataPlaneIdentityPath, which rotates";
        problems.push(ConfigurationKeyProblem {
            key: "aadClientCertPath",
            problem: problem.to_owned(),
        });
        return None;
    }
    if let Some(path) = file.data_plane_identity.filter(|path| !path.as_os_str().is_empty()) {
        return Some(VaultIdentity::CredentialFile(path));
    }
    let problem = "no credentials provided for accessing keyvault".to_owned();
    problems.push(ConfigurationKeyProblem { key: "aadMSIDataPlaneIdentityPath", problem });
    None
}

/// A client id, or an ARM resource id, which cloud configurations may also contain here.
fn managed_identity_id(text: String) -> ManagedIdentityId {
    if text.starts_with('/') {
        ManagedIdentityId::ResourceId(text)
    } else {
        ManagedIdentityId::ClientId(text)
    }
}

fn client_secret(
    tenant: Option<String>,
    client: Option<String>,
    secret: SecretText,
    problems: &mut Vec<ConfigurationKeyProblem>,
) -> Option<VaultIdentity> {
    let mut refuse = |key, problem: &dyn fmt::Display| {
        problems.push(ConfigurationKeyProblem { key, problem: problem.to_string() });
    };
    let tenant: Result<TenantId, _> = tenant.unwrap_or_default().parse();
    let client: Result<ClientId, _> = client.unwrap_or_default().parse();
    if let Err(error) = &tenant {
        refuse("tenantId", error);
    }
    if let Err(error) = &client {
        refuse("aadClientId", error);
    }
    let (Ok(tenant), Ok(client)) = (tenant, client) else { return None };
    Some(VaultIdentity::ClientSecret { tenant, client, secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity_summary(text: &str) -> String {
        match KmsConfiguration::parse(text) {
            Ok(KmsConfiguration { identity, .. }) => match identity {
                VaultIdentity::Workload => "workload".to_owned(),
                VaultIdentity::ManagedIdentity(id) => format!("managed {id:?}"),
                VaultIdentity::ClientSecret { tenant, client, .. } => {
                    format!("secret {tenant} {client}")
                }
                VaultIdentity::CredentialFile(path) => format!("file {}", path.display()),
            },
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn first_configured_identity_is_used() {
        let all = "useWorkloadIdentityExtension: true\nuseManagedIdentityExtension: true\naadClientId: c\naadClientSecret: s\ntenantId: t\naadClientCertPath: /c\naadClientCertPassword: p\naadMSIDataPlaneIdentityPath: /f\n";
        let without = |lines: usize| {
            all.lines().skip(lines).chain(["tenantId: t"]).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(identity_summary(all), "workload");
        assert_eq!(identity_summary(&without(1).replacen("\ntenantId: t", "", 1)), "managed None");
        assert_eq!(identity_summary(&without(2).replacen("\ntenantId: t", "", 1)), "secret t c");
        let no_secret =
            "aadClientCertPath: /c\naadClientCertPassword: p\naadMSIDataPlaneIdentityPath: /f";
        assert!(
            identity_summary(no_secret).starts_with("`aadClientCertPath`: "),
            "{}",
            identity_summary(no_secret)
        );
        let file = "aadClientId: \"\"\naadClientCertPath: \"\"\naadMSIDataPlaneIdentityPath: /f";
        assert_eq!(identity_summary(file), "file /f");
    }

    #[test]
    fn hosted_control_plane_file_is_accepted() {
        let text = r#"{
            "cloud": "AzureUSGovernmentCloud", "tenantId": "t", "useManagedIdentityExtension": false,
            "useWorkloadIdentityExtension": false, "subscriptionID": "s", "aadClientId": "",
            "aadClientCertPath": "", "aadMSIDataPlaneIdentityPath": "/mnt/certs/kms",
            "routeTableName": "", "cloudProviderBackoff": true, "cloudProviderBackoffDuration": 6,
            "useInstanceMetadata": false, "disableOutboundSNAT": true }"#;
        let read = KmsConfiguration::parse(text).unwrap();
        assert_eq!(read.endpoints.vault_suffix, "vault.usgovcloudapi.net");
        assert!(
            matches!(read.identity, VaultIdentity::CredentialFile(path) if path.ends_with("kms"))
        );
    }

    #[test]
    fn cloud_names_of_both_plugins_are_accepted() {
        let suffix = |cloud: &str| {
            let text = format!("cloud: '{cloud}'\nuseManagedIdentityExtension: true");
            KmsConfiguration::parse(&text).map(|read| read.endpoints.vault_suffix).ok()
        };
        for (name, expected) in [
            ("", Some("vault.azure.net")),
            ("azurepubliccloud", Some("vault.azure.net")),
            ("AzureCloud", Some("vault.azure.net")),
            ("AzureUSGovernment", Some("vault.usgovcloudapi.net")),
            ("AzureGovernmentCloud", Some("vault.usgovcloudapi.net")),
            ("AZURECHINACLOUD", Some("vault.azure.cn")),
            ("AzureGermanCloud", Some("vault.microsoftazure.de")),
            ("AzureStackCloud", None),
            ("AzureMoonCloud", None),
        ] {
            assert_eq!(suffix(name), expected, "{name}");
        }
    }

    #[test]
    fn all_problems_are_reported_without_secrets() {
        let text = "cloud: Moon\naadClientId: 'a b'\naadClientSecret: planted-4711\ntenantId: ''";
        let error = KmsConfiguration::parse(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`cloud`: `Moon` is not a known cloud; `tenantId`: the id is empty; `aadClientId`: character 2 of the id is not allowed"
        );
        let broken = "aadClientSecret: [planted-4711\ncloud: x";
        let error = KmsConfiguration::parse(broken).unwrap_err();
        assert!(matches!(error, KmsConfigurationError::Syntax { .. }));
        assert!(!format!("{error:?} {error}").contains("planted"), "{error:?}");
    }

    #[test]
    fn empty_configuration_is_rejected() {
        for text in ["", "{}", "cloud: AzurePublicCloud", "useManagedIdentityExtension: false"] {
            let summary = identity_summary(text);
            assert!(
                summary.ends_with("no credentials provided for accessing keyvault"),
                "{summary}"
            );
        }
    }

    #[test]
    fn an_arm_id_and_a_client_id_both_name_a_managed_identity() {
        let summary = |id: &str| {
            identity_summary(&format!(
                "useManagedIdentityExtension: true\nuserAssignedIdentityID: {id}"
            ))
        };
        assert_eq!(summary("c-1"), "managed Some(ClientId(\"c-1\"))");
        assert_eq!(summary("/subscriptions/s"), "managed Some(ResourceId(\"/subscriptions/s\"))");
    }
}
