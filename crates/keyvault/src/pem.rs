//! PEM (RFC 7468): a writer, and a parser that finds blocks in a text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::secret_bytes::SharedSecretBytes;

/// The label of a certificate.
pub(crate) const CERTIFICATE: &str = "CERTIFICATE";
/// The label of a PKCS#8 private key.
pub(crate) const PRIVATE_KEY: &str = "PRIVATE KEY";
/// The label of a `SubjectPublicKeyInfo`.
pub(crate) const PUBLIC_KEY: &str = "PUBLIC KEY";

/// Writes PEM blocks with lines of 64 characters, each ended by a line feed.
#[derive(Default)]
pub(crate) struct PemWriter {
    text: Zeroizing<Vec<u8>>,
}

impl PemWriter {
    pub(crate) fn push(&mut self, label: &str, der: &[u8]) {
        let body = Zeroizing::new(STANDARD.encode(der));
        // Allocate the full capacity once: a buffer that grows leaves an unwiped copy behind.
        let mut text =
            Zeroizing::new(Vec::with_capacity(self.text.len() + body.len() * 66 / 64 + 128));
        text.extend_from_slice(&self.text);
        text.extend_from_slice(format!("-----BEGIN {label}-----\n").as_bytes());
        for line in body.as_bytes().chunks(LINE_LENGTH) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
        self.text = text;
    }

    pub(crate) fn finish(mut self) -> SharedSecretBytes {
        std::mem::take(&mut *self.text).into()
    }
}

/// A block in a text, from its first dash to its last.
#[derive(Clone, Copy)]
pub(crate) struct PemBlock<'a> {
    pub(crate) label: &'a str,
    pub(crate) text: &'a str,
}

/// The blocks of a text, in order. Text between the blocks is ignored, as in other PEM parsers.
pub(crate) fn parse_blocks(text: &str) -> Vec<PemBlock<'_>> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some(block) = next_block(&mut rest) {
        blocks.push(block);
    }
    blocks
}

/// Whether a text contains the beginning of a block.
pub(crate) fn looks_like_pem(bytes: &[u8]) -> bool {
    bytes.windows(BOUNDARY.len()).any(|window| window == BOUNDARY.as_bytes())
}

fn next_block<'a>(rest: &mut &'a str) -> Option<PemBlock<'a>> {
    loop {
        let text = *rest;
        let from = &text[text.find(BOUNDARY)?..];
        let after = &from[BOUNDARY.len()..];
        let line = after.lines().next().unwrap_or_default();
        let end = line.trim_end().strip_suffix("-----").and_then(|label| {
            let closing = format!("{BOUNDARY_END}{label}-----");
            Some((label, after.find(&closing)? + BOUNDARY.len() + closing.len()))
        });
        match end {
            Some((label, length)) => {
                *rest = &from[length..];
                return Some(PemBlock { label, text: &from[..length] });
            }
            None => *rest = after,
        }
    }
}

const LINE_LENGTH: usize = 64;
const BOUNDARY: &str = "-----BEGIN ";
const BOUNDARY_END: &str = "-----END ";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The decoded body of a block.
    fn block_der(block: &PemBlock<'_>) -> Option<Vec<u8>> {
        let (_, rest) = block.text.split_once('\n')?;
        let (body, _) = rest.rsplit_once(BOUNDARY_END)?;
        let body: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        STANDARD.decode(body).ok()
    }

    #[test]
    fn pem_lines_are_64_characters_and_newline_terminated() {
        let mut writer = PemWriter::default();
        writer.push(CERTIFICATE, &[7; 100]);
        writer.push(PUBLIC_KEY, b"x");
        let pem = writer.finish();
        let text = std::str::from_utf8(pem.expose()).unwrap();
        let widths: Vec<_> = text.lines().map(str::len).collect();
        assert_eq!(widths, [27, 64, 64, 8, 25, 26, 4, 24]);
        assert!(text.ends_with("-----END PUBLIC KEY-----\n"));
    }

    #[test]
    fn blocks_are_found_between_other_text_and_carriage_returns() {
        let text = "Bag Attributes\r\n-----BEGIN CERTIFICATE-----\r\nAQID\r\n-----END CERTIFICATE-----\r\n\
                    -----BEGIN broken\n-----BEGIN EC PRIVATE KEY-----\nBAUG\n-----END EC PRIVATE KEY-----";
        let blocks = parse_blocks(text);
        let labels: Vec<_> = blocks.iter().map(|block| block.label).collect();
        assert_eq!(labels, ["CERTIFICATE", "EC PRIVATE KEY"]);
        assert_eq!(block_der(&blocks[0]).unwrap(), [1, 2, 3]);
        assert_eq!(block_der(&blocks[1]).unwrap(), [4, 5, 6]);
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in "(-----BEGIN |-----END |-----|A|\n|é|CERTIFICATE){0,12}") {
            for block in parse_blocks(&text) {
                prop_assert!(text.contains(block.text));
            }
        }

        #[test]
        fn written_blocks_are_parsed_back(ders in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4)) {
            let mut writer = PemWriter::default();
            for der in &ders {
                writer.push(CERTIFICATE, der);
            }
            let pem = writer.finish();
            let text = std::str::from_utf8(pem.expose()).unwrap();
            let read: Vec<_> = parse_blocks(text).iter().map(|block| block_der(block).unwrap()).collect();
            prop_assert_eq!(read, ders);
        }
    }
}
