//! The resources whose names both clients use.

use lanyard_azure::{
    ArmBody as _, ManagedIdentityBody, NetworkSecurityGroupBody, ResourceGroupBody,
    RoleAssignmentBody,
};
use lanyard_changes::{
    AzureEffect, AzureResource, PrincipalReference, ResourceKey, RoleAssignment, StackName,
};
use lanyard_infra::stacks;
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};
use serde_json::{Value, json};
use uuid::Uuid;

/// The group that lanyard creates.
pub(crate) const OWN_GROUP: usize = 0;
/// The role assignment.
pub(crate) const ROLE: usize = 4;

/// The resources in the order of their dependencies. Those of the group `user` are in a group that lanyard did not
/// create.
pub(crate) fn desired_resources(subscription: &SubscriptionId) -> Vec<AzureResource> {
    let group = |name| ResourceGroupBody::id(subscription, name);
    let (own, user) = (group("own"), group("user"));
    let security_group = |group: &ArmResourceId| {
        group.provider_resource(NetworkSecurityGroupBody::RESOURCE_TYPE, "contested")
    };
    let resource = |key: &str, stack: &StackName, id: ArmResourceId, effect, needs: &[&str]| {
        let depends_on = needs.iter().map(|key| ResourceKey::new(*key)).collect();
        let (key, stack) = (ResourceKey::new(key), stack.clone());
        AzureResource { key, stack, id: id.into(), effect, depends_on }
    };
    let located =
        |api_version| AzureEffect::tagged(api_version, json!({ "location": "eastus", "tags": {} }));
    let network = || located(NetworkSecurityGroupBody::API_VERSION);
    let role = AzureEffect::RoleAssignment(RoleAssignment {
        subscription: subscription.clone(),
        role: RoleDefinitionId::KEY_VAULT_CRYPTO_USER,
        scope: user.clone(),
        principal: PrincipalReference::identity(ResourceKey::new("identity")),
    });
    let identity = user.provider_resource(ManagedIdentityBody::RESOURCE_TYPE, "contested");
    let (infra, iam) = (&stacks::INFRA, &stacks::IAM);
    vec![
        resource("group", infra, own.clone(), located(ResourceGroupBody::API_VERSION), &[]),
        resource("nsg", infra, security_group(&own), network(), &["group"]),
        resource("user-nsg", infra, security_group(&user), network(), &[]),
        resource("identity", iam, identity, located(ManagedIdentityBody::API_VERSION), &[]),
        resource("role", infra, role_id(&user), role, &["identity"]),
    ]
}

fn role_id(scope: &ArmResourceId) -> ArmResourceId {
    RoleAssignmentBody::id(scope, Uuid::from_u128(77))
}

/// The body with which the other client creates the resource: the content that lanyard wants, or another one.
pub(crate) fn other_body(number: usize, reader: Uuid, is_equal: bool) -> Value {
    if number == ROLE {
        let role = "/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7";
        return json!({ "properties": {
            "roleDefinitionId": role, "principalId": reader, "principalType": "ServicePrincipal"
        } });
    }
    let location = if is_equal { "eastus" } else { "westeurope" };
    json!({ "location": location, "tags": { "owner": "another team" } })
}
