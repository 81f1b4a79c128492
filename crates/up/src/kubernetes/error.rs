//! Why there is no road by way of a Kubernetes API, or why something of it was left behind.

use std::borrow::Cow;
use std::time::Duration;

use lanyard_apiserver::{ControlPlaneError, NoPrograms};
use lanyard_kubernetes::{AccessError, ApiError};
use lanyard_node::MountError;
use thiserror::Error;

use super::ledger::{RUN, removal_of_cluster};

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
    /// There is no way to the API server.
    #[error("there is no way to the API server")]
    Access(#[from] AccessError),
    /// The server is on another machine, and nobody said that it may be.
    #[error(
        "the server of the kubeconfig, {server}{}, is not on this machine; there would be made, and \
         removed at the end: {wanted}",
        proxy.as_ref().map(|proxy| format!(" by way of {proxy}")).unwrap_or_default()
    )]
    Remote {
        /// The server.
        server: String,
        /// The proxy on the way there.
        proxy: Option<String>,
        /// What would be made.
        wanted: String,
    },
    /// The API server refused, or was not reached.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is a HostedCluster of this name already.
    #[error("there is a HostedCluster {namespace}/{cluster} on {server} already")]
    Exists {
        /// Its namespace.
        namespace: String,
        /// Its name.
        cluster: String,
        /// The server.
        server: String,
        /// The run of `lanyard up` that made it.
        run: Option<String>,
    },
    /// Somebody looks after HostedClusters there.
    #[error("on {server} somebody looks after HostedClusters already: {by}")]
    Operated {
        /// The server.
        server: String,
        /// Who.
        by: String,
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
    /// Something that was made on the server of others could not be removed.
    #[error("on {server} there may still be: {}", left.join(", "))]
    Left {
        /// The server.
        server: String,
        /// What.
        left: Vec<String>,
        /// The commands that remove it, in this order.
        removal: Vec<String>,
        /// Why; nothing where it takes its time, or nobody wanted to wait.
        #[source]
        source: Option<Box<ApiError>>,
    },
}

impl KubernetesRoadError {
    /// Whether what was asked for cannot be.
    pub const fn is_invalid_input(&self) -> bool {
        matches!(
            self,
            Self::Remote { .. }
                | Self::Exists { .. }
                | Self::Operated { .. }
                | Self::Access(AccessError::Kubeconfig { .. } | AccessError::NoKubeconfig { .. })
        )
    }

    /// What to do next.
    pub fn hint(&self) -> Cow<'static, str> {
        let fixed = match self {
            Self::Programs(error) => error.hint(),
            Self::Start(error) => error.hint(),
            Self::Access(error) => error.hint(),
            Self::Remote { .. } => {
                "add --yes if it is a cluster for trials, or give --kubernetes without --kubeconfig \
                 for a server of one's own"
            }
            Self::Api(ApiError::Refused { status: 401 | 403, .. }) => {
                "use a kubeconfig whose user may make definitions, namespaces, nodes and pods, and \
                 list Deployments and Leases"
            }
            Self::Api(error) => error.hint(),
            Self::Exists { namespace, cluster, run: Some(run), .. } => {
                return made_by_run(run, namespace, cluster).into();
            }
            Self::Exists { run: None, .. } => {
                "it is somebody else's: give a HostedCluster of another name with -f"
            }
            Self::Operated { .. } => {
                "it would look after the HostedCluster of this road, too: use another cluster, give \
                 --kubernetes for a server of one's own, or end that operator (a Deployment without \
                 replicas, a lease that is deleted)"
            }
            Self::NotServed { .. } => "see the conditions of its CustomResourceDefinition",
            Self::Object { .. } | Self::Node { .. } => {
                "run again with --log debug and report what it says"
            }
            Self::Mounts(_) => {
                "run it as root, or leave --kubernetes out: in memory the road needs no mounts"
            }
            Self::Left { removal, .. } => return removed_by_hand(removal).into(),
        };
        fixed.into()
    }
}

/// Of a HostedCluster that is there, and was made by `lanyard up`.
fn made_by_run(run: &str, namespace: &str, cluster: &str) -> String {
    let commands = removal_of_cluster(run, namespace, cluster);
    format!(
        "run {run} of `lanyard up` made it: wait until that has ended, or give a HostedCluster of \
         another name with -f; where it was killed, see what it made with `kubectl get \
         nodes,namespaces,customresourcedefinitions --selector {RUN}={run}` and remove the \
         HostedCluster with{}",
        lines(&commands)
    )
}

fn removed_by_hand(removal: &[String]) -> String {
    format!("remove it by hand, in this order, where nobody else uses it by now:{}", lines(removal))
}

/// Each on a line of its own, below what is said of them.
fn lines(commands: &[String]) -> String {
    commands.iter().flat_map(|command| ["\n  ", command]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exists(run: Option<&str>) -> KubernetesRoadError {
        KubernetesRoadError::Exists {
            namespace: "clusters".to_owned(),
            cluster: "harbour".to_owned(),
            server: "https://127.0.0.1:6443".to_owned(),
            run: run.map(str::to_owned),
        }
    }

    #[test]
    fn a_cluster_of_somebody_else_is_not_to_be_deleted() {
        let hint = exists(None).hint();
        assert!(hint.contains("with -f") && !hint.contains("delete"), "{hint}");
    }

    #[test]
    fn a_cluster_of_another_run_is_removed_by_that_run_and_without_waiting_for_its_finalizer() {
        let hint = exists(Some("0a1b2c3d")).hint();
        let commands: Vec<_> = hint.lines().skip(1).map(str::trim).collect();
        assert_eq!(commands.len(), 2, "{hint}");
        for told in ["--selector lanyard.dev/run=0a1b2c3d", "--wait=false"] {
            assert!(commands[0].contains(told), "{hint}");
        }
        assert!(commands[1].contains(r#"'{"metadata":{"finalizers":null}}'"#), "{hint}");
        assert!(!hint.contains("made-by"), "{hint}");
    }
}
