//! Free ports on the loopback address.
//!
//! They are taken below the range that the system gives to outgoing connections and to port 0
//! (32768 and up by default), so that nobody is given one between the choice and its use.

use std::net::TcpListener;

use serde::{Deserialize, Serialize};

use crate::error::ClusterError;
use crate::plan::Plan;

/// The ports of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// etcd's clients.
    pub etcd: u16,
    /// etcd's peers, of which there are none.
    pub etcd_peer: u16,
    /// The API server.
    pub api_server: u16,
    /// The controller manager's health and metrics.
    pub controller_manager: u16,
    /// The scheduler's health and metrics.
    pub scheduler: u16,
    /// The kubelet's API.
    pub kubelet: u16,
    /// The kubelet's health.
    pub kubelet_health: u16,
}

impl Ports {
    const COUNT: usize = 7;
    const RANGE: std::ops::Range<u16> = 20_000..32_000;

    pub(crate) const fn from_array(ports: [u16; Self::COUNT]) -> Self {
        let [etcd, etcd_peer, api_server, controller_manager, scheduler, kubelet, kubelet_health] =
            ports;
        Self { etcd, etcd_peer, api_server, controller_manager, scheduler, kubelet, kubelet_health }
    }

    /// Chooses free ports. Callers with different seeds look in different places first.
    pub(crate) fn choose(seed: u64) -> Result<Self, ClusterError> {
        choose(seed).map(Self::from_array)
    }
}

/// Chooses so many free ports. All are held until the last is known, so that they are distinct.
pub(crate) fn choose<const COUNT: usize>(seed: u64) -> Result<[u16; COUNT], ClusterError> {
    let mut listeners = Vec::with_capacity(COUNT);
    for port in candidates(seed) {
        if let Ok(listener) = TcpListener::bind((Plan::ADDRESS, port)) {
            listeners.push((port, listener));
        }
        if listeners.len() == COUNT {
            break;
        }
    }
    let ports: Vec<u16> = listeners.iter().map(|(port, _)| *port).collect();
    <[u16; COUNT]>::try_from(ports).map_err(|_too_few| ClusterError::NoPorts { wanted: COUNT })
}

/// Every port of the range once, beginning at a place that the seed names.
fn candidates(seed: u64) -> impl Iterator<Item = u16> {
    let count = Ports::RANGE.end - Ports::RANGE.start;
    let begin = u16::try_from(seed % u64::from(count)).unwrap_or_default();
    (0..count).map(move |step| Ports::RANGE.start + (begin + step) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_of_the_range_is_a_candidate_once() {
        for seed in [0, 1, 11_999, 12_000, u64::MAX] {
            let mut ports: Vec<u16> = candidates(seed).collect();
            ports.sort_unstable();
            assert!(ports.iter().copied().eq(Ports::RANGE), "{seed}");
        }
    }

    #[test]
    fn a_port_that_is_in_use_is_passed_over() {
        let first = Ports::choose(77).expect("there are free ports");
        let taken = TcpListener::bind((Plan::ADDRESS, first.api_server));
        let second = Ports::choose(77).expect("there are still free ports");
        // Another process may have been faster; then it is in use all the same.
        drop(taken);
        assert_ne!(first.api_server, second.api_server);
    }
}
