//! The stored storage accounts with their containers and blobs.

pub mod account;
pub mod blob_etag;
pub mod blob_service_properties;
pub mod container;
pub mod lease;
pub mod names;
pub mod store;
pub mod stored_blob;
