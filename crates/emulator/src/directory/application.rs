//! Applications with their credentials.

use jiff::Timestamp;
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{EntraDirectory, FederatedCredential};
use crate::keys::RedactedText;
use crate::table::Table;

/// An application registration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Application {
    pub(crate) object_id: Uuid,
    /// The application id, which the service principal has in common with the application.
    pub(crate) client_id: EntraClientId,
    pub(crate) tenant: EntraTenantId,
    pub(crate) display_name: String,
    pub(crate) created: Timestamp,
    #[serde(default)]
    pub(crate) passwords: Vec<PasswordCredential>,
    #[serde(default)]
    pub(crate) keys: Vec<KeyCredential>,
    #[serde(default)]
    pub(crate) federated_credentials: Vec<FederatedCredential>,
    /// The object ids of the owners.
    #[serde(default)]
    pub(crate) owners: Vec<Uuid>,
    /// Further properties of Microsoft Graph as given, for example `identifierUris`.
    #[serde(default)]
    pub(crate) properties: Map<String, Value>,
}

/// A client secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PasswordCredential {
    pub(crate) key_id: Uuid,
    #[serde(default)]
    pub(crate) display_name: Option<String>,
    pub(crate) text: RedactedText,
    pub(crate) starts: Timestamp,
    pub(crate) expires: Timestamp,
}

/// A registered certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeyCredential {
    pub(crate) key_id: Uuid,
    #[serde(default)]
    pub(crate) display_name: Option<String>,
    /// The certificate in DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) starts: Timestamp,
    pub(crate) expires: Timestamp,
}

impl Application {
    /// An application without credentials.
    pub(crate) fn new(
        object_id: Uuid,
        client_id: EntraClientId,
        tenant: EntraTenantId,
        display_name: impl Into<String>,
        created: Timestamp,
    ) -> Self {
        Self {
            object_id,
            client_id,
            tenant,
            display_name: display_name.into(),
            created,
            passwords: Vec::new(),
            keys: Vec::new(),
            federated_credentials: Vec::new(),
            owners: Vec::new(),
            properties: Map::new(),
        }
    }
}

impl EntraDirectory {
    /// Every application, by object id.
    pub(crate) const fn applications(&self) -> &Table<Uuid, Application> {
        &self.applications
    }

    pub(crate) fn application(&self, object_id: Uuid) -> Option<&Application> {
        self.applications.get(&object_id)
    }

    /// The application for changes; its client id must stay the same.
    pub(crate) fn application_mut(&mut self, object_id: Uuid) -> Option<&mut Application> {
        self.applications.get_mut(&object_id)
    }

    pub(crate) fn application_by_client_id(&self, client: EntraClientId) -> Option<&Application> {
        let object_id = self.index.applications_by_client_id.get(&client)?;
        self.applications.get(object_id)
    }

    /// Like [`Self::application_by_client_id`], mutable.
    pub(crate) fn application_by_client_id_mut(
        &mut self,
        client: EntraClientId,
    ) -> Option<&mut Application> {
        let object_id = self.index.applications_by_client_id.get(&client)?;
        self.applications.get_mut(object_id)
    }

    pub(crate) fn insert_application(&mut self, application: Application) {
        if !self.applications.contains_key(&application.object_id) {
            self.record_new_object(application.object_id, application.created);
        }
        self.index.add_application(&application);
        self.applications.insert(application.object_id, application);
    }

    /// Removes an application; its service principal stays.
    pub(crate) fn remove_application(&mut self, object_id: Uuid) -> Option<Application> {
        let removed = self.applications.remove(&object_id)?;
        self.index.applications_by_client_id.remove(&removed.client_id);
        Some(removed)
    }
}
