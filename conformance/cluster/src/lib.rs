//! A real one-node Kubernetes cluster on loopback: etcd, API server, controller manager,
//! scheduler, containerd and kubelet as plain processes, all state below one directory.
//!
//! All programs are the real ones, from a directory that `cargo xtask cluster` installs. Pure code decides
//! their flags and configuration ([`LocalClusterPlan`] and the modules that use it); [`LocalCluster`] carries
//! the plan out on the machine. [`LocalCluster::down`] removes everything, also after a start that failed
//! half way or a caller that was killed: processes are recorded with their start times and marked by an
//! environment variable, and mounts, control groups and leftovers are found through the directory.
//!
//! [`ControlPlane`] of `lanyard-apiserver` is the smaller alternative for
//! suites that need no node: etcd and the API server only.
//!
//! ```no_run
//! use lanyard_clock::SystemClock;
//! use lanyard_cluster::{LocalCluster, Options};
//!
//! # async fn example() -> Result<(), lanyard_cluster::ClusterError> {
//! let options = Options::new("/tmp/cluster".into(), "/tmp/programs".into());
//! let cluster = LocalCluster::up(options, SystemClock::shared()).await?;
//! println!("{}", cluster.kubeconfig().display());
//! LocalCluster::down(cluster.directory(), SystemClock::shared()).await?;
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
