//! What the end of a hosted cluster waits for, and what it leaves in Azure when an identity is
//! broken.
//!
//! Components clean up in Azure with their own identities. One that cannot get a token any more
//! cleans up nothing, and an end that waited for it would never come. So the identity is named, and
//! what it leaves behind; and whoever knows that may say that nobody waits.
//!
//! Order: the node pools, the cluster of Cluster API and its machines, which other operators end;
//! then workloads, what they mount, the control plane and its namespace. The files of credentials
//! stay mounted until the pods are gone, whatever became of the vault.

use std::fmt;

use lanyard_api::hosted_cluster_identities::IdentitiesStatus;
use lanyard_vocabulary::Component;
use serde::Serialize;

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::status::FALSE;

#[cfg(test)]
mod tests;

/// Annotation of a HostedCluster: `true` ends it without what is still to be cleaned up.
pub const FORCE_ANNOTATION: &str = "lanyard.dev/force-deletion";

/// What other operators still have to end before the control plane may go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guest {
    /// Which kind.
    pub kind: GuestKind,
    /// Its name.
    pub name: String,
}

/// What belongs to a hosted cluster and is ended by other operators, in the order of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuestKind {
    /// A group of nodes.
    NodePool,
    /// The cluster of Cluster API.
    Cluster,
    /// A machine in Azure.
    AzureMachine,
}

/// What other operators still have to end, as far as it can be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guests {
    /// What is there.
    pub there: Vec<Guest>,
    /// What could not be asked for.
    pub unlisted: Vec<Unlisted>,
}

/// A kind whose objects could not be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlisted {
    /// Which kind.
    pub kind: GuestKind,
    /// What was tried and what came back.
    pub error: String,
    /// What to do next.
    pub hint: &'static str,
}

/// What a broken identity leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leak {
    /// The component that would have cleaned up.
    pub component: Component,
    /// Why it cannot, as its status says.
    pub reason: String,
    /// What stays.
    pub resources: &'static str,
    /// Where it stays, as an id of Azure.
    pub place: String,
}

/// What the end of a cluster comes to now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parting {
    /// What is waited for.
    pub waits_for: Vec<Guest>,
    /// Kinds of which nobody knows whether there is something to wait for.
    pub unlisted: Vec<Unlisted>,
    /// Whether somebody said that nobody waits.
    pub is_forced: bool,
    /// What broken identities leave behind.
    pub leaks: Vec<Leak>,
}

/// What each component makes in Azure and takes away again. Keys are nobody's to clean up.
const CLEANS_UP: [(Component, Option<&str>); 9] = [
    (
        Component::CloudProvider,
        Some("load balancers, their public addresses and security rules of services"),
    ),
    (
        Component::NodePoolManagement,
        Some("virtual machines, their network interfaces and system disks"),
    ),
    (Component::ControlPlaneOperator, Some("private endpoints and their DNS records")),
    (Component::ImageRegistry, Some("the storage account of the image registry")),
    (Component::Ingress, Some("DNS records of routes")),
    (Component::Network, Some("egress addresses on network interfaces")),
    (Component::Disk, Some("managed disks and snapshots of volumes")),
    (Component::File, Some("storage accounts and shares of volumes")),
    (Component::Kms, None),
];

/// What the end of a cluster waits for and leaves behind.
///
/// `status` is the last that is known of the identities; what nobody reported is not called broken.
/// While one is broken, whatever it would end is not waited for in vain only if the HostedCluster
/// says so by [`FORCE_ANNOTATION`] (`is_forced`): what is left behind costs money, and nobody but a
/// person decides that.
pub fn parting(
    cluster: &ValidatedHostedCluster,
    status: Option<&IdentitiesStatus>,
    guests: Guests,
    is_forced: bool,
) -> Parting {
    Parting { leaks: leaks(cluster, status), ..Parting::of_unusable(guests, is_forced) }
}

fn leaks(cluster: &ValidatedHostedCluster, status: Option<&IdentitiesStatus>) -> Vec<Leak> {
    let identities = status.into_iter().flat_map(|status| &status.identities);
    let broken = identities.filter(|identity| identity.ready == FALSE);
    broken
        .filter_map(|identity| {
            let component: Component = identity.component.parse().ok()?;
            let (_, resources) = CLEANS_UP.iter().find(|(known, _)| *known == component)?;
            Some(Leak {
                component,
                reason: identity.reason.clone(),
                resources: (*resources)?,
                place: cluster.managed_group().to_string(),
            })
        })
        .collect()
}

impl GuestKind {
    /// The kind as the API server spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodePool => "NodePool",
            Self::Cluster => "Cluster",
            Self::AzureMachine => "AzureMachine",
        }
    }
}

impl Parting {
    /// The end of a cluster that cannot be used: nobody knows what it leaves behind.
    pub fn of_unusable(guests: Guests, is_forced: bool) -> Self {
        let guests = if is_forced { Guests::default() } else { guests };
        let Guests { there: mut waits_for, unlisted } = guests;
        waits_for.sort();
        Self { waits_for, unlisted, is_forced, leaks: Vec::new() }
    }

    /// Whether the objects of the cluster may go.
    pub fn may_go(&self) -> bool {
        self.waits_for.is_empty() && self.unlisted.is_empty()
    }

    /// Whether what is waited for may never come, because the identity that ends it is broken.
    pub fn is_stuck(&self) -> bool {
        let breaks = |component| self.leaks.iter().any(|leak| leak.component == component);
        !self.may_go() && breaks(Component::NodePoolManagement)
    }

    /// What a person is told, in one line; nothing when there is nothing to tell.
    pub fn message(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.waits_for.is_empty() {
            let guests: Vec<_> =
                self.waits_for.iter().take(MOST_GUESTS).map(ToString::to_string).collect();
            let more = self.waits_for.len().saturating_sub(MOST_GUESTS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("the end waits for {}{more}", guests.join(", ")));
        }
        for Unlisted { kind, error, .. } in &self.unlisted {
            parts.push(format!("the end waits until every {} can be listed: {error}", kind.name()));
        }
        if !self.leaks.is_empty() {
            let leaks: Vec<_> = self.leaks.iter().map(ToString::to_string).collect();
            parts.push(format!("broken identities leave behind: {}", leaks.join("; ")));
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
        if let Some(unlisted) = self.unlisted.first() {
            return Some(format!(
                "{}; to end it without looking, set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster",
                unlisted.hint
            ));
        }
        if !self.may_go() {
            return Some(format!(
                "nothing, if it is going on; to end it all the same, set the annotation `{FORCE_ANNOTATION}: \"true\"` on the HostedCluster"
            ));
        }
        let place = &self.leaks.first()?.place;
        Some(format!("delete in Azure what stays; begin with {place}"))
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.name(), self.name)
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, reason, resources, place } = self;
        write!(formatter, "{component} ({reason}): {resources}, in {place}")
    }
}

const MOST_GUESTS: usize = 5;
