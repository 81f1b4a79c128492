//! Why there is no road by way of a Kubernetes API, or why something of it was left behind.

use std::path::PathBuf;
use std::time::Duration;

use kube::config::KubeconfigError;
use lanyard_apiserver::{ControlPlaneError, NoPrograms};
use lanyard_kubernetes::{AccessError, ApiError};
use lanyard_node::MountError;
use thiserror::Error;

/// The road by way of a Kubernetes API could not be built, or not be cleared away.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KubernetesRoadError {
    /// There are no programs for an API server of one's own.
    #[error("an API server of one's own cannot be started")]
    Programs(#[from] NoPrograms),
    /// The API server of one's own did not start.
    #[error("the API server of one's own did not start")]
    Start(#[from] ControlPlaneError),
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// There is no way to the API server.
    #[error("there is no way to the API server")]
    Access(#[from] AccessError),
    /// The server is on another machine, and nobody said that it may be.
    #[error(
        "the server of the kubeconfig, {server}, is not on this machine; there would be made, and \
         removed at the end: {wanted}"
    )]
    Remote {
        /// The server.
        server: String,
        /// What would be made.
        wanted: String,
    },
    /// The API server refused, or was not reached.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is a HostedCluster of this name already.
    #[error("there is a HostedCluster {name} on {server} already")]
    Exists {
        /// Namespace and name.
        name: String,
        /// The server.
        server: String,
    },
    /// A kind is not served though its definition is there.
    #[error("the kind {kind} is not served {} s after its definition was made", patience.as_secs())]
    NotServed {
        /// The plural of the kind, and its group.
        kind: String,
        /// How long was waited.
        patience: Duration,
    },
    /// An object of ours is not one.
    #[error("{what} cannot be written as an object")]
    Object {
        /// What it is.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Volumes cannot be mounted.
    #[error("the node plugin mounts real volumes, and this process may not mount")]
    Mounts(#[source] MountError),
    /// The node plugin cannot be built.
    #[error("the node plugin cannot be built: {problem}")]
    Node {
        /// Why.
        problem: String,
    },
    /// Something stayed on the server.
    #[error("on {server} something was left behind: {left}")]
    Left {
        /// The server.
        server: String,
        /// What.
        left: String,
    },
}

impl KubernetesRoadError {
    /// Whether what was asked for cannot be.
    pub const fn is_invalid_input(&self) -> bool {
        matches!(self, Self::Remote { .. } | Self::Exists { .. } | Self::Kubeconfig { .. })
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Programs(error) => error.hint(),
            Self::Start(error) => error.hint(),
            Self::Kubeconfig { .. } => "try the same file with `kubectl --kubeconfig`",
            Self::Access(error) => error.hint(),
            Self::Remote { .. } => {
                "add --yes if it is a cluster for trials, or give --kubernetes without --kubeconfig \
                 for a server of one's own"
            }
            Self::Api(ApiError::Refused { status: 401 | 403, .. }) => {
                "use a kubeconfig whose user may make definitions, namespaces, nodes and pods"
            }
            Self::Api(error) => error.hint(),
            Self::Exists { .. } => {
                "delete it, if an earlier run left it behind, or give another one with -f"
            }
            Self::NotServed { .. } => "see the conditions of its CustomResourceDefinition",
            Self::Object { .. } | Self::Node { .. } => {
                "run again with --log debug and report what it says"
            }
            Self::Mounts(_) => {
                "run it as root, or leave --kubernetes out: in memory the road needs no mounts"
            }
            Self::Left { .. } => {
                "kubectl delete crd,namespace,node -l lanyard.dev/made-by=up removes it; see what \
                 holds it with `kubectl get -o yaml`"
            }
        }
    }
}
