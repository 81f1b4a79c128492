//! A real one-node Kubernetes cluster on loopback: etcd, API server, controller manager,
//! scheduler, containerd and kubelet as plain processes, all state below one directory.
//!
//! Nothing here is a stand-in. What the programs are comes from a directory of them
//! (`cargo xtask cluster` installs one); what they are told is decided by pure code ([`LocalClusterPlan`],
//! and the rooms behind it), what happens to the machine by a thin shell ([`LocalCluster`]).
//! [`LocalCluster::down`] takes everything away again, also after a start that failed half way or a
//! caller that was killed: processes are recorded with their start times and marked in their
//! environment, and mounts, control groups and leftovers are found by the directory.
//!
//! [`ControlPlane`], of `lanyard-apiserver`, is less: etcd and API server alone, for suites that need
//! no node.
//!
//! ```no_run
//! use lanyard_clock::SystemClock;
//! use lanyard_cluster::{Cluster, Options};
//!
//! # async fn example() -> Result<(), lanyard_cluster::ClusterError> {
//! let options = Options::new("/tmp/cluster".into(), "/tmp/programs".into());
//! let cluster = Cluster::up(options, SystemClock::shared()).await?;
//! println!("{}", cluster.kubeconfig().display());
//! Cluster::down(cluster.directory(), SystemClock::shared()).await?;
//! # Ok(())
//! # }
//! ```

mod certificates;
mod cluster;
mod component;
mod component_command;
mod configuration;
mod error;
mod http_client;
mod layout;
mod leftovers;
mod mounts;
mod plan;
mod ports;
mod processes;
mod readiness;
mod status;

pub use cluster::{ClusterStartOutcome, LocalCluster};
pub use component::ClusterComponent;
pub use error::ClusterError;
pub use lanyard_apiserver::{
    ControlPlane, ControlPlaneError, ControlPlaneOptions, EtcdAccess, NoFreePorts,
    SharedControlPlane, choose_ports,
};
pub use layout::ClusterLayout;
pub use plan::{LocalClusterPlan, Options};
pub use ports::ClusterPorts;
pub use status::{ClusterStatus, ComponentHealth, ComponentStatus};
