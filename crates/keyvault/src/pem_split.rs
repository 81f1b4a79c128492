//! Splits a PEM text into its certificates and its other blocks.

use crate::pem::{self, CERTIFICATE};
use crate::secret_bytes::SharedSecretBytes;

/// The two parts of a PEM text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitPem {
    /// All certificates.
    pub(crate) certificates: SharedSecretBytes,
    /// All other blocks.
    pub(crate) other_blocks: SharedSecretBytes,
}

/// Splits a PEM text into its certificates and its other blocks. The blocks are copied as they are; text
/// between them is dropped.
pub(crate) fn split_certificates(text: &str) -> SplitPem {
    let blocks = pem::parse_blocks(text);
    let part = |wanted: bool| {
        let chosen = || blocks.iter().filter(|block| (block.label == CERTIFICATE) == wanted);
        let mut part = Vec::with_capacity(chosen().map(|block| block.text.len() + 1).sum());
        for block in chosen() {
            part.extend_from_slice(block.text.as_bytes());
            part.push(b'\n');
        }
        part.into()
    };
    SplitPem { certificates: part(true), other_blocks: part(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_split_from_other_pem_blocks() {
        let key = "-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n";
        let encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAQID\n-----END RSA PRIVATE KEY-----\n";
        let one = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        let two = "-----BEGIN CERTIFICATE-----\nBAUG\n-----END CERTIFICATE-----\n";
        let text = format!("{one}subject=x\n{key}{two}{}", encrypted.trim_end());
        let separated = split_certificates(&text);
        assert_eq!(separated.certificates.expose(), format!("{one}{two}").as_bytes());
        assert_eq!(separated.other_blocks.expose(), format!("{key}{encrypted}").as_bytes());
    }

    #[test]
    fn text_without_pem_blocks_splits_into_two_empty_parts() {
        let separated = split_certificates("nothing here");
        assert!(separated.certificates.is_empty() && separated.other_blocks.is_empty());
    }
}
