//! The desired resources of one cluster: its issuer, and for each application an identity, a federated credential and
//! access to secrets.

use lanyard_azure::{
    ArmBody as _, FederatedCredentialBody, ManagedClusterBody, ManagedIdentityBody,
    ResourceGroupBody, RoleAssignmentBody,
};
use lanyard_changes::{
    AzureEffect, AzureResource, FederatedCredential, IssuerReference, PrincipalReference,
    ResourceKey, RoleAssignment, StackName,
};
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SecretName};
use serde_json::json;
use uuid::Uuid;

use crate::fleet::{Application, FleetCluster, VaultSecrets};
use crate::fleet_document::OidcIssuerMode;
use crate::fleet_label::FleetLabel;
use crate::live_cluster::LiveCluster;

/// The stack of the resources of one cluster of a fleet.
pub const FLEET: StackName = StackName::new("fleet");

/// The key of the resource group of the identities.
pub(crate) const GROUP_KEY: &str = "group";
/// The key of the AKS cluster.
const CLUSTER_KEY: &str = "cluster";
/// What the keys of federated credentials begin with.
pub(crate) const CREDENTIAL_KEYS: &str = "credential/";

/// The role of an identity on each secret: it can read the value.
const SECRET_ROLE: RoleDefinitionId = RoleDefinitionId::KEY_VAULT_SECRETS_USER;

/// One cluster of a fleet, with what Azure says about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterPart<'a> {
    pub(crate) fleet: &'a FleetLabel,
    pub(crate) applications: &'a [Application],
    pub(crate) cluster: &'a FleetCluster,
    pub(crate) live: &'a LiveCluster,
}

/// One application on one cluster.
#[derive(Clone, Copy)]
struct Workload<'a> {
    part: ClusterPart<'a>,
    application: &'a Application,
}

impl ClusterPart<'_> {
    /// The desired resources, each behind its dependencies.
    pub(crate) fn resources(self) -> Vec<AzureResource> {
        let mut resources = vec![self.group(), self.aks_cluster()];
        for application in self.applications {
            resources.extend(Workload { part: self, application }.resources());
        }
        resources
    }

    /// The resource group of the identities. Those of other clusters may be in it, too.
    fn group(self) -> AzureResource {
        let place = &self.cluster.identities;
        let body = ResourceGroupBody::new(self.location(), place.tags.clone());
        AzureResource {
            key: ResourceKey::new(GROUP_KEY),
            stack: FLEET,
            id: ResourceGroupBody::id(&place.subscription, &place.resource_group).into(),
            effect: AzureEffect::shared(ResourceGroupBody::API_VERSION, body.to_json()),
            depends_on: Vec::new(),
        }
    }

    /// The AKS cluster, whose issuer and webhook are enabled if the file says so. All its other properties stay.
    fn aks_cluster(self) -> AzureResource {
        let body = json!({ "properties": {
            "oidcIssuerProfile": { "enabled": true },
            "securityProfile": { "workloadIdentity": { "enabled": true } },
        } });
        let version = ManagedClusterBody::API_VERSION;
        AzureResource {
            key: ResourceKey::new(CLUSTER_KEY),
            stack: FLEET,
            id: self.cluster.id.clone().into(),
            effect: match self.cluster.oidc_issuer {
                OidcIssuerMode::Enable => AzureEffect::adjusted(version, body),
                OidcIssuerMode::Require => AzureEffect::existing(version),
            },
            depends_on: Vec::new(),
        }
    }

    fn location(&self) -> &str {
        self.cluster.identities.location.as_deref().unwrap_or(&self.live.location)
    }
}

impl Workload<'_> {
    fn resources(self) -> Vec<AzureResource> {
        let mut resources = vec![self.identity(), self.credential()];
        if let Some(access) = self.application.secrets_on(self.part.cluster) {
            resources.extend(access.names.iter().map(|secret| self.grant(access, secret)));
        }
        resources
    }

    fn identity_id(self) -> ArmResourceId {
        let place = &self.part.cluster.identities;
        let name = self.application.identity_name(self.part.fleet, &self.part.cluster.name);
        ResourceGroupBody::id(&place.subscription, &place.resource_group)
            .provider_resource(ManagedIdentityBody::RESOURCE_TYPE, &name)
    }

    fn identity_key(self) -> ResourceKey {
        identity_key(&self.application.name)
    }

    fn identity(self) -> AzureResource {
        let tags = self.part.cluster.identities.tags.clone();
        let body = ManagedIdentityBody::new(self.part.location(), tags);
        AzureResource {
            key: self.identity_key(),
            stack: FLEET,
            id: self.identity_id().into(),
            effect: AzureEffect::tagged(ManagedIdentityBody::API_VERSION, body.to_json()),
            depends_on: vec![ResourceKey::new(GROUP_KEY)],
        }
    }

    /// The trust in the tokens of the application's ServiceAccount. A cluster that was created again has another issuer,
    /// so it gets a credential beside that of its predecessor.
    fn credential(self) -> AzureResource {
        let ClusterPart { cluster, live, .. } = self.part;
        let generation = live.generation.as_str();
        let application = &self.application.name;
        let issuer = match &live.issuer {
            Some(url) => IssuerReference::Url(url.clone()),
            None => IssuerReference::Property {
                key: ResourceKey::new(CLUSTER_KEY),
                pointer: "/properties/oidcIssuerProfile/issuerURL",
            },
        };
        let name = format!("{}-{generation}", cluster.name);
        AzureResource {
            key: ResourceKey::new(format!("{CREDENTIAL_KEYS}{application}/{generation}")),
            stack: FLEET,
            id: FederatedCredentialBody::id(&self.identity_id(), &name).into(),
            effect: AzureEffect::FederatedCredential(FederatedCredential {
                issuer,
                subject: self.application.subject(),
                audience: self.application.audience.clone(),
            }),
            depends_on: vec![self.identity_key(), ResourceKey::new(CLUSTER_KEY)],
        }
    }

    /// Read access to one secret.
    fn grant(self, access: &VaultSecrets, secret: &SecretName) -> AzureResource {
        let scope = access.vault.child("secrets", secret.as_str());
        // The identities of all clusters get the role at the same scope, so the name depends on the identity.
        let text = format!("{scope}-{}-{}", SECRET_ROLE.0, self.identity_id()).to_ascii_lowercase();
        let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.as_bytes());
        AzureResource {
            key: ResourceKey::new(format!("grant/{}/{secret}", self.application.name)),
            stack: FLEET,
            id: RoleAssignmentBody::id(&scope, name).into(),
            effect: AzureEffect::RoleAssignment(RoleAssignment {
                subscription: access.subscription.clone(),
                role: SECRET_ROLE,
                scope,
                principal: PrincipalReference::identity(self.identity_key()),
            }),
            depends_on: vec![self.identity_key()],
        }
    }
}

/// The key of an application's identity.
pub fn identity_key(application: &FleetLabel) -> ResourceKey {
    ResourceKey::new(format!("identity/{application}"))
}
