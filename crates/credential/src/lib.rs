//! Azure identities from rotating certificate files, federated token files and managed identity endpoints

pub mod assertion;
pub mod bundle;
pub mod document;
pub mod file;
pub mod generation;
pub mod identity;
pub mod loader;
pub mod lookalike;
pub mod secret;

pub use file::{CredentialFile, FileOptions, LoadError, Reload};
pub use generation::Generation;
pub use loader::LoaderHealth;
