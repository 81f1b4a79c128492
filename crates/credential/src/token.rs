//! The token engine: caches tokens, renews them and coalesces concurrent requests.
//!
//! The pure modules decide ([`lifetime`], [`table`], [`request`]), and the engine executes. It is independent
//! of certificates and endpoints: a [`source::TokenSource`] fetches one token, and the engine ensures that it
//! does so once per key, in time and, if possible, in the background.

pub(crate) mod engine;
pub(crate) mod engine_credential;
pub(crate) mod error;
pub(crate) mod lifetime;
pub(crate) mod request;
pub(crate) mod source;
pub(crate) mod table;
