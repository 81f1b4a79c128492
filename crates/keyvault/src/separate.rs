//! The certificates and the keys of a PEM text, apart.

use crate::pem::{self, CERTIFICATE};
use crate::secret_bytes::SecretBytes;

/// The two parts of a PEM text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Separated {
    /// Every certificate.
    pub(crate) certificates: SecretBytes,
    /// Every other block.
    pub(crate) others: SecretBytes,
}

/// Takes the certificates of a PEM text from its other blocks. Blocks stay as they are written;
/// what stands between them is dropped.
pub(crate) fn separate(text: &str) -> Separated {
    let blocks = pem::blocks(text);
    let part = |wanted: bool| {
        let chosen = || blocks.iter().filter(|block| (block.label == CERTIFICATE) == wanted);
        let mut part = Vec::with_capacity(chosen().map(|block| block.text.len() + 1).sum());
        for block in chosen() {
            part.extend_from_slice(block.text.as_bytes());
            part.push(b'\n');
        }
        part.into()
    };
    Separated { certificates: part(true), others: part(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_go_into_one_part_and_everything_else_into_the_other() {
        let key = "-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n";
        let encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAQID\n-----END RSA PRIVATE KEY-----\n";
        let one = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        let two = "-----BEGIN CERTIFICATE-----\nBAUG\n-----END CERTIFICATE-----\n";
        let text = format!("{one}subject=x\n{key}{two}{}", encrypted.trim_end());
        let separated = separate(&text);
        assert_eq!(separated.certificates.expose(), format!("{one}{two}").as_bytes());
        assert_eq!(separated.others.expose(), format!("{key}{encrypted}").as_bytes());
    }

    #[test]
    fn a_text_without_blocks_has_two_empty_parts() {
        let separated = separate("nothing here");
        assert!(separated.certificates.is_empty() && separated.others.is_empty());
    }
}
