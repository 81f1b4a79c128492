//! The desired graph of the managed identities of one cluster and their federated credentials, as HyperShift's
//! `create iam azure` creates them.

use lanyard_azure::{
    ArmBody, FederatedCredentialBody, ManagedIdentityBody, ResourceGroupBody, ResourceTags,
};
use lanyard_changes::{
    AzureEffect, AzureResource, FederatedCredential, IssuerReference, ResourceKey, StackName,
};
use lanyard_vocabulary::{ArmResourceId, Component, SubscriptionId};

use crate::azure_name_rules::InvalidAzureNameError;
use crate::cluster_identifiers::ClusterIdentifiers;
use crate::resource_names::ClusterResourceNames;
use crate::stacks;
use crate::workload_identities::{
    DataPlaneIdentity, FederatedCredentialDefinition, OPENSHIFT_AUDIENCE, workload_identities,
};

/// The parameters of the identities of a self-managed cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct IamParameters {
    /// The subscription of the identities.
    pub subscription: SubscriptionId,
    /// The name and the infrastructure id of the cluster.
    pub identifiers: ClusterIdentifiers,
    /// The region of the identities, and of their group if it does not exist.
    pub location: String,
    /// The resource group of the identities.
    pub resource_group: String,
    /// The URL of the cluster's token issuer, byte for byte as in its tokens.
    pub issuer: String,
    /// Whether the cluster encrypts secrets with a key in a vault.
    pub with_kms: bool,
}

/// The key of the identity of a component.
pub fn identity_key(component: Component) -> ResourceKey {
    ResourceKey::new(format!("identity/{}", component.name()))
}

/// The key of the identity of a component on worker nodes.
pub fn data_plane_identity_key(identity: DataPlaneIdentity) -> ResourceKey {
    ResourceKey::new(format!("data-plane-identity/{}", identity.component().name()))
}

/// The resources of the stack `iam`.
pub fn iam_resources(parameters: &IamParameters) -> Vec<AzureResource> {
    let group = ResourceGroupBody::id(&parameters.subscription, &parameters.resource_group);
    let mut resources = vec![identity_group(&group, &parameters.location, stacks::IAM)];
    let names = ClusterResourceNames::new(&parameters.identifiers);
    for definition in workload_identities(parameters.with_kms) {
        let identity = FederatedIdentity {
            stack: stacks::IAM,
            key: identity_key(definition.component),
            id: group.provider_resource(
                ManagedIdentityBody::RESOURCE_TYPE,
                &definition.identity_name(&names),
            ),
            location: &parameters.location,
            issuer: &parameters.issuer,
        };
        identity.add_to(&mut resources, definition.credentials, |suffix| {
            names.federated_credential(suffix)
        });
    }
    resources
}

/// The parameters of the identities for the worker nodes of an ARO HCP cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPlaneParameters {
    /// The subscription of the identities.
    pub subscription: SubscriptionId,
    /// The end of the identities' names, in HyperShift's scripts the prefix of the environment.
    pub prefix: String,
    /// The region of the identities, and of their group if it does not exist.
    pub location: String,
    /// The resource group of the identities.
    pub resource_group: String,
    /// The URL of the cluster's token issuer, byte for byte as in its tokens.
    pub issuer: String,
}

/// The identities of an ARO HCP cluster's worker nodes.
///
/// # Errors
///
/// Azure does not accept a name that `prefix` leads to.
pub fn data_plane_resources(
    parameters: &DataPlaneParameters,
) -> Result<Vec<AzureResource>, InvalidAzureNameError> {
    let group = ResourceGroupBody::id(&parameters.subscription, &parameters.resource_group);
    let mut resources = vec![identity_group(&group, &parameters.location, stacks::IDENTITIES)];
    for data_plane in DataPlaneIdentity::ALL {
        let name = data_plane.identity_name(&parameters.prefix)?;
        let identity = FederatedIdentity {
            stack: stacks::IDENTITIES,
            key: data_plane_identity_key(data_plane),
            id: group.provider_resource(ManagedIdentityBody::RESOURCE_TYPE, &name),
            location: &parameters.location,
            issuer: &parameters.issuer,
        };
        identity
            .add_to(&mut resources, data_plane.credentials(), |suffix| format!("{name}{suffix}"));
    }
    Ok(resources)
}

/// The key of the resource group of the identities, which other stacks may use.
pub(crate) const GROUP_KEY: &str = "identity-group";

fn identity_group(id: &ArmResourceId, location: &str, stack: StackName) -> AzureResource {
    let body = ResourceGroupBody::new(location, ResourceTags::new());
    AzureResource {
        key: ResourceKey::new(GROUP_KEY),
        stack,
        id: id.clone().into(),
        effect: AzureEffect::shared(ResourceGroupBody::API_VERSION, body.to_json()),
        depends_on: Vec::new(),
    }
}

/// A managed identity that accepts tokens of an issuer.
struct FederatedIdentity<'a> {
    stack: StackName,
    key: ResourceKey,
    id: ArmResourceId,
    location: &'a str,
    issuer: &'a str,
}

impl FederatedIdentity<'_> {
    /// Adds the identity and its credentials.
    fn add_to(
        self,
        resources: &mut Vec<AzureResource>,
        credentials: &[FederatedCredentialDefinition],
        credential_name: impl Fn(&str) -> String,
    ) {
        let body = ManagedIdentityBody::new(self.location, ResourceTags::new());
        resources.push(AzureResource {
            key: self.key.clone(),
            stack: self.stack.clone(),
            id: self.id.clone().into(),
            effect: AzureEffect::tagged(ManagedIdentityBody::API_VERSION, body.to_json()),
            depends_on: vec![ResourceKey::new(GROUP_KEY)],
        });
        for credential in credentials {
            let key = format!("{}/{}", self.key, credential.service_account);
            resources.push(AzureResource {
                key: ResourceKey::new(key),
                stack: self.stack.clone(),
                id: FederatedCredentialBody::id(&self.id, &credential_name(credential.suffix))
                    .into(),
                effect: AzureEffect::FederatedCredential(FederatedCredential {
                    issuer: IssuerReference::Url(self.issuer.to_owned()),
                    subject: credential.subject(),
                    audience: OPENSHIFT_AUDIENCE.to_owned(),
                }),
                depends_on: vec![self.key.clone()],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_changes::{AzureGraph, EffectUsage};

    use super::*;

    fn parameters(with_kms: bool) -> IamParameters {
        IamParameters {
            subscription: "s".parse().unwrap(),
            identifiers: ClusterIdentifiers::new(
                "harbour".parse().unwrap(),
                "harbour-x".parse().unwrap(),
            )
            .unwrap(),
            location: "eastus".to_owned(),
            resource_group: "identities".to_owned(),
            issuer: "https://issuer.example.com/x".to_owned(),
            with_kms,
        }
    }

    #[test]
    fn self_managed_cluster_has_13_credentials_and_14_with_kms() {
        for (with_kms, identities, credentials) in [(false, 8, 13), (true, 9, 14)] {
            let graph = AzureGraph::new(iam_resources(&parameters(with_kms))).unwrap();
            let count = |pattern: fn(&AzureEffect) -> bool| {
                graph.resources().iter().filter(|it| pattern(&it.effect)).count()
            };
            let is_identity = |it: &AzureEffect| matches!(it, AzureEffect::Arm(resource) if resource.usage == EffectUsage::Own);
            assert_eq!(count(is_identity), identities);
            let is_credential =
                |it: &AzureEffect| matches!(it, AzureEffect::FederatedCredential(_));
            assert_eq!(count(is_credential), credentials);
        }
    }

    #[test]
    fn credential_is_below_its_identity() {
        let resources = iam_resources(&parameters(false));
        let key = "identity/disk/azure-disk-csi-driver-node-sa";
        let credential = resources.iter().find(|it| it.key.as_str() == key).unwrap();
        assert_eq!(
            credential.id.as_str(),
            "/subscriptions/s/resourceGroups/identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities/harbour-disk-harbour-x/federatedIdentityCredentials/harbour-disk-fed-id-node"
        );
        assert_eq!(credential.depends_on, [identity_key(Component::Disk)]);
    }

    #[test]
    fn worker_nodes_have_three_identities_with_eight_credentials() {
        let parameters = DataPlaneParameters {
            subscription: "s".parse().unwrap(),
            prefix: "dev".to_owned(),
            location: "eastus".to_owned(),
            resource_group: "identities".to_owned(),
            issuer: "https://issuer.example.com/x".to_owned(),
        };
        let graph = AzureGraph::new(data_plane_resources(&parameters).unwrap()).unwrap();
        assert_eq!(graph.resources().len(), 1 + 3 + 8);
        assert!(
            data_plane_resources(&DataPlaneParameters { prefix: "a.b".to_owned(), ..parameters })
                .is_err()
        );
    }
}
