//! The data plane of vaults.
//!
//! Reference: Azure Key Vault REST API; the versions and their differences are in `api_version`. Names are
//! case-insensitive. A request is challenged, then its token, the firewall, its permission and its content are
//! checked, in this order.

mod access;
mod api_version;
mod backups;
mod certificate_bundle;
mod certificate_content;
mod certificate_creation;
mod certificate_import;
mod certificate_issuance;
mod certificate_operation;
mod certificate_policy;
mod certificates;
mod deleted_objects;
mod der_certificate;
mod distinguished_name;
mod error;
mod geography;
mod issuers;
mod key_operations;
mod key_rotation;
mod keys;
mod network_rules;
mod object_kind;
mod object_store;
mod objects;
mod operations;
mod pages;
mod renewals;
mod request_body;
mod secrets;
mod vault;
mod vault_object_key;

pub(crate) use access::object_scope;
pub(crate) use certificate_bundle::BundleForm;
pub(crate) use certificate_content::{
    CertificateContent, NewCertificateVersion, StoreCertificateError, store_imported_certificate,
};
pub(crate) use der_certificate::DerCertificate;
pub(crate) use keys::{KeyContent, check_key_operations, permitted_operations};
pub(crate) use network_rules::{Ipv4Range, ParseIpv4RangeError, VaultNetworkRules};
pub(crate) use object_kind::KeyVaultObjectKind;
pub(crate) use object_store::{
    DeletedNameConflict, StoredObjectAttributes, StoredObjectVersion, StoredVaultObject,
    VersionContent, VersionedObjectStore,
};
pub(crate) use operations::OPERATIONS;
pub(crate) use secrets::MAX_VALUE_BYTES;
pub(crate) use vault::{
    AccessPolicy, AccessPolicyPermissions, DeletedVault, EmulatedVault, SecretContent,
    VaultSettings, VaultStore,
};

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vault_fixture;
