//! The desired graph of the identities of `CredentialsRequest` objects, as ccoctl's
//! `create-managed-identities` creates them.

use lanyard_azure::{
    ArmBody as _, FederatedCredentialBody, ManagedIdentityBody, ResourceGroupBody, ResourceTags,
    RoleAssignmentBody, RoleDefinitionBody, RolePermission, role_definition_id,
};
use lanyard_changes::{
    AzureEffect, AzureResource, FederatedCredential, IssuerReference, PrincipalReference,
    ResourceKey, RoleAssignment,
};
use lanyard_federation::{IdentitySpec, RoleScopeGroups};
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};
use uuid::Uuid;

use crate::ccoctl_ownership::CcoctlOwner;
use crate::role_names::{RoleNameError, RoleNames};
use crate::stacks;

/// The parameters of the identities of `CredentialsRequest` objects.
#[derive(Debug, Clone)]
pub struct ComponentIdentityParameters {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The owner, with whose name the identities begin.
    pub owner: CcoctlOwner,
    /// The region of the identities, and of the groups that do not exist.
    pub location: String,
    /// The resource group of the identities, which is created if it does not exist.
    pub resource_group: String,
    /// The resource groups in which the identities get roles. The group of the installation is created if it does
    /// not exist, the others must exist.
    pub groups: RoleScopeGroups,
    /// Further tags of groups and identities.
    pub tags: ResourceTags,
    /// The identities.
    pub identities: Vec<IdentitySpec>,
}

/// The key of the identity of a `CredentialsRequest`.
pub fn component_identity_key(identity: &IdentitySpec) -> ResourceKey {
    ResourceKey::new(format!("identity/{}", secret_path(identity)))
}

/// The key of the resource group of the identities.
pub const IDENTITY_GROUP_KEY: &str = "identity-group";
/// The key of the resource group of the installation.
pub const INSTALLATION_GROUP_KEY: &str = "installation-group";

/// The resources of the stack `ccoctl`.
///
/// # Errors
///
/// Lists every role name that does not select one role.
pub fn component_identity_resources(
    parameters: &ComponentIdentityParameters,
    roles: &RoleNames,
) -> Result<Vec<AzureResource>, Vec<RoleNameError>> {
    let mut resources = parameters.group_resources();
    let mut errors = Vec::new();
    for identity in &parameters.identities {
        let graph = IdentityGraph { parameters, identity, key: component_identity_key(identity) };
        resources.push(graph.identity_resource());
        resources.extend(graph.credential_resources());
        match graph.role_resources(roles) {
            Ok(roles) => resources.extend(roles),
            Err(mut unknown) => errors.append(&mut unknown),
        }
    }
    errors.dedup();
    if errors.is_empty() { Ok(resources) } else { Err(errors) }
}

fn secret_path(identity: &IdentitySpec) -> String {
    format!("{}/{}", identity.request.secret.namespace, identity.request.secret.name)
}

fn resource(
    key: ResourceKey,
    id: ArmResourceId,
    effect: AzureEffect,
    depends_on: Vec<ResourceKey>,
) -> AzureResource {
    AzureResource { key, stack: stacks::CCOCTL, id: id.into(), effect, depends_on }
}

impl ComponentIdentityParameters {
    fn identity_group(&self) -> ArmResourceId {
        ResourceGroupBody::id(&self.subscription, &self.resource_group)
    }

    /// Each group once: several flags may name one group.
    fn group_resources(&self) -> Vec<AzureResource> {
        let RoleScopeGroups { installation, dns_zone, network } = &self.groups;
        let created = [
            (IDENTITY_GROUP_KEY, self.identity_group()),
            (INSTALLATION_GROUP_KEY, installation.clone()),
        ];
        let body =
            ResourceGroupBody::new(&*self.location, self.owner.owned_tags(&self.tags)).to_json();
        let shared = AzureEffect::shared(ResourceGroupBody::API_VERSION, body);
        let existing = AzureEffect::existing(ResourceGroupBody::API_VERSION);
        let mut resources: Vec<AzureResource> = created
            .into_iter()
            .map(|(key, id)| resource(ResourceKey::new(key), id, shared.clone(), Vec::new()))
            .collect();
        for (key, id) in [("dns-group", dns_zone), ("network-group", network)] {
            let Some(id) = id else { continue };
            if !resources.iter().any(|it| it.id == *id) {
                let key = ResourceKey::new(key);
                resources.push(resource(key, id.clone(), existing.clone(), Vec::new()));
            }
        }
        resources
    }

    /// The key of the group that is a scope.
    fn scope_key(&self, scope: &ArmResourceId) -> ResourceKey {
        let RoleScopeGroups { installation, dns_zone, .. } = &self.groups;
        ResourceKey::new(if scope == installation {
            INSTALLATION_GROUP_KEY
        } else if *scope == self.identity_group() {
            IDENTITY_GROUP_KEY
        } else if dns_zone.as_ref() == Some(scope) {
            "dns-group"
        } else {
            "network-group"
        })
    }
}

/// One identity with its credentials and roles.
struct IdentityGraph<'a> {
    parameters: &'a ComponentIdentityParameters,
    identity: &'a IdentitySpec,
    key: ResourceKey,
}

/// A role of an identity, and the resource that creates it if it is a custom role of lanyard.
struct IdentityRole {
    word: String,
    role: RoleDefinitionId,
    created_by: Option<ResourceKey>,
}

impl IdentityGraph<'_> {
    fn id(&self) -> ArmResourceId {
        let group = self.parameters.identity_group();
        group.provider_resource(ManagedIdentityBody::RESOURCE_TYPE, &self.identity.name)
    }

    fn identity_resource(&self) -> AzureResource {
        let ComponentIdentityParameters { location, owner, tags, .. } = self.parameters;
        let body = ManagedIdentityBody::new(&**location, owner.owned_tags(tags)).to_json();
        resource(
            self.key.clone(),
            self.id(),
            AzureEffect::tagged(ManagedIdentityBody::API_VERSION, body),
            vec![ResourceKey::new(IDENTITY_GROUP_KEY)],
        )
    }

    fn credential_resources(&self) -> impl Iterator<Item = AzureResource> {
        self.identity.federated_credentials.iter().map(|credential| {
            resource(
                ResourceKey::new(format!("{}/{}", self.key, credential.name)),
                FederatedCredentialBody::id(&self.id(), &credential.name),
                AzureEffect::FederatedCredential(FederatedCredential {
                    issuer: IssuerReference::Url(credential.issuer.to_string()),
                    subject: credential.subject.clone(),
                    audience: credential.audience.to_owned(),
                }),
                vec![self.key.clone()],
            )
        })
    }

    /// The custom role of the identity, and its assignments.
    fn role_resources(&self, names: &RoleNames) -> Result<Vec<AzureResource>, Vec<RoleNameError>> {
        let mut errors = Vec::new();
        let mut roles: Vec<IdentityRole> = Vec::new();
        for name in &self.identity.request.roles {
            match names.require(name) {
                // Names differ in case only, or are listed twice.
                Ok(role) if roles.iter().any(|known| known.role == role) => {}
                Ok(role) => roles.push(IdentityRole { word: name.clone(), role, created_by: None }),
                Err(error) => errors.push(error),
            }
        }
        let custom = self.custom_role(names).unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut resources = Vec::new();
        if let Some((role, definition)) = custom {
            let created_by = Some(definition.key.clone());
            roles.push(IdentityRole { word: "custom".to_owned(), role, created_by });
            resources.push(definition);
        }
        for role in &roles {
            let scopes = self.identity.scopes.iter();
            resources.extend(scopes.map(|scope| self.assignment(role, scope)));
        }
        Ok(resources)
    }

    /// The role with the permissions of the `CredentialsRequest`. Its name is that of the identity; a role with
    /// this name is used again, because Azure does not accept a second one.
    fn custom_role(
        &self,
        names: &RoleNames,
    ) -> Result<Option<(RoleDefinitionId, AzureResource)>, RoleNameError> {
        let IdentitySpec { name, request, .. } = self.identity;
        if request.permissions.is_empty() && request.data_permissions.is_empty() {
            return Ok(None);
        }
        let subscription = &self.parameters.subscription;
        let role = names.find(name)?.unwrap_or_else(|| {
            let text = format!("/subscriptions/{subscription}-{name}").to_ascii_lowercase();
            RoleDefinitionId(Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.as_bytes()))
        });
        let permission = RolePermission {
            actions: request.permissions.clone(),
            data_actions: request.data_permissions.clone(),
            ..RolePermission::default()
        };
        let description = self.parameters.owner.role_description();
        let body = RoleDefinitionBody::custom(subscription, &**name, description, permission);
        let definition = resource(
            ResourceKey::new(format!("role-definition/{}", secret_path(self.identity))),
            role_definition_id(subscription, role),
            AzureEffect::untagged(RoleDefinitionBody::API_VERSION, body.to_json()),
            Vec::new(),
        );
        Ok(Some((role, definition)))
    }

    fn assignment(&self, role: &IdentityRole, scope: &ArmResourceId) -> AzureResource {
        let scope_key = self.parameters.scope_key(scope);
        let name = format!("{}-{}-{scope}", self.id(), role.role.0).to_ascii_lowercase();
        let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes());
        let key = format!("role/{}/{}/{scope_key}", secret_path(self.identity), role.word);
        let mut depends_on = vec![self.key.clone(), scope_key];
        depends_on.extend(role.created_by.clone());
        resource(
            ResourceKey::new(key),
            RoleAssignmentBody::id(scope, name),
            AzureEffect::RoleAssignment(RoleAssignment {
                subscription: self.parameters.subscription.clone(),
                role: role.role,
                scope: scope.clone(),
                principal: PrincipalReference::identity(self.key.clone()),
            }),
            depends_on,
        )
    }
}

#[cfg(test)]
mod tests {
    use lanyard_azure::RoleDefinition;
    use lanyard_changes::{ArmResource, AzureGraph};
    use lanyard_federation::{
        CredentialsRequestFile, IdentityPlanSettings, parse_credentials_requests, plan_identities,
    };
    use serde_json::json;

    use super::*;

    const REQUESTS: &str = "
kind: CredentialsRequest
metadata: {name: openshift-ingress-azure}
spec:
  secretRef: {namespace: openshift-ingress-operator, name: cloud-credentials}
  serviceAccountNames: [ingress-operator]
  providerSpec:
    roleBindings: [{role: DNS Zone Contributor}, {role: dns zone contributor}, {role: Reader}]
---
kind: CredentialsRequest
metadata: {name: azure-disk-csi-driver-operator}
spec:
  secretRef: {namespace: openshift-cluster-csi-drivers, name: azure-disk-credentials}
  serviceAccountNames: [azure-disk-csi-driver-operator, azure-disk-csi-driver-controller-sa]
  providerSpec:
    permissions: [Microsoft.Compute/disks/read]
    dataPermissions: [Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read]
";

    fn group(name: &str) -> ArmResourceId {
        format!("/subscriptions/s/resourceGroups/{name}").parse().unwrap()
    }

    fn parameters() -> ComponentIdentityParameters {
        let file = CredentialsRequestFile { name: "requests.yaml", text: REQUESTS };
        let groups = RoleScopeGroups {
            installation: group("dev"),
            dns_zone: Some(group("dns")),
            network: Some(group("DEV")),
        };
        let settings = IdentityPlanSettings {
            name: "dev".to_owned(),
            issuer: "https://issuer.example.com/x".parse().unwrap(),
            groups: groups.clone(),
        };
        let requests = parse_credentials_requests(&[file], false).unwrap();
        ComponentIdentityParameters {
            subscription: "s".parse().unwrap(),
            owner: CcoctlOwner::new("dev"),
            location: "eastus".to_owned(),
            resource_group: "dev-oidc".to_owned(),
            groups,
            tags: ResourceTags::from([("team".to_owned(), "platform".to_owned())]),
            identities: plan_identities(requests, &settings).unwrap(),
        }
    }

    fn roles(names: &[(u128, &str)]) -> RoleNames {
        let role = |(id, name): &(u128, &str)| -> RoleDefinition {
            let properties = json!({ "roleName": name, "type": "BuiltInRole" });
            let role = json!({ "name": Uuid::from_u128(*id), "properties": properties });
            serde_json::from_value(role).unwrap()
        };
        names.iter().map(role).collect()
    }

    const BUILT_IN: [(u128, &str); 2] = [(1, "DNS Zone Contributor"), (2, "Reader")];

    #[test]
    fn identities_have_credentials_roles_and_the_tags_of_ccoctl() {
        let resources = component_identity_resources(&parameters(), &roles(&BUILT_IN)).unwrap();
        let graph = AzureGraph::new(resources.clone()).unwrap();
        let mut keys: Vec<_> = graph.resources().iter().map(|it| it.key.as_str()).collect();
        keys.sort_unstable();
        let ingress = "openshift-ingress-operator/cloud-credentials";
        let disk = "openshift-cluster-csi-drivers/azure-disk-credentials";
        let mut expected = vec![
            "dns-group".to_owned(),
            "identity-group".to_owned(),
            "installation-group".to_owned(),
            format!("identity/{ingress}"),
            format!("identity/{ingress}/ingress-operator"),
            format!("identity/{disk}"),
            format!("identity/{disk}/azure-disk-csi-driver-operator"),
            format!("identity/{disk}/azure-disk-csi-driver-controller-sa"),
            format!("role-definition/{disk}"),
            format!("role/{disk}/custom/installation-group"),
        ];
        for role in ["DNS Zone Contributor", "Reader"] {
            for scope in ["installation-group", "dns-group"] {
                expected.push(format!("role/{ingress}/{role}/{scope}"));
            }
        }
        expected.sort_unstable();
        assert_eq!(keys, expected);
        let identity = resources.iter().find(|it| it.key.as_str().ends_with(ingress)).unwrap();
        assert_eq!(identity.id.name(), "dev-openshift-ingress-operator-cloud-credentials");
        let AzureEffect::Arm(ArmResource { body, .. }) = &identity.effect else { panic!() };
        assert_eq!(body["tags"]["openshift.io_cloud-credential-operator_dev"], "owned");
        assert_eq!(body["tags"]["team"], "platform");
    }

    #[test]
    fn custom_role_with_the_name_of_the_identity_is_used_again() {
        let name = "dev-openshift-cluster-csi-drivers-azure-disk-credentials";
        let known = [BUILT_IN[0], BUILT_IN[1], (7, name)];
        let id_of = |roles| {
            let resources = component_identity_resources(&parameters(), &roles).unwrap();
            let role = resources.iter().find(|it| it.key.as_str().starts_with("role-definition/"));
            role.unwrap().id.clone()
        };
        assert_eq!(id_of(roles(&known)).name(), Uuid::from_u128(7).to_string());
        assert_ne!(id_of(roles(&BUILT_IN)).name(), Uuid::from_u128(7).to_string());
        assert_eq!(id_of(roles(&BUILT_IN)), id_of(roles(&BUILT_IN)));
    }

    #[test]
    fn unknown_roles_are_listed() {
        let errors = component_identity_resources(&parameters(), &roles(&[])).unwrap_err();
        let text: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "the subscription has no role `DNS Zone Contributor`",
                "the subscription has no role `dns zone contributor`",
                "the subscription has no role `Reader`",
            ]
        );
    }
}
