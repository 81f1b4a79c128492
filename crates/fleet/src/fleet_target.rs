//! The desired resources of one cluster of a fleet, with everything that must be looked up in Azure.

use std::borrow::Cow;

use lanyard_azure::{ArmBody as _, AzureCallError, ManagedClusterBody};
use lanyard_changes::{
    AzureAccess, AzureGraph, JournalCluster, JournalTarget, OwnershipTags, PreflightFinding,
    ResourceGraphError, StackTarget,
};
use lanyard_clock::ErrorHint;
use lanyard_infra::AzureSubscription;
use lanyard_vocabulary::ArmResourceId;

use crate::cluster_graph::ClusterPart;
use crate::fleet::{Fleet, FleetCluster};
use crate::fleet_document::OidcIssuerMode;
use crate::fleet_label::FleetLabel;
use crate::fleet_rules::FleetRules;
use crate::live_cluster::LiveCluster;
use crate::vault_checks::check_vaults;

/// The desired resources of one cluster of a fleet.
#[derive(Debug)]
pub struct FleetTarget {
    /// The resources, with their journal.
    pub stack: StackTarget<FleetRules>,
    /// What the checks of the cluster, of the vaults and of the credentials found.
    pub findings: Vec<PreflightFinding>,
}

/// The resources of a cluster cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetTargetError {
    /// The AKS cluster does not exist, or the signed-in identity may not read it.
    #[error("the cluster `{cluster}` does not exist: {id}")]
    ClusterMissing {
        /// The name of the cluster in the fleet.
        cluster: FleetLabel,
        /// Its id.
        id: ArmResourceId,
    },
    /// A request failed.
    #[error("what exists for the cluster `{cluster}` cannot be read")]
    Read {
        /// The name of the cluster in the fleet.
        cluster: FleetLabel,
        /// The cause.
        source: AzureCallError,
    },
    /// The resources form no graph. This is a defect of lanyard.
    #[error(transparent)]
    Graph(#[from] ResourceGraphError),
}

impl ErrorHint for FleetTargetError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::ClusterMissing { .. } => Some(Cow::Borrowed(
                "correct `clusters[].id`; `az aks list --query '[].id'` shows the ids. If the cluster is gone, its identities and their roles stay until you delete them",
            )),
            Self::Read { source, .. } => source.hint(),
            Self::Graph(_) => None,
        }
    }

    fn is_invalid_input(&self) -> bool {
        matches!(self, Self::ClusterMissing { .. })
    }
}

/// The cluster as it is named in the journal of its resources.
pub fn journal_cluster(fleet: &Fleet, cluster: &FleetCluster) -> JournalCluster {
    JournalCluster {
        name: cluster.name.to_string(),
        infra_id: fleet.name.to_string(),
        subscription: cluster.identities.subscription.to_string(),
    }
}

impl FleetTarget {
    /// Looks up the cluster, the vaults and the credentials of identities. Sends GET requests only.
    ///
    /// # Errors
    ///
    /// [`FleetTargetError`].
    pub async fn resolve(
        fleet: &Fleet,
        cluster: &FleetCluster,
        access: AzureAccess,
        journal: JournalTarget,
    ) -> Result<Self, FleetTargetError> {
        let name = || cluster.name.clone();
        let read = |source| FleetTargetError::Read { cluster: name(), source };
        let version = ManagedClusterBody::API_VERSION;
        let found = access.arm.fetch_optional(cluster.id.as_str(), version).await.map_err(read)?;
        let Some(found) = found else {
            let id = cluster.id.clone();
            return Err(FleetTargetError::ClusterMissing { cluster: name(), id });
        };
        let live = LiveCluster::new(&found.body);
        let applications = &fleet.applications;
        let part = ClusterPart { fleet: &fleet.name, applications, cluster, live: &live };
        let graph = AzureGraph::new(part.resources())?;
        let mut findings = check_issuer(cluster, &live);
        let vaults = check_vaults(&access.arm, cluster, applications).await;
        findings.extend(vaults.map_err(read)?);
        let subscription =
            AzureSubscription { id: cluster.identities.subscription.clone(), access };
        let stack = StackTarget {
            rules: FleetRules { subscription },
            journal,
            graph,
            tags: OwnershipTags::new(cluster.name.as_str(), fleet.name.as_str()),
            is_complete: true,
            keeps_superseded: false,
        };
        Ok(Self { stack, findings })
    }
}

fn check_issuer(cluster: &FleetCluster, live: &LiveCluster) -> Vec<PreflightFinding> {
    let name = &cluster.name;
    let state = format!("`{name}` is {} and {}", live.provisioning_state, live.power_state);
    let is_ready = live.provisioning_state == "Succeeded" && live.power_state == "Running";
    let missing = match (&live.issuer, live.has_workload_identity) {
        (Some(_), true) if is_ready => return Vec::new(),
        (Some(_), true) => {
            let hint = "look at the last change of the cluster: `az aks show`; its issuer may not be published";
            return vec![PreflightFinding::warning("cluster", state, hint)];
        }
        _ if !is_ready && cluster.oidc_issuer == OidcIssuerMode::Enable => {
            let hint = "wait for its last change, start it, or repair it with `az aks update`; then run the command again";
            return vec![PreflightFinding::error("cluster", state, hint)];
        }
        (Some(_), false) => "workload identity",
        (None, true) => "an OIDC issuer",
        (None, false) => "an OIDC issuer and workload identity",
    };
    vec![match cluster.oidc_issuer {
        OidcIssuerMode::Enable => PreflightFinding::warning(
            "issuer",
            format!(
                "`{name}` gets {missing}; this restarts its API server, and an issuer cannot be disabled again"
            ),
            "choose a time at which clients of the API server can wait for some minutes",
        ),
        OidcIssuerMode::Require => PreflightFinding::error(
            "issuer",
            format!("`{name}` does not have {missing}"),
            "set `oidcIssuer: enable`, or run `az aks update --enable-oidc-issuer --enable-workload-identity`; both restart the API server",
        ),
    }]
}
