//! The processes of a cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterComponent {
    /// Stores the objects.
    Etcd,
    /// Runs containers.
    Containerd,
    /// Serves the Kubernetes API.
    KubeApiserver,
    /// Runs the controllers, for example those of service accounts and `ReplicaSets`.
    KubeControllerManager,
    /// Assigns pods to the node.
    KubeScheduler,
    /// Runs the pods of the node.
    Kubelet,
}

impl ClusterComponent {
    /// Every component, in start order.
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::Containerd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
    ];

    /// The name of the component, which is also the name of its program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
        }
    }
}

impl fmt::Display for ClusterComponent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
