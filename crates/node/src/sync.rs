//! Kubernetes Secrets that are kept in step with mounted files: `secretObjects` of a class.
//!
//! The controller follows the pod statuses of its node. For each it asks for the class and the
//! pod, reads the files in the volume that the pod itself names, and makes the Secrets of the class
//! say what the files say. The steps in between are pure.

mod controller;
mod desired;
mod health;
mod mounted_files;
mod owners;
mod partial_pod;
mod schedule;
mod secret_applier;
mod volume_selection;
mod worker;
mod write_decision;

pub use controller::{SecretSync, SecretSyncSettings};
pub use health::SecretSyncHealth;
