//! The token endpoint of Entra ID: OAuth 2.0 client credentials with an assertion (RFC 6749,
//! RFC 7521, RFC 7523), read by what the service sends and not by what the RFCs allow.

pub(crate) mod error;
pub(crate) mod error_body;
pub(crate) mod exchange;
pub(crate) mod hint;
pub(crate) mod request;
pub(crate) mod response;
