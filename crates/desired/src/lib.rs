//! Pure functions that render all objects with which the components of a managed Azure
//! HostedCluster get their identities, and that derive the identity status from reports.
//!
//! No function reads a clock, the environment or a network. Rendering is infallible: only
//! [`parse_hosted_cluster`] (or [`validate`] for a HostedCluster that is already deserialized) can
//! fail, and reports all problems at once.
//!
//! ```
//! use lanyard_desired::{RenderContext, desired_state, parse_hosted_cluster};
//!
//! # let text = include_str!("../../../examples/hostedcluster.yaml");
//! let validated = parse_hosted_cluster(text)?;
//! let desired = desired_state(&validated.hosted_cluster, &RenderContext::default());
//! assert_eq!(desired.namespace, "clusters-harbour");
//! assert_eq!(desired.secret_provider_classes.len(), 9);
//! # Ok::<(), lanyard_desired::ParseHostedClusterError>(())
//! ```

mod container_settings;
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
mod report_text;
pub mod rollout;
#[cfg(any(test, feature = "test-util"))]
pub mod schema_cases;
pub mod status;
pub mod templates;
pub mod workload;

pub use diff::{ObjectChange, PruneScope, diff_objects};
pub use hosted_cluster::ValidatedHostedCluster;
pub use hosted_cluster::desired_state::{DesiredState, desired_state};
pub use hosted_cluster::render_context::RenderContext;
pub use hosted_cluster::shared_credentials::lint_shared_credentials;
pub use hosted_cluster::validate::{
    HostedClusterPlatform, HostedClusterValidationError, ParseHostedClusterError,
    ParsedHostedCluster, ValidatedWithLints, parse_hosted_cluster, report_misspelled_fields,
    report_misspelled_missing_fields, validate, validate_schema, validate_update,
};
pub use objects::{
    DesiredObject, DesiredObjectInputs, ObjectKey, ObjectWriter, ObservedObject, OwnedKind,
    desired_objects,
};
pub use problem::{ProblemSeverity, ValidationProblem, ValidationProblems};
pub use proof::{ProofCall, ProofCalls, desired_proof_calls};
pub use render::{RenderedFile, render_deployment_patches, render_objects};
pub use templates::WorkloadTemplates;
