//! The effect of a role assignment: access of a principal to a scope, such as a vault or one of its secrets.

use std::collections::BTreeSet;

use lanyard_azure::{
    ArmBody as _, ArmClient, AssignedPrincipalType, AzureCallError, ManagedIdentityBody,
    RoleAssignmentBody,
};
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};
use serde_json::Value;
use uuid::Uuid;

use super::azure_access::AzureAccess;
use super::live_arm_resource::arm_resource;
use crate::accepted_write::WriteProgress;
use crate::effect::{Effect, EffectUsage, EffectWriteError, UnknownValueError};
use crate::effect_error::EffectError;
use crate::journal::RecordedState;
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::{PropertyDifference, property_differences};
use crate::resource_id::ResourceId;
use crate::resource_key::ResourceKey;
use crate::roll_back_plan::RollBackPlan;

/// A role of a principal at a scope. Azure compares assignments by role, principal and scope, and does not change them.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleAssignment {
    /// The subscription of the scope.
    pub subscription: SubscriptionId,
    /// The role.
    pub role: RoleDefinitionId,
    /// The scope of the assignment.
    pub scope: ArmResourceId,
    /// The principal that gets the role.
    pub principal: PrincipalReference,
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

    /// The object id, if it is known without the graph.
    pub const fn object_id(&self) -> Option<Uuid> {
        match self {
            Self::ObjectId(id) | Self::User(id) => Some(*id),
            Self::Property { .. } => None,
        }
    }

    /// The object id, also of a live resource of the graph.
    fn resolve(&self, live: &LiveState) -> Result<Uuid, UnknownValueError> {
        match self {
            Self::ObjectId(id) | Self::User(id) => Ok(*id),
            Self::Property { key, pointer } => {
                let value = live.get(key).and_then(|it| it.body.pointer(pointer)?.as_str());
                let id = value.and_then(|id| id.parse().ok());
                id.ok_or_else(|| UnknownValueError(key.clone()))
            }
        }
    }

    /// Text that differs between the principals of a graph: the object id, or the key of the resource that provides
    /// it.
    pub fn identifier(&self) -> String {
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

impl RoleAssignment {
    fn body(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        Ok(self.body_for(self.principal.resolve(live)?))
    }

    fn body_for(&self, principal: Uuid) -> Value {
        RoleAssignmentBody::new(&self.subscription, self.role, principal)
            .with_principal_type(self.principal.assigned_type())
            .to_json()
    }
}

impl Effect for RoleAssignment {
    type Access = AzureAccess;

    fn usage(&self) -> EffectUsage {
        EffectUsage::Own
    }

    fn is_known_by_content(&self) -> bool {
        true
    }

    /// The assignments of a scope are read together.
    fn collection(&self) -> Option<String> {
        Some(self.scope.to_string())
    }

    /// The assignment of the same role to the same principal at the same scope, whatever its name is; otherwise the
    /// assignment with the desired name.
    fn find(
        &self,
        id: &ResourceId,
        listed: &[LiveResource],
        live: &LiveState,
    ) -> Option<LiveResource> {
        let principal = self.principal.resolve(live).ok();
        let property = |it: &LiveResource, name: &str| {
            it.body["properties"][name].as_str().unwrap_or_default().to_ascii_lowercase()
        };
        let role = self.role.0.to_string();
        let equal = |it: &&LiveResource| {
            principal.is_some_and(|id| property(it, "principalId") == id.to_string())
                && property(it, "roleDefinitionId").ends_with(&role)
                && property(it, "scope") == self.scope.as_str().to_ascii_lowercase()
        };
        let found = listed.iter().find(equal).or_else(|| listed.iter().find(|it| it.id == *id))?;
        Some(found.clone())
    }

    async fn read_equal(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        live: &LiveState,
    ) -> Result<Option<LiveResource>, EffectError> {
        let listed = access.list_role_assignments(self.scope.as_str()).await?;
        Ok(self.find(id, &listed, live))
    }

    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference> {
        // An unknown principal differs from every live one: its identity does not exist.
        let principal = self.principal.resolve(live).unwrap_or_default();
        property_differences(&self.body_for(principal), &found.body)
    }

    /// The plan has no update of a role assignment.
    fn updated_properties(&self, _live: &LiveState) -> Result<Value, UnknownValueError> {
        Ok(Value::Null)
    }

    async fn write(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        _tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let body = self.body(live)?;
        Ok(access.put(id, RoleAssignmentBody::API_VERSION, body, existing).await?)
    }
}

/// Whether the roll-back creates role assignments again, which it does only for known principals.
pub fn assigns_roles(plan: &RollBackPlan) -> bool {
    plan.restored.iter().any(|it| it.id.has_type(RoleAssignmentBody::RESOURCE_TYPE))
}

/// The object ids of the managed identities that a journal records and whose live resources have the tags of lanyard: a
/// roll-back may give roles to them. The journal alone is no evidence here.
///
/// # Errors
///
/// The error of the first request that failed.
pub async fn recorded_principals(
    arm: &ArmClient,
    recorded: &RecordedState,
    tags: &OwnershipTags,
) -> Result<BTreeSet<Uuid>, AzureCallError> {
    let mut principals = BTreeSet::new();
    for (_, record) in recorded.resources() {
        let is_identity = |id: &&ArmResourceId| id.has_type(ManagedIdentityBody::RESOURCE_TYPE);
        let Some(id) = record.id.arm().filter(is_identity) else { continue };
        let version = ManagedIdentityBody::API_VERSION;
        let Some(live) = arm.fetch_optional(id.as_str(), version).await? else { continue };
        let live = arm_resource(record.id.clone(), live.body);
        if OwnershipEvidence::new(Some(record), tags).is_tagged(&live) {
            let principal = live.body.pointer("/properties/principalId").and_then(Value::as_str);
            principals.extend(principal.and_then(|id| id.parse::<Uuid>().ok()));
        }
    }
    Ok(principals)
}
