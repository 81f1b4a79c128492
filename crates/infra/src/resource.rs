//! One resource of the desired graph.

use std::fmt;

use lanyard_azure::{ArmBody as _, FederatedCredentialBody, RoleAssignmentBody};
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

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

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
}

impl ResourceStack {
    /// The name in commands and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Infra => "infra",
            Self::Iam => "iam",
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
    /// The object id is known.
    ObjectId(Uuid),
    /// The principal of a managed identity in the same graph; known when the identity exists.
    Identity(ResourceKey),
}

impl DesiredResource {
    /// The resource whose lock a write needs. Azure rejects concurrent writes to the credentials of one managed
    /// identity, and to the subresources of one virtual network.
    pub(crate) fn write_lock(&self) -> &str {
        let parent = |kind: &str| {
            let text = self.id.as_str();
            let position = text.to_ascii_lowercase().rfind(&kind.to_ascii_lowercase());
            position.map_or(text, |at| &text[..at])
        };
        match self.definition {
            ResourceDefinition::FederatedCredential { .. } => {
                parent("/federatedIdentityCredentials/")
            }
            _ => self.id.as_str(),
        }
    }

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
