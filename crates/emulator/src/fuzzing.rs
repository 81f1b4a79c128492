//! Readers of bytes from outside, open to fuzzing; not part of the public interface.

use crate::jose::{UnverifiedToken, x5c_certificate};

/// Reads a client assertion and its certificates as the token service does before it trusts
/// anything, and tells how many certificates it could read; nothing if it is no assertion.
pub fn read_client_assertion(text: &str) -> Option<usize> {
    let token = UnverifiedToken::parse(text)?;
    let readable = token.header.x5c.iter().filter_map(|entry| x5c_certificate(entry));
    Some(readable.count())
}
