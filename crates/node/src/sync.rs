//! Synchronizes Kubernetes Secrets with mounted files: `secretObjects` of a class.
//!
//! The controller watches the pod statuses of its node. For each, it reads the class and the pod, reads the
//! files of the volume that the pod itself names, and applies the Secrets of the class with the content of
//! those files. The steps in between are pure functions.

mod controller;
mod desired;
mod health;
mod mounted_files;
mod owners;
mod partial_pod;
mod schedule;
mod secret_applier;
mod settings;
mod volume_selection;
mod worker;
mod write_decision;

pub use controller::SecretSync;
pub use health::SecretSyncHealth;
pub use settings::SecretSyncSettings;
