//! Pure rendering: from a HostedCluster of managed Azure to everything that brings its identities
//! to its components.
//!
//! Nothing here reads a clock, the environment or a network, and deciding cannot fail: what can
//! fail is [`validate`], which reports every problem at once.
//!
//! ```
//! use lanyard_api::HostedCluster;
//! use lanyard_desired::{Names, desired, validate};
//!
//! # let text = include_str!("../../../examples/hostedcluster.yaml");
//! let wire = HostedCluster::parse_yaml(text)?;
//! let validated = validate(&wire)?;
//! let desired = desired(&validated.hosted_cluster, &Names::default());
//! assert_eq!(desired.namespace, "clusters-harbour");
//! assert_eq!(desired.secret_provider_classes.len(), 9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod fixture;
pub mod hosted_cluster;
pub mod problem;
pub mod proof;
pub mod render;

pub use hosted_cluster::ValidatedHostedCluster;
pub use hosted_cluster::desired::{Desired, desired};
pub use hosted_cluster::names::Names;
pub use hosted_cluster::validate::{Validated, validate, validate_update};
pub use problem::{Problem, Problems, Severity};
pub use proof::{ProofCall, ProofCalls, desired_proofs};
pub use render::{RenderedFile, render};
