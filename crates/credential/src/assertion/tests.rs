use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::{Value, json};

use super::*;
use crate::fixture::{self, secret, timestamp};

const NOW: &str = "2027-01-01T00:00:00.9Z";
const JTI: Uuid = Uuid::from_u128(0x4711);

fn sign(options: AssertionOptions) -> (Value, Value, String) {
    let bundle = CertificateBundle::parse(&secret(&[
        fixture::LEAF_PKCS8,
        fixture::INTERMEDIATE,
        fixture::LEAF,
    ]))
    .unwrap();
    let endpoint = "https://login.example/t/oauth2/v2.0/token".parse().unwrap();
    let signer = AssertionSigner::new(bundle, options).unwrap();
    let assertion =
        signer.sign(&fixture::CLIENT.parse().unwrap(), &endpoint, timestamp(NOW), JTI).unwrap();
    let text = assertion.as_str().to_owned();
    let part = |index: usize| {
        let encoded = text.split('.').nth(index).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(encoded).unwrap()).unwrap()
    };
    (part(0), part(1), text)
}

fn verifies(text: &str, algorithm: &'static dyn VerificationAlgorithm) -> bool {
    let (message, signature) = text.rsplit_once('.').unwrap();
    let bundle = CertificateBundle::parse(&secret(&[fixture::LEAF_PKCS8, fixture::LEAF])).unwrap();
    UnparsedPublicKey::new(algorithm, bundle.leaf().public_key())
        .verify(message.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap())
        .is_ok()
}

fn der_base64(pem: &[u8]) -> String {
    let text = std::str::from_utf8(pem).unwrap();
    text.lines().filter(|line| !line.starts_with("-----")).collect()
}

#[test]
fn the_header_names_the_leaf_and_carries_the_chain_in_der_leaf_first() {
    let (header, _, text) = sign(AssertionOptions::default());
    let bundle = CertificateBundle::parse(&secret(&[fixture::LEAF_PKCS8, fixture::LEAF])).unwrap();
    assert_eq!(
        header,
        json!({
            "alg": "PS256",
            "typ": "JWT",
            "x5t#S256": URL_SAFE_NO_PAD.encode(bundle.leaf().sha256().as_bytes()),
            "x5c": [der_base64(fixture::LEAF), der_base64(fixture::INTERMEDIATE)],
        })
    );
    assert!(!text.contains('='), "no part is padded");
    assert!(verifies(&text, &RSA_PSS_2048_8192_SHA256));
}

#[test]
fn the_claims_name_client_and_endpoint_and_allow_for_skew() {
    let (_, claims, _) = sign(AssertionOptions::default());
    let now = timestamp(NOW).as_second();
    assert_eq!(
        claims,
        json!({
            "aud": "https://login.example/t/oauth2/v2.0/token",
            "iss": fixture::CLIENT,
            "sub": fixture::CLIENT,
            "jti": JTI.to_string(),
            "nbf": now - 60,
            "exp": now + 600,
        })
    );
}

#[test]
fn rs256_and_a_header_without_chain_are_options() {
    let options = AssertionOptions { algorithm: SigningAlgorithm::Rs256, send_chain: false };
    let (header, _, text) = sign(options);
    assert_eq!(header["alg"], "RS256");
    assert_eq!(header.get("x5c"), None);
    assert!(verifies(&text, &RSA_PKCS1_2048_8192_SHA256));
    assert!(!verifies(&text, &RSA_PSS_2048_8192_SHA256));
}

#[test]
fn an_ec_key_is_refused_with_the_reason() {
    let bundle = CertificateBundle::parse(&secret(&[fixture::EC_PKCS8, fixture::EC])).unwrap();
    let error = AssertionSigner::new(bundle, AssertionOptions::default()).unwrap_err();
    assert!(matches!(error, AssertionError::RsaOnly { .. }));
    assert_eq!(
        error.to_string(),
        "the private key is EC P-256, and entra takes client assertions signed with rsa only"
    );
}
