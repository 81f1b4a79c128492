use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_emulator::testing::seeded_state::{issue_access_token_for, seeded_nine_identities};
use lanyard_emulator::testing::{EngineFixture, reply_json};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{Component, EntraClientId};
use serde_json::{Value, json};

/// A software key, and ciphertexts that KMS plugins decrypt; the `kms` crate reads the same file.
const VECTOR: &str = include_str!("../../../crates/kms/fixtures/vector.json");
const HOST: &str = "demo-kms.vault.azure.net";
const AUDIENCE: &str = "https://vault.azure.net";

/// A state with the key of the vector, and the identity of the encryption component.
struct KmsKeyFixture {
    probe: EngineFixture,
    kms: EntraClientId,
    vector: Value,
}

impl KmsKeyFixture {
    fn new() -> Self {
        let (azure, _) = seeded_nine_identities();
        let kms = azure.registry.component_identity(Component::Kms).unwrap().client_id;
        let fixture = Self {
            probe: EngineFixture::new(azure),
            kms,
            vector: serde_json::from_str(VECTOR).unwrap(),
        };
        let numbers = &fixture.vector["key"];
        let put = fixture.put_key_version(&json!({ "version": "ABCD", "numbers": numbers }));
        assert_eq!(put.status, 201, "{}", reply_json(&put));
        assert_eq!(reply_json(&put)["kid"], format!("https://{HOST}/keys/mykey/ABCD"));
        fixture
    }

    /// Creates a version of the key, or changes one.
    fn put_key_version(&self, more: &Value) -> ServiceReply {
        let mut asked = json!({ "vaultHost": HOST, "name": "mykey" });
        for (member, value) in more.as_object().unwrap() {
            asked[member] = value.clone();
        }
        let headers = [("x-lanyard-control", "1"), ("content-type", "application/json")];
        let url = "http://127.0.0.1/lanyard/v1/keys";
        self.probe.send_request(
            Ingress::Port,
            &"PUT".parse().unwrap(),
            url,
            &headers,
            &asked.to_string(),
        )
    }

    fn send_request(
        &self,
        who: EntraClientId,
        method: &str,
        path: &str,
        given: &Value,
    ) -> ServiceReply {
        let bearer = format!("Bearer {}", issue_access_token_for(&self.probe, who, AUDIENCE));
        let url = format!("https://{HOST}{path}?api-version=2016-10-01");
        let headers = [("authorization", bearer.as_str())];
        self.probe.send_request(
            Ingress::Tunnel,
            &method.parse().unwrap(),
            &url,
            &headers,
            &given.to_string(),
        )
    }

    fn run_key_operation(&self, operation: &str, alg: &str, value: &str) -> ServiceReply {
        let path = format!("/keys/mykey/ABCD/{operation}");
        self.send_request(self.kms, "POST", &path, &json!({ "alg": alg, "value": value }))
    }

    fn vector_text(&self, pointer: &str) -> &str {
        self.vector.pointer(pointer).unwrap().as_str().unwrap()
    }
}

fn status_and_inner_code(reply: &ServiceReply) -> (u16, String) {
    let error = &reply_json(reply)["error"];
    let code = error["innererror"]["code"].as_str().or_else(|| error["code"].as_str());
    (reply.status.as_u16(), code.unwrap_or_default().to_owned())
}

fn expected_error(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn ciphertext_from_other_kms_plugins_is_decrypted() {
    let fixture = KmsKeyFixture::new();
    for layout in ["upstream", "openshift"] {
        let ciphertext = fixture.vector_text(&format!("/{layout}/ciphertext"));
        let reply = fixture.run_key_operation("decrypt", "RSA-OAEP-256", ciphertext);
        assert_eq!(
            reply_json(&reply)["value"],
            fixture.vector_text(&format!("/{layout}/requestValue"))
        );
        assert_eq!(reply_json(&reply)["kid"], format!("https://{HOST}/keys/mykey/ABCD"));
        let other = fixture.run_key_operation("decrypt", "RSA-OAEP", ciphertext);
        assert_eq!(status_and_inner_code(&other), expected_error(400, "BadParameter"));
    }
    let reply =
        fixture.run_key_operation("decrypt", "RSA1_5", fixture.vector_text("/v1/ciphertext"));
    assert_eq!(reply_json(&reply)["value"], fixture.vector_text("/upstream/requestValue"));
}

#[test]
fn encrypted_or_wrapped_value_round_trips_with_new_ciphertext() {
    let fixture = KmsKeyFixture::new();
    let value = fixture.vector_text("/upstream/requestValue");
    for (there, back) in [("encrypt", "decrypt"), ("wrapkey", "unwrapkey")] {
        for alg in ["RSA-OAEP-256", "RSA-OAEP", "RSA1_5"] {
            let one = reply_json(&fixture.run_key_operation(there, alg, value))["value"].clone();
            let other = reply_json(&fixture.run_key_operation(there, alg, value))["value"].clone();
            assert_ne!(one, other, "{alg}");
            assert_eq!(one.as_str().unwrap().len(), 342, "256 bytes");
            let reply = fixture.run_key_operation(back, alg, one.as_str().unwrap());
            assert_eq!(reply_json(&reply)["value"], value, "{alg}");
        }
    }
    // The current version, by the path without a version.
    let given = json!({ "alg": "RSA-OAEP-256", "value": value });
    let reply = fixture.send_request(fixture.kms, "POST", "/keys/MYKEY//encrypt", &given);
    assert_eq!(reply_json(&reply)["kid"], format!("https://{HOST}/keys/mykey/ABCD"));
}

#[test]
fn malformed_requests_return_bad_parameter() {
    let fixture = KmsKeyFixture::new();
    let value = fixture.vector_text("/upstream/requestValue");
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
        let reply = fixture.run_key_operation(operation, alg, value);
        assert_eq!(
            status_and_inner_code(&reply),
            expected_error(400, "BadParameter"),
            "{operation} {alg}"
        );
        assert!(!reply.body.windows(8).any(|bytes| value.as_bytes().starts_with(bytes)));
    }
    for given in [json!({}), json!({ "alg": "RSA1_5" }), json!({ "value": value })] {
        let reply = fixture.send_request(fixture.kms, "POST", "/keys/mykey/ABCD/encrypt", &given);
        assert_eq!(status_and_inner_code(&reply), expected_error(400, "BadParameter"), "{given}");
    }
    let given = json!({ "alg": "RSA-OAEP-256", "value": value });
    let reply = fixture.send_request(fixture.kms, "POST", "/keys/mykey/9999/encrypt", &given);
    assert_eq!(status_and_inner_code(&reply), expected_error(404, "KeyNotFound"));
}

#[test]
fn unauthorized_caller_learns_nothing_about_the_key() {
    let fixture = KmsKeyFixture::new();
    let disk = fixture
        .probe
        .engine
        .state()
        .azure
        .registry
        .component_identity(Component::Disk)
        .unwrap()
        .client_id;
    let given =
        json!({ "alg": "RSA-OAEP-256", "value": fixture.vector_text("/upstream/requestValue") });
    for path in ["/keys/mykey/ABCD/encrypt", "/keys/mykey/ABCD/decrypt", "/keys/none/1/decrypt"] {
        let reply = fixture.send_request(disk, "POST", path, &given);
        assert_eq!(status_and_inner_code(&reply), expected_error(403, "ForbiddenByRbac"), "{path}");
        let message = reply_json(&reply)["error"]["message"].as_str().unwrap().to_owned();
        let action = if path.ends_with("encrypt") { "encrypt" } else { "decrypt" };
        assert!(message.contains(&format!("vaults/keys/{action}/action'")), "{message}");
    }
    let reply =
        fixture.send_request(fixture.kms, "POST", "/keys/mykey/create", &json!({ "kty": "RSA" }));
    assert_eq!(status_and_inner_code(&reply), expected_error(403, "ForbiddenByRbac"));
}

#[test]
fn disabled_key_is_unusable_and_expired_key_only_decrypts() {
    let fixture = KmsKeyFixture::new();
    let value = fixture.vector_text("/upstream/requestValue");
    let ciphertext = fixture.vector_text("/upstream/ciphertext");
    let both = || {
        let encrypt = fixture.run_key_operation("encrypt", "RSA-OAEP-256", value);
        let decrypt = fixture.run_key_operation("decrypt", "RSA-OAEP-256", ciphertext);
        (encrypt, decrypt)
    };
    fixture.put_key_version(&json!({ "version": "ABCD", "enabled": false }));
    let (encrypt, decrypt) = both();
    assert_eq!(status_and_inner_code(&encrypt), expected_error(403, "KeyDisabled"));
    assert_eq!(status_and_inner_code(&decrypt), expected_error(403, "KeyDisabled"));
    fixture.put_key_version(
        &json!({ "version": "ABCD", "enabled": true, "expires": "2020-01-01T00:00:00Z" }),
    );
    let (encrypt, decrypt) = both();
    assert_eq!(status_and_inner_code(&encrypt), expected_error(403, "KeyExpired"));
    assert_eq!(decrypt.status, 200);
    let later = json!({
        "version": "ABCD", "expires": "2099-01-01T00:00:00Z", "notBefore": "2098-01-01T00:00:00Z",
    });
    fixture.put_key_version(&later);
    let (encrypt, decrypt) = both();
    assert_eq!(status_and_inner_code(&encrypt), expected_error(403, "KeyNotYetValid"));
    assert_eq!(decrypt.status, 200);
}

#[test]
fn previous_key_version_stays_usable() {
    let fixture = KmsKeyFixture::new();
    assert_eq!(fixture.put_key_version(&json!({ "version": "EF01" })).status, 201);
    let value = fixture.vector_text("/upstream/requestValue");
    let given = json!({ "alg": "RSA-OAEP-256", "value": value });
    let newest = fixture.send_request(fixture.kms, "POST", "/keys/mykey/EF01/encrypt", &given);
    assert_eq!(reply_json(&newest)["kid"], format!("https://{HOST}/keys/mykey/EF01"));
    let value = reply_json(&newest)["value"].as_str().unwrap().to_owned();
    let crossed = fixture.run_key_operation("decrypt", "RSA-OAEP-256", &value);
    assert_eq!(status_and_inner_code(&crossed), expected_error(400, "BadParameter"));
    let old = fixture.run_key_operation(
        "decrypt",
        "RSA-OAEP-256",
        fixture.vector_text("/upstream/ciphertext"),
    );
    assert_eq!(old.status, 200);
    let repeated = fixture.put_key_version(&json!({ "version": "ABCD", "bits": 2048 }));
    assert_eq!(status_and_inner_code(&repeated), expected_error(409, "VersionExists"));
}

#[test]
fn replies_have_region_and_request_id_and_key_survives_restore() {
    let fixture = KmsKeyFixture::new();
    let reply = fixture.run_key_operation(
        "encrypt",
        "RSA-OAEP-256",
        fixture.vector_text("/upstream/requestValue"),
    );
    for name in ["x-ms-keyvault-region", "x-ms-request-id", "date"] {
        assert!(reply.header(name).is_some_and(|value| !value.is_empty()), "{name}");
    }
    let stored = serde_json::to_string(&fixture.probe.engine.state().azure).unwrap();
    let read =
        serde_json::from_str::<lanyard_emulator_state::azure_state::AzureState>(&stored).unwrap();
    assert!(read.vaults.keys.version(HOST, "mykey", Some("ABCD")).is_ok());
}
