//! The data plane of Azure Key Vault.
//!
//! Reference: Azure Key Vault REST API; the versions and their differences are in `api_version`.
//! Names are case-insensitive. A vault answers a request without a token with a challenge. Then it
//! checks the token, the firewall, the permission and the content, in this order.

pub mod access;
mod api_version;
mod backups;
mod certificate_bundle;
mod certificate_creation;
mod certificate_import;
mod certificate_issuance;
pub mod certificate_versions;
mod certificates;
mod deleted_objects;
mod distinguished_name;
mod error;
mod geography;
mod issuers;
mod key_operations;
mod key_rotation;
mod keys;
mod object_errors;
mod objects;
mod operations;
mod pages;
mod pending_certificates;
mod pkcs12_limits;
mod policy_body;
mod renewals;
mod request_body;
pub mod secrets;
mod stored_object;
mod vault_view;

pub use operations::SERVICE;

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vault_fixture;
