//! Eventual consistency: a new object is known to each service only after a delay.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::EntraClientId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::EntraDirectory;
use super::application::Application;
use super::federated_credential::FederatedCredential;
use super::service_principal::ServicePrincipal;
use super::tenant::Tenant;
use super::user::User;

/// The delays until services know directory changes, in seconds of emulated time; zero by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DirectoryDelays {
    /// For reads by Microsoft Graph.
    pub graph_seconds: u32,
    /// For lists of Microsoft Graph, which contain a deleted application, service principal or user until
    /// then.
    pub graph_deletion_seconds: u32,
    /// For Azure Resource Manager, which checks the principals of role assignments.
    pub resource_manager_seconds: u32,
    /// For the token service.
    pub token_service_seconds: u32,
    /// For federated credentials at the token service.
    pub federated_credential_seconds: u32,
}

impl DirectoryDelays {
    /// The delay after which every service knows a new object, in seconds.
    fn longest_of_new_objects(self) -> u32 {
        let Self {
            graph_seconds,
            graph_deletion_seconds: _,
            resource_manager_seconds,
            token_service_seconds,
            federated_credential_seconds,
        } = self;
        graph_seconds
            .max(resource_manager_seconds)
            .max(token_service_seconds)
            .max(federated_credential_seconds)
    }
}

/// A service that reads the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryReader {
    Graph,
    ResourceManager,
    TokenService,
}

/// The objects that are not known to every service yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectoryReplication {
    /// The delays of objects that are created from now on.
    pub delays: DirectoryDelays,
    /// By object id.
    objects: BTreeMap<Uuid, NewDirectoryEntry>,
    /// By object id of the principal or the application, and name of the federated credential.
    credentials: BTreeMap<String, NewDirectoryEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct NewDirectoryEntry {
    created: Timestamp,
    delays: DirectoryDelays,
}

impl NewDirectoryEntry {
    /// Whether the entry is known after a delay in seconds.
    fn is_known_after(&self, seconds: u32, now: Timestamp) -> bool {
        now.duration_since(self.created) >= SignedDuration::from_secs(i64::from(seconds))
    }

    /// Whether every service knows the entry.
    fn is_known(&self, now: Timestamp) -> bool {
        self.is_known_after(self.delays.longest_of_new_objects(), now)
    }
}

impl DirectoryReplication {
    /// Whether the settings delay new objects.
    fn has_delays(&self) -> bool {
        self.delays.longest_of_new_objects() > 0
    }

    /// An entry with the delays of the settings; removes the entries that every service knows.
    fn new_entry(&mut self, created: Timestamp) -> NewDirectoryEntry {
        self.objects.retain(|_, entry| !entry.is_known(created));
        self.credentials.retain(|_, entry| !entry.is_known(created));
        NewDirectoryEntry { created, delays: self.delays }
    }
}

fn credential_key(holder: Uuid, name: &str) -> String {
    format!("{holder}/{}", name.to_ascii_lowercase())
}

impl EntraDirectory {
    /// Records a new object, if the settings delay it.
    pub(crate) fn record_new_object(&mut self, id: Uuid, created: Timestamp) {
        if self.replication.has_delays() {
            let entry = self.replication.new_entry(created);
            self.replication.objects.insert(id, entry);
        }
    }

    /// Records a new or changed federated credential. `holder` is the object id of its application
    /// or of its managed identity.
    pub fn record_federated_credential(&mut self, holder: Uuid, name: &str, now: Timestamp) {
        if self.replication.has_delays() {
            let entry = self.replication.new_entry(now);
            self.replication.credentials.insert(credential_key(holder, name), entry);
        }
    }

    /// Whether every service knows every object.
    pub fn is_replicated(&self) -> bool {
        self.replication.objects.is_empty()
    }

    /// Whether a service knows an object.
    pub fn is_known_to(&self, reader: DirectoryReader, id: Uuid, now: Timestamp) -> bool {
        self.replication.objects.get(&id).is_none_or(|entry| {
            let delays = entry.delays;
            let seconds = match reader {
                DirectoryReader::Graph => delays.graph_seconds,
                DirectoryReader::ResourceManager => delays.resource_manager_seconds,
                DirectoryReader::TokenService => delays.token_service_seconds,
            };
            entry.is_known_after(seconds, now)
        })
    }

    /// The federated credentials of a principal that the token service knows.
    pub fn known_federated_credentials_of(
        &self,
        principal: &ServicePrincipal,
        now: Timestamp,
    ) -> Vec<FederatedCredential> {
        let application = self.application_by_client_id(principal.client_id);
        let holders =
            [Some(principal.object_id), application.map(|application| application.object_id)];
        let is_known = |credential: &&FederatedCredential| {
            holders.into_iter().flatten().all(|holder| {
                let entry =
                    self.replication.credentials.get(&credential_key(holder, &credential.name));
                entry.is_none_or(|entry| {
                    entry.is_known_after(entry.delays.federated_credential_seconds, now)
                })
            })
        };
        self.federated_credentials_of(principal).filter(is_known).cloned().collect()
    }
}

/// The directory as one service knows it: without the new objects that have not been replicated to it.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryReplica<'a> {
    directory: &'a EntraDirectory,
    reader: DirectoryReader,
    now: Timestamp,
}

impl EntraDirectory {
    /// The directory as a service knows it at a time.
    pub const fn replica(&self, reader: DirectoryReader, now: Timestamp) -> DirectoryReplica<'_> {
        DirectoryReplica { directory: self, reader, now }
    }
}

impl<'a> DirectoryReplica<'a> {
    /// The complete directory, for data that has no delays: tenants, roles and memberships.
    pub const fn complete(self) -> &'a EntraDirectory {
        self.directory
    }

    /// Finds a tenant by id or domain name, ignoring case.
    pub fn tenant(self, name: &str) -> Option<&'a Tenant> {
        self.directory.tenant(name)
    }

    pub fn application_by_client_id(self, client: EntraClientId) -> Option<&'a Application> {
        let found = self.directory.application_by_client_id(client);
        found.filter(|application| self.knows(application.object_id))
    }

    pub fn applications(self) -> impl Iterator<Item = &'a Application> {
        let all = self.directory.applications().values();
        all.filter(move |application| self.knows(application.object_id))
    }

    pub fn service_principal_by_client_id(
        self,
        client: EntraClientId,
    ) -> Option<&'a ServicePrincipal> {
        let found = self.directory.service_principal_by_client_id(client);
        found.filter(|principal| self.knows(principal.object_id))
    }

    pub fn user(self, object_id: Uuid) -> Option<&'a User> {
        self.directory.user(object_id).filter(|user| self.knows(user.object_id))
    }

    /// The user with a principal name, ignoring case.
    pub fn user_by_name(self, principal_name: &str) -> Option<&'a User> {
        self.directory.user_by_name(principal_name).filter(|user| self.knows(user.object_id))
    }

    pub fn users(self) -> impl Iterator<Item = &'a User> {
        self.directory.users().values().filter(move |user| self.knows(user.object_id))
    }

    /// Whether the service knows an object.
    pub fn knows(self, object_id: Uuid) -> bool {
        self.directory.is_known_to(self.reader, object_id, self.now)
    }
}
