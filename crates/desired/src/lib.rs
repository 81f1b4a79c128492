//! Pure rendering: from a HostedCluster of managed Azure to everything that brings its identities
//! to its components.
//!
//! Nothing here reads a clock, the environment or a network, and deciding cannot fail: what can
//! fail is [`parse_hosted_cluster`] ([`validate`] for what was read already), which reports every
//! problem at once.
//!
//! ```
//! use lanyard_desired::{Names, desired, parse_hosted_cluster};
//!
//! # let text = include_str!("../../../examples/hostedcluster.yaml");
//! let validated = parse_hosted_cluster(text)?;
//! let desired = desired(&validated.hosted_cluster, &Names::default());
//! assert_eq!(desired.namespace, "clusters-harbour");
//! assert_eq!(desired.secret_provider_classes.len(), 9);
//! # Ok::<(), lanyard_desired::ParseHostedClusterError>(())
//! ```

#[cfg(any(test, feature = "test-util"))]
pub mod cases;
pub mod deletion;
pub mod diff;
pub mod drift;
#[cfg(test)]
mod fixture;
pub mod forecast;
pub mod hash;
pub mod hosted_cluster;
pub mod metrics;
pub mod objects;
pub mod problem;
pub mod proof;
pub mod render;
pub mod roll;
pub mod status;
pub mod templates;
mod told;
pub mod workload;

pub use diff::{Change, Pruning, diff};
pub use hosted_cluster::ValidatedHostedCluster;
pub use hosted_cluster::desired::{Desired, desired};
pub use hosted_cluster::isolation::lint_shared_credentials;
pub use hosted_cluster::names::Names;
pub use hosted_cluster::validate::{
    HostedClusterKind, ParseHostedClusterError, ParsedHostedCluster, ValidateError, Validated,
    parse_hosted_cluster, validate, validate_schema, validate_update,
};
pub use objects::{
    DesiredObject, Inputs, ObjectKey, ObservedObject, OwnedKind, Writer, desired_objects,
};
pub use problem::{Problem, Problems, Severity};
pub use proof::{ProofCall, ProofCalls, desired_proofs};
pub use render::{RenderedFile, render, render_patches};
pub use templates::WorkloadTemplates;
