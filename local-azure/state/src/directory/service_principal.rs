//! Service principals: those of applications and those of managed identities.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::application::{KeyCredential, PasswordCredential};
use super::federated_credential::FederatedCredential;
use super::{EntraDirectory, resource_key};
use crate::table::Table;

/// An identity of the directory that can obtain tokens as itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServicePrincipal {
    /// The object id: the `oid` of its tokens, and the principal id of role assignments.
    pub object_id: Uuid,
    /// The application id.
    pub client_id: EntraClientId,
    /// The home tenant.
    pub tenant: EntraTenantId,
    pub display_name: String,
    #[serde(default)]
    pub created: Timestamp,
    /// Whether the principal may obtain tokens (`accountEnabled`).
    pub enabled: bool,
    pub kind: ServicePrincipalKind,
    /// Client secrets that were added to the service principal itself.
    #[serde(default)]
    pub passwords: Vec<PasswordCredential>,
    /// Certificates that were added to the service principal itself.
    #[serde(default)]
    pub keys: Vec<KeyCredential>,
    /// Subject name and issuer trust: any certificate of one subject from one authority (requires the chain).
    #[serde(default)]
    pub subject_name_issuer: Option<SubjectNameIssuer>,
    /// The federated credentials of a managed identity; those of an application belong to the application.
    #[serde(default)]
    pub federated_credentials: Vec<FederatedCredential>,
    /// The object ids of the owners.
    #[serde(default)]
    pub owners: Vec<Uuid>,
    /// Further properties of Microsoft Graph as given, for example `tags`.
    #[serde(default)]
    pub properties: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum ServicePrincipalKind {
    /// The service principal of an application.
    Application,
    /// A managed identity.
    ManagedIdentity {
        /// The ARM id of the user-assigned identity, or of the resource with a system-assigned identity.
        resource_id: ArmResourceId,
    },
}

/// Trust in a subject name from an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectNameIssuer {
    /// The common name of the subject.
    pub subject: String,
    /// The name of the authority in [`EntraDirectory::authorities`].
    pub authority: String,
}

impl ServicePrincipal {
    /// Whether this is the service principal of a managed identity, which Azure itself manages.
    pub const fn is_managed_identity(&self) -> bool {
        matches!(self.kind, ServicePrincipalKind::ManagedIdentity { .. })
    }

    /// The names by which clients look the service principal up: its application id, then its URIs.
    pub fn names(&self, directory: &EntraDirectory) -> Vec<String> {
        let mut names = vec![self.client_id.to_string()];
        let application = directory.application_by_client_id(self.client_id);
        let registered = application.into_iter().flat_map(|app| app.stored_texts("identifierUris"));
        let own = self.properties.get("servicePrincipalNames").and_then(Value::as_array);
        let own = own.into_iter().flatten().filter_map(Value::as_str);
        for name in registered.chain(own) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        if self.is_managed_identity() {
            let hash = digest(&SHA256, self.object_id.as_bytes());
            names.push(format!("https://identity.azure.net/{}", STANDARD.encode(hash)));
        }
        names
    }

    /// An enabled service principal without credentials. [`Self::created_at`] sets its creation time.
    pub fn new(
        object_id: Uuid,
        client_id: EntraClientId,
        tenant: EntraTenantId,
        display_name: impl Into<String>,
        kind: ServicePrincipalKind,
    ) -> Self {
        Self {
            object_id,
            client_id,
            tenant,
            display_name: display_name.into(),
            created: Timestamp::default(),
            enabled: true,
            kind,
            passwords: Vec::new(),
            keys: Vec::new(),
            subject_name_issuer: None,
            federated_credentials: Vec::new(),
            owners: Vec::new(),
            properties: Map::new(),
        }
    }

    /// Sets the creation time.
    #[must_use]
    pub const fn created_at(mut self, created: Timestamp) -> Self {
        self.created = created;
        self
    }

    /// The ARM resource of a managed identity; `None` for other service principals.
    pub const fn resource_id(&self) -> Option<&ArmResourceId> {
        match &self.kind {
            ServicePrincipalKind::ManagedIdentity { resource_id } => Some(resource_id),
            ServicePrincipalKind::Application => None,
        }
    }
}

impl EntraDirectory {
    /// Every service principal, by object id.
    pub const fn service_principals(&self) -> &Table<Uuid, ServicePrincipal> {
        &self.service_principals
    }

    pub fn service_principal(&self, object_id: Uuid) -> Option<&ServicePrincipal> {
        self.service_principals.get(&object_id)
    }

    /// The service principal, mutable; the caller must not change its client id and kind.
    pub fn service_principal_mut(&mut self, object_id: Uuid) -> Option<&mut ServicePrincipal> {
        self.service_principals.get_mut(&object_id)
    }

    pub fn service_principal_by_client_id(
        &self,
        client: EntraClientId,
    ) -> Option<&ServicePrincipal> {
        let object_id = self.index.principals_by_client_id.get(&client)?;
        self.service_principals.get(object_id)
    }

    /// Like [`Self::service_principal_by_client_id`], mutable.
    pub fn service_principal_by_client_id_mut(
        &mut self,
        client: EntraClientId,
    ) -> Option<&mut ServicePrincipal> {
        let object_id = self.index.principals_by_client_id.get(&client)?;
        self.service_principals.get_mut(object_id)
    }

    pub fn insert_service_principal(&mut self, principal: ServicePrincipal) {
        if !self.service_principals.contains_key(&principal.object_id) {
            self.record_new_object(principal.object_id, principal.created);
        }
        self.index.add_service_principal(&principal);
        self.service_principals.insert(principal.object_id, principal);
    }

    /// Removes a service principal and the references to it in other objects.
    pub fn remove_service_principal(&mut self, object_id: Uuid) -> Option<ServicePrincipal> {
        let removed = self.take_service_principal(object_id)?;
        self.remove_relations_of(object_id);
        Some(removed)
    }

    /// Removes a service principal, also from its groups. Other references stay until it is deleted
    /// permanently.
    pub(crate) fn take_service_principal(&mut self, object_id: Uuid) -> Option<ServicePrincipal> {
        let removed = self.service_principals.remove(&object_id)?;
        self.index.principals_by_client_id.remove(&removed.client_id);
        if let Some(resource) = removed.resource_id() {
            self.index.principals_by_resource_id.remove(&resource_key(resource));
        }
        self.remove_from_groups(object_id);
        self.managed_identity_credentials.remove(&object_id);
        Some(removed)
    }
}

/// The credentials that authenticate a service principal: its own and those of its application.
impl EntraDirectory {
    pub fn passwords_of<'a>(
        &'a self,
        principal: &'a ServicePrincipal,
    ) -> impl Iterator<Item = &'a PasswordCredential> {
        let application = self.application_by_client_id(principal.client_id);
        let registered = application.map_or(&[][..], |application| &application.passwords);
        principal.passwords.iter().chain(registered)
    }

    pub fn keys_of<'a>(
        &'a self,
        principal: &'a ServicePrincipal,
    ) -> impl Iterator<Item = &'a KeyCredential> {
        let application = self.application_by_client_id(principal.client_id);
        let registered = application.map_or(&[][..], |application| &application.keys);
        principal.keys.iter().chain(registered)
    }

    pub fn federated_credentials_of<'a>(
        &'a self,
        principal: &'a ServicePrincipal,
    ) -> impl Iterator<Item = &'a FederatedCredential> {
        let application = self.application_by_client_id(principal.client_id);
        let registered =
            application.map_or(&[][..], |application| &application.federated_credentials);
        principal.federated_credentials.iter().chain(registered)
    }

    /// The list to which a federated credential of a client is added: that of its application, or that of
    /// the managed identity.
    pub fn federated_credentials_mut(
        &mut self,
        client: EntraClientId,
    ) -> Option<&mut Vec<FederatedCredential>> {
        if self.index.applications_by_client_id.contains_key(&client) {
            let application = self.application_by_client_id_mut(client)?;
            return Some(&mut application.federated_credentials);
        }
        let principal = self.service_principal_by_client_id_mut(client)?;
        Some(&mut principal.federated_credentials)
    }
}
