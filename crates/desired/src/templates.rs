//! How the components of a control plane run: the images, commands and places of their workloads.

/// How the components of a control plane run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadTemplates {}

impl WorkloadTemplates {
    /// The pod security standard that the workloads keep.
    pub const fn pod_security(&self) -> &'static str {
        "restricted"
    }
}
