//! The deletion of a hosted cluster: the objects that block it, and the Azure resources that a
//! broken identity leaves behind.
//!
//! Components clean up in Azure with their own identities. A component whose mounted credential is
//! valid can still do so even if the credential can no longer be renewed. A component that cannot
//! get a token cleans up nothing, and a deletion that waited for it would never finish. The status
//! therefore names the identity and the resources that it leaves behind, and [`FORCE_ANNOTATION`]
//! skips the wait.
//!
//! Order: the node pools, the Cluster API cluster and its machines, which other operators delete;
//! then the workloads, the objects that they mount, the control plane and its namespace. Credential
//! files stay mounted until the pods are gone, even if the vault becomes unavailable.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::{HostedClusterIdentitiesStatus, IdentityStatus};
use lanyard_vocabulary::{Component, Hop};
use serde::Serialize;

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::report_text::parse_hop;
use crate::status::{
    CONDITION_FALSE, ClusterValidation, IdentityStatusInputs, canary_reports_failure,
};

#[cfg(test)]
mod tests;

/// Annotation of a HostedCluster: `true` deletes it without waiting for its dependents.
pub const FORCE_ANNOTATION: &str = "lanyard.dev/force-deletion";

/// An object that another operator must delete before the control plane is deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependent {
    /// The kind of the object.
    pub kind: DependentKind,
    /// The name of the object.
    pub name: String,
}

/// A kind of object that belongs to a hosted cluster and that another operator deletes, in deletion
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependentKind {
    /// A group of nodes.
    NodePool,
    /// The `Cluster` of Cluster API.
    Cluster,
    AzureMachine,
}

/// The remaining dependents of a hosted cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependents {
    /// The objects that still exist.
    pub remaining: Vec<Dependent>,
    /// The kinds whose objects could not be listed.
    pub unlisted_kinds: Vec<UnlistedKind>,
}

/// A kind whose objects could not be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlistedKind {
    /// The kind of the object.
    pub kind: DependentKind,
    /// The attempted operation and the response.
    pub error: String,
    /// The suggested next step.
    pub hint: Cow<'static, str>,
}

/// The Azure resources that a broken identity leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrphanedResources {
    /// The component that would have deleted the resources.
    pub component: Component,
    /// The reason of the broken identity, from its status.
    pub reason: String,
    /// The types of the remaining resources.
    pub resources: &'static str,
    /// The Azure resource id of the scope that contains the resources.
    pub place: String,
}

/// An identity that cannot be renewed and whose mounted credential is still valid: its component
/// continues to clean up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NonRenewableIdentity {
    pub component: Component,
    /// The reason why it cannot be renewed, from its status.
    pub reason: String,
    /// The expiry of the mounted credential, if known.
    pub until: Option<Timestamp>,
}

/// The current state of a cluster's deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletionStatus {
    /// The dependents that block the deletion.
    pub blocking_dependents: Vec<Dependent>,
    /// The kinds that could not be listed, and that block the deletion, too.
    pub unlisted_kinds: Vec<UnlistedKind>,
    /// Whether [`FORCE_ANNOTATION`] is set.
    pub is_forced: bool,
    /// The resources that broken identities leave behind.
    pub orphaned_resources: Vec<OrphanedResources>,
    /// The identities that work only until their mounted credential expires.
    pub non_renewable_identities: Vec<NonRenewableIdentity>,
}

/// The Azure resources that each component creates and deletes, and the scope of its role that
/// contains them. No component deletes encryption keys.
///
/// Source: the role assignments of HyperShift (`cmd/infra/azure`), by component.
const RESOURCES_BY_COMPONENT: [(Component, &str, ResourceScope); 9] = [
    (
        Component::CloudProvider,
        "load balancers and their public addresses",
        ResourceScope::ManagedResourceGroup,
    ),
    (Component::CloudProvider, "security rules of services", ResourceScope::SecurityGroup),
    (
        Component::NodePoolManagement,
        "virtual machines, their network interfaces and system disks",
        ResourceScope::ManagedResourceGroup,
    ),
    (
        Component::ControlPlaneOperator,
        "private endpoints and their DNS records",
        ResourceScope::NetworkResourceGroup,
    ),
    (
        Component::ImageRegistry,
        "the storage account of the image registry",
        ResourceScope::ManagedResourceGroup,
    ),
    (Component::Ingress, "DNS records of routes", ResourceScope::DnsZone),
    (
        Component::Network,
        "egress addresses on network interfaces",
        ResourceScope::ManagedResourceGroup,
    ),
    (
        Component::Disk,
        "managed disks and snapshots of volumes",
        ResourceScope::ManagedResourceGroup,
    ),
    (
        Component::File,
        "storage accounts and shares of volumes",
        ResourceScope::ManagedResourceGroup,
    ),
];

/// The scope of a component's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResourceScope {
    ManagedResourceGroup,
    SecurityGroup,
    /// The resource group of the virtual network.
    NetworkResourceGroup,
    /// The DNS zone of the cluster's base domain; without a base domain, the managed resource
    /// group.
    DnsZone,
}

impl ResourceScope {
    fn resource_id(self, cluster: &ValidatedHostedCluster) -> String {
        let managed = cluster.managed_resource_group();
        let azure = &cluster.azure;
        let found = match self {
            Self::ManagedResourceGroup => None,
            Self::SecurityGroup => azure.security_group.as_ref().map(ToString::to_string),
            Self::NetworkResourceGroup => azure.vnet.as_ref().and_then(|vnet| {
                let group = vnet.resource_group()?;
                Some(format!("/subscriptions/{}/resourceGroups/{group}", vnet.subscription()))
            }),
            Self::DnsZone => cluster.base_domain.as_ref().map(|domain| {
                let zone = format!("{}.{domain}", cluster.name);
                managed.provider_resource("Microsoft.Network/privateDnsZones", &zone).to_string()
            }),
        };
        found.unwrap_or_else(|| managed.to_string())
    }
}

/// Returns the dependents that block a cluster's deletion and the resources that broken identities
/// leave behind.
///
/// `status` is the current identity status: an identity that breaks after the deletion began
/// counts, and an identity without a report does not count as broken. A broken identity keeps
/// blocking the deletion unless [`FORCE_ANNOTATION`] is set (`is_forced`): resources that are left
/// behind cost money, so a person must decide. For an invalid cluster, the resources left behind
/// are unknown.
pub fn deletion_status(
    inputs: &IdentityStatusInputs<'_>,
    status: &HostedClusterIdentitiesStatus,
    dependents: Dependents,
    is_forced: bool,
) -> DeletionStatus {
    let mut deletion = DeletionStatus::for_invalid_cluster(dependents, is_forced);
    let ClusterValidation::Valid(cluster) = inputs.cluster else { return deletion };
    for identity in status.identities.iter().filter(|identity| identity.ready == CONDITION_FALSE) {
        let Ok(component) = identity.component.parse::<Component>() else { continue };
        let mut rows =
            RESOURCES_BY_COMPONENT.iter().filter(|(known, ..)| *known == component).peekable();
        let reason = identity.reason.clone();
        if rows.peek().is_some() && has_usable_credential(inputs, component, identity) {
            deletion.non_renewable_identities.push(NonRenewableIdentity {
                component,
                reason,
                until: identity.not_after,
            });
            continue;
        }
        deletion.orphaned_resources.extend(rows.map(|(_, resources, place)| OrphanedResources {
            component,
            reason: reason.clone(),
            resources,
            place: place.resource_id(cluster),
        }));
    }
    deletion
}

/// Returns whether a component can still use its mounted credential although no newer one can be
/// mounted: the failed hop precedes the credential, the credential has not expired, and no canary
/// reports a failure.
fn has_usable_credential(
    inputs: &IdentityStatusInputs<'_>,
    component: Component,
    identity: &IdentityStatus,
) -> bool {
    let failed = identity.failed_hop.as_deref().and_then(parse_hop);
    let is_before = failed.is_some_and(|hop| hop < Hop::Credential);
    let is_over = identity.not_after.is_some_and(|end| end <= inputs.now);
    is_before && !is_over && !canary_reports_failure(inputs, component)
}

impl DependentKind {
    /// Returns the name of the kind in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodePool => "NodePool",
            Self::Cluster => "Cluster",
            Self::AzureMachine => "AzureMachine",
        }
    }
}

impl DeletionStatus {
    /// The deletion of an invalid cluster. Its orphaned resources are unknown.
    fn for_invalid_cluster(dependents: Dependents, is_forced: bool) -> Self {
        let dependents = if is_forced { Dependents::default() } else { dependents };
        let Dependents { remaining: mut blocking_dependents, unlisted_kinds } = dependents;
        blocking_dependents.sort();
        Self { blocking_dependents, unlisted_kinds, is_forced, ..Self::default() }
    }

    /// Returns whether the objects of the cluster may be deleted.
    pub fn is_unblocked(&self) -> bool {
        self.blocking_dependents.is_empty() && self.unlisted_kinds.is_empty()
    }

    /// Returns whether the deletion may never finish because the identity that cleans up is broken.
    pub fn is_stuck(&self) -> bool {
        let breaks = |component| {
            self.orphaned_resources.iter().any(|orphaned| orphaned.component == component)
        };
        !self.is_unblocked() && breaks(Component::NodePoolManagement)
    }

    /// Returns the resources left behind, in one line: the beginning of [`message`](Self::message).
    /// `None` if there are none.
    pub fn orphaned_resources_message(&self) -> Option<String> {
        let resources: Vec<_> = self.orphaned_resources.iter().map(ToString::to_string).collect();
        (!resources.is_empty())
            .then(|| format!("broken identities leave behind: {}", resources.join("; ")))
    }

    /// Returns the status message, in one line; `None` if there is nothing to report.
    pub fn message(&self) -> Option<String> {
        let mut parts = Vec::from_iter(self.orphaned_resources_message());
        if !self.blocking_dependents.is_empty() {
            let dependents: Vec<_> = self
                .blocking_dependents
                .iter()
                .take(MAX_LISTED_DEPENDENTS)
                .map(ToString::to_string)
                .collect();
            let more = self.blocking_dependents.len().saturating_sub(MAX_LISTED_DEPENDENTS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("the deletion waits for {}{more}", dependents.join(", ")));
        }
        for UnlistedKind { kind, error, .. } in &self.unlisted_kinds {
            parts.push(format!(
                "the deletion waits until every {} can be listed: {error}",
                kind.name()
            ));
        }
        if !self.is_unblocked() && !self.non_renewable_identities.is_empty() {
            let identities: Vec<_> =
                self.non_renewable_identities.iter().map(ToString::to_string).collect();
            parts.push(format!("cannot be renewed, and still clean up: {}", identities.join("; ")));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Returns the suggested next step; `None` if no action is needed.
    pub fn hint(&self) -> Option<String> {
        if self.is_stuck() {
            return Some(format!(
                "repair the identity, or set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster and delete the remaining resources in Azure"
            ));
        }
        if let Some(unlisted) = self.unlisted_kinds.first() {
            return Some(format!(
                "{}; to delete the cluster without this check, set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster",
                unlisted.hint
            ));
        }
        if !self.is_unblocked() {
            return Some(format!(
                "no action is needed while the deletion makes progress; to delete the cluster anyway, set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster"
            ));
        }
        let place = &self.orphaned_resources.first()?.place;
        Some(format!("delete the remaining resources in Azure; begin with {place}"))
    }
}

impl fmt::Display for Dependent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.name(), self.name)
    }
}

impl fmt::Display for NonRenewableIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.component, self.reason)?;
        self.until.map_or(Ok(()), |until| write!(formatter, " until {until}"))
    }
}

impl fmt::Display for OrphanedResources {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, reason, resources, place } = self;
        write!(formatter, "{component} ({reason}): {resources}, in {place}")
    }
}

const MAX_LISTED_DEPENDENTS: usize = 5;
