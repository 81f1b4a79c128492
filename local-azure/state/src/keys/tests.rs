use aws_lc_rs::digest::digest;
use serde_json::json;

use super::*;

fn key_of_type(kind: AsymmetricKeyType) -> AsymmetricKey {
    match kind {
        AsymmetricKeyType::Rsa(_) => crate::testing::client_key().into(),
        AsymmetricKeyType::Ec(curve) => EcKey::generate(curve).unwrap().into(),
    }
}

fn key_types() -> impl Iterator<Item = AsymmetricKeyType> {
    let curves = EllipticCurve::ALL.into_iter().map(AsymmetricKeyType::Ec);
    std::iter::once(AsymmetricKeyType::Rsa(RsaKeySize::Bits2048)).chain(curves)
}

#[test]
fn only_key_sizes_of_key_vault_are_generated() {
    for bits in [512, 1024, 2047, 8192] {
        let found = RsaKeySize::try_from(bits);
        assert!(matches!(found, Err(RsaKeyError::UnsupportedSize { .. })), "{bits}");
    }
}

#[test]
fn signatures_verify_only_with_their_own_algorithm_key_and_digest() {
    for kind in key_types() {
        let (key, other) = (key_of_type(kind), EcKey::generate(EllipticCurve::P384).unwrap());
        for algorithm in JwsAlgorithm::ALL {
            let hash = digest(algorithm.digest_algorithm(), b"text");
            let signature = key.sign_digest(algorithm, &hash).unwrap();
            let usable = match kind {
                AsymmetricKeyType::Rsa(_) => algorithm.curve().is_none(),
                AsymmetricKeyType::Ec(curve) => algorithm.curve() == Some(curve),
            };
            assert_eq!(signature.is_some(), usable, "{kind:?} {algorithm:?}");
            let Some(signature) = signature else { continue };
            let verify = |hash, signature: &[u8]| key.verify_digest(algorithm, hash, signature);
            assert_eq!(verify(&hash, &signature).unwrap(), Some(true), "{algorithm:?}");
            let different = digest(algorithm.digest_algorithm(), b"other text");
            assert_eq!(verify(&different, &signature).unwrap(), Some(false), "{algorithm:?}");
            assert_eq!(verify(&hash, &[]).unwrap(), Some(false), "{algorithm:?}");
            if algorithm == JwsAlgorithm::Es384 {
                let other = AsymmetricKey::from(other.clone());
                assert_eq!(other.verify_digest(algorithm, &hash, &signature).unwrap(), Some(false));
            }
        }
    }
}

#[test]
fn stored_key_is_the_same_key_and_is_never_printed() {
    for kind in key_types() {
        let key = key_of_type(kind);
        let stored = serde_json::to_string(&key).unwrap();
        let read: AsymmetricKey = serde_json::from_str(&stored).unwrap();
        assert_eq!(read.pkcs8(), key.pkcs8(), "{kind:?}");
        assert_eq!(read.key_type().unwrap(), kind);
        assert_eq!(read.subject_public_key().unwrap(), key.subject_public_key().unwrap());
        let parsed = AsymmetricKey::parse_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(parsed.key_type().unwrap(), kind);
        let printed = format!("{key:?}");
        assert!(printed.len() < 40 && printed.ends_with("..))"), "{printed}");
    }
    assert!(AsymmetricKey::parse_pkcs8(b"no key").is_err());
}

/// The key of RFC 7517, appendix A.2.
#[test]
fn elliptic_curve_key_is_imported_from_its_components() {
    let parse = |value| serde_json::from_value::<EcJwkComponents>(value).unwrap();
    let mut numbers = json!({
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
        "d": "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE",
    });
    let key = EcKey::from_jwk_components(EllipticCurve::P256, &parse(numbers.clone())).unwrap();
    let (x, y) = key.jwk_coordinates().unwrap();
    assert_eq!((json!(x), json!(y)), (numbers["x"].clone(), numbers["y"].clone()));
    for curve in [EllipticCurve::P256K, EllipticCurve::P384] {
        assert!(EcKey::from_jwk_components(curve, &parse(numbers.clone())).is_err(), "{curve:?}");
    }
    numbers["d"] = json!("AQ");
    let mismatch = EcKey::from_jwk_components(EllipticCurve::P256, &parse(numbers));
    assert_eq!(mismatch.unwrap_err(), EcKeyError::InvalidComponents);
}

#[test]
fn redacted_text_prints_only_its_type() {
    assert_eq!(format!("{:?}", RedactedText::new("planted".to_owned())), "RedactedText(..)");
}
