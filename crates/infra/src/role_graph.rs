//! The role assignments of a cluster as resources of its desired graph.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_azure::RoleAssignmentBody;
use lanyard_changes::{
    AzureEffect, AzureResource, PrincipalReference, ResourceKey, RoleAssignment,
};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};

use crate::infra_graph::{InfraIds, InfraParameters};
use crate::role_assignments::{
    AssignmentScope, AssignmentScopeIds, GroupScope, PlannedRoleAssignment, RoleIdentity,
    RoleOptions, UnknownScopesError, plan_role_assignments, role_requirements,
};
use crate::role_keys::CLUSTER_KEY_ROLE;
use crate::stacks;

/// The parameters of a cluster's role assignments.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleParameters {
    /// The choice of roles, and which identities exist.
    pub options: RoleOptions,
    /// The service principals of the identities. An identity that `options` contains and this map lacks is an
    /// error.
    pub principals: BTreeMap<RoleIdentity, PrincipalReference>,
    /// The resource group of the public DNS zone.
    pub dns_group: Option<ArmResourceId>,
    /// The public DNS zone.
    pub dns_zone: Option<ArmResourceId>,
    /// The vault or the key of the cluster's secret encryption.
    pub encryption_key: Option<ArmResourceId>,
}

/// Role assignments cannot be planned, because ids of scopes or identities are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoleGraphError {
    /// The ids of some scopes are unknown.
    #[error(transparent)]
    UnknownScopes(#[from] UnknownScopesError),
    /// Some identities are unknown.
    #[error("the identities of these components are not known: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    UnknownIdentities(Vec<RoleIdentity>),
}

impl ErrorHint for RoleGraphError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::UnknownScopes(error) => return error.hint(),
            Self::UnknownIdentities(_) => "name them in the identities file",
        }))
    }
}

/// The role assignments of the stack `infra`.
///
/// # Errors
///
/// [`RoleGraphError`] lists every scope and every identity that is needed and not known.
pub fn role_resources(
    infra: &InfraParameters,
    roles: &RoleParameters,
) -> Result<Vec<AzureResource>, RoleGraphError> {
    let requirements = role_requirements(&roles.options);
    let mut unknown: Vec<RoleIdentity> = requirements.iter().map(|it| it.identity).collect();
    unknown.retain(|identity| !roles.principals.contains_key(identity));
    unknown.dedup();
    if !unknown.is_empty() {
        return Err(RoleGraphError::UnknownIdentities(unknown));
    }
    let ids = scope_ids(infra, roles);
    let planned = plan_role_assignments(&requirements, infra.identifiers.infra_id(), &ids)?;
    let assignments = planned.iter().filter_map(|assignment| {
        let principal = roles.principals.get(&assignment.identity)?;
        Some(role_resource(infra, assignment, principal, &ids))
    });
    Ok(assignments.collect())
}

fn scope_ids(infra: &InfraParameters, roles: &RoleParameters) -> AssignmentScopeIds {
    let ids = InfraIds::new(infra);
    let known = [
        (AssignmentScope::Group(GroupScope::Managed), Some(ids.main_group)),
        (AssignmentScope::Group(GroupScope::SecurityGroup), Some(ids.security_group_group)),
        (AssignmentScope::Group(GroupScope::Vnet), Some(ids.vnet_group)),
        (AssignmentScope::Group(GroupScope::Dns), roles.dns_group.clone()),
        (AssignmentScope::Vnet, Some(ids.vnet)),
        (AssignmentScope::Subnet, ids.subnet),
        (AssignmentScope::SecurityGroup, Some(ids.security_group)),
        (AssignmentScope::DnsZone, roles.dns_zone.clone()),
        (AssignmentScope::EncryptionKey, roles.encryption_key.clone()),
    ];
    known.into_iter().filter_map(|(scope, id)| Some((scope, id?))).collect()
}

fn role_resource(
    infra: &InfraParameters,
    assignment: &PlannedRoleAssignment,
    principal: &PrincipalReference,
    ids: &AssignmentScopeIds,
) -> AzureResource {
    let scope = ids.iter().find(|(_, id)| **id == assignment.scope).map(|(scope, _)| *scope);
    let key = if scope == Some(AssignmentScope::EncryptionKey) {
        format!("{CLUSTER_KEY_ROLE}{}", assignment.scope).to_ascii_lowercase()
    } else {
        format!("role/{}/{}", assignment.identity, scope.map_or("other", scope_word))
    };
    let mut depends_on: Vec<ResourceKey> =
        scope.and_then(|scope| scope_resource(infra, scope)).into_iter().collect();
    depends_on.extend(principal.key().cloned());
    let subscription = SubscriptionId::clone(&infra.subscription);
    AzureResource {
        key: ResourceKey::new(key),
        stack: stacks::INFRA,
        id: RoleAssignmentBody::id(&assignment.scope, assignment.name).into(),
        effect: AzureEffect::RoleAssignment(RoleAssignment {
            subscription,
            role: assignment.role,
            scope: assignment.scope.clone(),
            principal: principal.clone(),
        }),
        depends_on,
    }
}

const fn scope_word(scope: AssignmentScope) -> &'static str {
    match scope {
        AssignmentScope::Group(GroupScope::Managed) => "group",
        AssignmentScope::Group(GroupScope::SecurityGroup) => "nsg-group",
        AssignmentScope::Group(GroupScope::Vnet) => "vnet-group",
        AssignmentScope::Group(GroupScope::Dns) => "dns-group",
        AssignmentScope::Vnet => "vnet",
        AssignmentScope::Subnet => "subnet",
        AssignmentScope::SecurityGroup => "nsg",
        AssignmentScope::DnsZone => "dns-zone",
        AssignmentScope::EncryptionKey => "encryption-key",
    }
}

/// The resource of the graph that creates the scope. Scopes of the user exist already.
fn scope_resource(infra: &InfraParameters, scope: AssignmentScope) -> Option<ResourceKey> {
    let creates_network = infra.network.is_none();
    let creates_security_group = infra.security_group.is_none();
    let is_single = infra.resource_group.is_some();
    let key = match scope {
        AssignmentScope::Group(GroupScope::Managed) => "group",
        AssignmentScope::Group(GroupScope::SecurityGroup) if creates_security_group => {
            if is_single { "group" } else { "group/nsg" }
        }
        AssignmentScope::Group(GroupScope::Vnet) if creates_network => {
            if is_single {
                "group"
            } else {
                "group/vnet"
            }
        }
        AssignmentScope::Vnet | AssignmentScope::Subnet if creates_network => "vnet",
        AssignmentScope::SecurityGroup if creates_security_group => "nsg",
        _ => return None,
    };
    Some(ResourceKey::new(key))
}

#[cfg(test)]
mod tests {

    use lanyard_changes::AzureGraph;
    use lanyard_vocabulary::Component;
    use uuid::Uuid;

    use super::*;

    use crate::infra_graph::infra_resources;
    use crate::role_assignments::RoleProfile;
    use crate::tests::infra_parameters;
    use crate::workload_identities::DataPlaneIdentity;

    fn roles() -> RoleParameters {
        let control_plane = Component::ALL.into_iter().map(RoleIdentity::ControlPlane);
        let data_plane = DataPlaneIdentity::ALL.into_iter().map(RoleIdentity::DataPlane);
        let principals = control_plane.chain(data_plane).enumerate().map(|(number, identity)| {
            let id = Uuid::from_u128(u128::try_from(number).unwrap());
            (identity, PrincipalReference::ObjectId(id))
        });
        RoleParameters {
            options: RoleOptions::new(RoleProfile::Hypershift, true),
            principals: principals.collect(),
            dns_group: Some("/subscriptions/s/resourceGroups/dns".parse().unwrap()),
            dns_zone: None,
            encryption_key: None,
        }
    }

    #[test]
    fn managed_cluster_has_21_assignments_with_unique_keys() {
        let mut resources = infra_resources(&infra_parameters());
        let assignments = role_resources(&infra_parameters(), &roles()).unwrap();
        assert_eq!(assignments.len(), 21);
        resources.extend(assignments);
        AzureGraph::new(resources).unwrap();
    }

    #[test]
    fn single_group_has_one_assignment_for_each_identity_and_one_for_dns() {
        let infra =
            InfraParameters { resource_group: Some("one".to_owned()), ..infra_parameters() };
        let mut resources = infra_resources(&infra);
        let assignments = role_resources(&infra, &roles()).unwrap();
        assert_eq!(assignments.len(), 12);
        resources.extend(assignments);
        AzureGraph::new(resources).unwrap();
    }

    #[test]
    fn unknown_identities_are_listed() {
        let mut roles = roles();
        roles.principals.remove(&RoleIdentity::DataPlane(DataPlaneIdentity::File));
        let error = role_resources(&infra_parameters(), &roles).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the identities of these components are not known: azure-fileWI"
        );
    }
}
