//! The data plane of managed identities: resource providers obtain the credentials of the identities that are
//! assigned to their resources.
//!
//! The URL of a resource comes from Azure Resource Manager, which adds it to the requests that it forwards to a
//! resource provider; here, the control API creates it. A user-assigned identity also has a URL of its own, in
//! the `client_secret_url` of its credential.
//!
//! Reference: `github.com/Azure/msi-dataplane` v0.4.3, api-version 2024-01-01. Its description names the
//! statuses of errors, but not their codes: those here are the emulator's own.

mod access;
mod error;
mod issuance;
mod operations;

pub use self::operations::SERVICE;

#[cfg(test)]
mod tests;
