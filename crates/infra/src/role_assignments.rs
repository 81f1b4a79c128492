//! The role assignments of a cluster: which identity gets which role at which scope, as data.
//!
//! The default table is HyperShift's (`create infra azure --assign-identity-roles`): 18 assignments for the
//! components of the control plane, and three for the identities of an ARO HCP cluster's worker nodes. HyperShift
//! never assigns a role to the KMS identity; lanyard does if the scope of the encryption key is known.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use lanyard_changes::PrincipalReference;
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, Component, InfraId, RoleDefinitionId, RoleScope};
use serde::Deserialize;
use uuid::Uuid;

use crate::workload_identities::DataPlaneIdentity;

const ROLE_ASSIGNMENT_TYPE: &str = "Microsoft.Authorization/roleAssignments";

/// The choice of roles and scopes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleProfile {
    /// HyperShift's defaults: built-in roles at resource groups, and Contributor for the control plane operator
    /// and for Cluster API Provider Azure.
    #[default]
    Hypershift,
    /// `--assign-custom-hcp-roles`: the "Hosted Control Planes" built-in roles instead of Contributor.
    ///
    /// HyperShift uses custom roles of one private tenant here, and the text "Azure Red Hat OpenShift `NodePool`
    /// Management Role" where Azure requires a GUID, so its assignment can never succeed. The two built-in roles
    /// are the successors of these custom roles. They lack two permissions: Cluster API Provider Azure cannot
    /// assign a managed identity to machines, and the control plane operator cannot create private endpoints. In a
    /// cluster with private endpoints, the operator gets Network Contributor instead, which contains the actions of
    /// its own role.
    HostedControlPlanes,
    /// The roles of [`RoleProfile::HostedControlPlanes`] at single resources instead of the groups of network and
    /// DNS, as the ARO HCP service assigns them. In the managed group, where that service has other means, the
    /// components keep their roles at the group.
    LeastPrivilege,
}

/// An identity that gets roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleIdentity {
    /// A component of the control plane, or of a self-managed cluster.
    ControlPlane(Component),
    /// An identity of an ARO HCP cluster's worker nodes.
    DataPlane(DataPlaneIdentity),
}

impl RoleIdentity {
    /// The key of the identity in the names of HyperShift's role assignments, such as `capz`.
    pub const fn role_key(self) -> &'static str {
        match self {
            Self::ControlPlane(component) => component.definition().role_key,
            Self::DataPlane(identity) => identity.role_key(),
        }
    }

    /// The component whose role the identity gets.
    pub const fn component(self) -> Component {
        match self {
            Self::ControlPlane(component) => component,
            Self::DataPlane(identity) => identity.component(),
        }
    }
}

lanyard_vocabulary::display_text!(RoleIdentity, role_key());

/// The scope of a role assignment: a resource group or a resource of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AssignmentScope {
    /// A resource group.
    Group(GroupScope),
    /// The virtual network.
    Vnet,
    /// The subnet of the worker nodes.
    Subnet,
    /// The network security group.
    SecurityGroup,
    /// The public DNS zone.
    DnsZone,
    /// The key of the cluster's secret encryption, or its vault.
    EncryptionKey,
}

/// A resource group of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupScope {
    /// The group of machines, disks and load balancers.
    Managed,
    /// The group of the network security group.
    SecurityGroup,
    /// The group of the virtual network.
    Vnet,
    /// The group of the public DNS zone.
    Dns,
}

impl fmt::Display for AssignmentScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Group(GroupScope::Managed) => "the resource group of the machines",
            Self::Group(GroupScope::SecurityGroup) => "the resource group of the security group",
            Self::Group(GroupScope::Vnet) => "the resource group of the virtual network",
            Self::Group(GroupScope::Dns) => "the resource group of the public DNS zone",
            Self::Vnet => "the virtual network",
            Self::Subnet => "the subnet",
            Self::SecurityGroup => "the network security group",
            Self::DnsZone => "the public DNS zone",
            Self::EncryptionKey => "the encryption key or its vault",
        })
    }
}

/// One row of the table: an identity needs a role at a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleRequirement {
    /// The identity.
    pub identity: RoleIdentity,
    /// The role.
    pub role: RoleDefinitionId,
    /// The scope.
    pub scope: AssignmentScope,
}

/// The parts of a cluster that decide which identities exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleOptions {
    /// The choice of roles and scopes.
    pub profile: RoleProfile,
    /// Whether the capability `ImageRegistry` is enabled. Without it, neither the operator nor the identity of
    /// the worker nodes gets a role; HyperShift still assigns the latter.
    pub image_registry: bool,
    /// Whether the control plane operator has an identity; self-managed clusters may lack it.
    pub control_plane_operator: bool,
    /// Whether the cluster has the three identities for worker nodes (ARO HCP).
    pub data_plane: bool,
    /// Whether worker nodes reach the API server through a private endpoint, which the control plane operator
    /// creates with a private DNS zone and its link.
    pub private_endpoint: bool,
    /// Whether an encryption key in a vault is given. The local roles of a managed HSM are no ARM roles, so set
    /// this only for vaults.
    pub encryption_key: bool,
}

impl RoleOptions {
    /// The options of a cluster with every capability and without an encryption key.
    pub const fn new(profile: RoleProfile, data_plane: bool) -> Self {
        Self {
            profile,
            image_registry: true,
            control_plane_operator: true,
            data_plane,
            private_endpoint: false,
            encryption_key: false,
        }
    }

    const fn includes(self, identity: RoleIdentity) -> bool {
        match identity {
            RoleIdentity::ControlPlane(Component::Kms) => self.encryption_key,
            RoleIdentity::ControlPlane(Component::ControlPlaneOperator) => {
                self.control_plane_operator
            }
            RoleIdentity::ControlPlane(Component::ImageRegistry) => self.image_registry,
            RoleIdentity::ControlPlane(_) => true,
            RoleIdentity::DataPlane(DataPlaneIdentity::ImageRegistry) => {
                self.data_plane && self.image_registry
            }
            RoleIdentity::DataPlane(_) => self.data_plane,
        }
    }
}

/// The roles that the identities of a cluster need, in a stable order.
pub fn role_requirements(options: &RoleOptions) -> Vec<RoleRequirement> {
    let control_plane = Component::ALL.into_iter().map(RoleIdentity::ControlPlane);
    let data_plane = DataPlaneIdentity::ALL.into_iter().map(RoleIdentity::DataPlane);
    let identities = control_plane.chain(data_plane).filter(|it| options.includes(*it));
    identities
        .flat_map(|identity| {
            scopes(options.profile, identity).into_iter().map(move |scope| RoleRequirement {
                identity,
                role: role(*options, identity, scope),
                scope,
            })
        })
        .collect()
}

const fn role(
    options: RoleOptions,
    identity: RoleIdentity,
    scope: AssignmentScope,
) -> RoleDefinitionId {
    match (options.profile, identity.component()) {
        (
            RoleProfile::Hypershift,
            Component::ControlPlaneOperator | Component::NodePoolManagement,
        ) => RoleDefinitionId::CONTRIBUTOR,
        // The security group alone needs no writes. Groups can be one and the same group, which must get one role:
        // the names of assignments do not contain the role.
        (_, Component::ControlPlaneOperator)
            if options.private_endpoint && !matches!(scope, AssignmentScope::SecurityGroup) =>
        {
            RoleDefinitionId::NETWORK_CONTRIBUTOR
        }
        (_, component) => component.definition().role,
    }
}

fn scopes(profile: RoleProfile, identity: RoleIdentity) -> Vec<AssignmentScope> {
    const MANAGED: AssignmentScope = AssignmentScope::Group(GroupScope::Managed);
    let is_least = profile == RoleProfile::LeastPrivilege;
    match identity {
        // Its volumes need the subnet and the security group, as in the control plane.
        RoleIdentity::DataPlane(DataPlaneIdentity::File) if is_least => {
            vec![MANAGED, AssignmentScope::Subnet, AssignmentScope::SecurityGroup]
        }
        RoleIdentity::DataPlane(_) => vec![MANAGED],
        RoleIdentity::ControlPlane(component) if is_least => least_scopes(component).to_vec(),
        RoleIdentity::ControlPlane(component) => {
            component.definition().scopes.iter().map(|scope| group_scope(*scope)).collect()
        }
    }
}

const fn group_scope(scope: RoleScope) -> AssignmentScope {
    match scope {
        RoleScope::ManagedResourceGroup => AssignmentScope::Group(GroupScope::Managed),
        RoleScope::SecurityGroupResourceGroup => AssignmentScope::Group(GroupScope::SecurityGroup),
        RoleScope::VnetResourceGroup => AssignmentScope::Group(GroupScope::Vnet),
        RoleScope::DnsResourceGroup => AssignmentScope::Group(GroupScope::Dns),
        RoleScope::KeyVault => AssignmentScope::EncryptionKey,
    }
}

/// The scopes of the ARO HCP service, and the managed group.
const fn least_scopes(component: Component) -> &'static [AssignmentScope] {
    use AssignmentScope::{DnsZone, EncryptionKey, SecurityGroup, Subnet, Vnet};
    const MANAGED: AssignmentScope = AssignmentScope::Group(GroupScope::Managed);
    match component {
        Component::CloudProvider | Component::File => &[MANAGED, Subnet, SecurityGroup],
        Component::NodePoolManagement => &[MANAGED, Subnet],
        Component::ControlPlaneOperator => &[MANAGED, Vnet, SecurityGroup],
        Component::Ingress => &[MANAGED, Subnet, DnsZone],
        Component::Network => &[MANAGED, Subnet, Vnet],
        Component::ImageRegistry | Component::Disk => &[MANAGED],
        Component::Kms => &[EncryptionKey],
    }
}

/// The ids of a cluster's scopes.
pub type AssignmentScopeIds = BTreeMap<AssignmentScope, ArmResourceId>;

/// A role assignment with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRoleAssignment {
    /// The identity that gets the role.
    pub identity: RoleIdentity,
    /// The role.
    pub role: RoleDefinitionId,
    /// The scope of the assignment.
    pub scope: ArmResourceId,
    /// The name of the assignment, see [`role_assignment_name`].
    pub name: Uuid,
}

impl PlannedRoleAssignment {
    /// The id of the assignment.
    pub fn id(&self) -> ArmResourceId {
        self.scope.provider_resource(ROLE_ASSIGNMENT_TYPE, &self.name.to_string())
    }
}

/// The ids of some scopes are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("role assignments need a scope that is not known: {}", scopes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
pub struct UnknownScopesError {
    /// The scopes, each once. Never empty.
    pub scopes: Vec<AssignmentScope>,
}

impl ErrorHint for UnknownScopesError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "name them: `--dns-zone-rg-name` for the group of the public DNS zone, `--vnet-id`, `--subnet-id` and \
         `--network-security-group-id` for existing networks",
        ))
    }
}

/// The assignments for a cluster's scopes. Requirements that are equal in a cluster with one resource group
/// become one assignment.
///
/// # Errors
///
/// Lists every scope that a requirement needs and `ids` lacks.
pub fn plan_role_assignments(
    requirements: &[RoleRequirement],
    infra_id: &InfraId,
    ids: &AssignmentScopeIds,
) -> Result<Vec<PlannedRoleAssignment>, UnknownScopesError> {
    let mut planned: Vec<PlannedRoleAssignment> = Vec::new();
    let mut unknown = Vec::new();
    for RoleRequirement { identity, role, scope } in requirements.iter().copied() {
        let Some(id) = ids.get(&scope) else {
            if !unknown.contains(&scope) {
                unknown.push(scope);
            }
            continue;
        };
        let is_same =
            |it: &PlannedRoleAssignment| (it.identity, it.role, &it.scope) == (identity, role, id);
        if !planned.iter().any(is_same) {
            let name = role_assignment_name(infra_id, identity.role_key(), id);
            planned.push(PlannedRoleAssignment { identity, role, scope: id.clone(), name });
        }
    }
    if unknown.is_empty() { Ok(planned) } else { Err(UnknownScopesError { scopes: unknown }) }
}

/// The name that HyperShift gives to a role assignment: the UUID of version 5 in the DNS namespace of
/// `<infraID>-<role key>-<scope>`, with the scope in its original case.
///
/// Neither the role nor the principal is part of the name, and Azure does not change either of an existing
/// assignment. If one differs, the old assignment must be deleted first.
pub fn role_assignment_name(infra_id: &InfraId, role_key: &str, scope: &ArmResourceId) -> Uuid {
    let text = format!("{infra_id}-{role_key}-{}", scope.as_str());
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.as_bytes())
}

/// The name of an assignment of a role that several principals have at the same scope: the UUID of version 5 in the
/// DNS namespace of `<scope>-<role>-<object id>` in lower case.
pub(crate) fn principal_assignment_name(
    scope: &ArmResourceId,
    role: RoleDefinitionId,
    principal: &PrincipalReference,
) -> Uuid {
    let text = format!("{scope}-{}-{}", role.0, principal.identifier());
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.to_ascii_lowercase().as_bytes())
}

#[cfg(test)]
mod tests;
