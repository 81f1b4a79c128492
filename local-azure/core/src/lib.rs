//! The engine of the local Azure: the server, the processing of requests, tokens, fault rules, and the state file.
//!
//! A service registers its operations as an [`emulated_service::EmulatedService`]. The engine depends on
//! no crate of a service. It knows the names of the services, and the error format that several of them share.

mod arm_requests;
pub mod authority;
pub mod emulated_service;
pub mod engine;
pub mod exclusive_writes;
pub mod fault_replies;
pub mod ingress;
mod issuer_key_cache;
pub mod issuer_keys;
pub mod operation_context;
mod path_parameters;
pub mod pregenerated_keys;
pub mod public_documents;
pub mod request_log;
pub mod server;
pub mod service_caches;
pub mod service_headers;
pub mod snapshot;
pub mod state_store;
pub mod token;

pub use self::emulated_service::operations;
