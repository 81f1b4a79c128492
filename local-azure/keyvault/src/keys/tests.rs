use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, VAULT, expected_error};

const NULL: Value = Value::Null;

#[test]
fn keys_of_every_type_are_created_with_their_public_part_only() {
    let visit = KeyVaultFixture::as_administrator();
    let cases = [
        (json!({ "kty": "RSA" }), "RSA", "n", 256),
        (json!({ "kty": "RSA", "key_size": 3072, "public_exponent": 65537 }), "RSA", "n", 384),
        (json!({ "kty": "RSA", "public_exponent": 0 }), "RSA", "n", 256),
        (json!({ "kty": "RSA", "public_exponent": 3 }), "RSA", "n", 256),
        (json!({ "kty": "EC" }), "P-256", "x", 32),
        (json!({ "kty": "EC", "crv": "P-384" }), "P-384", "y", 48),
        (json!({ "kty": "EC", "crv": "P-521" }), "P-521", "x", 66),
        (json!({ "kty": "EC", "crv": "P-256K" }), "P-256K", "y", 32),
    ];
    for (at, (body, kind, field, length)) in cases.into_iter().enumerate() {
        let created = visit.succeed("POST", &format!("/keys/key-{at}/create"), &body);
        let key = &created["key"];
        assert_eq!(key["kty"].as_str().unwrap(), body["kty"].as_str().unwrap());
        if kind == "RSA" {
            assert_eq!(key["e"], "AQAB", "65537, also if the body asks for another exponent");
        } else {
            assert_eq!(key["crv"], kind);
        }
        let number = URL_SAFE_NO_PAD.decode(key[field].as_str().unwrap()).unwrap();
        assert_eq!(number.len(), length, "{body}");
        assert!(key.get("d").is_none() && key.get("p").is_none());
        assert!(key["kid"].as_str().unwrap().starts_with(&format!("{VAULT}/keys/key-{at}/")));
        let operations = key["key_ops"].as_array().unwrap().len();
        assert_eq!(operations, if kind == "RSA" { 6 } else { 2 });
        assert_eq!(created["attributes"]["recoveryLevel"], "Recoverable+Purgeable");
        assert_eq!(created["attributes"]["exportable"], false);
        assert_eq!(visit.succeed("GET", &format!("/keys/key-{at}"), &NULL), created);
    }
}

#[test]
fn keys_that_software_vaults_lack_are_rejected() {
    let visit = KeyVaultFixture::as_administrator();
    let cases = [
        json!({}),
        json!({ "kty": "RSA", "key_size": 1024 }),
        json!({ "kty": "RSA", "key_size": 2047 }),
        json!({ "kty": "RSA-HSM" }),
        json!({ "kty": "EC-HSM" }),
        json!({ "kty": "oct" }),
        json!({ "kty": "oct-HSM", "key_size": 256 }),
        json!({ "kty": "EC", "crv": "P-224" }),
        json!({ "kty": "EC", "key_ops": ["encrypt"] }),
        json!({ "kty": "RSA", "key_ops": ["import"] }),
        json!({ "kty": "RSA", "release_policy": { "data": "" } }),
        json!({ "kty": "RSA", "attributes": { "exportable": true } }),
        json!({ "kty": "RSA", "attributes": { "nbf": 20, "exp": 10 } }),
        json!({ "kty": "RSA", "tags": (0..16).map(|at| (at.to_string(), json!(""))).collect::<serde_json::Map<_, _>>() }),
    ];
    for body in cases {
        let found = visit.fail("POST", "/keys/key/create", &body);
        assert_eq!(found, expected_error(400, "BadParameter", ""), "{body}");
    }
    assert_eq!(visit.ask("GET", "/keys/key", &NULL).0, 404);
}

/// The private key of RFC 7515, appendix A.3.
fn private_jwk() -> Value {
    json!({
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
    })
}

#[test]
fn an_imported_key_verifies_the_signature_of_its_specification() {
    let visit = KeyVaultFixture::as_administrator();
    let imported = visit.succeed("PUT", "/keys/es256", &json!({ "key": private_jwk() }));
    assert_eq!(imported["key"]["x"], private_jwk()["x"]);
    assert!(imported["key"].get("d").is_none());
    let message = b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, message);
    let body = json!({
        "alg": "ES256",
        "digest": URL_SAFE_NO_PAD.encode(digest),
        "value": "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    });
    assert_eq!(visit.succeed("POST", "/keys/es256/verify", &body)["value"], true);
}

#[test]
fn incomplete_and_inconsistent_keys_are_not_imported() {
    let visit = KeyVaultFixture::as_administrator();
    let with = |field: &str, value: Value| {
        let mut jwk = private_jwk();
        jwk[field] = value;
        json!({ "key": jwk })
    };
    let cases = [
        json!({}),
        json!({ "key": {} }),
        json!({ "key": private_jwk(), "Hsm": true }),
        json!({ "key": { "kty": "RSA", "n": "AQAB", "e": "AQAB" } }),
        with("x", json!(private_jwk()["y"])),
        with("d", json!("planted")),
        with("d", NULL),
        with("crv", json!("P-384")),
        with("kty", json!("oct")),
        with("key_ops", json!(["encrypt"])),
        with("key_ops", json!("sign")),
    ];
    for body in cases {
        let (status, reply) = visit.ask("PUT", "/keys/key", &body);
        assert_eq!((status, &reply["error"]["code"]), (400, &json!("BadParameter")), "{body}");
        assert!(!reply.to_string().contains("planted"));
    }
    let (_, reply) = visit.ask("PUT", "/keys/key", &json!({ "key": private_jwk(), "Hsm": true }));
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("`Hsm` needs a hardware security module"), "{message}");
}

#[test]
fn attributes_operations_and_tags_of_a_version_are_updated() {
    let visit = KeyVaultFixture::as_administrator();
    let created = visit.succeed("POST", "/keys/key/create", &json!({ "kty": "EC" }));
    let path = created["key"]["kid"].as_str().unwrap().strip_prefix(VAULT).unwrap().to_owned();
    visit.succeed("POST", "/keys/key/create", &json!({ "kty": "EC" }));
    let change = json!({
        "key_ops": ["verify"],
        "attributes": { "enabled": false, "exp": 2_000_000_000 },
        "tags": { "a": "b" },
    });
    let updated = visit.succeed("PATCH", &path, &change);
    assert_eq!(updated["key"]["key_ops"], json!(["verify"]));
    assert_eq!(
        (&updated["attributes"]["exp"], &updated["tags"]),
        (&json!(2_000_000_000), &change["tags"])
    );
    assert_eq!(visit.succeed("GET", &path, &NULL), updated, "a disabled key can be read");
    assert_eq!(visit.succeed("GET", "/keys/key", &NULL)["attributes"]["enabled"], true);
    let partial = visit.succeed("PATCH", &path, &json!({ "attributes": { "enabled": true } }));
    assert_eq!(
        (&partial["key"]["key_ops"], &partial["tags"]),
        (&json!(["verify"]), &change["tags"])
    );
    let wrong = visit.fail("PATCH", &path, &json!({ "key_ops": ["encrypt"] }));
    assert_eq!(wrong, expected_error(400, "BadParameter", ""));
    assert_eq!(
        visit.fail("PATCH", "/keys/absent", &json!({})),
        expected_error(404, "KeyNotFound", "")
    );
}
