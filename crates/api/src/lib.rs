//! Kubernetes API types: the fields of HostedCluster and HostedControlPlane that lanyard uses,
//! SecretProviderClass with its parameters, and the reports of nodes, canaries and the operator
//! about identities.
//!
//! Deserialization is lenient and serialization is exact: every field is optional, unknown fields
//! are preserved, and parsing reports all problems with their locations.
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

pub mod canary_report;
pub mod crd_definitions;
pub mod hosted_cluster;
pub mod hosted_cluster_identities;
pub mod hosted_control_plane;
mod key_order;
mod namespaced_kind;
pub mod objects;
mod parameter_problem;
pub mod parameters;
pub mod pod_status;
pub mod secret_provider_class;
mod time;
pub mod volume_status_report;
mod yaml_source;

pub use canary_report::CanaryStatusReport;
pub use hosted_cluster::{HostedCluster, ReadHostedClusterError};
pub use hosted_cluster_identities::HostedClusterIdentities;
pub use hosted_control_plane::HostedControlPlane;
pub use key_order::sort_keys;
pub use objects::{
    MountFileName, VaultObjectEntry, VaultObjectFormat, VaultObjectKind, VaultObjectVersion,
};
pub use parameter_problem::ParameterProblem;
pub use parameters::{IdentityMode, ParameterProblems, ProviderParameters};
pub use pod_status::SecretProviderClassPodStatus;
pub use secret_provider_class::SecretProviderClass;
pub use time::truncate_to_second;
pub use volume_status_report::{ObjectStatusReport, VolumeStatusReport};
pub use yaml_source::is_unquoted_yaml_string;
