//! Which clusters are changed together, and in which order. Does no I/O.

use std::time::Duration;

use crate::fleet::{Fleet, FleetCluster};
use crate::fleet_label::FleetLabel;

/// Clusters that are changed before those of the next wave.
#[derive(Debug, Clone, PartialEq)]
pub struct Wave<'a> {
    /// The name of the wave; `None` if the file has no waves.
    pub name: Option<&'a FleetLabel>,
    /// The clusters, in their order.
    pub clusters: Vec<&'a FleetCluster>,
    /// How many of them are changed at the same time.
    pub concurrency: usize,
    /// How many of them may fail before no further one is started.
    pub allowed_failures: usize,
    /// How long to wait after the wave.
    pub pause_after: Duration,
}

impl Fleet {
    /// The waves of the clusters for which `is_selected` returns true. Waves without such a cluster are left out.
    pub fn waves(&self, is_selected: impl Fn(&FleetCluster) -> bool) -> Vec<Wave<'_>> {
        let selected: Vec<_> = self.clusters.iter().filter(|it| is_selected(it)).collect();
        if self.waves.is_empty() {
            let (clusters, pause_after) = (selected, Duration::ZERO);
            return vec![Wave {
                name: None,
                clusters,
                concurrency: 1,
                allowed_failures: 0,
                pause_after,
            }];
        }
        let waves = self.waves.iter().enumerate().map(|(index, rule)| {
            let is_in_wave = |it: &&FleetCluster| self.wave_of(it) == Some(index);
            let mut clusters: Vec<_> = selected.iter().copied().filter(is_in_wave).collect();
            if let Some(label) = &rule.order_by {
                clusters.sort_by_key(|it| order_of(it.label(label)));
            }
            let total = clusters.len();
            Wave {
                name: Some(&rule.name),
                concurrency: rule.max_concurrency.rounded_down(total).max(1),
                allowed_failures: rule.max_allowed_failures.rounded_up(total),
                pause_after: rule.pause_after,
                clusters,
            }
        });
        waves.filter(|wave| !wave.clusters.is_empty()).collect()
    }

    /// The index of the first wave whose labels the cluster has.
    pub(crate) fn wave_of(&self, cluster: &FleetCluster) -> Option<usize> {
        self.waves.iter().position(|rule| cluster.has_labels(&rule.match_labels))
    }
}

/// Numbers before texts, and both before a missing value.
fn order_of(value: Option<&str>) -> (u8, u64, String) {
    match value {
        Some(text) => match text.parse() {
            Ok(number) => (0, number, String::new()),
            Err(_) => (1, 0, text.to_owned()),
        },
        None => (2, 0, String::new()),
    }
}
