//! The node's side of the Kubernetes API: where classes come from and where reports go.
//!
//! Nothing here is polled that can be watched, nothing is watched that nobody asked for, and
//! nothing is written that is already there.

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

/// The field manager of what this program applies.
pub(crate) const FIELD_MANAGER: &str = "lanyard-node";
