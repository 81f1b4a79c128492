//! The client of Entra ID's token endpoint: OAuth 2.0 client credentials with an assertion (RFC 6749, RFC
//! 7521, RFC 7523). It parses responses as the service sends them, which differs from the RFCs.

pub(crate) mod error;
pub(crate) mod error_body;
pub(crate) mod exchange;
pub(crate) mod request;
pub(crate) mod response;
