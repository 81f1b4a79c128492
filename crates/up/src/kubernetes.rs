//! The same road by way of a real Kubernetes API.
//!
//! | part | who plays it |
//! |---|---|
//! | API server | etcd and kube-apiserver of one's own, or that of a kubeconfig |
//! | operator | `lanyard-operator`, as `lanyard operator` runs it |
//! | Deployment controller, kubelet | a stand-in ([`pods`], `lanyard-kubelet`): a pod of each Deployment, on a node of our own |
//! | node plugin | `lanyard-node` over its sockets, with real mounts, as `lanyard node` runs it |
//! | components | `lanyard-canary`, told what the containers of the pods are told |
//!
//! Every row of the report is what these tell on the API server ([`told`]); only the refused call
//! is made here. What this makes on the server carries a label of this run ([`site`]), and by that
//! label alone it is taken away again, unless others have put something into it ([`others`]).

mod api_server;
mod board;
mod container;
mod directory;
mod error;
mod leaving;
mod ledger;
mod node_plugin;
mod operated;
mod others;
mod pods;
mod road;
mod rotation;
mod served;
mod sightings;
mod site;
mod store;
mod told;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lanyard_api::HostedCluster;
use lanyard_canary::CanarySettings;

pub use error::KubernetesRoadError;
pub use lanyard_apiserver::ProgramPlaces;
pub use road::KubernetesRoad;

/// What the road by way of a Kubernetes API needs beside the [`Options`](crate::Options) of every
/// road.
#[derive(Debug, Clone)]
pub struct KubernetesOptions {
    /// Which API server.
    pub server: ServerChoice,
    /// The HostedCluster as the person wrote it, which is what the server gets.
    pub hosted_cluster: HostedCluster,
    /// What the arguments of a canary come to.
    pub read_canary: ReadCanary,
}

/// Which API server is on the road.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerChoice {
    /// One of one's own, with the programs that are in one of these places.
    Own(ProgramPlaces),
    /// That of the current context of a kubeconfig file.
    Given {
        /// The file.
        kubeconfig: PathBuf,
        /// Whether it may be on another machine.
        may_be_remote: bool,
    },
}

/// What a container is started with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// `args`.
    pub arguments: Vec<String>,
    /// `env`, with what its references come to.
    pub variables: BTreeMap<String, String>,
}

/// Reads what a canary is started with: the command line of `lanyard canary` belongs to the binary.
pub type ReadCanary = fn(&Launch) -> Result<CanarySettings, LaunchError>;

/// A container cannot be started as it is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LaunchError {
    /// What is wrong.
    pub message: String,
}
