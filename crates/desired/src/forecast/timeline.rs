//! What will happen to the identities of many clusters, in the order of time.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use serde::Serialize;

use super::{Forecast, Policy, Stamps, Verdict, after, forecast, forecast_identity};

/// A moment in the life of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum Moment {
    /// From here on a newer one is to be expected.
    RenewFrom,
    /// From here on it is overdue.
    OverdueFrom,
    /// From here on what is written comes too late.
    LastWrite,
    /// It ends.
    Expiry,
}

impl Moment {
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

impl From<Moment> for &'static str {
    fn from(moment: Moment) -> Self {
        moment.name()
    }
}

/// The forecast of one identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
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
    pub forecast: Forecast,
    /// What happens next: [`Moment`], and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextMoment>,
    /// What to do next, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NextMoment {
    /// What.
    pub moment: Moment,
    /// When.
    pub at: Timestamp,
}

/// The identities of all clusters by the last moment at which something can be done for them, what
/// nobody knows last. A cluster of which nothing was told has one entry that says so.
pub fn timeline(
    clusters: &[HostedClusterIdentities],
    policy: &Policy,
    now: Timestamp,
) -> Vec<Entry> {
    let mut entries: Vec<_> =
        clusters.iter().flat_map(|cluster| entries_of(cluster, policy, now)).collect();
    entries.sort_by(|one, other| key(one).cmp(&key(other)));
    entries
}

fn key(entry: &Entry) -> impl Ord + '_ {
    let deadline = entry.forecast.last_write_at;
    (deadline.is_none(), deadline, &entry.namespace, &entry.cluster, &entry.component)
}

fn entries_of(cluster: &HostedClusterIdentities, policy: &Policy, now: Timestamp) -> Vec<Entry> {
    let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let entry = |identity: &IdentityStatus, forecast: Forecast| Entry {
        namespace: namespace.clone(),
        cluster: name.clone(),
        component: identity.component.clone(),
        ready: identity.ready.clone(),
        loaded_version: identity.loaded_version.clone(),
        next: forecast.next_moment(),
        hint: forecast.hint(),
        forecast,
    };
    let identities = cluster.status.as_ref().map(|status| status.identities.as_slice());
    match identities.unwrap_or_default() {
        [] => {
            let nothing = IdentityStatus {
                component: "*".to_owned(),
                ready: crate::status::UNKNOWN.to_owned(),
                ..IdentityStatus::default()
            };
            vec![entry(&nothing, forecast(Stamps::default(), policy, now))]
        }
        identities => {
            identities.iter().map(|it| entry(it, forecast_identity(it, policy, now))).collect()
        }
    }
}

impl Forecast {
    /// What happens next.
    pub fn next_moment(&self) -> Option<NextMoment> {
        let mut moments = self.moments().into_iter().filter(|(at, _)| *at > self.at);
        moments.next().map(|(at, moment)| NextMoment { moment, at })
    }
}

impl Entry {
    /// Whether it ends within this time from when the forecast was made, or needs somebody by then.
    pub fn ends_within(&self, time: Duration) -> bool {
        let ends = |at: Timestamp| at <= after(self.forecast.at, time);
        self.forecast.verdict.is_alarming() || self.forecast.expires_at.is_some_and(ends)
    }

    /// Whether nobody knows when it ends.
    pub fn is_unknown(&self) -> bool {
        self.forecast.verdict == Verdict::Unknown
    }
}
