//! The node's access to the Kubernetes API: the source of SecretProviderClasses and the target of reports.
//!
//! The node watches instead of polling where it can, watches only namespaces in use, and skips writes that
//! would change nothing.

mod api;
mod classes;
pub(crate) mod digest;
mod events;
mod names;
mod reporter;

pub use api::NodeKubernetesApi;
pub use classes::{ClassChange, KubeClassCache, KubeClassCacheSettings};
pub use events::PodEventQueue;
pub(crate) use names::node_label_value;
pub use reporter::{KubeReporter, KubeReporterSettings};

/// The field manager of the objects that the node applies.
pub(crate) const FIELD_MANAGER: &str = "lanyard-node";
