//! Entry points for fuzzing the parsers of untrusted certificates; not part of the public interface.

use x509_parser::der_parser::asn1_rs::{Any, FromDer};

use crate::chain::order_chain;

/// Orders the certificates of an input, which is their concatenated DER, with each of them as the leaf and
/// without a known leaf.
///
/// # Panics
/// If a certificate is lost or occurs twice, or if the known leaf is not first.
pub fn order_certificates(input: &[u8]) {
    let mut certificates = Vec::new();
    let mut rest = input;
    while let Ok((after, _)) = Any::from_der(rest) {
        certificates.push(&rest[..rest.len() - after.len()]);
        rest = after;
    }
    let positions: Vec<_> = (0..certificates.len()).collect();
    for leaf in positions.iter().copied().map(Some).chain([None]) {
        let order = order_chain(&certificates, leaf);
        let mut sorted = order.positions.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, positions, "each certificate once");
        assert!(leaf.is_none() || order.positions.first().copied() == leaf, "the leaf is first");
    }
}
