//! The desired graph of a management cluster: an AKS cluster with the features that hosted control planes need.

use lanyard_azure::{
    AgentPoolProfile, ArmBody as _, ClusterIdentityReference, ManagedClusterBody,
    ManagedIdentityBody, ResourceGroupBody, ResourceTags, RoleAssignmentBody,
};
use lanyard_changes::{
    AzureEffect, AzureResource, PrincipalReference, ResourceKey, RoleAssignment, property_reference,
};
use lanyard_vocabulary::{ArmResourceId, EntraClientId, RoleDefinitionId, SubscriptionId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::stacks;

/// The parameters of a management cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct AksParameters {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The beginning of all names, as in HyperShift's scripts.
    pub prefix: String,
    /// The region.
    pub location: String,
    /// The resource group of the identities, which outlive the cluster.
    pub persistent_group: String,
    /// The number of nodes, or the smallest number if the autoscaler may add nodes.
    pub nodes: u32,
    /// The largest number of nodes of the autoscaler; `None` without the autoscaler.
    pub max_nodes: Option<u32>,
    /// The size of the nodes' machines.
    pub vm_size: String,
    /// The vault whose secrets the Secrets Store add-on may read.
    pub vault: Option<ArmResourceId>,
}

impl AksParameters {
    fn group(&self) -> ArmResourceId {
        ResourceGroupBody::id(&self.subscription, &format!("{}-aks-rg", self.prefix))
    }

    /// The id of the cluster.
    pub fn cluster_id(&self) -> ArmResourceId {
        let name = format!("{}-aks-cluster", self.prefix);
        self.group().provider_resource(ManagedClusterBody::RESOURCE_TYPE, &name)
    }

    fn identity_id(&self, suffix: &str) -> ArmResourceId {
        ResourceGroupBody::id(&self.subscription, &self.persistent_group).provider_resource(
            ManagedIdentityBody::RESOURCE_TYPE,
            &format!("{}-aks-{suffix}", self.prefix),
        )
    }
}

/// The key of the cluster in the graph.
pub const AKS_CLUSTER_KEY: &str = "cluster";
/// The JSON pointer of the Secrets Store add-on's identity in the body of a cluster.
pub const ADD_ON_IDENTITY: &str = "/properties/addonProfiles/azureKeyvaultSecretsProvider/identity";
/// The key of the resource group of the identities, which other stacks may use.
pub(crate) const PERSISTENT_GROUP: &str = "persistent-group";
/// The name that the Azure CLI gives to the first pool.
const POOL: &str = "nodepool1";
const ADD_ON_OBJECT_ID: &str =
    "/properties/addonProfiles/azureKeyvaultSecretsProvider/identity/objectId";

/// The resources of the stack `aks`.
///
/// The identity of the control plane gets Managed Identity Operator on that of the kubelets before the cluster is
/// created: AKS checks this when it accepts the cluster.
pub fn aks_resources(parameters: &AksParameters) -> Vec<AzureResource> {
    let key = |text: &str| ResourceKey::new(text);
    let persistent = ResourceGroupBody::id(&parameters.subscription, &parameters.persistent_group);
    let group = ResourceGroupBody::new(&*parameters.location, ResourceTags::new()).to_json();
    let identity = ManagedIdentityBody::new(&*parameters.location, ResourceTags::new()).to_json();
    let (control_plane, kubelet) =
        (parameters.identity_id("mi"), parameters.identity_id("kubelet-mi"));
    let mut resources = vec![
        resource(
            PERSISTENT_GROUP,
            &persistent,
            AzureEffect::shared(ResourceGroupBody::API_VERSION, group.clone()),
            vec![],
        ),
        resource(
            "group",
            &parameters.group(),
            AzureEffect::tagged(ResourceGroupBody::API_VERSION, group),
            vec![],
        ),
        resource(
            "identity/control-plane",
            &control_plane,
            AzureEffect::tagged(ManagedIdentityBody::API_VERSION, identity.clone()),
            vec![key(PERSISTENT_GROUP)],
        ),
        resource(
            "identity/kubelet",
            &kubelet,
            AzureEffect::tagged(ManagedIdentityBody::API_VERSION, identity),
            vec![key(PERSISTENT_GROUP)],
        ),
        role(
            parameters,
            "role/kubelet-identity",
            RoleDefinitionId::MANAGED_IDENTITY_OPERATOR,
            &kubelet,
            PrincipalReference::identity(key("identity/control-plane")),
            vec![key("identity/kubelet"), key("identity/control-plane")],
        ),
        resource(
            AKS_CLUSTER_KEY,
            &parameters.cluster_id(),
            cluster_definition(parameters, &control_plane, kubelet),
            vec![key("group"), key("role/kubelet-identity")],
        ),
    ];
    if let Some(vault) = &parameters.vault {
        let cluster = key(AKS_CLUSTER_KEY);
        let principal =
            PrincipalReference::Property { key: cluster.clone(), pointer: ADD_ON_OBJECT_ID };
        let secrets_user = RoleDefinitionId::KEY_VAULT_SECRETS_USER;
        let dependencies = vec![cluster];
        resources.push(role(
            parameters,
            "role/secrets-provider",
            secrets_user,
            vault,
            principal,
            dependencies,
        ));
    }
    resources
}

fn cluster_definition(
    parameters: &AksParameters,
    control_plane: &ArmResourceId,
    kubelet: ArmResourceId,
) -> AzureEffect {
    // Azure assigns the ids of the kubelets' identity when it is created.
    let placeholder = ClusterIdentityReference {
        resource_id: kubelet,
        client_id: EntraClientId::from(Uuid::nil()),
        object_id: Uuid::nil(),
    };
    let pool = AgentPoolProfile::system(POOL, &*parameters.vm_size, parameters.nodes);
    let pool = match parameters.max_nodes {
        Some(max_nodes) => pool.with_autoscaler(parameters.nodes, max_nodes),
        None => pool,
    };
    let mut body = ManagedClusterBody::new(
        &*parameters.location,
        ResourceTags::new(),
        &*parameters.prefix,
        control_plane,
        placeholder,
        pool,
    )
    .to_json();
    let key = ResourceKey::new("identity/kubelet");
    let kubelet = &mut body["properties"]["identityProfile"]["kubeletidentity"];
    kubelet["clientId"] = property_reference(&key, "/properties/clientId");
    kubelet["objectId"] = property_reference(&key, "/properties/principalId");
    // Azure does not change the prefix of an existing cluster, and the autoscaler changes the number of nodes.
    let mut initial =
        json!({ "properties": { "dnsPrefix": body["properties"]["dnsPrefix"].take() } });
    body["properties"].as_object_mut().and_then(|properties| properties.remove("dnsPrefix"));
    let pool = body.pointer_mut("/properties/agentPoolProfiles/0").and_then(Value::as_object_mut);
    let scaled = pool.filter(|_| parameters.max_nodes.is_some());
    if let Some(count) = scaled.and_then(|pool| pool.remove("count")) {
        initial["properties"]["agentPoolProfiles"] = json!([{ "name": POOL, "count": count }]);
    }
    AzureEffect::tagged(ManagedClusterBody::API_VERSION, body).with_initial(initial)
}

fn resource(
    key: &str,
    id: &ArmResourceId,
    effect: AzureEffect,
    depends_on: Vec<ResourceKey>,
) -> AzureResource {
    let (key, stack, id) = (ResourceKey::new(key), stacks::AKS, id.clone().into());
    AzureResource { key, stack, id, effect, depends_on }
}

fn role(
    parameters: &AksParameters,
    key: &str,
    role: RoleDefinitionId,
    scope: &ArmResourceId,
    principal: PrincipalReference,
    depends_on: Vec<ResourceKey>,
) -> AzureResource {
    let text = format!("{}-{key}-{scope}", parameters.cluster_id()).to_ascii_lowercase();
    let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.as_bytes());
    let effect = AzureEffect::RoleAssignment(RoleAssignment {
        subscription: parameters.subscription.clone(),
        role,
        scope: scope.clone(),
        principal,
    });
    resource(key, &RoleAssignmentBody::id(scope, name), effect, depends_on)
}

#[cfg(test)]
mod tests {
    use lanyard_changes::AzureGraph;

    use super::*;

    #[test]
    fn cluster_follows_the_role_on_the_kubelets_identity() {
        let parameters = AksParameters {
            subscription: "s".parse().unwrap(),
            prefix: "dev".to_owned(),
            location: "eastus".to_owned(),
            persistent_group: "os4-common".to_owned(),
            nodes: 3,
            max_nodes: Some(6),
            vm_size: "Standard_D4s_v4".to_owned(),
            vault: Some(
                "/subscriptions/s/resourceGroups/os4-common/providers/Microsoft.KeyVault/vaults/dev"
                    .parse()
                    .unwrap(),
            ),
        };
        let graph = AzureGraph::new(aks_resources(&parameters)).unwrap();
        let position =
            |key: &str| graph.resources().iter().position(|it| it.key.as_str() == key).unwrap();
        assert!(position("role/kubelet-identity") < position(AKS_CLUSTER_KEY));
        assert!(position(AKS_CLUSTER_KEY) < position("role/secrets-provider"));
        assert_eq!(graph.resources().len(), 7);
    }
}
