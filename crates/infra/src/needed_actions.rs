//! The actions that each command needs, from the resources that it writes for an example cluster: their types do
//! not depend on its names.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use lanyard_azure::{
    ArmBody as _, CallerIdentity, ResourceGroupBody, ResourceTags, VaultBody, VaultKeyBody,
};
use lanyard_changes::{AzureResource, PrincipalReference};
use lanyard_clock::ErrorHint;
use lanyard_federation::{
    IdentityPlanSettings, IdentityRequest, RoleScopeGroups, SecretReference, plan_identities,
};
use lanyard_service_principals::{VAULT_PURGE_ACTIONS, VAULT_REMOVAL_ACTIONS, VAULT_WRITE_ACTIONS};
use lanyard_vocabulary::{EntraTenantId, SubscriptionId};
use uuid::Uuid;

use crate::aks_graph::{AksParameters, aks_resources};
use crate::ccoctl_ownership::CcoctlOwner;
use crate::cluster_identifiers::ClusterIdentifiers;
use crate::command_actions::{command_actions, read_actions, removal_actions};
use crate::component_identity_graph::{ComponentIdentityParameters, component_identity_resources};
use crate::dns_graph::{DnsParameters, ZoneDelegation, dns_resources};
use crate::iam_graph::{DataPlaneParameters, IamParameters, data_plane_resources, iam_resources};
use crate::infra_graph::{InfraParameters, LegacyNames, infra_resources};
use crate::keyvault_graph::{KeyvaultParameters, keyvault_resources};
use crate::kms_graph::{KmsParameters, kms_resources};
use crate::oidc_graph::{OidcParameters, oidc_resources};
use crate::role_assignments::{RoleIdentity, RoleOptions, RoleProfile};
use crate::role_graph::{RoleParameters, role_resources};
use crate::role_names::RoleNames;
use crate::workload_identities::workload_identities;

const NAME: &str = "example";
const LOCATION: &str = "eastus";

/// Lists the resources of a command for the example cluster.
type ListResources = fn(&Example) -> ExampleResult<Vec<AzureResource>>;
/// Computes the control plane actions that a command needs for its resources.
type ComputeActions = fn(&[AzureResource]) -> BTreeSet<String>;

/// A command whose actions are checked.
#[derive(Clone, Copy)]
struct CheckedCommand {
    name: &'static str,
    resources: ListResources,
    actions: ComputeActions,
    /// Control plane actions that do not follow from the resources.
    other_actions: &'static [&'static str],
    /// See [`NeededActions::vault_actions`].
    vault_actions: &'static [&'static str],
}

/// The commands whose actions are checked.
const COMMANDS: [CheckedCommand; 33] = [
    write("create infra azure", Example::infra).with_actions(&[READ_ZONES]),
    write("create infra azure --assign-identity-roles", Example::infra_with_roles)
        .with_actions(&[READ_ZONES, READ_IDENTITIES]),
    write("create iam azure", Example::iam),
    write("create oidc azure", Example::oidc),
    write("create keyvault azure", Example::keyvault),
    write("create identities azure", Example::data_plane).with_vault_actions(VAULT_WRITE_ACTIONS),
    write("create identities azure --enable-kms", Example::data_plane_with_kms)
        .with_actions(KEY_ACTIONS)
        .with_vault_actions(VAULT_WRITE_ACTIONS),
    write("create aks azure", |it| Ok(it.aks())),
    write("create dns azure", |it| Ok(it.dns())),
    write("create cluster azure", Example::infra).with_actions(&[READ_ZONES]),
    write("create cluster azure --assign-identity-roles", Example::infra_with_roles)
        .with_actions(&[READ_ZONES, READ_IDENTITIES]),
    read("plan azure", Example::cluster_with_roles).with_actions(&[READ_ZONES]),
    read("import azure", Example::cluster_with_roles).with_actions(&[READ_ZONES]),
    write("apply azure", Example::cluster).with_actions(&[READ_ZONES]),
    write("apply azure with assignIdentityRoles", Example::cluster_with_roles)
        .with_actions(&[READ_ZONES]),
    write("rotate identity azure", NO_RESOURCES).with_vault_actions(VAULT_WRITE_ACTIONS),
    write("refresh identities azure", NO_RESOURCES).with_vault_actions(VAULT_WRITE_ACTIONS),
    remove("destroy infra azure", Example::infra_with_roles),
    remove("destroy iam azure", Example::iam),
    remove("destroy oidc azure", Example::oidc),
    remove("destroy keyvault azure", Example::keyvault),
    remove("destroy keyvault azure --purge", Example::keyvault).with_actions(PURGE_ACTIONS),
    remove("destroy identities azure", Example::data_plane_with_kms)
        .with_vault_actions(VAULT_REMOVAL_ACTIONS),
    remove("destroy identities azure --purge", Example::data_plane_with_kms)
        .with_vault_actions(VAULT_PURGE_ACTIONS),
    remove("destroy aks azure", |it| Ok(it.aks())),
    remove("destroy dns azure", |it| Ok(it.dns())),
    remove("destroy cluster azure", Example::infra_with_roles),
    read("sweep azure", NO_RESOURCES).with_actions(&[READ_ASSIGNMENTS]),
    remove("sweep azure --delete", NO_RESOURCES)
        .with_actions(&[READ_ASSIGNMENTS, "Microsoft.Authorization/roleAssignments/delete"]),
    write("ccoctl azure create-oidc-issuer", Example::oidc),
    write("ccoctl azure create-managed-identities", Example::component_identities),
    write("ccoctl azure create-all", Example::oidc_with_component_identities),
    remove("ccoctl azure delete", Example::oidc_with_component_identities)
        .with_actions(&["Microsoft.Resources/subscriptions/resources/read"]),
];

/// Finds the public DNS zone of a cluster.
const READ_ZONES: &str = "Microsoft.Network/dnsZones/read";
/// Finds the object ids of managed identities.
const READ_IDENTITIES: &str = "Microsoft.ManagedIdentity/userAssignedIdentities/read";
const READ_ASSIGNMENTS: &str = "Microsoft.Authorization/roleAssignments/read";
/// The actions that find or create the key of the KMS identity. No command deletes the key.
const KEY_ACTIONS: &[&str] =
    &["Microsoft.KeyVault/vaults/keys/read", "Microsoft.KeyVault/vaults/keys/write"];
/// The actions that find a deleted vault and delete it permanently.
const PURGE_ACTIONS: &[&str] = &[
    "Microsoft.KeyVault/deletedVaults/read",
    "Microsoft.KeyVault/locations/deletedVaults/purge/action",
];
/// The resources of a command that changes no stack.
const NO_RESOURCES: ListResources = |_| Ok(Vec::new());

/// A command that creates, changes and removes resources.
const fn write(name: &'static str, resources: ListResources) -> CheckedCommand {
    command(name, resources, command_actions)
}

/// A command that only reads resources.
const fn read(name: &'static str, resources: ListResources) -> CheckedCommand {
    command(name, resources, read_actions)
}

/// A command that removes resources.
const fn remove(name: &'static str, resources: ListResources) -> CheckedCommand {
    command(name, resources, removal_actions)
}

const fn command(
    name: &'static str,
    resources: ListResources,
    actions: ComputeActions,
) -> CheckedCommand {
    CheckedCommand { name, resources, actions, other_actions: &[], vault_actions: &[] }
}

impl CheckedCommand {
    const fn with_actions(self, other_actions: &'static [&'static str]) -> Self {
        Self { other_actions, ..self }
    }

    const fn with_vault_actions(self, vault_actions: &'static [&'static str]) -> Self {
        Self { vault_actions, ..self }
    }

    fn needed_actions(&self, example: &Example) -> Result<NeededActions, ExampleClusterError> {
        let resources = (self.resources)(example).map_err(ExampleClusterError)?;
        let mut actions = (self.actions)(&resources);
        actions.extend(self.other_actions.iter().map(|action| (*action).to_owned()));
        Ok(NeededActions { command: self.name, actions, vault_actions: self.vault_actions })
    }
}

/// The names of the commands whose actions are checked.
pub fn command_names() -> [&'static str; COMMANDS.len()] {
    COMMANDS.map(|command| command.name)
}

/// The actions that a command needs.
#[derive(Debug)]
pub struct NeededActions {
    /// The name of the command.
    pub command: &'static str,
    /// The control plane actions.
    pub actions: BTreeSet<String>,
    /// The data actions at the vault of an ARO HCP development environment. A command that needs some also writes
    /// the applications of the environment in Microsoft Graph.
    pub vault_actions: &'static [&'static str],
}

/// The actions that the commands of these names need; those of all commands without names.
pub fn needed_actions(
    subscription: &SubscriptionId,
    caller: &CallerIdentity,
    names: &[String],
) -> Result<Vec<NeededActions>, ExampleClusterError> {
    let (subscription, tenant) = (subscription.clone(), caller.tenant.clone());
    let example = Example { subscription, tenant, principal: caller.object_id };
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let wanted = COMMANDS.iter().filter(|command| is_wanted(command.name));
    wanted.map(|command| command.needed_actions(&example)).collect()
}

/// An example cluster.
struct Example {
    subscription: SubscriptionId,
    tenant: EntraTenantId,
    /// The object id of the signed-in identity, in place of every principal.
    principal: Uuid,
}

/// The errors of constants that are not valid.
type ExampleResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The example cluster is invalid, which is a bug.
#[derive(Debug, thiserror::Error)]
#[error("the example cluster is invalid")]
pub struct ExampleClusterError(#[source] Box<dyn Error + Send + Sync>);

impl ErrorHint for ExampleClusterError {}

impl Example {
    fn identifiers() -> ExampleResult<ClusterIdentifiers> {
        Ok(ClusterIdentifiers::new(NAME.parse()?, NAME.parse()?)?)
    }

    const fn principal(&self) -> PrincipalReference {
        PrincipalReference::ObjectId(self.principal)
    }

    fn infra_parameters(&self) -> ExampleResult<InfraParameters> {
        Ok(InfraParameters {
            subscription: self.subscription.clone(),
            location: LOCATION.to_owned(),
            base_domain: "example.com".to_owned(),
            resource_group: None,
            group_tags: ResourceTags::new(),
            security_group: None,
            network: None,
            nat_subnet: None,
            legacy_names: LegacyNames::default(),
            identifiers: Self::identifiers()?,
        })
    }

    fn infra(&self) -> ExampleResult<Vec<AzureResource>> {
        Ok(infra_resources(&self.infra_parameters()?))
    }

    fn infra_with_roles(&self) -> ExampleResult<Vec<AzureResource>> {
        let infra = self.infra_parameters()?;
        let identities = workload_identities(false).map(|it| it.component);
        let principals: BTreeMap<_, _> =
            identities.map(|it| (RoleIdentity::ControlPlane(it), self.principal())).collect();
        let roles = RoleParameters {
            options: RoleOptions::new(RoleProfile::default(), false),
            principals,
            dns_group: Some(ResourceGroupBody::id(&self.subscription, NAME)),
            dns_zone: None,
            encryption_key: None,
        };
        let mut resources = infra_resources(&infra);
        resources.extend(role_resources(&infra, &roles)?);
        Ok(resources)
    }

    fn iam(&self) -> ExampleResult<Vec<AzureResource>> {
        Ok(iam_resources(&IamParameters {
            subscription: self.subscription.clone(),
            identifiers: Self::identifiers()?,
            location: LOCATION.to_owned(),
            resource_group: NAME.to_owned(),
            issuer: "https://example.com".to_owned(),
            with_kms: true,
        }))
    }

    /// Both stacks of a configuration file.
    fn cluster(&self) -> ExampleResult<Vec<AzureResource>> {
        Ok([self.infra()?, self.iam()?].concat())
    }

    fn cluster_with_roles(&self) -> ExampleResult<Vec<AzureResource>> {
        Ok([self.infra_with_roles()?, self.iam()?].concat())
    }

    fn oidc(&self) -> ExampleResult<Vec<AzureResource>> {
        Ok(oidc_resources(&OidcParameters {
            subscription: self.subscription.clone(),
            name: NAME.to_owned(),
            location: LOCATION.to_owned(),
            resource_group: NAME.to_owned(),
            account: NAME.parse()?,
            container: NAME.parse()?,
            tags: ResourceTags::new(),
            uploader: self.principal(),
        }))
    }

    fn keyvault(&self) -> ExampleResult<Vec<AzureResource>> {
        Ok(keyvault_resources(&KeyvaultParameters {
            subscription: self.subscription.clone(),
            resource_group: NAME.to_owned(),
            location: LOCATION.to_owned(),
            name: NAME.parse()?,
            tenant: self.tenant.clone(),
            purge_protection: false,
            recover: false,
            administrator: Some(self.principal()),
            secret_readers: Vec::new(),
        }))
    }

    fn data_plane(&self) -> ExampleResult<Vec<AzureResource>> {
        let parameters = DataPlaneParameters {
            subscription: self.subscription.clone(),
            prefix: NAME.to_owned(),
            location: LOCATION.to_owned(),
            resource_group: NAME.to_owned(),
            issuer: "https://example.com".to_owned(),
        };
        Ok(data_plane_resources(&parameters)?)
    }

    fn data_plane_with_kms(&self) -> ExampleResult<Vec<AzureResource>> {
        let group = ResourceGroupBody::id(&self.subscription, NAME);
        let vault = group.provider_resource(VaultBody::RESOURCE_TYPE, NAME);
        let role = kms_resources(&KmsParameters {
            subscription: self.subscription.clone(),
            prefix: NAME.to_owned(),
            scope: VaultKeyBody::id(&vault, &NAME.parse()?),
            principal: self.principal,
        });
        Ok([self.data_plane()?, role].concat())
    }

    fn component_identities(&self) -> ExampleResult<Vec<AzureResource>> {
        let groups = RoleScopeGroups {
            installation: ResourceGroupBody::id(&self.subscription, NAME),
            dns_zone: None,
            network: None,
        };
        let request = IdentityRequest {
            name: NAME.to_owned(),
            secret: SecretReference { namespace: NAME.to_owned(), name: NAME.to_owned() },
            service_accounts: vec![NAME.to_owned()],
            roles: Vec::new(),
            permissions: vec!["Microsoft.Compute/disks/read".to_owned()],
            data_permissions: Vec::new(),
            token_path: None,
        };
        let settings = IdentityPlanSettings {
            name: NAME.to_owned(),
            issuer: "https://example.com".parse()?,
            groups: groups.clone(),
        };
        let identities = plan_identities(vec![request], &settings)?;
        let parameters = ComponentIdentityParameters {
            subscription: self.subscription.clone(),
            owner: CcoctlOwner::new(NAME),
            location: LOCATION.to_owned(),
            resource_group: format!("{NAME}-oidc"),
            groups,
            tags: ResourceTags::new(),
            identities,
        };
        // The example names no role.
        Ok(component_identity_resources(&parameters, &RoleNames::default()).unwrap_or_default())
    }

    fn oidc_with_component_identities(&self) -> ExampleResult<Vec<AzureResource>> {
        Ok([self.oidc()?, self.component_identities()?].concat())
    }

    fn aks(&self) -> Vec<AzureResource> {
        let group = ResourceGroupBody::id(&self.subscription, NAME);
        aks_resources(&AksParameters {
            subscription: self.subscription.clone(),
            prefix: NAME.to_owned(),
            location: LOCATION.to_owned(),
            persistent_group: NAME.to_owned(),
            nodes: 3,
            max_nodes: None,
            vm_size: "Standard_D4s_v4".to_owned(),
            vault: Some(group.provider_resource(VaultBody::RESOURCE_TYPE, NAME)),
        })
    }

    fn dns(&self) -> Vec<AzureResource> {
        let group = ResourceGroupBody::id(&self.subscription, NAME);
        let parent = group.provider_resource("Microsoft.Network/dnsZones", "example.com");
        dns_resources(&DnsParameters {
            subscription: self.subscription.clone(),
            resource_group: NAME.to_owned(),
            location: LOCATION.to_owned(),
            zone: "dev.example.com".to_owned(),
            delegation: Some(ZoneDelegation {
                parent,
                record: "dev".to_owned(),
                name_servers: vec!["ns1.example.com".to_owned()],
            }),
        })
    }
}
