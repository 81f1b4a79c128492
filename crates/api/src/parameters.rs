//! The parameters of a SecretProviderClass for Azure Key Vault: parsing and rendering.
//!
//! Keys and syntax are those of the upstream provider. Keys are case-sensitive, values are trimmed,
//! and parsing reports all problems at once.

use std::collections::BTreeMap;
use std::fmt;

use lanyard_vocabulary::{Cloud, EntraClientId, EntraTenantId, VaultName};

use crate::ParameterProblem;
use crate::objects::{VaultObjectEntry, parse_objects, render_objects};

#[cfg(test)]
mod tests;

/// The parsed parameters of a SecretProviderClass for Azure Key Vault.
///
/// ```
/// use lanyard_api::parameters::{IdentityMode, ProviderParameters};
///
/// let parameters = [
///     ("useVMManagedIdentity", "true"),
///     ("keyvaultName", "hcp-vault"),
///     ("tenantId", "11111111-2222-3333-4444-555555555555"),
///     ("objects", "array:\n  - |\n    objectName: cpo\n    objectType: secret\n"),
/// ];
/// let map = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
/// let parameters = ProviderParameters::parse(&map)?;
/// assert_eq!(parameters.identity, IdentityMode::ManagedIdentity { client_id: None });
/// assert_eq!(parameters.objects[0].file_name(), "cpo");
/// # Ok::<(), lanyard_api::parameters::ParameterProblems>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderParameters {
    /// The identity that reads the vault.
    pub identity: IdentityMode,
    /// `keyvaultName`.
    pub vault_name: VaultName,
    /// The tenant of the vault, which may differ from the cluster's tenant: `tenantID`, or
    /// `tenantId` if the former is empty. `adfs` on Azure Stack.
    pub tenant: EntraTenantId,
    /// `cloudName`; `None` means the provider's default, which is the public cloud unless the
    /// provider was started for another cloud.
    pub cloud: Option<Cloud>,
    /// `cloudEnvFileName`: a file with the endpoints, for Azure Stack.
    pub cloud_env_file: Option<String>,
    /// `objects`: never empty; no two entries write the same path.
    pub objects: Vec<VaultObjectEntry>,
}

/// The identity that reads the vault. The modes are mutually exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityMode {
    /// `useVMManagedIdentity`: a managed identity of the node, through the instance metadata
    /// service.
    ManagedIdentity {
        /// `userAssignedIdentityID`; `None` means the system-assigned identity.
        client_id: Option<EntraClientId>,
    },
    /// `clientID` alone: the provider exchanges the pod's service account token.
    WorkloadIdentity {
        /// `clientID`.
        client_id: EntraClientId,
    },
    /// `useAzureTokenProxy`: workload identity through the token proxy of the cluster.
    IdentityBinding {
        /// `clientID`.
        client_id: EntraClientId,
    },
    /// No mode parameter: client id and secret come from the volume's `nodePublishSecretRef`.
    ServicePrincipal,
    /// `usePodIdentity`: the retired AAD Pod Identity.
    PodIdentity,
}

impl ProviderParameters {
    /// Parses the parameters. Unknown keys are ignored, as in the upstream provider.
    ///
    /// # Errors
    /// Returns every problem of every key and of every entry of `objects`.
    pub fn parse(parameters: &BTreeMap<String, String>) -> Result<Self, ParameterProblems> {
        let mut reader = ParameterReader { parameters, problems: Vec::new() };
        let identity = reader.read_identity_mode();
        let vault_name = reader.read_required(&["keyvaultName"]);
        let tenant = reader.read_required(&["tenantID", "tenantId"]);
        let cloud = reader.read_cloud();
        let cloud_env_file = reader.trimmed_value("cloudEnvFileName").map(str::to_owned);
        let text = reader.trimmed_value("objects").unwrap_or_default();
        let objects = parse_objects(text, &mut reader.problems);
        match (identity, vault_name, tenant) {
            (Some(identity), Some(vault_name), Some(tenant)) if reader.problems.is_empty() => {
                Ok(Self { identity, vault_name, tenant, cloud, cloud_env_file, objects })
            }
            _ => Err(ParameterProblems(reader.problems)),
        }
    }

    /// Renders the parameters: the six keys that HyperShift's operators write for a managed
    /// identity, and other keys only if the value needs them.
    pub fn to_parameters(&self) -> BTreeMap<String, String> {
        let (user_assigned, client_id) = match &self.identity {
            IdentityMode::ManagedIdentity { client_id } => (*client_id, None),
            IdentityMode::WorkloadIdentity { client_id }
            | IdentityMode::IdentityBinding { client_id } => (None, Some(*client_id)),
            IdentityMode::ServicePrincipal | IdentityMode::PodIdentity => (None, None),
        };
        let is_pod = self.identity == IdentityMode::PodIdentity;
        let is_managed = matches!(self.identity, IdentityMode::ManagedIdentity { .. });
        let is_binding = matches!(self.identity, IdentityMode::IdentityBinding { .. });
        let text = |client: Option<EntraClientId>| client.map(|client| client.to_string());
        let six = [
            ("usePodIdentity", Some(is_pod.to_string())),
            ("useVMManagedIdentity", Some(is_managed.to_string())),
            ("userAssignedIdentityID", Some(text(user_assigned).unwrap_or_default())),
            ("keyvaultName", Some(self.vault_name.to_string())),
            ("tenantId", Some(self.tenant.to_string())),
            ("objects", Some(render_objects(&self.objects))),
        ];
        let others = [
            ("clientID", text(client_id)),
            ("useAzureTokenProxy", is_binding.then(|| true.to_string())),
            ("cloudName", self.cloud.map(|cloud| cloud.name().to_owned())),
            ("cloudEnvFileName", self.cloud_env_file.clone()),
        ];
        six.into_iter()
            .chain(others)
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }
}

/// All problems of the parameters of a SecretProviderClass; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ParameterProblems(Vec<ParameterProblem>);

impl ParameterProblems {
    /// Returns the problems, in the order of the keys and of the entries.
    pub fn problems(&self) -> &[ParameterProblem] {
        &self.0
    }
}

impl fmt::Display for ParameterProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&problems.join("; "))
    }
}

struct ParameterReader<'a> {
    parameters: &'a BTreeMap<String, String>,
    problems: Vec<ParameterProblem>,
}

impl<'a> ParameterReader<'a> {
    /// Returns the trimmed value; `None` if it is absent or blank.
    fn trimmed_value(&self, key: &str) -> Option<&'a str> {
        self.parameters.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn read_identity_mode(&mut self) -> Option<IdentityMode> {
        const MODES: [&str; 3] = ["usePodIdentity", "useVMManagedIdentity", "useAzureTokenProxy"];
        let switches = MODES.map(|key| self.read_boolean(key));
        let chosen: Vec<_> =
            MODES.into_iter().zip(switches).filter(|(_, on)| *on == Some(true)).collect();
        if chosen.len() > 1 {
            let keys = chosen.into_iter().map(|(key, _)| key).collect();
            self.problems.push(ParameterProblem::MultipleIdentityModes { keys });
            return None;
        }
        match switches {
            [None, ..] | [_, None, _] | [.., None] => None,
            [Some(true), ..] => Some(IdentityMode::PodIdentity),
            [_, Some(true), _] => {
                let client_id = self.read_optional("userAssignedIdentityID").ok()?;
                Some(IdentityMode::ManagedIdentity { client_id })
            }
            [.., Some(true)] => {
                let client_id = self.read_required(&["clientID"])?;
                Some(IdentityMode::IdentityBinding { client_id })
            }
            _ => Some(match self.read_optional("clientID").ok()? {
                Some(client_id) => IdentityMode::WorkloadIdentity { client_id },
                None => IdentityMode::ServicePrincipal,
            }),
        }
    }

    /// Parses a boolean like Go's `strconv.ParseBool`; a blank value is false.
    fn read_boolean(&mut self, key: &'static str) -> Option<bool> {
        match self.trimmed_value(key).unwrap_or("false") {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
            text => {
                let text = text.to_owned();
                self.problems.push(ParameterProblem::NotBoolean { key, text });
                None
            }
        }
    }

    fn read_cloud(&mut self) -> Option<Cloud> {
        let text = self.trimmed_value("cloudName")?;
        let cloud = Cloud::parse_provider_name(text);
        if cloud.is_none() {
            let known = Cloud::ALL.map(|cloud| format!("`{cloud}`")).join(", ");
            let reason = format!("`{text}` is not a cloud; known: {known}");
            self.problems.push(ParameterProblem::Invalid { key: "cloudName", reason });
        }
        cloud
    }

    /// Parses the value of the first key that has one.
    fn read_required<T: std::str::FromStr<Err: fmt::Display>>(
        &mut self,
        keys: &[&'static str],
    ) -> Option<T> {
        if let Some(key) = keys.iter().find(|key| self.trimmed_value(key).is_some()) {
            return self.read_optional(key).ok()?;
        }
        let key = keys[0];
        let similar = self.parameters.iter().find_map(|(known, value)| {
            (known.eq_ignore_ascii_case(key) && !value.trim().is_empty()).then(|| known.clone())
        });
        self.problems.push(ParameterProblem::Missing { key, similar });
        None
    }

    /// Parses the value if the key has one.
    fn read_optional<T: std::str::FromStr<Err: fmt::Display>>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, ProblemRecorded> {
        let Some(text) = self.trimmed_value(key) else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let reason = error.to_string();
                self.problems.push(ParameterProblem::Invalid { key, reason });
                Err(ProblemRecorded)
            }
        }
    }
}

/// Marker error: the reader has already recorded the problem.
struct ProblemRecorded;
