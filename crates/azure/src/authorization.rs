//! Role assignments, the permissions of the caller, and the number of assignments of a subscription.

use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::arm_body::ArmBody;
use crate::arm_request::ArmRequest;

/// A new role assignment. Azure rejects a change of the role or the principal of an existing one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAssignmentBody {
    /// Role and principal.
    pub properties: RoleAssignmentProperties,
}

/// The properties of a [`RoleAssignmentBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleAssignmentProperties {
    /// The id of the role definition in the subscription.
    pub role_definition_id: ArmResourceId,
    /// The object id of the principal.
    pub principal_id: Uuid,
    /// The type of the principal. With it, Azure does not look for the principal in the directory, where a new
    /// one may be missing.
    pub principal_type: AssignedPrincipalType,
}

/// The type of a principal with a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AssignedPrincipalType {
    /// An application or a managed identity.
    ServicePrincipal,
    /// A user.
    User,
    /// A group.
    Group,
}

impl ArmBody for RoleAssignmentBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Authorization/roleAssignments";
    const API_VERSION: &'static str = "2022-04-01";
}

impl RoleAssignmentBody {
    /// The assignment of a role to a service principal.
    pub fn new(subscription: &SubscriptionId, role: RoleDefinitionId, principal_id: Uuid) -> Self {
        let role_definition_id = role_definition_id(subscription, role);
        let principal_type = AssignedPrincipalType::ServicePrincipal;
        let properties =
            RoleAssignmentProperties { role_definition_id, principal_id, principal_type };
        Self { properties }
    }

    /// The same assignment for a principal of another type.
    #[must_use]
    pub fn with_principal_type(mut self, principal_type: AssignedPrincipalType) -> Self {
        self.properties.principal_type = principal_type;
        self
    }

    /// The id of the assignment `name` at a scope.
    pub fn id(scope: &ArmResourceId, name: Uuid) -> ArmResourceId {
        scope.provider_resource(Self::RESOURCE_TYPE, &name.to_string())
    }

    /// The path of the list of assignments at a scope, for the filters `atScope()` and `principalId eq '…'`.
    pub fn list_path(scope: &ArmResourceId) -> String {
        format!("{scope}/providers/{}", Self::RESOURCE_TYPE)
    }
}

/// The id of a role definition in a subscription.
pub fn role_definition_id(subscription: &SubscriptionId, role: RoleDefinitionId) -> ArmResourceId {
    ArmResourceId::subscription_scope(subscription)
        .provider_resource(RoleDefinitionBody::RESOURCE_TYPE, &role.0.to_string())
}

/// A custom role. Its name is unique in the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleDefinitionBody {
    /// Name, permissions and scopes.
    pub properties: RoleDefinitionProperties,
}

/// The properties of a [`RoleDefinitionBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleDefinitionProperties {
    /// The display name.
    pub role_name: String,
    /// The description. Role definitions have no tags.
    #[serde(default)]
    pub description: Option<String>,
    /// `CustomRole` or `BuiltInRole`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the role allows.
    #[serde(default)]
    pub permissions: Vec<RolePermission>,
    /// The scopes at and below which the role can be assigned.
    #[serde(default)]
    pub assignable_scopes: Vec<String>,
}

/// What a role allows. Actions may contain `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolePermission {
    /// The allowed control plane actions.
    pub actions: Vec<String>,
    /// Exceptions from `actions`.
    pub not_actions: Vec<String>,
    /// The allowed data plane actions.
    pub data_actions: Vec<String>,
    /// Exceptions from `data_actions`.
    pub not_data_actions: Vec<String>,
}

impl ArmBody for RoleDefinitionBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Authorization/roleDefinitions";
    const API_VERSION: &'static str = "2022-04-01";
}

impl RoleDefinitionBody {
    /// A custom role that can be assigned in one subscription.
    pub fn custom(
        subscription: &SubscriptionId,
        role_name: impl Into<String>,
        description: impl Into<String>,
        permission: RolePermission,
    ) -> Self {
        Self {
            properties: RoleDefinitionProperties {
                role_name: role_name.into(),
                description: Some(description.into()),
                kind: "CustomRole".to_owned(),
                permissions: vec![permission],
                assignable_scopes: vec![
                    ArmResourceId::subscription_scope(subscription).as_str().to_owned(),
                ],
            },
        }
    }

    /// The path of the list of role definitions that can be assigned at a scope.
    pub fn list_path(scope: &ArmResourceId) -> String {
        format!("{scope}/providers/{}", Self::RESOURCE_TYPE)
    }
}

/// A live role definition, built in or custom.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RoleDefinition {
    /// The name: a GUID.
    pub name: Uuid,
    /// Name, permissions and scopes.
    pub properties: RoleDefinitionProperties,
}

/// A live role assignment. Its ids are texts, because those of management groups are in no subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedRole {
    /// The id of the assignment.
    pub id: String,
    /// The name: a GUID.
    pub name: String,
    /// Scope, role and principal.
    pub properties: AssignedRoleProperties,
}

/// The properties of an [`AssignedRole`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedRoleProperties {
    /// The scope.
    pub scope: String,
    /// The id of the role definition.
    pub role_definition_id: String,
    /// The object id of the principal.
    pub principal_id: Uuid,
    /// The type of the principal, for example `ServicePrincipal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal_type: Option<String>,
    /// The time of the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_on: Option<Timestamp>,
}

impl AssignedRole {
    /// The role: the last segment of its definition's id, if that is a GUID.
    pub fn role(&self) -> Option<RoleDefinitionId> {
        let name = self.properties.role_definition_id.rsplit('/').next()?;
        name.parse().ok().map(RoleDefinitionId)
    }
}

impl RolePermission {
    /// The API version of the list of the caller's permissions.
    pub const API_VERSION: &'static str = "2022-04-01";
}

/// The number of role assignments of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAssignmentUsage {
    /// The limit of the subscription.
    #[serde(rename = "roleAssignmentsLimit")]
    pub limit: u32,
    /// The number of assignments, those of all scopes in the subscription included.
    #[serde(rename = "roleAssignmentsCurrentCount")]
    pub current: u32,
    /// The number of assignments that can still be created.
    #[serde(rename = "roleAssignmentsRemainingCount")]
    pub remaining: u32,
}

impl RoleAssignmentUsage {
    /// The request that reads the usage.
    pub fn get(subscription: &SubscriptionId) -> ArmRequest {
        let scope = ArmResourceId::subscription_scope(subscription);
        let path = format!("{scope}/providers/Microsoft.Authorization/roleAssignmentsUsageMetrics");
        ArmRequest::get(path, "2019-08-01-preview")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    const ROLE: &str = "acdd72a7-3385-48ef-bd42-f606fba81ae7";

    #[test]
    fn assignment_has_this_json_and_id() {
        let role = RoleDefinitionId(ROLE.parse().unwrap());
        let body = RoleAssignmentBody::new(&"s".parse().unwrap(), role, Uuid::from_u128(1));
        let definition =
            format!("/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/{ROLE}");
        let expected = |kind| {
            json!({ "properties": {
                "roleDefinitionId": definition,
                "principalId": Uuid::from_u128(1),
                "principalType": kind,
            } })
        };
        assert_body(&body, expected("ServicePrincipal"));
        let user = body.with_principal_type(AssignedPrincipalType::User);
        assert_body(&user, expected("User"));
        let scope = resource_id("Microsoft.Network/virtualNetworks/v");
        assert_eq!(
            RoleAssignmentBody::id(&scope, Uuid::from_u128(2)).as_str(),
            format!(
                "{scope}/providers/Microsoft.Authorization/roleAssignments/00000000-0000-0000-0000-000000000002"
            )
        );
    }

    #[test]
    fn custom_role_has_this_json_and_its_scope_is_the_subscription() {
        let permission = RolePermission {
            actions: vec!["Microsoft.Compute/disks/read".to_owned()],
            ..RolePermission::default()
        };
        let body = RoleDefinitionBody::custom(&"s".parse().unwrap(), "n", "d", permission);
        assert_body(
            &body,
            json!({ "properties": {
                "roleName": "n",
                "description": "d",
                "type": "CustomRole",
                "permissions": [{
                    "actions": ["Microsoft.Compute/disks/read"],
                    "notActions": [],
                    "dataActions": [],
                    "notDataActions": [],
                }],
                "assignableScopes": ["/subscriptions/s"],
            } }),
        );
    }

    #[test]
    fn live_assignment_of_a_management_group_can_be_read() {
        let scope = "/providers/Microsoft.Management/managementGroups/m";
        let live: AssignedRole = serde_json::from_value(json!({
            "id": format!("{scope}/providers/Microsoft.Authorization/roleAssignments/n"),
            "name": "n",
            "properties": {
                "scope": scope,
                "roleDefinitionId":
                    format!("/providers/Microsoft.Authorization/roleDefinitions/{ROLE}"),
                "principalId": Uuid::from_u128(1),
            },
        }))
        .unwrap();
        assert_eq!(live.role(), ROLE.parse().ok().map(RoleDefinitionId));
    }

    #[test]
    fn permissions_and_usage_can_be_read() {
        let permission: RolePermission =
            serde_json::from_value(json!({ "actions": ["*/read"], "notActions": [] })).unwrap();
        assert_eq!(permission.actions, ["*/read"]);
        let usage: RoleAssignmentUsage = serde_json::from_value(json!({
            "subscriptionId": "s",
            "roleAssignmentsLimit": 4000,
            "roleAssignmentsCurrentCount": 41,
            "roleAssignmentsRemainingCount": 3959,
        }))
        .unwrap();
        assert_eq!((usage.limit, usage.current, usage.remaining), (4000, 41, 3959));
    }
}
