//! The operator: reconciles HostedClusters into the objects that deliver managed identities to their
//! components, and reports the status of each identity in `HostedClusterIdentities`.
//!
//! The reconciliation of a cluster has six stages. The operator observes the cluster in stores that
//! watches fill; pure code of `lanyard-desired` validates the HostedCluster, derives the desired objects
//! and compares them; the operator applies the differences and reports the status from what nodes and
//! canaries published. For a cluster in sync it sends no request, except for the objects that the
//! HostedCluster refers to and that it copies.
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
mod classification;
mod cluster_ids;
mod cluster_key;
mod conflict_backoff;
mod context;
mod deletion;
mod deletion_status;
mod dependents;
mod encryption_key;
mod error;
mod events;
mod fetch;
mod finalizer;
mod hosted_cluster;
mod lease;
mod metrics;
mod namespace_access;
mod namespace_owner;
mod objects;
mod observe;
mod operator;
pub mod permissions;
mod plan;
mod queue;
mod reconcile;
mod references;
mod settings;
mod shared_credentials;
mod status;
mod store;
mod unowned_objects;
mod watched_kinds;
mod watched_resource;

pub use classification::MANAGED_SERVICE;
pub use cluster_key::{ClusterKey, ParseClusterKeyError};
pub use finalizer::FINALIZER;
pub use lease::LeaseSettings;
pub use operator::Operator;
pub use plan::ClusterPlan;
pub use settings::{
    OperatorRole, OperatorSettings, ParseServiceAccountKeyError, ServiceAccountKey,
};
pub use status::STATUS_FIELD_MANAGER;
