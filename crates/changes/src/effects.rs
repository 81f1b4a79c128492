//! The effects in Azure Resource Manager and Entra ID, as one type for graphs that contain all of them, and those in a
//! Kubernetes cluster.

mod api_versions;
mod application_requests;
mod arm_bodies;
mod arm_resource;
mod azure_access;
#[cfg(feature = "kubernetes")]
pub(crate) mod cluster;
mod entra_application;
mod federated_credential;
mod group_content;
mod live_arm_resource;
mod role_assignment;

use serde_json::Value;
use uuid::Uuid;

pub use self::api_versions::api_version_of;
pub use self::arm_resource::{ArmResource, TagSupport};
pub use self::azure_access::AzureAccess;
pub use self::entra_application::EntraApplication;
pub use self::federated_credential::{FederatedCredential, IssuerReference};
pub use self::live_arm_resource::arm_resource;
pub use self::role_assignment::{
    PrincipalReference, RoleAssignment, assigns_roles, recorded_principals,
};
use crate::accepted_write::WriteProgress;
use crate::effect::{Effect, EffectUsage, EffectWriteError, UnknownValueError};
use crate::effect_error::EffectError;
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::PropertyDifference;
use crate::resource_graph::{DesiredResource, ResourceGraph};
use crate::resource_id::ResourceId;

/// A desired resource in Azure.
pub type AzureResource = DesiredResource<AzureEffect>;

/// Desired resources in Azure.
pub type AzureGraph = ResourceGraph<AzureEffect>;

/// What one resource in Azure looks like.
#[derive(Debug, Clone, PartialEq)]
pub enum AzureEffect {
    /// A resource that one PUT creates.
    Arm(ArmResource),
    /// An application in Entra ID.
    EntraApplication(EntraApplication),
    /// A federated identity credential.
    FederatedCredential(FederatedCredential),
    /// A role of a principal.
    RoleAssignment(RoleAssignment),
}

impl AzureEffect {
    /// A resource with tags that one PUT creates.
    pub const fn tagged(api_version: &'static str, body: Value) -> Self {
        Self::arm(api_version, body, TagSupport::Tagged, EffectUsage::Own)
    }

    /// A resource without tags that one PUT creates.
    pub const fn untagged(api_version: &'static str, body: Value) -> Self {
        Self::arm(api_version, body, TagSupport::Untagged, EffectUsage::Own)
    }

    /// A resource that may also serve other purposes.
    pub const fn shared(api_version: &'static str, body: Value) -> Self {
        Self::arm(api_version, body, TagSupport::Tagged, EffectUsage::Shared)
    }

    /// A resource of the user, which must exist, and in which the properties of the body are set.
    pub const fn adjusted(api_version: &'static str, body: Value) -> Self {
        Self::arm(api_version, body, TagSupport::Untagged, EffectUsage::Adjusted)
    }

    /// A resource of the user, which must exist.
    pub const fn existing(api_version: &'static str) -> Self {
        Self::arm(api_version, Value::Null, TagSupport::Untagged, EffectUsage::Existing)
    }

    const fn arm(
        api_version: &'static str,
        body: Value,
        tags: TagSupport,
        usage: EffectUsage,
    ) -> Self {
        Self::Arm(ArmResource { api_version, body, initial: Value::Null, tags, usage })
    }

    /// The same effect with further properties for a new resource.
    #[must_use]
    pub fn with_initial(mut self, properties: Value) -> Self {
        if let Self::Arm(resource) = &mut self {
            resource.initial = properties;
        }
        self
    }
}

/// The same expression for each kind of effect.
macro_rules! each {
    ($self:ident, $effect:ident => $value:expr) => {
        match $self {
            Self::Arm($effect) => $value,
            Self::EntraApplication($effect) => $value,
            Self::FederatedCredential($effect) => $value,
            Self::RoleAssignment($effect) => $value,
        }
    };
}

impl Effect for AzureEffect {
    type Access = AzureAccess;

    fn usage(&self) -> EffectUsage {
        each!(self, effect => effect.usage())
    }

    fn is_known_by_content(&self) -> bool {
        each!(self, effect => effect.is_known_by_content())
    }

    fn collection(&self) -> Option<String> {
        each!(self, effect => effect.collection())
    }

    fn find(
        &self,
        id: &ResourceId,
        listed: &[LiveResource],
        live: &LiveState,
    ) -> Option<LiveResource> {
        each!(self, effect => effect.find(id, listed, live))
    }

    async fn read(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
    ) -> Result<Option<LiveResource>, EffectError> {
        each!(self, effect => effect.read(access, id).await)
    }

    async fn read_equal(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        live: &LiveState,
    ) -> Result<Option<LiveResource>, EffectError> {
        each!(self, effect => effect.read_equal(access, id, live).await)
    }

    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference> {
        each!(self, effect => effect.diff(found, live))
    }

    fn updated_properties(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        each!(self, effect => effect.updated_properties(live))
    }

    async fn write(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        each!(self, effect => effect.write(access, id, existing, live, tags).await)
    }
}

/// The known object ids of the principals that get roles, without those of the graph's own managed identities.
pub fn role_principals(graph: &AzureGraph) -> Vec<Uuid> {
    let effects = graph.resources().iter().map(|resource| &resource.effect);
    let known = effects.filter_map(|effect| match effect {
        AzureEffect::RoleAssignment(assignment) => assignment.principal.object_id(),
        _ => None,
    });
    known.collect()
}
