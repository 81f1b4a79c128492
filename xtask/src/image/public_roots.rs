//! The public root certificates of Mozilla's root program.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// The root certificates as a PEM bundle.
pub(super) fn pem_bundle() -> String {
    let mut bundle = String::new();
    for root in TLS_SERVER_ROOT_CERTS {
        bundle.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = STANDARD.encode(root);
        while !rest.is_empty() {
            // RFC 7468: lines of 64 characters.
            let after = rest.split_off(rest.len().min(64));
            bundle.push_str(&rest);
            bundle.push('\n');
            rest = after;
        }
        bundle.push_str("-----END CERTIFICATE-----\n");
    }
    bundle
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// The SHA-256 digest of "`DigiCert` Global Root G2", the root of most Azure host names, as published by
    /// `DigiCert` and Microsoft ("Azure Certificate Authority details").
    const DIGICERT_GLOBAL_ROOT_G2: &str =
        "cb3ccbb76031e5e0138f8dd39a23f9de47ffc35e43c1144cea27d46a5ab1cb5f";

    #[test]
    fn root_of_azure_is_in_the_bundle() {
        let bundle = pem_bundle();
        let digests: Vec<String> = bundle
            .split("-----BEGIN CERTIFICATE-----")
            .skip(1)
            .map(|block| {
                let (text, _) = block.split_once("-----END CERTIFICATE-----").expect("its end");
                let text: String = text.split_whitespace().collect();
                hex::encode(Sha256::digest(STANDARD.decode(text).expect("base64")))
            })
            .collect();
        assert_eq!(digests.len(), TLS_SERVER_ROOT_CERTS.len());
        assert!(digests.iter().any(|digest| digest == DIGICERT_GLOBAL_ROOT_G2));
        assert!(bundle.lines().all(|line| line.len() <= 64));
    }
}
