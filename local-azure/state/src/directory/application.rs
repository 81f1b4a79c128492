//! Applications with their credentials.

use jiff::Timestamp;
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::EntraDirectory;
use super::federated_credential::FederatedCredential;
use crate::keys::RedactedText;
use crate::table::Table;

/// An application registration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Application {
    pub object_id: Uuid,
    /// The application id, which the service principal has in common with the application.
    pub client_id: EntraClientId,
    pub tenant: EntraTenantId,
    pub display_name: String,
    pub created: Timestamp,
    #[serde(default)]
    pub passwords: Vec<PasswordCredential>,
    #[serde(default)]
    pub keys: Vec<KeyCredential>,
    #[serde(default)]
    pub federated_credentials: Vec<FederatedCredential>,
    /// The object ids of the owners.
    #[serde(default)]
    pub owners: Vec<Uuid>,
    /// Further properties of Microsoft Graph as given, for example `identifierUris`.
    #[serde(default)]
    pub properties: Map<String, Value>,
}

/// A client secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PasswordCredential {
    pub key_id: Uuid,
    #[serde(default)]
    pub display_name: Option<String>,
    pub text: RedactedText,
    pub starts: Timestamp,
    pub expires: Timestamp,
}

/// A registered certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyCredential {
    pub key_id: Uuid,
    #[serde(default)]
    pub display_name: Option<String>,
    /// The certificate in DER.
    pub certificate: Vec<u8>,
    pub starts: Timestamp,
    pub expires: Timestamp,
}

impl Application {
    /// The strings of a list property, for example `identifierUris`.
    pub fn stored_texts(&self, property: &str) -> impl Iterator<Item = &str> {
        let stored = self.properties.get(property).and_then(Value::as_array);
        stored.into_iter().flatten().filter_map(Value::as_str)
    }

    /// The value of `property` in the complex property `structure`, such as `redirectUris` of
    /// `web`.
    pub fn nested_property(&self, structure: &str, property: &str) -> Option<&Value> {
        self.properties.get(structure)?.get(property)
    }

    /// An application without credentials.
    pub fn new(
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
    pub const fn applications(&self) -> &Table<Uuid, Application> {
        &self.applications
    }

    pub fn application(&self, object_id: Uuid) -> Option<&Application> {
        self.applications.get(&object_id)
    }

    /// The application, mutable; the caller must not change its client id.
    pub fn application_mut(&mut self, object_id: Uuid) -> Option<&mut Application> {
        self.applications.get_mut(&object_id)
    }

    pub fn application_by_client_id(&self, client: EntraClientId) -> Option<&Application> {
        let object_id = self.index.applications_by_client_id.get(&client)?;
        self.applications.get(object_id)
    }

    /// Like [`Self::application_by_client_id`], mutable.
    pub fn application_by_client_id_mut(
        &mut self,
        client: EntraClientId,
    ) -> Option<&mut Application> {
        let object_id = self.index.applications_by_client_id.get(&client)?;
        self.applications.get_mut(object_id)
    }

    pub fn insert_application(&mut self, application: Application) {
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
