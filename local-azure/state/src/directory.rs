//! The directory: tenants, applications, service principals, users, groups, and trusted issuers.
//!
//! An application and its service principal are two objects with separate ids, because clients look up one by
//! the other. A managed identity is a service principal without an application.

mod app_role_assignment;
pub mod application;
mod deleted_object;
mod directory_role;
mod federated_credential;
mod first_party;
mod graph_permission;
mod group;
mod managed_identity;
mod relation;
mod replication;
pub mod service_principal;
mod tenant;
mod trusted_issuer;
mod user;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::app_role_assignment::AppRoleAssignment;
pub use self::application::{Application, KeyCredential, PasswordCredential};
pub use self::deleted_object::{DeletedDirectoryObject, RestorableObject};
pub use self::directory_role::{DirectoryRole, DirectoryRoleAssignment};
pub use self::federated_credential::FederatedCredential;
pub use self::first_party::{
    FIRST_PARTY_APPLICATIONS, MICROSOFT_GRAPH, first_party_by_client_id, first_party_by_object_id,
    graph_principal_id,
};
pub use self::graph_permission::GraphPermission;
pub use self::group::Group;
pub use self::managed_identity::{BundleContent, CredentialIssueError, issue_certificate_bundle};
pub use self::replication::{
    DirectoryDelays, DirectoryReader, DirectoryReplica, DirectoryReplication,
};
pub use self::service_principal::{ServicePrincipal, ServicePrincipalKind, SubjectNameIssuer};
pub use self::tenant::{NextSigningKeyMissing, Tenant, TenantSigningKey, TenantSigningKeys};
pub use self::trusted_issuer::{CertificateAuthority, TrustedIssuer};
pub use self::user::User;
use crate::managed_identity_credential::ManagedIdentityCredential;
use crate::table::{StoredTable, Table};
use crate::tracked::Tracked;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EntraDirectory {
    /// The tenants with their signing keys.
    pub tenants: Tracked<Vec<Tenant>>,
    /// Certificate authorities for subject name and issuer (SNI) authentication.
    pub authorities: Tracked<BTreeMap<String, CertificateAuthority>>,
    /// Trusted token issuers by their exact `iss`, with the content of their discovery documents.
    pub issuers: Tracked<BTreeMap<String, TrustedIssuer>>,
    applications: Table<Uuid, Application>,
    service_principals: Table<Uuid, ServicePrincipal>,
    users: Table<Uuid, User>,
    groups: Table<Uuid, Group>,
    app_role_assignments: Table<String, AppRoleAssignment>,
    directory_roles: Table<Uuid, DirectoryRoleAssignment>,
    deleted_objects: Table<Uuid, DeletedDirectoryObject>,
    /// The current credentials of managed identities, by the object id of the identity.
    managed_identity_credentials: Table<Uuid, ManagedIdentityCredential>,
    /// The delays until new objects are known to the services.
    pub replication: Tracked<DirectoryReplication>,
    #[serde(skip)]
    index: DirectoryIndex,
}

/// The object ids by the other unique values of the objects. Rebuilt when the state is loaded.
#[derive(Debug, Clone, Default)]
struct DirectoryIndex {
    applications_by_client_id: HashMap<EntraClientId, Uuid>,
    principals_by_client_id: HashMap<EntraClientId, Uuid>,
    principals_by_resource_id: HashMap<String, Uuid>,
    /// By user principal name in lower case.
    users_by_name: HashMap<String, Uuid>,
    /// The groups of which an object is a direct member.
    groups_by_member: HashMap<Uuid, BTreeSet<Uuid>>,
    /// The ids of the app role assignments of a principal.
    app_roles_by_principal: HashMap<Uuid, BTreeSet<String>>,
}

/// An application, a service principal, a user or a group of the directory.
#[derive(Debug, Clone, Copy)]
pub enum DirectoryObject<'a> {
    Application(&'a Application),
    ServicePrincipal(&'a ServicePrincipal),
    User(&'a User),
    Group(&'a Group),
}

impl<'a> DirectoryObject<'a> {
    pub fn display_name(&self) -> &'a str {
        match self {
            Self::Application(application) => &application.display_name,
            Self::ServicePrincipal(principal) => &principal.display_name,
            Self::User(user) => &user.display_name,
            Self::Group(group) => &group.display_name,
        }
    }

    pub const fn object_id(&self) -> Uuid {
        match self {
            Self::Application(application) => application.object_id,
            Self::ServicePrincipal(principal) => principal.object_id,
            Self::User(user) => user.object_id,
            Self::Group(group) => group.object_id,
        }
    }

    pub const fn tenant(&self) -> &'a EntraTenantId {
        match self {
            Self::Application(application) => &application.tenant,
            Self::ServicePrincipal(principal) => &principal.tenant,
            Self::User(user) => &user.tenant,
            Self::Group(group) => &group.tenant,
        }
    }

    /// The object ids of the owners; users have none.
    pub fn owners(&self) -> &'a [Uuid] {
        match self {
            Self::Application(application) => &application.owners,
            Self::ServicePrincipal(principal) => &principal.owners,
            Self::Group(group) => &group.owners,
            Self::User(_) => &[],
        }
    }

    /// The `principalType` of role assignments; applications cannot have role assignments.
    pub const fn principal_type(&self) -> Option<&'static str> {
        match self {
            Self::Application(_) => None,
            Self::ServicePrincipal(_) => Some("ServicePrincipal"),
            Self::User(_) => Some("User"),
            Self::Group(_) => Some("Group"),
        }
    }
}

impl EntraDirectory {
    /// Calls `visit` with the name and the content of every stored table.
    pub fn for_each_table(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable)) {
        let Self {
            tenants,
            authorities,
            issuers,
            applications,
            service_principals,
            users,
            groups,
            app_role_assignments,
            directory_roles,
            deleted_objects,
            managed_identity_credentials,
            replication,
            index: _,
        } = self;
        visit("directory.tenants", tenants);
        visit("directory.authorities", authorities);
        visit("directory.issuers", issuers);
        visit("directory.applications", applications);
        visit("directory.service-principals", service_principals);
        visit("directory.users", users);
        visit("directory.groups", groups);
        visit("directory.app-role-assignments", app_role_assignments);
        visit("directory.role-assignments", directory_roles);
        visit("directory.deleted-objects", deleted_objects);
        visit("directory.managed-identity-credentials", managed_identity_credentials);
        visit("directory.replication", replication);
    }

    /// Rebuilds the indexes after the tables were loaded.
    pub(crate) fn rebuild_index(&mut self) {
        self.index = DirectoryIndex::default();
        for application in self.applications.values() {
            self.index.add_application(application);
        }
        for principal in self.service_principals.values() {
            self.index.add_service_principal(principal);
        }
        for user in self.users.values() {
            self.index.add_user(user);
        }
        for group in self.groups.values() {
            self.index.add_members(group);
        }
        for assignment in self.app_role_assignments.values() {
            self.index.add_app_role_assignment(assignment);
        }
    }

    /// Finds a tenant by id or domain name, ignoring case.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.is_named(name))
    }

    /// The object with this object id.
    pub fn object(&self, id: Uuid) -> Option<DirectoryObject<'_>> {
        let principal = || self.service_principals.get(&id).map(DirectoryObject::ServicePrincipal);
        let user = || self.users.get(&id).map(DirectoryObject::User);
        let group = || self.groups.get(&id).map(DirectoryObject::Group);
        let application = || self.applications.get(&id).map(DirectoryObject::Application);
        principal().or_else(user).or_else(group).or_else(application)
    }

    /// The applications, service principals and groups that a user or a service principal owns.
    pub fn objects_owned_by(&self, owner: Uuid) -> impl Iterator<Item = DirectoryObject<'_>> {
        let applications = self.applications.values().map(DirectoryObject::Application);
        let principals = self.service_principals.values().map(DirectoryObject::ServicePrincipal);
        let groups = self.groups.values().map(DirectoryObject::Group);
        let objects = applications.chain(principals).chain(groups);
        objects.filter(move |object| object.owners().contains(&owner))
    }

    /// The object ids whose role assignments apply to a principal: its own, then those of its
    /// groups, nested ones included.
    pub fn principal_and_group_ids(&self, principal: Uuid) -> Vec<Uuid> {
        let mut ids = vec![principal];
        let mut next = 0;
        while let Some(id) = ids.get(next) {
            for group in self.index.groups_by_member.get(id).into_iter().flatten() {
                if !ids.contains(group) {
                    ids.push(*group);
                }
            }
            next += 1;
        }
        ids
    }
}

impl DirectoryIndex {
    fn add_application(&mut self, application: &Application) {
        self.applications_by_client_id.insert(application.client_id, application.object_id);
    }

    fn add_service_principal(&mut self, principal: &ServicePrincipal) {
        self.principals_by_client_id.insert(principal.client_id, principal.object_id);
        if let Some(resource) = principal.resource_id() {
            self.principals_by_resource_id.insert(resource_key(resource), principal.object_id);
        }
    }

    fn add_user(&mut self, user: &User) {
        self.users_by_name.insert(user.principal_name.to_ascii_lowercase(), user.object_id);
    }

    fn remove_user(&mut self, user: &User) {
        self.users_by_name.remove(&user.principal_name.to_ascii_lowercase());
    }

    fn add_members(&mut self, group: &Group) {
        for member in &group.members {
            self.groups_by_member.entry(*member).or_default().insert(group.object_id);
        }
    }

    fn add_app_role_assignment(&mut self, assignment: &AppRoleAssignment) {
        let ids = self.app_roles_by_principal.entry(assignment.principal_id).or_default();
        ids.insert(assignment.id.clone());
    }

    fn remove_app_role_assignment(&mut self, assignment: &AppRoleAssignment) {
        if let Some(ids) = self.app_roles_by_principal.get_mut(&assignment.principal_id) {
            ids.remove(&assignment.id);
        }
    }

    fn remove_members(&mut self, group: &Group) {
        for member in &group.members {
            if let Some(groups) = self.groups_by_member.get_mut(member) {
                groups.remove(&group.object_id);
            }
        }
    }
}

fn resource_key(resource: &ArmResourceId) -> String {
    resource.to_string().to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
