//! The identity files that HyperShift's commands exchange: identities of the control plane and of the worker
//! nodes of an ARO HCP cluster, and the workload identities of a self-managed cluster.

use std::collections::BTreeMap;
use std::fmt;

use lanyard_vocabulary::{
    Component, EntraClientId, EntraTenantId, ObjectEncoding, SecretName, VaultName,
};
use serde::{Deserialize, Serialize};

use crate::role_assignments::RoleIdentity;
use crate::workload_identities::{DataPlaneIdentity, workload_identities};

/// An identity file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityFileError {
    /// The text is neither JSON nor YAML, or a field is unknown or has another type.
    #[error("{0}")]
    Syntax(String),
    /// The values of some fields are missing or invalid.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fields(Vec<IdentityFieldProblem>),
}

/// The problem of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFieldProblem {
    /// The path of the field.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for IdentityFieldProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` {}", self.field, self.problem)
    }
}

/// A file was read, although the reference system would read it differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintNote {
    /// The path of the field; empty for the whole file.
    pub field: String,
    /// How the field was understood.
    pub note: String,
}

impl fmt::Display for LintNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => formatter.write_str(&self.note),
            field => write!(formatter, "`{field}`: {}", self.note),
        }
    }
}

/// The identity of a component of the control plane: a service principal with a certificate in a vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneIdentity {
    /// The certificate in the vault. HyperShift ignores the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_name: Option<String>,
    /// The application (client) id.
    #[serde(rename = "clientID")]
    pub client_id: EntraClientId,
    /// The vault secret with the credential.
    pub credentials_secret_name: SecretName,
    /// The encoding of the secret's value.
    pub object_encoding: ObjectEncoding,
}

/// The vault of the control plane's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdentityVault {
    /// The name of the vault.
    pub name: VaultName,
    /// The tenant of the vault.
    #[serde(rename = "tenantID")]
    pub tenant: EntraTenantId,
}

/// The identities of an ARO HCP cluster's control plane (`--managed-identities-file`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneIdentities {
    /// The vault of the credentials.
    pub vault: IdentityVault,
    /// The identities of all components but KMS.
    pub identities: BTreeMap<Component, ControlPlaneIdentity>,
}

/// The identities of an ARO HCP cluster's worker nodes (`--data-plane-identities-file`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPlaneIdentities(pub BTreeMap<DataPlaneIdentity, EntraClientId>);

/// The identities of a self-managed cluster (`--workload-identities-file`), the output of `create iam azure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadIdentities(pub BTreeMap<Component, EntraClientId>);

/// The components in the order of the file.
fn control_plane_components() -> impl Iterator<Item = Component> {
    Component::ALL.into_iter().filter(|component| *component != Component::Kms)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawIdentity {
    certificate_name: Option<String>,
    #[serde(rename = "clientID")]
    client_id: Option<String>,
    credentials_secret_name: Option<String>,
    object_encoding: Option<String>,
    #[serde(flatten)]
    unknown: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawVault {
    name: Option<String>,
    #[serde(rename = "tenantID")]
    tenant: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawControlPlaneFile {
    control_plane: Option<Box<Self>>,
    data_plane: Option<BTreeMap<String, String>>,
    managed_identities_key_vault: Option<RawVault>,
    #[serde(flatten)]
    identities: BTreeMap<String, RawIdentity>,
}

impl ControlPlaneIdentities {
    /// Parses JSON or YAML. The file has the identities at its top level; the form with `controlPlane` and
    /// `dataPlane`, which HyperShift's documentation shows and its code reads as empty, is accepted with a note,
    /// and its identities of the worker nodes are returned as well.
    ///
    /// # Errors
    ///
    /// [`IdentityFileError`] names every field with a problem.
    pub fn parse(
        text: &str,
    ) -> Result<(Self, Option<DataPlaneIdentities>, Vec<LintNote>), IdentityFileError> {
        let mut raw: RawControlPlaneFile = parse_text(text)?;
        let mut fields = FieldReader::default();
        let data_plane =
            raw.data_plane.take().map(|ids| fields.read_data_plane("dataPlane.", &ids));
        let (inner, prefix) = match raw.control_plane.take() {
            Some(inner) => {
                let note = "read as the control plane identities file; HyperShift expects its content at the top level";
                fields.note("controlPlane", note);
                for name in raw.identities.keys() {
                    fields.problem(name, "is not known next to `controlPlane`");
                }
                (*inner, "controlPlane.")
            }
            None => (raw, ""),
        };
        let vault = fields.read_vault(prefix, inner.managed_identities_key_vault);
        let identities = fields.read_identities(prefix, inner.identities);
        fields.note_equal_ids(
            identities
                .iter()
                .map(|(component, it)| (format!("{prefix}{component}.clientID"), it.client_id)),
        );
        fields.note_unusual_secrets(prefix, &identities);
        match vault {
            Some(vault) if fields.problems.is_empty() => {
                Ok((Self { vault, identities }, data_plane, fields.notes))
            }
            _ => Err(IdentityFileError::Fields(fields.problems)),
        }
    }

    /// The file as JSON with an indentation of two spaces.
    pub fn to_json(&self) -> String {
        let mut document = serde_json::Map::new();
        for (component, identity) in &self.identities {
            let identity = serde_json::to_value(identity).unwrap_or_default();
            document.insert(component.name().to_owned(), identity);
        }
        let vault = serde_json::to_value(&self.vault).unwrap_or_default();
        document.insert("managedIdentitiesKeyVault".to_owned(), vault);
        pretty_json(&document)
    }

    /// The client ids of the identities.
    pub fn client_ids(&self) -> impl Iterator<Item = (RoleIdentity, EntraClientId)> {
        self.identities
            .iter()
            .map(|(component, it)| (RoleIdentity::ControlPlane(*component), it.client_id))
    }
}

impl DataPlaneIdentities {
    /// Parses JSON or YAML. HyperShift's script writes the ids without quotes, which only a YAML parser accepts.
    ///
    /// # Errors
    ///
    /// [`IdentityFileError`] names every field with a problem.
    pub fn parse(text: &str) -> Result<(Self, Vec<LintNote>), IdentityFileError> {
        let raw: BTreeMap<String, String> = parse_text(text)?;
        let mut fields = FieldReader::default();
        let ids = fields.read_data_plane("", &raw);
        fields.note_equal_ids(ids.0.iter().map(|(it, id)| (it.field().to_owned(), *id)));
        let looks_like_json = text.trim_start().starts_with('{');
        if looks_like_json && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            fields.note("", "the file is YAML and not JSON; quote the ids");
        }
        fields.finish(ids)
    }

    /// The file as JSON with an indentation of two spaces.
    pub fn to_json(&self) -> String {
        let document = self.0.iter().map(|(identity, id)| {
            (identity.field().to_owned(), serde_json::Value::from(id.to_string()))
        });
        pretty_json(&document.collect())
    }

    /// The client ids of the identities.
    pub fn client_ids(&self) -> impl Iterator<Item = (RoleIdentity, EntraClientId)> {
        self.0.iter().map(|(identity, id)| (RoleIdentity::DataPlane(*identity), *id))
    }
}

#[derive(Deserialize)]
struct RawWorkloadIdentity {
    #[serde(rename = "clientID")]
    client_id: Option<String>,
    #[serde(flatten)]
    unknown: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct RawWorkloadFile {
    #[serde(rename = "kmsClientID")]
    kms: Option<String>,
    #[serde(flatten)]
    identities: BTreeMap<String, RawWorkloadIdentity>,
}

/// The field of the identity for the encryption of secrets.
const KMS_FIELD: &str = "kmsClientID";

impl WorkloadIdentities {
    /// Parses JSON or YAML. Fields that HyperShift's documentation shows and its code does not write, such as
    /// `tenantID`, are ignored with a note.
    ///
    /// # Errors
    ///
    /// [`IdentityFileError`] names every field with a problem.
    pub fn parse(text: &str) -> Result<(Self, Vec<LintNote>), IdentityFileError> {
        let mut raw: RawWorkloadFile = parse_text(text)?;
        let mut fields = FieldReader::default();
        let mut ids = BTreeMap::new();
        for component in workload_identities(false).map(|it| it.component) {
            let name = component.name();
            let Some(identity) = raw.identities.remove(name) else {
                // Only clusters with private endpoints need it.
                if component != Component::ControlPlaneOperator {
                    fields.problem(name, "is missing");
                }
                continue;
            };
            for unknown in identity.unknown.keys() {
                fields.note(&format!("{name}.{unknown}"), "is not used");
            }
            let id = fields.require(&format!("{name}.clientID"), identity.client_id);
            ids.extend(id.map(|id| (component, id)));
        }
        for unknown in raw.identities.keys() {
            fields.problem(unknown, "is not the name of a component");
        }
        let kms = fields.parse(KMS_FIELD, raw.kms);
        ids.extend(kms.map(|id| (Component::Kms, id)));
        let field = |component: &Component| match component {
            Component::Kms => KMS_FIELD.to_owned(),
            component => format!("{component}.clientID"),
        };
        fields.note_equal_ids(ids.iter().map(|(component, id)| (field(component), *id)));
        fields.finish(Self(ids))
    }

    /// The file as `create iam azure` of HyperShift writes it: JSON with an indentation of two spaces and the
    /// components in the order of its code.
    pub fn to_json(&self) -> String {
        let lines: Vec<String> = workload_identities(true)
            .filter_map(|it| {
                let id = self.0.get(&it.component)?;
                Some(match it.component {
                    Component::Kms => format!("  \"{KMS_FIELD}\": \"{id}\""),
                    component => format!("  \"{component}\": {{\n    \"clientID\": \"{id}\"\n  }}"),
                })
            })
            .collect();
        format!("{{\n{}\n}}", lines.join(",\n"))
    }

    /// The client ids of the identities.
    pub fn client_ids(&self) -> impl Iterator<Item = (RoleIdentity, EntraClientId)> {
        self.0.iter().map(|(component, id)| (RoleIdentity::ControlPlane(*component), *id))
    }
}

/// Parses JSON or YAML. The error does not quote the text.
pub(crate) fn parse_text<T: serde::de::DeserializeOwned>(
    text: &str,
) -> Result<T, IdentityFileError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let text = error.to_string();
        IdentityFileError::Syntax(text.lines().next().unwrap_or_default().to_owned())
    })
}

fn pretty_json(document: &serde_json::Map<String, serde_json::Value>) -> String {
    serde_json::to_string_pretty(document).unwrap_or_default()
}

/// Collects the problems and notes of a file.
#[derive(Default)]
pub(crate) struct FieldReader {
    pub(crate) problems: Vec<IdentityFieldProblem>,
    pub(crate) notes: Vec<LintNote>,
}

impl FieldReader {
    pub(crate) fn problem(&mut self, field: &str, problem: impl Into<String>) {
        self.problems
            .push(IdentityFieldProblem { field: field.to_owned(), problem: problem.into() });
    }

    fn note(&mut self, field: &str, note: &str) {
        self.notes.push(LintNote { field: field.to_owned(), note: note.to_owned() });
    }

    /// Notes ids that several fields have.
    fn note_equal_ids(&mut self, ids: impl Iterator<Item = (String, EntraClientId)>) {
        let mut first_fields: BTreeMap<String, String> = BTreeMap::new();
        for (field, id) in ids {
            if let Some(first) = first_fields.get(&id.to_string()) {
                let note = format!("is the id of `{first}`, too: both get the roles of the other");
                self.note(&field, &note);
            } else {
                first_fields.insert(id.to_string(), field);
            }
        }
    }

    /// Notes secrets that several components name, and encodings that HyperShift's command ignores.
    fn note_unusual_secrets(
        &mut self,
        prefix: &str,
        identities: &BTreeMap<Component, ControlPlaneIdentity>,
    ) {
        let mut first_components: BTreeMap<&str, Component> = BTreeMap::new();
        for (component, identity) in identities {
            let secret = identity.credentials_secret_name.as_str();
            if let Some(first) = first_components.get(secret) {
                let field = format!("{prefix}{component}.credentialsSecretName");
                self.note(&field, &format!("is the secret of `{first}`, too"));
            } else {
                first_components.insert(secret, *component);
            }
            if identity.object_encoding != ObjectEncoding::Utf8 {
                let field = format!("{prefix}{component}.objectEncoding");
                self.note(&field, "HyperShift's command writes `utf-8` into the HostedCluster");
            }
        }
    }

    pub(crate) fn finish<T>(self, value: T) -> Result<(T, Vec<LintNote>), IdentityFileError> {
        if self.problems.is_empty() {
            Ok((value, self.notes))
        } else {
            Err(IdentityFileError::Fields(self.problems))
        }
    }

    pub(crate) fn parse<T: std::str::FromStr<Err: fmt::Display>>(
        &mut self,
        field: &str,
        text: Option<String>,
    ) -> Option<T> {
        match text?.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(field, format!("is invalid: {error}"));
                None
            }
        }
    }

    pub(crate) fn require<T: std::str::FromStr<Err: fmt::Display>>(
        &mut self,
        field: &str,
        text: Option<String>,
    ) -> Option<T> {
        if text.is_none() {
            self.problem(field, "is missing");
        }
        self.parse(field, text)
    }

    fn read_vault(&mut self, prefix: &str, raw: Option<RawVault>) -> Option<IdentityVault> {
        let field = format!("{prefix}managedIdentitiesKeyVault");
        let Some(raw) = raw else {
            self.problem(&field, "is missing");
            return None;
        };
        let name = self.require(&format!("{field}.name"), raw.name);
        let tenant = self.require(&format!("{field}.tenantID"), raw.tenant);
        Some(IdentityVault { name: name?, tenant: tenant? })
    }

    fn read_identities(
        &mut self,
        prefix: &str,
        mut raw: BTreeMap<String, RawIdentity>,
    ) -> BTreeMap<Component, ControlPlaneIdentity> {
        // HyperShift's script adds the identity of the backup, which no HostedCluster has.
        raw.remove("velero");
        let mut identities = BTreeMap::new();
        for component in control_plane_components() {
            let field = format!("{prefix}{component}");
            match raw.remove(component.name()) {
                Some(identity) => {
                    let identity = self.read_identity(&field, identity);
                    identities.extend(identity.map(|identity| (component, identity)));
                }
                None => self.problem(&field, "is missing"),
            }
        }
        for name in raw.keys() {
            self.problem(&format!("{prefix}{name}"), "is not the name of a component");
        }
        identities
    }

    fn read_identity(&mut self, field: &str, raw: RawIdentity) -> Option<ControlPlaneIdentity> {
        for name in raw.unknown.keys() {
            self.problem(&format!("{field}.{name}"), "is not a known field");
        }
        let client_id = self.require(&format!("{field}.clientID"), raw.client_id);
        let secret = format!("{field}.credentialsSecretName");
        let credentials_secret_name = self.require(&secret, raw.credentials_secret_name);
        let encoding = format!("{field}.objectEncoding");
        let object_encoding = self.require(&encoding, raw.object_encoding);
        Some(ControlPlaneIdentity {
            certificate_name: raw.certificate_name,
            client_id: client_id?,
            credentials_secret_name: credentials_secret_name?,
            object_encoding: object_encoding?,
        })
    }

    fn read_data_plane(
        &mut self,
        prefix: &str,
        raw: &BTreeMap<String, String>,
    ) -> DataPlaneIdentities {
        let mut ids = BTreeMap::new();
        for identity in DataPlaneIdentity::ALL {
            let field = format!("{prefix}{}", identity.field());
            let id = self.require(&field, raw.get(identity.field()).cloned());
            ids.extend(id.map(|id| (identity, id)));
        }
        let is_known = |name: &String| DataPlaneIdentity::ALL.iter().any(|it| it.field() == name);
        for name in raw.keys().filter(|name| !is_known(name)) {
            self.problem(&format!("{prefix}{name}"), "is not a known field");
        }
        DataPlaneIdentities(ids)
    }
}

#[cfg(test)]
mod tests;
