use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_vocabulary::{ClientId, Component};
use serde_json::{Value, json};

use crate::engine::Door;
use crate::request::Reply;
use crate::seed::tests::{nine, token};
use crate::testing::{Probe, body};

/// One software key, and ciphertexts that KMS plugins decrypt; the crate of ours reads it too.
const VECTOR: &str = include_str!("../../../../kms/fixtures/vector.json");
const HOST: &str = "demo-kms.vault.azure.net";
const AUDIENCE: &str = "https://vault.azure.net";

/// A world with the key of the vector, and the identity of the encryption component.
struct Desk {
    probe: Probe,
    kms: ClientId,
    vector: Value,
}

impl Desk {
    fn new() -> Self {
        let (world, _) = nine();
        let kms = world.roster.holder(Component::Kms).unwrap().client_id;
        let desk =
            Self { probe: Probe::new(world), kms, vector: serde_json::from_str(VECTOR).unwrap() };
        let numbers = &desk.vector["key"];
        let put = desk.put(&json!({ "version": "ABCD", "numbers": numbers }));
        assert_eq!(put.status, 201, "{}", body(&put));
        assert_eq!(body(&put)["kid"], format!("https://{HOST}/keys/mykey/ABCD"));
        desk
    }

    /// Puts a version of the key, or changes one.
    fn put(&self, more: &Value) -> Reply {
        let mut asked = json!({ "vaultHost": HOST, "name": "mykey" });
        for (member, value) in more.as_object().unwrap() {
            asked[member] = value.clone();
        }
        let headers = [("x-lanyard-control", "1"), ("content-type", "application/json")];
        let url = "http://127.0.0.1/lanyard/v1/keys";
        self.probe.ask(Door::Port, &"PUT".parse().unwrap(), url, &headers, &asked.to_string())
    }

    fn ask(&self, who: ClientId, method: &str, path: &str, given: &Value) -> Reply {
        let bearer = format!("Bearer {}", token(&self.probe, who, AUDIENCE));
        let url = format!("https://{HOST}{path}?api-version=2016-10-01");
        let headers = [("authorization", bearer.as_str())];
        self.probe.ask(Door::Tunnel, &method.parse().unwrap(), &url, &headers, &given.to_string())
    }

    fn operate(&self, operation: &str, alg: &str, value: &str) -> Reply {
        let path = format!("/keys/mykey/ABCD/{operation}");
        self.ask(self.kms, "POST", &path, &json!({ "alg": alg, "value": value }))
    }

    fn text(&self, pointer: &str) -> &str {
        self.vector.pointer(pointer).unwrap().as_str().unwrap()
    }
}

fn inner_code(reply: &Reply) -> (u16, String) {
    let error = &body(reply)["error"];
    let code = error["innererror"]["code"].as_str().or_else(|| error["code"].as_str());
    (reply.status.as_u16(), code.unwrap_or_default().to_owned())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn what_other_plugins_encrypted_is_decrypted() {
    let desk = Desk::new();
    for layout in ["upstream", "openshift"] {
        let ciphertext = desk.text(&format!("/{layout}/ciphertext"));
        let reply = desk.operate("decrypt", "RSA-OAEP-256", ciphertext);
        assert_eq!(body(&reply)["value"], desk.text(&format!("/{layout}/requestValue")));
        assert_eq!(body(&reply)["kid"], format!("https://{HOST}/keys/mykey/ABCD"));
        let other = desk.operate("decrypt", "RSA-OAEP", ciphertext);
        assert_eq!(inner_code(&other), refused(400, "BadParameter"));
    }
    let reply = desk.operate("decrypt", "RSA1_5", desk.text("/v1/ciphertext"));
    assert_eq!(body(&reply)["value"], desk.text("/upstream/requestValue"));
}

#[test]
fn what_is_encrypted_or_wrapped_comes_back_and_differs_each_time() {
    let desk = Desk::new();
    let value = desk.text("/upstream/requestValue");
    for (there, back) in [("encrypt", "decrypt"), ("wrapkey", "unwrapkey")] {
        for alg in ["RSA-OAEP-256", "RSA-OAEP", "RSA1_5"] {
            let one = body(&desk.operate(there, alg, value))["value"].clone();
            let other = body(&desk.operate(there, alg, value))["value"].clone();
            assert_ne!(one, other, "{alg}");
            assert_eq!(one.as_str().unwrap().len(), 342, "256 bytes");
            let reply = desk.operate(back, alg, one.as_str().unwrap());
            assert_eq!(body(&reply)["value"], value, "{alg}");
        }
    }
    // The last version, by the short path.
    let given = json!({ "alg": "RSA-OAEP-256", "value": value });
    let reply = desk.ask(desk.kms, "POST", "/keys/MYKEY//encrypt", &given);
    assert_eq!(body(&reply)["kid"], format!("https://{HOST}/keys/mykey/ABCD"));
}

#[test]
fn requests_that_are_not_well_formed_are_bad_parameters() {
    let desk = Desk::new();
    let value = desk.text("/upstream/requestValue");
    let long = URL_SAFE_NO_PAD.encode([7; 191]);
    let short = URL_SAFE_NO_PAD.encode([7; 255]);
    let cases = [
        ("encrypt", "RSA-OAEP-512", value),
        ("encrypt", "RSA-OAEP-256", "AAECAw=="),
        ("encrypt", "RSA-OAEP-256", "*planted-4711*"),
        ("encrypt", "RSA-OAEP-256", &long),
        ("decrypt", "RSA-OAEP-256", &short),
        ("decrypt", "RSA-OAEP-256", value),
    ];
    for (operation, alg, value) in cases {
        let reply = desk.operate(operation, alg, value);
        assert_eq!(inner_code(&reply), refused(400, "BadParameter"), "{operation} {alg}");
        assert!(!reply.body.windows(8).any(|bytes| value.as_bytes().starts_with(bytes)));
    }
    for given in [json!({}), json!({ "alg": "RSA1_5" }), json!({ "value": value })] {
        let reply = desk.ask(desk.kms, "POST", "/keys/mykey/ABCD/encrypt", &given);
        assert_eq!(inner_code(&reply), refused(400, "BadParameter"), "{given}");
    }
    let given = json!({ "alg": "RSA-OAEP-256", "value": value });
    let reply = desk.ask(desk.kms, "POST", "/keys/mykey/9999/encrypt", &given);
    assert_eq!(inner_code(&reply), refused(404, "KeyNotFound"));
}

#[test]
fn who_has_no_right_on_the_key_learns_nothing() {
    let desk = Desk::new();
    let disk = desk.probe.engine.state().world.roster.holder(Component::Disk).unwrap().client_id;
    let given = json!({ "alg": "RSA-OAEP-256", "value": desk.text("/upstream/requestValue") });
    for path in ["/keys/mykey/ABCD/encrypt", "/keys/mykey/ABCD/decrypt", "/keys/none/1/decrypt"] {
        let reply = desk.ask(disk, "POST", path, &given);
        assert_eq!(inner_code(&reply), refused(403, "ForbiddenByRbac"), "{path}");
        let message = body(&reply)["error"]["message"].as_str().unwrap().to_owned();
        let action = if path.ends_with("encrypt") { "encrypt" } else { "decrypt" };
        assert!(message.contains(&format!("vaults/keys/{action}/action'")), "{message}");
    }
    let reply = desk.ask(desk.kms, "POST", "/keys/mykey/create", &json!({ "kty": "RSA" }));
    assert_eq!(inner_code(&reply), refused(403, "ForbiddenByRbac"));
}

#[test]
fn a_disabled_key_does_nothing_and_an_expired_one_still_decrypts() {
    let desk = Desk::new();
    let value = desk.text("/upstream/requestValue");
    let ciphertext = desk.text("/upstream/ciphertext");
    let both = || {
        let encrypt = desk.operate("encrypt", "RSA-OAEP-256", value);
        let decrypt = desk.operate("decrypt", "RSA-OAEP-256", ciphertext);
        (encrypt, decrypt)
    };
    desk.put(&json!({ "version": "ABCD", "enabled": false }));
    let (encrypt, decrypt) = both();
    assert_eq!(inner_code(&encrypt), refused(403, "KeyDisabled"));
    assert_eq!(inner_code(&decrypt), refused(403, "KeyDisabled"));
    desk.put(&json!({ "version": "ABCD", "enabled": true, "expires": "2020-01-01T00:00:00Z" }));
    let (encrypt, decrypt) = both();
    assert_eq!(inner_code(&encrypt), refused(403, "KeyExpired"));
    assert_eq!(decrypt.status, 200);
    let later = json!({
        "version": "ABCD", "expires": "2099-01-01T00:00:00Z", "notBefore": "2098-01-01T00:00:00Z",
    });
    desk.put(&later);
    let (encrypt, decrypt) = both();
    assert_eq!(inner_code(&encrypt), refused(403, "KeyNotYetValid"));
    assert_eq!(decrypt.status, 200);
}

#[test]
fn a_new_version_leaves_the_one_before_in_use() {
    let desk = Desk::new();
    assert_eq!(desk.put(&json!({ "version": "EF01" })).status, 201);
    let value = desk.text("/upstream/requestValue");
    let given = json!({ "alg": "RSA-OAEP-256", "value": value });
    let newest = desk.ask(desk.kms, "POST", "/keys/mykey/EF01/encrypt", &given);
    assert_eq!(body(&newest)["kid"], format!("https://{HOST}/keys/mykey/EF01"));
    let value = body(&newest)["value"].as_str().unwrap().to_owned();
    let crossed = desk.operate("decrypt", "RSA-OAEP-256", &value);
    assert_eq!(inner_code(&crossed), refused(400, "BadParameter"));
    let old = desk.operate("decrypt", "RSA-OAEP-256", desk.text("/upstream/ciphertext"));
    assert_eq!(old.status, 200);
    let again = desk.put(&json!({ "version": "ABCD", "bits": 2048 }));
    assert_eq!(inner_code(&again), refused(409, "VersionExists"));
}

#[test]
fn replies_name_region_and_request_and_a_stored_world_keeps_the_key() {
    let desk = Desk::new();
    let reply = desk.operate("encrypt", "RSA-OAEP-256", desk.text("/upstream/requestValue"));
    for name in ["x-ms-keyvault-region", "x-ms-request-id", "date"] {
        let found = reply.headers.iter().find(|(known, _)| known.as_str() == name);
        assert!(found.is_some_and(|(_, value)| !value.is_empty()), "{name}");
    }
    let stored = serde_json::to_string(&desk.probe.engine.state().world).unwrap();
    let read = serde_json::from_str::<crate::world::World>(&stored).unwrap();
    let vault = read.vaults.at_host(HOST).unwrap();
    assert!(vault.keys.version("mykey", Some("ABCD")).is_ok());
}
