//! PEM (RFC 7468) of one key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::{PemObject, SectionKind};
use zeroize::Zeroizing;

/// A text is not valid PEM. The parser's reason is dropped, because it can quote the text.
pub(crate) struct InvalidPem;

/// Encodes one block with lines of 64 characters, each ended by a line feed.
pub(crate) fn encode_block(label: &str, der: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(der));
    // Allocate the full capacity once: a text that grows leaves an unwiped copy behind.
    let capacity = body.len() + body.len() / LINE_LENGTH + 2 * label.len() + 64;
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII, so each index is the start of a character.
        let (line, after) = rest.split_at(LINE_LENGTH.min(rest.len()));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

/// A decoded block with a key.
pub(crate) struct KeyBlock {
    pub(crate) kind: SectionKind,
    pub(crate) der: Zeroizing<Vec<u8>>,
}

/// The first block whose kind is in `kinds`.
pub(crate) fn first_block(
    text: &str,
    kinds: &[SectionKind],
) -> Result<Option<KeyBlock>, InvalidPem> {
    for block in <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes()) {
        let Ok((kind, der)) = block else { return Err(InvalidPem) };
        let der = Zeroizing::new(der);
        if kinds.contains(&kind) {
            return Ok(Some(KeyBlock { kind, der }));
        }
    }
    Ok(None)
}

const LINE_LENGTH: usize = 64;
