//! The actions that each command needs, from the resources that it writes for an example cluster: their types do
//! not depend on its names.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::{
    ArmBody as _, CallerIdentity, ResourceGroupBody, ResourceTags, VaultBody, VaultKeyBody,
};
use lanyard_federation::{
    IdentityPlanSettings, IdentityRequest, RoleScopeGroups, SecretReference, plan_identities,
};
use lanyard_infra::{
    AksParameters, CcoctlOwner, ClusterIdentifiers, ComponentIdentityParameters,
    DataPlaneParameters, DesiredResource, DnsParameters, EarlierNames, IamParameters,
    InfraParameters, KeyvaultParameters, KmsParameters, OidcParameters, PrincipalReference,
    RoleIdentity, RoleNames, RoleOptions, RoleParameters, RoleProfile, ZoneDelegation,
    aks_resources, command_actions, component_identity_resources, data_plane_resources,
    dns_resources, iam_resources, infra_resources, keyvault_resources, kms_resources,
    oidc_resources, removal_actions, role_resources, workload_identities,
};
use lanyard_vocabulary::SubscriptionId;

use crate::exit::CommandError;

const NAME: &str = "example";
const LOCATION: &str = "eastus";

/// Computes the actions that a command needs for the example cluster.
type ComputeActions = fn(&Example<'_>) -> Result<BTreeSet<String>, CommandError>;

/// The commands whose actions are checked.
const COMMANDS: [(&str, ComputeActions); 13] = [
    ("create infra azure", infra_actions),
    ("create infra azure --assign-identity-roles", infra_actions_with_roles),
    ("create iam azure", |it| Ok(command_actions(&iam_resources(&it.iam()?)))),
    ("create oidc azure", |it| Ok(command_actions(&oidc_resources(&it.oidc()?)))),
    ("create keyvault azure", |it| Ok(command_actions(&keyvault_resources(&it.keyvault()?)))),
    ("create identities azure", |it| Ok(command_actions(&it.data_plane()?))),
    ("create identities azure --enable-kms", kms_actions),
    ("create aks azure", |it| Ok(command_actions(&aks_resources(&it.aks())))),
    ("create dns azure", |it| Ok(command_actions(&dns_resources(&it.dns())))),
    ("create cluster azure", infra_actions),
    ("create cluster azure --assign-identity-roles", infra_actions_with_roles),
    ("destroy cluster azure", |it| Ok(removal_actions(&it.infra_with_roles()?))),
    ("ccoctl azure create-managed-identities", |it| {
        Ok(command_actions(&it.component_identities()?))
    }),
];

/// The names of the commands whose actions are checked.
pub(super) fn command_names() -> [&'static str; COMMANDS.len()] {
    COMMANDS.map(|(name, _)| name)
}

/// The commands of these names with the actions that they need; all commands without names.
pub(super) fn needed_actions(
    subscription: &SubscriptionId,
    caller: &CallerIdentity,
    names: &[String],
) -> Result<Vec<(&'static str, BTreeSet<String>)>, CommandError> {
    let principal = PrincipalReference::ObjectId(caller.object_id);
    let example = Example { subscription, caller, principal };
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let wanted = COMMANDS.into_iter().filter(|(name, _)| is_wanted(name));
    wanted.map(|(name, actions)| Ok((name, actions(&example)?))).collect()
}

/// An example cluster.
struct Example<'a> {
    subscription: &'a SubscriptionId,
    caller: &'a CallerIdentity,
    principal: PrincipalReference,
}

fn invalid(error: &dyn std::error::Error) -> CommandError {
    CommandError::unavailable("the example cluster is invalid").with_cause(error)
}

fn parse<T: std::str::FromStr<Err: std::error::Error>>(text: &str) -> Result<T, CommandError> {
    text.parse().map_err(|error: T::Err| invalid(&error))
}

impl Example<'_> {
    fn identifiers() -> Result<ClusterIdentifiers, CommandError> {
        ClusterIdentifiers::new(parse(NAME)?, parse(NAME)?).map_err(|error| invalid(&error))
    }

    fn infra(&self) -> Result<InfraParameters, CommandError> {
        Ok(InfraParameters {
            subscription: self.subscription.clone(),
            location: LOCATION.to_owned(),
            base_domain: "example.com".to_owned(),
            resource_group: None,
            group_tags: ResourceTags::new(),
            security_group: None,
            network: None,
            nat_subnet: None,
            earlier_names: EarlierNames::default(),
            identifiers: Self::identifiers()?,
        })
    }

    fn infra_with_roles(&self) -> Result<Vec<DesiredResource>, CommandError> {
        let infra = self.infra()?;
        let identities = workload_identities(false).map(|it| it.component);
        let principals: BTreeMap<_, _> =
            identities.map(|it| (RoleIdentity::ControlPlane(it), self.principal.clone())).collect();
        let roles = RoleParameters {
            options: RoleOptions::new(RoleProfile::default(), false),
            principals,
            dns_group: Some(ResourceGroupBody::id(self.subscription, NAME)),
            dns_zone: None,
            encryption_key: None,
        };
        let mut resources = infra_resources(&infra);
        resources.extend(role_resources(&infra, &roles).map_err(|error| invalid(&error))?);
        Ok(resources)
    }

    fn iam(&self) -> Result<IamParameters, CommandError> {
        Ok(IamParameters {
            subscription: self.subscription.clone(),
            identifiers: Self::identifiers()?,
            location: LOCATION.to_owned(),
            resource_group: NAME.to_owned(),
            issuer: "https://example.com".to_owned(),
            with_kms: true,
        })
    }

    fn oidc(&self) -> Result<OidcParameters, CommandError> {
        Ok(OidcParameters {
            subscription: self.subscription.clone(),
            name: NAME.to_owned(),
            location: LOCATION.to_owned(),
            resource_group: NAME.to_owned(),
            account: parse(NAME)?,
            container: parse(NAME)?,
            tags: ResourceTags::new(),
            uploader: self.principal.clone(),
        })
    }

    fn keyvault(&self) -> Result<KeyvaultParameters, CommandError> {
        Ok(KeyvaultParameters {
            subscription: self.subscription.clone(),
            resource_group: NAME.to_owned(),
            location: LOCATION.to_owned(),
            name: parse(NAME)?,
            tenant: self.caller.tenant.clone(),
            purge_protection: false,
            recover: false,
            administrator: Some(self.principal.clone()),
            secret_readers: Vec::new(),
        })
    }

    fn data_plane(&self) -> Result<Vec<DesiredResource>, CommandError> {
        let parameters = DataPlaneParameters {
            subscription: self.subscription.clone(),
            prefix: NAME.to_owned(),
            location: LOCATION.to_owned(),
            resource_group: NAME.to_owned(),
            issuer: "https://example.com".to_owned(),
        };
        data_plane_resources(&parameters).map_err(|error| invalid(&error))
    }

    fn component_identities(&self) -> Result<Vec<DesiredResource>, CommandError> {
        let groups = RoleScopeGroups {
            installation: ResourceGroupBody::id(self.subscription, NAME),
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
            issuer: parse("https://example.com")?,
            groups: groups.clone(),
        };
        let identities =
            plan_identities(vec![request], &settings).map_err(|error| invalid(&error))?;
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

    fn aks(&self) -> AksParameters {
        let group = ResourceGroupBody::id(self.subscription, NAME);
        AksParameters {
            subscription: self.subscription.clone(),
            prefix: NAME.to_owned(),
            location: LOCATION.to_owned(),
            persistent_group: NAME.to_owned(),
            nodes: 3,
            max_nodes: None,
            vm_size: "Standard_D4s_v4".to_owned(),
            vault: Some(group.provider_resource(VaultBody::RESOURCE_TYPE, NAME)),
        }
    }

    fn dns(&self) -> DnsParameters {
        let group = ResourceGroupBody::id(self.subscription, NAME);
        let parent = group.provider_resource("Microsoft.Network/dnsZones", "example.com");
        DnsParameters {
            subscription: self.subscription.clone(),
            resource_group: NAME.to_owned(),
            location: LOCATION.to_owned(),
            zone: "dev.example.com".to_owned(),
            delegation: Some(ZoneDelegation {
                parent,
                record: "dev".to_owned(),
                name_servers: vec!["ns1.example.com".to_owned()],
            }),
        }
    }
}

fn infra_actions(example: &Example<'_>) -> Result<BTreeSet<String>, CommandError> {
    Ok(command_actions(&infra_resources(&example.infra()?)))
}

fn infra_actions_with_roles(example: &Example<'_>) -> Result<BTreeSet<String>, CommandError> {
    Ok(command_actions(&example.infra_with_roles()?))
}

/// The actions for the workers' identities, for the key and for the role at it.
fn kms_actions(example: &Example<'_>) -> Result<BTreeSet<String>, CommandError> {
    let group = ResourceGroupBody::id(example.subscription, NAME);
    let vault = group.provider_resource(VaultBody::RESOURCE_TYPE, NAME);
    let key = VaultKeyBody::id(&vault, &parse(NAME)?);
    let PrincipalReference::ObjectId(principal) = example.principal else {
        return Err(CommandError::unavailable("the example cluster has no principal"));
    };
    let parameters = KmsParameters {
        subscription: example.subscription.clone(),
        prefix: NAME.to_owned(),
        scope: key.clone(),
        principal,
    };
    let kind = key.resource_type().unwrap_or_default();
    let mut actions = command_actions(&example.data_plane()?);
    actions.extend(command_actions(&kms_resources(&parameters)));
    actions.extend(["read", "write"].map(|verb| format!("{kind}/{verb}")));
    Ok(actions)
}
