//! Short digests for names that would otherwise exceed a length limit.

use std::fmt::Write as _;

use aws_lc_rs::digest::{Context, SHA256};

/// Returns the SHA-256 of the parts. Each part has a terminator, so that different lists of parts have
/// different digests.
pub(crate) fn sha256_of_texts(parts: &[&str]) -> [u8; 32] {
    sha256_of_parts(parts.iter().map(|part| part.as_bytes()))
}

/// Returns the SHA-256 of byte strings, each with a terminator.
pub(crate) fn sha256_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&part.len().to_le_bytes());
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// Returns the first `bytes` bytes of a digest in hexadecimal.
pub(crate) fn hex_prefix(digest: &[u8; 32], bytes: usize) -> String {
    let mut text = String::with_capacity(bytes * 2);
    for byte in digest.iter().take(bytes) {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_part_boundaries() {
        assert_ne!(sha256_of_texts(&["ab", "c"]), sha256_of_texts(&["a", "bc"]));
        assert_eq!(hex_prefix(&sha256_of_texts(&["a"]), 4).len(), 8);
    }
}
