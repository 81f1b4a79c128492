//! The effects in a Kubernetes cluster: objects and Helm releases.
//!
//! The accesses of both, and that of Azure, tell resources by the schemes of their ids, so an access for all of them
//! passes each call on by the id. [`EffectAccess::wait`](crate::EffectAccess::wait) has no id, but only Azure accepts
//! writes.

mod helm_access;
mod helm_command;
mod helm_error;
mod helm_output;
mod helm_release;
mod ids;
mod kubernetes_access;
mod kubernetes_bodies;
mod kubernetes_object;

pub use self::helm_access::{HelmAccess, HelmSettings};
pub use self::helm_command::{HelmChart, HelmRelease};
pub use self::helm_error::{HelmError, HelmFailure};
pub use self::ids::{HelmReleaseId, KubernetesObjectId, OtherClusterError};
pub use self::kubernetes_access::{KubernetesAccess, KubernetesEffectError};
pub use self::kubernetes_object::KubernetesObject;
