//! Parsers of untrusted bytes for fuzzing; not part of the public interface.

use crate::jose::{UnverifiedToken, x5c_certificate};

/// Parses a client assertion and its certificates as the token service does before verification. Returns the
/// number of parsed certificates, or `None` if the text is not an assertion.
pub fn read_client_assertion(text: &str) -> Option<usize> {
    let token = UnverifiedToken::parse(text)?;
    let readable = token.header.x5c.iter().filter_map(|entry| x5c_certificate(entry));
    Some(readable.count())
}
