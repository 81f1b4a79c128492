//! The state of the local Azure, as plain data: directory, authorization, resources, vaults, storage accounts, and
//! the types of all services that are stored.
//!
//! The crate has no server and no operations. Services are functions of this state, a request and a time.

pub mod authorization;
pub mod azure_clouds;
pub mod azure_service;
pub mod azure_state;
pub mod certificate_bundle;
pub mod certificates;
pub mod client_certificate;
pub mod clock_offset;
pub mod cloud_domain;
pub mod component_name;
pub mod directory;
pub mod drill;
pub mod fault_rules;
pub mod id_generator;
pub mod identity_binding;
pub mod identity_fault;
pub mod identity_registry;
pub mod identity_url;
pub mod imds_node;
pub mod jose;
pub mod json_error;
pub mod keys;
pub mod managed_clusters;
pub mod managed_identity_credential;
pub mod management_groups;
pub mod published_key;
pub mod reproducible_keys;
pub mod request;
pub mod resources;
pub mod seed_plan_fingerprint;
pub mod settings;
pub mod sign_ins;
pub mod storage;
mod stored_settings;
pub mod table;
#[cfg(any(test, feature = "test-util"))]
#[expect(clippy::unwrap_used, reason = "tests call it, and a failure is that of the test")]
pub mod testing;
pub mod token_policy;
pub mod tracked;
pub mod vaults;
