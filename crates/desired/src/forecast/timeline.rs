//! What will happen to the identities of many clusters, in the order of time.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use serde::Serialize;

use super::{
    ForecastTimestamps, RenewalForecast, RenewalPolicy, RenewalState, add_saturating,
    forecast_identity_renewal, forecast_renewal,
};

/// A moment in the life of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum RenewalMilestone {
    /// From here on a newer one is to be expected.
    RenewFrom,
    /// From here on it is overdue.
    OverdueFrom,
    /// From here on what is written comes too late.
    LastWrite,
    /// It ends.
    Expiry,
}

impl RenewalMilestone {
    /// Every moment, in the order of time.
    pub const ALL: [Self; 4] = [Self::RenewFrom, Self::OverdueFrom, Self::LastWrite, Self::Expiry];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RenewFrom => "renew-from",
            Self::OverdueFrom => "overdue-from",
            Self::LastWrite => "last-write",
            Self::Expiry => "expiry",
        }
    }

    /// What people read.
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
    /// The component, as its field in the HostedCluster API; `*` where nobody told of any.
    pub component: String,
    /// `True`, `False` or `Unknown`: how it is now.
    pub ready: String,
    /// The version that is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_version: Option<String>,
    /// What will become of it.
    #[serde(flatten)]
    pub forecast: RenewalForecast,
    /// What happens next: [`RenewalMilestone`], and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextMilestone>,
    /// What to do next, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NextMilestone {
    /// What.
    pub moment: RenewalMilestone,
    /// When.
    pub at: Timestamp,
}

/// The identities of all clusters by the last moment at which something can be done for them, what
/// nobody knows last. A cluster of which nothing was told has one entry that says so.
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
    /// What happens next.
    pub fn next_milestone(&self) -> Option<NextMilestone> {
        let mut moments = self.milestones().into_iter().filter(|(at, _)| *at > self.evaluated_at);
        moments.next().map(|(at, moment)| NextMilestone { moment, at })
    }
}

impl TimelineEntry {
    /// Whether it ends within this time from when the forecast was made, or needs somebody by then.
    pub fn ends_within(&self, time: Duration) -> bool {
        let ends = |at: Timestamp| at <= add_saturating(self.forecast.evaluated_at, time);
        self.forecast.verdict.requires_action() || self.forecast.expires_at.is_some_and(ends)
    }

    /// Whether nobody knows when it ends.
    pub fn is_unknown(&self) -> bool {
        self.forecast.verdict == RenewalState::Unknown
    }
}
