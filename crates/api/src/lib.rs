//! Kubernetes wire types: the HostedCluster slice, SecretProviderClass with its parameters, and the
//! pod status that tells what a volume holds.
//!
//! Reading is patient and writing is exact: everything is optional, fields that are not known
//! stay as they came, and problems are collected with the place of each.
//!
//! ```
//! use lanyard_api::SecretProviderClass;
//!
//! let class: SecretProviderClass = serde_json::from_str(
//!     r#"{"spec": {"provider": "azure", "parameters": {"keyvaultName": "kv"}}}"#,
//! )?;
//! let problems = class.parse_parameters().unwrap_err();
//! let fields: Vec<_> = problems.problems().iter().map(|problem| problem.field()).collect();
//! assert_eq!(fields, ["keyvaultName", "tenantID", "objects"]);
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod hosted_cluster;
pub mod objects;
pub mod parameters;
pub mod pod_status;
pub mod secret_provider_class;
mod source_text;

pub use hosted_cluster::{HostedCluster, ReadHostedClusterError};
pub use objects::{FileName, ObjectEntry, ObjectFormat, ObjectKind, ObjectVersion};
pub use parameters::{IdentityMode, ParameterProblem, ParameterProblems, ProviderParameters};
pub use pod_status::SecretProviderClassPodStatus;
pub use secret_provider_class::SecretProviderClass;
pub use source_text::reads_as_text;
