//! The token engine: what is cached, when it is renewed, and who waits for whom.
//!
//! The pure parts decide ([`lifetime`], [`table`], [`request`]), the engine acts. It knows nothing
//! of certificates or endpoints: a [`source::TokenSource`] fetches one token, and the engine sees
//! to it that this happens once per key, in the background where it can, and in time.

pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod lifetime;
pub(crate) mod request;
pub(crate) mod source;
pub(crate) mod table;
