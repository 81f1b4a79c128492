use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_emulator::testing::start_time;
use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, expected_error};

const NULL: Value = Value::Null;

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The algorithms with the key that they need, and the length of their digest.
const ALGORITHMS: [(&str, &str, usize); 10] = [
    ("RS256", "rsa", 32),
    ("RS384", "rsa", 48),
    ("RS512", "rsa", 64),
    ("PS256", "rsa", 32),
    ("PS384", "rsa", 48),
    ("PS512", "rsa", 64),
    ("ES256", "p-256", 32),
    ("ES384", "p-384", 48),
    ("ES512", "p-521", 64),
    ("ES256K", "p-256k", 32),
];

fn visit_with_keys() -> KeyVaultFixture {
    let visit = KeyVaultFixture::as_administrator();
    visit.succeed("POST", "/keys/rsa/create", &json!({ "kty": "RSA" }));
    for curve in ["P-256", "P-384", "P-521", "P-256K"] {
        let path = format!("/keys/{}/create", curve.to_lowercase());
        visit.succeed("POST", &path, &json!({ "kty": "EC", "crv": curve }));
    }
    visit
}

#[test]
fn signatures_are_valid_for_their_key_algorithm_and_digest_only() {
    let visit = visit_with_keys();
    for (algorithm, key, length) in ALGORITHMS {
        let digest = encode(&vec![9; length]);
        let sign = json!({ "alg": algorithm, "value": digest });
        let signed = visit.succeed("POST", &format!("/keys/{key}/sign"), &sign);
        let kid = signed["kid"].as_str().unwrap();
        assert!(kid.contains(&format!("/keys/{key}/")), "{kid}");
        let verify = |digest: &str, signature: &Value| {
            let body = json!({ "alg": algorithm, "digest": digest, "value": signature });
            visit.succeed("POST", &format!("/keys/{key}/verify"), &body)["value"].clone()
        };
        assert_eq!(verify(&digest, &signed["value"]), true, "{algorithm}");
        assert_eq!(verify(&encode(&vec![8; length]), &signed["value"]), false, "{algorithm}");
        let mut bytes = URL_SAFE_NO_PAD.decode(signed["value"].as_str().unwrap()).unwrap();
        assert_eq!(
            bytes.len(),
            match key {
                "rsa" => 256,
                "p-384" => 96,
                "p-521" => 132,
                _ => 64,
            }
        );
        bytes[10] ^= 1;
        assert_eq!(verify(&digest, &json!(encode(&bytes))), false, "{algorithm}");
        assert_eq!(verify(&digest, &json!("AAAA")), false, "{algorithm}");
        for (other, ..) in ALGORITHMS.iter().filter(|(_, of, _)| *of != key) {
            let length = ALGORITHMS.iter().find(|(name, ..)| name == other).unwrap().2;
            let body = json!({ "alg": other, "value": encode(&vec![9; length]) });
            let found = visit.fail("POST", &format!("/keys/{key}/sign"), &body);
            assert_eq!(found, expected_error(400, "BadParameter", ""), "{other} with {key}");
        }
    }
}

#[test]
fn malformed_signature_requests_are_rejected() {
    let visit = visit_with_keys();
    let cases = [
        ("sign", json!({})),
        ("sign", json!({ "alg": "ES256" })),
        ("sign", json!({ "value": encode(&[1; 32]) })),
        ("sign", json!({ "alg": "HS256", "value": encode(&[1; 32]) })),
        ("sign", json!({ "alg": "ES256", "value": encode(&[1; 31]) })),
        ("sign", json!({ "alg": "ES256", "value": "+///" })),
        ("verify", json!({ "alg": "ES256", "value": encode(&[1; 64]) })),
        ("verify", json!({ "alg": "ES256", "digest": encode(&[1; 32]) })),
        ("encrypt", json!({ "alg": "A128GCM", "value": "AAAA" })),
    ];
    for (operation, body) in cases {
        let key = if operation == "encrypt" { "rsa" } else { "p-256" };
        let found = visit.fail("POST", &format!("/keys/{key}/{operation}"), &body);
        assert_eq!(found, expected_error(400, "BadParameter", ""), "{operation} {body}");
    }
    let missing = visit.fail("POST", "/keys/absent/sign", &json!({}));
    assert_eq!(missing, expected_error(404, "KeyNotFound", ""));
    let curve = visit.fail("POST", "/keys/p-256/encrypt", &json!({}));
    assert_eq!(curve, expected_error(403, "Forbidden", "KeyOperationForbidden"));
}

#[test]
fn keys_outside_of_their_validity_protect_no_new_data() {
    let visit = visit_with_keys();
    let now = start_time().as_second();
    let digest = encode(&[9; 32]);
    let sign = json!({ "alg": "ES256", "value": digest });
    let signature = visit.succeed("POST", "/keys/p-256/sign", &sign)["value"].clone();
    let verify = json!({ "alg": "ES256", "digest": digest, "value": signature });
    let cases = [
        (json!({ "attributes": { "nbf": now + 10 } }), "KeyNotYetValid", true),
        (json!({ "attributes": { "nbf": now - 10, "exp": now } }), "KeyExpired", true),
        (json!({ "attributes": { "exp": now + 10, "enabled": false } }), "KeyDisabled", false),
        (
            json!({ "attributes": { "enabled": true }, "key_ops": ["verify"] }),
            "KeyOperationForbidden",
            true,
        ),
    ];
    for (change, code, verifies) in cases {
        visit.succeed("PATCH", "/keys/p-256", &change);
        let found = visit.fail("POST", "/keys/p-256/sign", &sign);
        assert_eq!(found, expected_error(403, "Forbidden", code), "{change}");
        assert_eq!(visit.ask("POST", "/keys/p-256/verify", &verify).0 == 200, verifies, "{change}");
    }
}

#[test]
fn release_is_not_implemented_by_name() {
    let visit = visit_with_keys();
    let (status, reply) = visit.ask("POST", "/keys/rsa/release", &json!({ "target": "x" }));
    assert_eq!(status, 501);
    assert!(reply["error"]["message"].as_str().unwrap().contains("Secure Key Release"));
    assert_eq!(visit.get(visit.reader, "/keys/rsa").status.as_u16(), 403);
    let denied = visit.send_request(visit.reader, "POST", "/keys/rsa/release", "{}");
    assert_eq!(denied.status.as_u16(), 403);
    assert_eq!(visit.ask("GET", "/keys/rsa/release", &NULL).0, 404);
}
