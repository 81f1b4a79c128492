//! A timeline of the renewals of all identities of many clusters.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use serde::Serialize;

use super::{
    ForecastTimestamps, RenewalForecast, RenewalPolicy, RenewalState, add_saturating,
    forecast_identity_renewal, forecast_renewal,
};

/// A milestone in the lifetime of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum RenewalMilestone {
    /// A newer credential is expected from here on.
    RenewFrom,
    /// The renewal is overdue from here on.
    OverdueFrom,
    /// A write to the vault after this time is too late.
    LastWrite,
    /// The credential expires.
    Expiry,
}

impl RenewalMilestone {
    /// All milestones, in chronological order.
    pub const ALL: [Self; 4] = [Self::RenewFrom, Self::OverdueFrom, Self::LastWrite, Self::Expiry];

    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RenewFrom => "renew-from",
            Self::OverdueFrom => "overdue-from",
            Self::LastWrite => "last-write",
            Self::Expiry => "expiry",
        }
    }

    /// Returns the display name.
    pub const fn title(self) -> &'static str {
        match self {
            Self::RenewFrom => "renewal begins",
            Self::OverdueFrom => "renewal overdue",
            Self::LastWrite => "last write that helps",
            Self::Expiry => "credential ends",
        }
    }
}

impl From<RenewalMilestone> for &'static str {
    fn from(moment: RenewalMilestone) -> Self {
        moment.name()
    }
}

/// The forecast of one identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// The namespace of the hosted cluster.
    pub namespace: String,
    /// The name of the hosted cluster.
    pub cluster: String,
    /// The component, by the name of its field in the HostedCluster API; `*` if the cluster has no
    /// identity status.
    pub component: String,
    /// The current `ready` state: `True`, `False` or `Unknown`.
    pub ready: String,
    /// The version of the vault secret that the pods use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_version: Option<String>,
    /// The renewal forecast.
    #[serde(flatten)]
    pub forecast: RenewalForecast,
    /// The next milestone and its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextMilestone>,
    /// The suggested next step; `None` if no action is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
}

/// The next milestone of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NextMilestone {
    /// The milestone.
    pub moment: RenewalMilestone,
    /// The time of the milestone.
    pub at: Timestamp,
}

/// Returns the identities of all clusters, sorted by the last time at which action still helps;
/// identities with an unknown expiry come last. A cluster without an identity status has one entry
/// with the component `*`.
pub fn renewal_timeline(
    clusters: &[HostedClusterIdentities],
    policy: &RenewalPolicy,
    now: Timestamp,
) -> Vec<TimelineEntry> {
    let mut entries: Vec<_> =
        clusters.iter().flat_map(|cluster| cluster_entries(cluster, policy, now)).collect();
    entries.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
    entries
}

fn sort_key(entry: &TimelineEntry) -> impl Ord + '_ {
    let deadline = entry.forecast.last_write_at;
    (deadline.is_none(), deadline, &entry.namespace, &entry.cluster, &entry.component)
}

fn cluster_entries(
    cluster: &HostedClusterIdentities,
    policy: &RenewalPolicy,
    now: Timestamp,
) -> Vec<TimelineEntry> {
    let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let entry = |identity: &IdentityStatus, forecast: RenewalForecast| TimelineEntry {
        namespace: namespace.clone(),
        cluster: name.clone(),
        component: identity.component.clone(),
        ready: identity.ready.clone(),
        loaded_version: identity.loaded_version.clone(),
        next: forecast.next_milestone(),
        hint: forecast.hint(),
        forecast,
    };
    let identities = cluster.status.as_ref().map(|status| status.identities.as_slice());
    match identities.unwrap_or_default() {
        [] => {
            let nothing = IdentityStatus {
                component: "*".to_owned(),
                ready: crate::status::CONDITION_UNKNOWN.to_owned(),
                ..IdentityStatus::default()
            };
            vec![entry(&nothing, forecast_renewal(ForecastTimestamps::default(), policy, now))]
        }
        identities => identities
            .iter()
            .map(|it| entry(it, forecast_identity_renewal(it, policy, now)))
            .collect(),
    }
}

impl RenewalForecast {
    pub fn next_milestone(&self) -> Option<NextMilestone> {
        let mut moments = self.milestones().into_iter().filter(|(at, _)| *at > self.evaluated_at);
        moments.next().map(|(at, moment)| NextMilestone { moment, at })
    }
}

impl TimelineEntry {
    /// Returns whether the credential expires or needs action within this time after the forecast.
    pub fn ends_within(&self, time: Duration) -> bool {
        let ends = |at: Timestamp| at <= add_saturating(self.forecast.evaluated_at, time);
        self.forecast.verdict.requires_action() || self.forecast.expires_at.is_some_and(ends)
    }

    /// Returns whether the expiry is unknown.
    pub fn is_unknown(&self) -> bool {
        self.forecast.verdict == RenewalState::Unknown
    }
}
