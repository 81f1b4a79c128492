//! The operator: from HostedClusters to everything that brings their identities to their
//! components, continuously, and one place that says how each identity is.
//!
//! A look at a cluster has six stages. What is known is observed in stores that watches fill; pure
//! code of `lanyard-desired` validates, desires and compares; what differs is applied; and what
//! nodes and canaries told becomes the status of `HostedClusterIdentities`. Where all is as it
//! should be nothing is asked and nothing is written.
//!
//! ```no_run
//! use lanyard_clock::SystemClock;
//! use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
//! use lanyard_operator::{Operator, OperatorSettings};
//! use lanyard_telemetry::Readiness;
//!
//! # async fn example(settings: OperatorSettings) -> Result<(), Box<dyn std::error::Error>> {
//! let access = ApiAccess::Kubeconfig("/root/.kube/config".into());
//! let agent = UserAgent::from_static("lanyard-operator/1.0");
//! let api = KubernetesApi::connect(&access, agent, SystemClock::shared()).await?;
//! let readiness = Readiness::default();
//! Operator::new(api, settings, &readiness).run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod apply;
mod claim;
mod contest;
mod context;
mod deletion;
mod encryption_key;
mod error;
mod events;
mod finalizer;
mod guests;
mod hosted_cluster;
mod judge;
mod key;
mod kinds;
mod lease;
mod metrics;
mod objects;
mod observe;
mod operator;
mod parting;
mod plan;
mod queue;
mod read;
mod reconcile;
pub mod rights;
mod settings;
mod shared;
mod status;
mod store;
mod strangers;
mod subject;

pub use finalizer::FINALIZER;
pub use judge::MANAGED_SERVICE;
pub use key::{ClusterKey, ParseClusterKeyError};
pub use lease::LeaseSettings;
pub use operator::Operator;
pub use plan::ClusterPlan;
pub use settings::{OperatorSettings, Role};
pub use status::STATUS_MANAGER;
//
