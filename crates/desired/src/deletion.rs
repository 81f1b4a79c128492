//! What the end of a hosted cluster waits for, and what it leaves in Azure when an identity is
//! broken.
//!
//! Components clean up in Azure with their own identities. One that goes on with its mounted
//! credential does so though nobody can renew it; one that cannot get a token any more cleans up
//! nothing, and an end that waited for it would never come. So the identity is named, and
//! what it leaves behind; and whoever knows that may say that nobody waits.
//!
//! Order: the node pools, the cluster of Cluster API and its machines, which other operators end;
//! then workloads, what they mount, the control plane and its namespace. The files of credentials
//! stay mounted until the pods are gone, whatever became of the vault.

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

/// Annotation of a HostedCluster: `true` ends it without what is still to be cleaned up.
pub const FORCE_ANNOTATION: &str = "lanyard.dev/force-deletion";

/// What other operators still have to end before the control plane may go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependent {
    /// Which kind.
    pub kind: DependentKind,
    /// Its name.
    pub name: String,
}

/// What belongs to a hosted cluster and is ended by other operators, in the order of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependentKind {
    /// A group of nodes.
    NodePool,
    /// The cluster of Cluster API.
    Cluster,
    /// A machine in Azure.
    AzureMachine,
}

/// What other operators still have to end, as far as it can be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependents {
    /// What is there.
    pub remaining: Vec<Dependent>,
    /// What could not be asked for.
    pub unlisted_kinds: Vec<UnlistedKind>,
}

/// A kind whose objects could not be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlistedKind {
    /// Which kind.
    pub kind: DependentKind,
    /// What was tried and what came back.
    pub error: String,
    /// What to do next.
    pub hint: &'static str,
}

/// What a broken identity leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrphanedResources {
    /// The component that would have cleaned up.
    pub component: Component,
    /// Why it cannot, as its status says.
    pub reason: String,
    /// What stays.
    pub resources: &'static str,
    /// Where it stays, as an id of Azure.
    pub place: String,
}

/// An identity that cannot be renewed and whose mounted credential still serves: its component goes
/// on cleaning up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NonRenewableIdentity {
    /// The component.
    pub component: Component,
    /// Why it cannot be renewed, as its status says.
    pub reason: String,
    /// Until when it serves, where that is known.
    pub until: Option<Timestamp>,
}

/// What the end of a cluster comes to now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletionStatus {
    /// What is waited for.
    pub blocking_dependents: Vec<Dependent>,
    /// Kinds of which nobody knows whether there is something to wait for.
    pub unlisted_kinds: Vec<UnlistedKind>,
    /// Whether somebody said that nobody waits.
    pub is_forced: bool,
    /// What broken identities leave behind.
    pub orphaned_resources: Vec<OrphanedResources>,
    /// The identities that serve only for a while yet.
    pub non_renewable_identities: Vec<NonRenewableIdentity>,
}

/// What each component makes in Azure and takes away again, and where: the scopes of its role. Keys
/// are nobody's to clean up.
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

/// Where something is in Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResourceScope {
    ManagedResourceGroup,
    SecurityGroup,
    /// The resource group of the virtual network.
    NetworkResourceGroup,
    /// The zone of the cluster's base domain; without one, wherever the managed group is.
    DnsZone,
}

impl ResourceScope {
    fn resource_id(self, cluster: &ValidatedHostedCluster) -> String {
        let managed = cluster.managed_resource_group();
        let vnet = &cluster.azure.vnet;
        match (self, vnet.resource_group(), &cluster.base_domain) {
            (Self::SecurityGroup, ..) => cluster.azure.security_group.to_string(),
            (Self::NetworkResourceGroup, Some(group), _) => {
                format!("/subscriptions/{}/resourceGroups/{group}", vnet.subscription())
            }
            (Self::DnsZone, _, Some(domain)) => {
                let zone = format!("{}.{domain}", cluster.name);
                managed.provider_resource("Microsoft.Network/privateDnsZones", &zone).to_string()
            }
            (Self::ManagedResourceGroup | Self::NetworkResourceGroup | Self::DnsZone, ..) => {
                managed.to_string()
            }
        }
    }
}

/// What the end of a cluster waits for and leaves behind.
///
/// `status` is that of the identities as they are now: what breaks after the deletion began counts,
/// and what nobody reported is not called broken.
/// While one is broken, whatever it would end is not waited for in vain only if the HostedCluster
/// says so by [`FORCE_ANNOTATION`] (`is_forced`): what is left behind costs money, and nobody but a
/// person decides that. Of a cluster that cannot be used nobody knows what it leaves.
pub fn deletion_status(
    observed: &IdentityStatusInputs<'_>,
    status: &HostedClusterIdentitiesStatus,
    guests: Dependents,
    is_forced: bool,
) -> DeletionStatus {
    let mut parting = DeletionStatus::for_invalid_cluster(guests, is_forced);
    let ClusterValidation::Valid(cluster) = observed.cluster else { return parting };
    for identity in status.identities.iter().filter(|identity| identity.ready == CONDITION_FALSE) {
        let Ok(component) = identity.component.parse::<Component>() else { continue };
        let mut rows =
            RESOURCES_BY_COMPONENT.iter().filter(|(known, ..)| *known == component).peekable();
        let reason = identity.reason.clone();
        if rows.peek().is_some() && has_usable_credential(observed, component, identity) {
            parting.non_renewable_identities.push(NonRenewableIdentity {
                component,
                reason,
                until: identity.not_after,
            });
            continue;
        }
        parting.orphaned_resources.extend(rows.map(|(_, resources, place)| OrphanedResources {
            component,
            reason: reason.clone(),
            resources,
            place: place.resource_id(cluster),
        }));
    }
    parting
}

/// Whether a component goes on with what it has mounted, though no newer credential can come: what
/// broke lies before the credential, it has not ended, and no canary is refused.
fn has_usable_credential(
    observed: &IdentityStatusInputs<'_>,
    component: Component,
    identity: &IdentityStatus,
) -> bool {
    let failed = identity.failed_hop.as_deref().and_then(parse_hop);
    let is_before = failed.is_some_and(|hop| hop < Hop::Credential);
    let is_over = identity.not_after.is_some_and(|end| end <= observed.now);
    is_before && !is_over && !canary_reports_failure(observed, component)
}

impl DependentKind {
    /// The kind as the API server spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodePool => "NodePool",
            Self::Cluster => "Cluster",
            Self::AzureMachine => "AzureMachine",
        }
    }
}

impl DeletionStatus {
    /// The end of a cluster that cannot be used: nobody knows what it leaves behind.
    fn for_invalid_cluster(dependents: Dependents, is_forced: bool) -> Self {
        let dependents = if is_forced { Dependents::default() } else { dependents };
        let Dependents { remaining: mut blocking_dependents, unlisted_kinds } = dependents;
        blocking_dependents.sort();
        Self { blocking_dependents, unlisted_kinds, is_forced, ..Self::default() }
    }

    /// Whether the objects of the cluster may go.
    pub fn is_unblocked(&self) -> bool {
        self.blocking_dependents.is_empty() && self.unlisted_kinds.is_empty()
    }

    /// Whether what is waited for may never come, because the identity that ends it is broken.
    pub fn is_stuck(&self) -> bool {
        let breaks =
            |component| self.orphaned_resources.iter().any(|leak| leak.component == component);
        !self.is_unblocked() && breaks(Component::NodePoolManagement)
    }

    /// What stays behind, in one line: the beginning of [`message`](Self::message). Nothing when all
    /// goes.
    pub fn orphaned_resources_message(&self) -> Option<String> {
        let leaks: Vec<_> = self.orphaned_resources.iter().map(ToString::to_string).collect();
        (!leaks.is_empty()).then(|| format!("broken identities leave behind: {}", leaks.join("; ")))
    }

    /// What a person is told, in one line; nothing when there is nothing to tell.
    pub fn message(&self) -> Option<String> {
        let mut parts = Vec::from_iter(self.orphaned_resources_message());
        if !self.blocking_dependents.is_empty() {
            let guests: Vec<_> = self
                .blocking_dependents
                .iter()
                .take(MAX_LISTED_DEPENDENTS)
                .map(ToString::to_string)
                .collect();
            let more = self.blocking_dependents.len().saturating_sub(MAX_LISTED_DEPENDENTS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("the end waits for {}{more}", guests.join(", ")));
        }
        for UnlistedKind { kind, error, .. } in &self.unlisted_kinds {
            parts.push(format!("the end waits until every {} can be listed: {error}", kind.name()));
        }
        if !self.is_unblocked() && !self.non_renewable_identities.is_empty() {
            let fading: Vec<_> =
                self.non_renewable_identities.iter().map(ToString::to_string).collect();
            parts.push(format!("cannot be renewed, and still clean up: {}", fading.join("; ")));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// What to do next; nothing when there is nothing to do.
    pub fn hint(&self) -> Option<String> {
        if self.is_stuck() {
            return Some(format!(
                "mend the identity, or set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster and delete in Azure what stays"
            ));
        }
        if let Some(unlisted) = self.unlisted_kinds.first() {
            return Some(format!(
                "{}; to end it without looking, set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster",
                unlisted.hint
            ));
        }
        if !self.is_unblocked() {
            return Some(format!(
                "nothing, if it is going on; to end it all the same, set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster"
            ));
        }
        let place = &self.orphaned_resources.first()?.place;
        Some(format!("delete in Azure what stays; begin with {place}"))
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
