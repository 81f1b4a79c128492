//! Role assignments and the delay until a change of one takes effect.

use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::RoleDefinitionId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ActionPlane;
use super::access_scope::AccessScope;
use super::condition::{AssignmentAttributes, AttributeSource, Condition};

/// The assignment of a role to a principal on a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAssignment {
    /// The name: a GUID, unique in all tenants.
    pub name: Uuid,
    /// The scope, which includes everything below it.
    pub scope: AccessScope,
    #[serde(with = "super::role_id")]
    pub role: RoleDefinitionId,
    /// The object id of the principal.
    pub principal_id: Uuid,
    /// `ServicePrincipal`, `User` or `Group`.
    pub principal_type: String,
    /// The description, if present.
    pub description: Option<String>,
    /// Must be met for the assignment to grant anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// When the assignment was created.
    pub created_on: Timestamp,
    /// The object id of the principal that created it; `None` if the seed did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<Uuid>,
    /// The last update, and the object id of its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<(Timestamp, Uuid)>,
    /// The delay until the assignment takes effect: the setting at the time of its creation.
    #[serde(default, skip_serializing_if = "PropagationDelay::is_zero")]
    pub delay: PropagationDelay,
}

impl RoleAssignment {
    /// An assignment to a service principal that takes effect immediately.
    pub fn new(
        name: Uuid,
        scope: AccessScope,
        role: RoleDefinitionId,
        principal_id: Uuid,
        created_on: Timestamp,
    ) -> Self {
        Self {
            name,
            scope,
            role,
            principal_id,
            principal_type: "ServicePrincipal".to_owned(),
            description: None,
            condition: None,
            created_on,
            created_by: None,
            updated: None,
            delay: PropagationDelay::default(),
        }
    }

    /// The resource id of the assignment.
    pub fn id(&self) -> String {
        self.scope.extension_resource_id("Microsoft.Authorization/roleAssignments", self.name)
    }

    /// When the assignment takes effect on a plane.
    pub(crate) fn effective_from(&self, plane: ActionPlane) -> Timestamp {
        self.delay.after(self.created_on, plane)
    }

    /// Whether the assignment has taken effect for requests to Azure Resource Manager.
    pub fn is_effective_on_control_plane(&self, now: Timestamp) -> bool {
        self.effective_from(ActionPlane::Control) <= now
    }

    /// Whether both grant the same role to the same principal on the same scope.
    pub(crate) fn is_same_grant(&self, other: &Self) -> bool {
        self.principal_id == other.principal_id
            && self.role == other.role
            && self.scope == other.scope
    }

    /// The attributes for the condition of a caller that writes or deletes this assignment.
    pub fn attributes(&self, source: AttributeSource) -> AssignmentAttributes<'_> {
        AssignmentAttributes {
            source,
            role: self.role,
            principal_id: self.principal_id,
            principal_type: &self.principal_type,
        }
    }
}

/// A deleted assignment that is still effective on a plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RevokedAssignment {
    pub assignment: RoleAssignment,
    pub(crate) revoked_on: Timestamp,
    /// The delay until the deletion takes effect: the setting at the time of the deletion.
    pub delay: PropagationDelay,
}

impl RevokedAssignment {
    /// The key among the revoked assignments; an assignment can be created and deleted repeatedly.
    pub(super) fn key(&self) -> Uuid {
        Uuid::new_v5(&self.assignment.name, self.revoked_on.to_string().as_bytes())
    }

    /// Whether the assignment has taken effect, and its deletion has not.
    pub(super) fn is_effective(&self, plane: ActionPlane, now: Timestamp) -> bool {
        self.assignment.effective_from(plane) <= now && now < self.effective_until(plane)
    }

    fn effective_until(&self, plane: ActionPlane) -> Timestamp {
        self.delay.after(self.revoked_on, plane)
    }

    /// When the deletion has taken effect on both planes.
    pub(super) fn ends(&self) -> Timestamp {
        self.effective_until(ActionPlane::Control).max(self.effective_until(ActionPlane::Data))
    }
}

/// The delay until the creation or deletion of a role assignment takes effect, in seconds of
/// emulated time. Azure documents up to 10 minutes. The default is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PropagationDelay {
    /// For requests to Azure Resource Manager.
    pub control_plane_seconds: u32,
    /// For requests to the data planes, such as that of a vault.
    pub data_plane_seconds: u32,
}

impl PropagationDelay {
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn after(self, time: Timestamp, plane: ActionPlane) -> Timestamp {
        let seconds = match plane {
            ActionPlane::Control => self.control_plane_seconds,
            ActionPlane::Data => self.data_plane_seconds,
        };
        let delay = SignedDuration::from_secs(i64::from(seconds));
        time.checked_add(delay).unwrap_or(Timestamp::MAX)
    }
}
