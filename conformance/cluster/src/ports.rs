//! The ports of a cluster.

use lanyard_apiserver::choose_ports;
use serde::{Deserialize, Serialize};

use crate::error::ClusterError;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPorts {
    /// The client port of etcd.
    pub etcd: u16,
    /// The peer port of etcd, which has no peers.
    pub etcd_peer: u16,
    /// The port of the API server.
    pub api_server: u16,
    /// The health and metrics port of the controller manager.
    pub controller_manager: u16,
    /// The health and metrics port of the scheduler.
    pub scheduler: u16,
    /// The API port of the kubelet.
    pub kubelet: u16,
    /// The health port of the kubelet.
    pub kubelet_health: u16,
}

impl ClusterPorts {
    const COUNT: usize = 7;

    pub(crate) const fn from_array(ports: [u16; Self::COUNT]) -> Self {
        let [etcd, etcd_peer, api_server, controller_manager, scheduler, kubelet, kubelet_health] =
            ports;
        Self { etcd, etcd_peer, api_server, controller_manager, scheduler, kubelet, kubelet_health }
    }

    /// Chooses free ports.
    pub(crate) fn choose() -> Result<Self, ClusterError> {
        Ok(Self::from_array(choose_ports()?))
    }
}
