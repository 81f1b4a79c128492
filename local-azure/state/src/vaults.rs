//! The stored vaults with their objects.

pub mod bundle_form;
pub mod certificate_content;
pub mod certificate_issuer;
pub mod certificate_operation;
pub mod certificate_policy;
pub mod der_certificate;
pub mod key_content;
pub mod key_rotation_policy;
pub mod network_rules;
pub mod object_kind;
pub mod object_store;
pub mod vault;
pub mod vault_object_key;
