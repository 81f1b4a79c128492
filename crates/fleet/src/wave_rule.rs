//! A wave of the file of a fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fleet_label::FleetLabel;

/// A wave of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WaveRule {
    pub(crate) name: FleetLabel,
    pub(crate) match_labels: BTreeMap<String, String>,
    /// The label whose values order the clusters.
    pub(crate) order_by: Option<String>,
    pub(crate) max_concurrency: ClusterShare,
    pub(crate) max_allowed_failures: ClusterShare,
    pub(crate) pause_after: Duration,
}

/// A number of clusters, or a percentage of those of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterShare {
    Count(usize),
    Percentage(usize),
}

impl ClusterShare {
    /// The number of `total` clusters, rounded down. As in the staged updates of Azure Kubernetes Fleet Manager.
    pub(crate) const fn rounded_down(self, total: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percentage(percent) => total * percent / 100,
        }
    }

    /// The number of `total` clusters, rounded up.
    pub(crate) const fn rounded_up(self, total: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percentage(percent) => (total * percent).div_ceil(100),
        }
    }
}
