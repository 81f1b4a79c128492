//! One resource of the desired graph.

use std::fmt;

use lanyard_azure::{
    ArmBody as _, AssignedPrincipalType, FederatedCredentialBody, RoleAssignmentBody,
};
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// The name of a resource within one cluster, such as `vnet` or `identity/disk`.
///
/// The journal, plans and progress events identify resources by their key, because it is known before Azure
/// assigns ids, and stays the same when a name changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceKey(String);

impl ResourceKey {
    /// Creates a key.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The key of the role assignment of one principal, such as `role/uploader/<object id>`.
    pub(crate) fn of_role(role: &str, principal: &PrincipalReference) -> Self {
        Self(format!("{role}/{}", principal.identifier()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind of a role of which several stay side by side: that of each identity that ran the command, and that
    /// at each encryption key, because clusters may still use an earlier one. `None` for another resource.
    pub(crate) fn lasting_role(&self) -> Option<&'static str> {
        // Keys of earlier versions end with the kind.
        let is_role = |role: &&str| {
            let rest = self.0.strip_prefix(role);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        [ADMINISTRATOR_ROLE, UPLOADER_ROLE, ENVIRONMENT_KEY_ROLE, CLUSTER_KEY_ROLE]
            .into_iter()
            .find(is_role)
    }
}

/// The beginning of the key of the role that `create keyvault` assigns to the signed-in identity.
pub(crate) const ADMINISTRATOR_ROLE: &str = "role/administrator";
/// The beginning of the key of the role that `create oidc` assigns to the signed-in identity.
pub(crate) const UPLOADER_ROLE: &str = "role/uploader";
/// The beginning of the key of the role at the encryption key of an environment.
pub(crate) const ENVIRONMENT_KEY_ROLE: &str = "role/encryption-key";
/// The beginning of the key of the role at the encryption key of a cluster.
pub(crate) const CLUSTER_KEY_ROLE: &str = "role/kms/encryption-key";

impl fmt::Display for ResourceKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// The resources that one `create` command creates and one `destroy` command removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceStack {
    /// Groups, network, DNS, load balancer and role assignments of one cluster: `create infra azure`.
    Infra,
    /// The managed identities of one cluster and their federated credentials: `create iam azure`.
    Iam,
    /// A vault and the roles on it: `create keyvault azure`.
    Keyvault,
    /// The management cluster and its identities: `create aks azure`.
    Aks,
    /// A public DNS zone and its delegation: `create dns azure`.
    Dns,
    /// A token issuer: `create oidc azure`.
    Oidc,
    /// The identities of an ARO HCP development environment: `create identities azure`.
    Identities,
    /// The identities of `CredentialsRequest` objects: `ccoctl azure create-managed-identities`.
    Ccoctl,
    /// The role with which the KMS identity of a development environment uses its key: `create identities azure`. The
    /// journal of [`Identities`](Self::Identities) records it.
    Kms,
}

impl ResourceStack {
    /// The name in commands and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Infra => "infra",
            Self::Iam => "iam",
            Self::Keyvault => "keyvault",
            Self::Aks => "aks",
            Self::Dns => "dns",
            Self::Oidc => "oidc",
            Self::Identities => "identities",
            Self::Ccoctl => "ccoctl",
            Self::Kms => "kms",
        }
    }
}

impl fmt::Display for ResourceStack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Whether a destroy command may delete a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ownership {
    /// Lanyard created the resource, so `destroy` deletes it.
    Created,
    /// `lanyard import azure` added a resource that another tool created for this cluster, so `destroy` deletes
    /// it.
    Imported,
    /// The resource existed before and belongs to the user. Lanyard never deletes it.
    Existing,
}

impl Ownership {
    /// Whether `destroy` deletes the resource.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Created | Self::Imported)
    }
}

/// A resource that the cluster needs.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredResource {
    /// The key within the cluster.
    pub key: ResourceKey,
    /// The stack that the resource belongs to.
    pub stack: ResourceStack,
    /// The id of the resource.
    pub id: ArmResourceId,
    /// What the resource looks like.
    pub definition: ResourceDefinition,
    /// The resources that must exist before this one is written.
    pub depends_on: Vec<ResourceKey>,
}

/// The content of a desired resource, and how it is written.
#[derive(Debug, Clone, PartialEq)]
pub enum ResourceDefinition {
    /// A resource of the user, which must exist. It is only read.
    Existing {
        /// The version of the API that reads it.
        api_version: &'static str,
    },
    /// A resource that may also serve other purposes, such as a resource group for identities. It is created if it
    /// does not exist, and used as it is otherwise.
    Shared {
        /// The version of the API.
        api_version: &'static str,
        /// The properties of a new resource.
        body: Value,
    },
    /// A resource that one PUT creates. A difference is repaired by a PUT of the live body with the desired
    /// properties, so that the additions of controllers stay.
    Arm {
        /// The version of the API.
        api_version: &'static str,
        /// The properties that lanyard sets.
        body: Value,
        /// Further properties of a new resource, which others change later, such as the number of nodes of a pool
        /// with an autoscaler. They are not compared.
        initial: Value,
        /// Whether the resource type has tags. Lanyard then adds its ownership tags.
        tags: TagSupport,
    },
    /// A federated identity credential. Azure compares credentials of an identity by issuer and subject, and
    /// rejects concurrent writes to one identity.
    FederatedCredential {
        /// The URL of the token issuer, byte for byte as in the tokens.
        issuer: String,
        /// The subject: `system:serviceaccount:<namespace>:<name>`.
        subject: String,
        /// The audience of the tokens.
        audience: String,
    },
    /// A role assignment of a service principal.
    RoleAssignment {
        /// The subscription of the scope.
        subscription: SubscriptionId,
        /// The role.
        role: RoleDefinitionId,
        /// The scope of the assignment.
        scope: ArmResourceId,
        /// The service principal that gets the role.
        principal: PrincipalReference,
    },
}

/// Whether lanyard may set tags on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagSupport {
    /// The resource type has tags.
    Tagged,
    /// The resource type has no tags; the journal alone records that lanyard created the resource.
    Untagged,
}

/// The service principal of a role assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrincipalReference {
    /// The object id of a service principal is known.
    ObjectId(Uuid),
    /// The object id of a user is known.
    User(Uuid),
    /// The object id of a service principal is a value of another resource in the graph.
    Property {
        /// The key of the other resource.
        key: ResourceKey,
        /// The JSON pointer (RFC 6901) of the value in its body.
        pointer: &'static str,
    },
}

impl PrincipalReference {
    /// The principal of a managed identity in the same graph; known when the identity exists.
    pub const fn identity(key: ResourceKey) -> Self {
        Self::Property { key, pointer: "/properties/principalId" }
    }

    /// The resource that provides the object id.
    pub const fn key(&self) -> Option<&ResourceKey> {
        match self {
            Self::ObjectId(_) | Self::User(_) => None,
            Self::Property { key, .. } => Some(key),
        }
    }

    /// Text that differs between the principals of a graph: the object id, or the key of the resource that provides
    /// it.
    pub(crate) fn identifier(&self) -> String {
        match self {
            Self::ObjectId(id) | Self::User(id) => id.to_string(),
            Self::Property { key, .. } => key.to_string(),
        }
    }

    /// The type of the principal in the role assignment. With it, Azure does not look a new principal up.
    pub(crate) const fn assigned_type(&self) -> AssignedPrincipalType {
        match self {
            Self::User(_) => AssignedPrincipalType::User,
            Self::ObjectId(_) | Self::Property { .. } => AssignedPrincipalType::ServicePrincipal,
        }
    }
}

impl ResourceDefinition {
    /// A resource with tags that one PUT creates.
    pub const fn tagged(api_version: &'static str, body: Value) -> Self {
        Self::Arm { api_version, body, initial: Value::Null, tags: TagSupport::Tagged }
    }

    /// A resource without tags that one PUT creates.
    pub const fn untagged(api_version: &'static str, body: Value) -> Self {
        Self::Arm { api_version, body, initial: Value::Null, tags: TagSupport::Untagged }
    }

    /// The same definition with further properties for a new resource.
    #[must_use]
    pub fn with_initial(mut self, properties: Value) -> Self {
        if let Self::Arm { initial, .. } = &mut self {
            *initial = properties;
        }
        self
    }
}

/// The id of the resource whose lock a write needs, in lower case. Azure rejects concurrent writes to the
/// credentials of one managed identity.
pub(crate) fn write_lock(id: &ArmResourceId) -> String {
    let mut lock = id.as_str().to_ascii_lowercase();
    if let Some(position) = lock.rfind("/federatedidentitycredentials/") {
        lock.truncate(position);
    }
    lock
}

impl DesiredResource {
    /// The version of the API for this resource.
    pub(crate) const fn api_version(&self) -> &'static str {
        match self.definition {
            ResourceDefinition::Existing { api_version }
            | ResourceDefinition::Shared { api_version, .. }
            | ResourceDefinition::Arm { api_version, .. } => api_version,
            ResourceDefinition::FederatedCredential { .. } => FederatedCredentialBody::API_VERSION,
            ResourceDefinition::RoleAssignment { .. } => RoleAssignmentBody::API_VERSION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_that_others_may_still_use_are_known_by_their_keys() {
        let principal = PrincipalReference::User(Uuid::from_u128(1));
        for (key, expected) in [
            (ResourceKey::of_role(ADMINISTRATOR_ROLE, &principal), true),
            (ResourceKey::of_role(UPLOADER_ROLE, &principal), true),
            (ResourceKey::new("role/administrator"), true),
            (ResourceKey::new("role/uploader"), true),
            (ResourceKey::new("role/encryption-key/subscriptions/s"), true),
            (ResourceKey::new("role/kms/encryption-key/subscriptions/s"), true),
            (ResourceKey::new("role/uploaders"), false),
            (ResourceKey::new("role/kms/vnet"), false),
            (ResourceKey::of_role("role/secret-reader", &principal), false),
        ] {
            assert_eq!(key.lasting_role().is_some(), expected, "{key}");
        }
    }
}
