use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanyard_emulator::testing::reply_json;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::certificate_bundle::{Pkcs12Profile, encode_pkcs12};
use p12_keystore::Pkcs12Archive;
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, VAULT, expected_error};

/// Files of OpenSSL with one certificate, its authority and its key.
const FILES: &str = include_str!("../../fixtures/certificate_files.json");
const NULL: Value = Value::Null;
const PEM: &str = "application/x-pem-file";

fn files() -> Value {
    serde_json::from_str(FILES).unwrap()
}

fn import(visit: &KeyVaultFixture, name: &str, body: &Value) -> (u16, Value) {
    visit.ask("POST", &format!("/certificates/{name}/import"), body)
}

#[test]
fn files_of_openssl_are_imported_in_every_profile() {
    let (visit, files) = (KeyVaultFixture::as_administrator(), files());
    for (file, password, count) in [
        ("aes256", "secret", 2),
        ("rc2", "secret", 2),
        ("tripleDes", "", 2),
        ("unencrypted", "", 1),
    ] {
        let body = json!({ "value": files[file], "pwd": password });
        let (status, certificate) = import(&visit, file, &body);
        assert_eq!(status, 200, "{file}: {certificate}");
        assert_eq!(certificate["cer"], files["certificate"], "{file}");
        let policy = &certificate["policy"];
        assert_eq!(policy["x509_props"]["subject"], "CN=imported");
        assert_eq!(policy["x509_props"]["validity_months"], 120);
        assert_eq!(policy["issuer"]["name"], "Unknown");
        assert_eq!(policy["key_props"]["crv"], "P-256");
        assert_eq!(policy["lifetime_actions"][0]["action"]["action_type"], "EmailContacts");
        let secret = visit.succeed("GET", &format!("/secrets/{file}"), &NULL);
        let value = STANDARD.decode(secret["value"].as_str().unwrap()).unwrap();
        let archive = Pkcs12Archive::from_pkcs12(&value, "").unwrap();
        assert_eq!((archive.keys.len(), archive.certs.len()), (1, count), "{file}");
        // The object identifier of pbeWithSHAAnd3-KeyTripleDES-CBC, and none of PBES2.
        let contains = |oid: &[u8]| value.windows(oid.len()).any(|window| window == oid);
        assert!(contains(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1, 3]), "{file}");
        assert!(!contains(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13]), "{file}");
        assert_eq!(visit.succeed("GET", &format!("/keys/{file}"), &NULL)["key"]["crv"], "P-256");
    }
}

/// A PEM file with a certificate of `key`, its authority, and the PKCS#8 key.
fn pem_file(order: [&str; 3]) -> (String, Vec<u8>) {
    let authority_key = KeyPair::generate().unwrap();
    let authority = CertificateParams::new(Vec::new()).unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "web");
    let leaf = params.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
    let parts = order.map(|part| match part {
        "key" => key.serialize_pem(),
        "leaf" => leaf.pem(),
        _ => authority_pem.clone(),
    });
    (parts.concat(), leaf.der().to_vec())
}

/// The certificates of a PEM file as base64 of DER, in their order.
fn pem_certificates(text: &str) -> Vec<String> {
    let blocks = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    blocks
        .map(|block| block.split("-----END").next().unwrap().split_whitespace().collect())
        .collect()
}

#[test]
fn pem_files_keep_their_order_unless_the_client_wants_the_certificate_of_the_key_first() {
    let visit = KeyVaultFixture::as_administrator();
    let orders = [["key", "leaf", "authority"], ["authority", "leaf", "key"]];
    for (at, order) in orders.into_iter().enumerate() {
        let (text, leaf) = pem_file(order);
        let uploaded = pem_certificates(&text);
        for (form, value) in [("text", text.clone()), ("base64", STANDARD.encode(&text))] {
            for preserve in [None, Some(false), Some(true)] {
                let name = format!(
                    "{form}-{at}-{}",
                    preserve.map_or("none", |it| if it { "yes" } else { "no" })
                );
                let body = json!({
                    "value": value,
                    "policy": { "secret_props": { "contentType": PEM } },
                    "preserveCertOrder": preserve,
                });
                let path = format!("/certificates/{name}/import?api-version=2025-07-01");
                let certificate = visit.succeed("POST", &path, &body);
                assert_eq!(certificate["cer"], STANDARD.encode(&leaf), "{name}");
                assert_eq!(
                    certificate["policy"]["x509_props"]["sans"]["dns_names"],
                    json!(["web.example"])
                );
                let is_announced = certificate.get("preserveCertOrder").is_some();
                assert_eq!(is_announced, preserve == Some(true), "{name}");
                let secret = visit.succeed("GET", &format!("/secrets/{name}"), &NULL);
                assert_eq!(secret["contentType"], PEM);
                let mut expected = uploaded.clone();
                if preserve == Some(false) {
                    expected.sort_by_key(|one| *one != STANDARD.encode(&leaf));
                }
                let found = pem_certificates(secret["value"].as_str().unwrap());
                assert_eq!(found, expected, "{name}");
            }
        }
    }
    // Versions before 7.6-preview.2 ignore the field.
    let (value, leaf) = pem_file(orders[1]);
    let body = json!({ "value": value, "preserveCertOrder": false });
    let (status, certificate) = import(&visit, "old", &body);
    assert_eq!((status, &certificate["cer"]), (200, &json!(STANDARD.encode(leaf))));
    assert!(certificate.get("preserveCertOrder").is_none());
}

/// The key and the certificates of a PKCS#12 file with an empty password, in their order.
fn pkcs12_content(base64: &str) -> (Vec<u8>, Vec<Vec<u8>>) {
    let archive = Pkcs12Archive::from_pkcs12(&STANDARD.decode(base64).unwrap(), "").unwrap();
    let certificates = archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect();
    (archive.keys[0].key.as_der().to_vec(), certificates)
}

#[test]
fn the_pkcs12_secret_of_an_imported_certificate_is_the_uploaded_file() {
    let visit = KeyVaultFixture::as_administrator();
    for (at, order) in
        [["key", "leaf", "authority"], ["key", "authority", "leaf"]].iter().enumerate()
    {
        let (pem, leaf) = pem_file(*order);
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let chain: Vec<_> =
            pem_certificates(&pem).iter().map(|text| STANDARD.decode(text).unwrap()).collect();
        let chain: Vec<_> = chain.iter().map(Vec::as_slice).collect();
        let (key, leaf) =
            (key.secret_pkcs8_der(), chain.iter().position(|one| *one == leaf).unwrap());
        for profile in [Pkcs12Profile::Legacy, Pkcs12Profile::Modern] {
            let file = encode_pkcs12(Some(key), &chain, leaf, profile).unwrap();
            let uploaded = STANDARD.encode(&*file);
            for version in ["7.4", "7.6", "2025-07-01"] {
                let name = format!("web-{at}-{profile:?}-{}", version.replace('.', "-"));
                let path = format!("/certificates/{name}/import?api-version={version}");
                let certificate = visit.succeed("POST", &path, &json!({ "value": uploaded }));
                assert_eq!(certificate["cer"], STANDARD.encode(chain[leaf]), "{name}");
                let secret = visit.succeed("GET", &format!("/secrets/{name}"), &NULL);
                let stored = pkcs12_content(secret["value"].as_str().unwrap());
                assert_eq!(stored, pkcs12_content(&uploaded), "{name}");
            }
        }
    }
}

#[test]
fn the_pkcs12_secret_of_an_imported_file_is_converted_to_pem() {
    let (visit, files) = (KeyVaultFixture::as_administrator(), files());
    let body = json!({ "value": files["aes256"], "pwd": "secret", "preserveCertOrder": true });
    visit.succeed("POST", "/certificates/web/import?api-version=7.6", &body);
    let secret = visit.succeed("GET", "/secrets/web", &NULL);
    let (_, certificates) = pkcs12_content(secret["value"].as_str().unwrap());
    assert_eq!(STANDARD.encode(&certificates[0]), files["certificate"]);
    let pem = visit.succeed(
        "GET",
        "/secrets/web?api-version=2025-07-01&outContentType=application/x-pem-file",
        &NULL,
    );
    assert_eq!(pem["contentType"], PEM);
    assert!(pem["value"].as_str().unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    let old = visit.succeed("GET", "/secrets/web?outContentType=application/x-pem-file", &NULL);
    assert_eq!(old, secret);
}

/// A PEM file with a self-signed certificate of this validity in days from 21 November 2026, and its key.
fn pem_file_valid_for(days: u8) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 11, 21);
    params.not_after = rcgen::date_time_ymd(2026, 12, days - 9);
    format!("{}{}", key.serialize_pem(), params.self_signed(&key).unwrap().pem())
}

fn renewing_policy(days_before_expiry: u32) -> Value {
    json!({
        "issuer": { "name": "Self" },
        "x509_props": { "subject": "CN=other", "validity_months": 1200 },
        "secret_props": { "contentType": PEM },
        "lifetime_actions": [{
            "trigger": { "days_before_expiry": days_before_expiry },
            "action": { "action_type": "AutoRenew" },
        }],
    })
}

#[test]
fn renewal_of_an_imported_certificate_is_checked_against_its_own_validity() {
    let visit = KeyVaultFixture::as_administrator();
    let version_count = |name: &str| {
        let versions = visit.succeed("GET", &format!("/certificates/{name}/versions"), &NULL);
        versions["value"].as_array().unwrap().len()
    };
    for (name, days, before_expiry, expected) in
        [("month", 30, 27, 200), ("long-before", 30, 28, 400), ("ten-days", 10, 27, 200)]
    {
        let body =
            json!({ "value": pem_file_valid_for(days), "policy": renewing_policy(before_expiry) });
        let (status, reply) = import(&visit, name, &body);
        assert_eq!(status, expected, "{name}: {reply}");
        if status == 200 {
            assert_eq!(reply["policy"]["x509_props"]["validity_months"], 1, "{name}");
            assert_eq!((version_count(name), version_count(name)), (1, 1), "{name}");
        }
    }
    visit.probe.clock.advance(std::time::Duration::from_hours(24 * 3));
    assert_eq!(version_count("month"), 2);
    // The action would have been due before the certificate was valid.
    assert_eq!(version_count("ten-days"), 1);
}

#[test]
fn policy_of_a_certificate_that_the_vault_cannot_create_is_imported() {
    let (visit, files) = (KeyVaultFixture::as_administrator(), files());
    let policy =
        |issuer: &str| json!({ "key_props": { "reuse_key": true }, "issuer": { "name": issuer } });
    for file in ["repeatedAttribute", "secp256k1"] {
        let body = json!({ "value": files[file], "policy": policy("Unknown") });
        let (status, certificate) = import(&visit, file, &body);
        assert_eq!(status, 200, "{file}: {certificate}");
        assert_eq!(certificate["policy"]["key_props"]["reuse_key"], true, "{file}");
        let body = json!({ "value": files[file], "policy": policy("Self") });
        assert_eq!(import(&visit, file, &body).0, 400, "{file}: the vault would renew it");
        let path = format!("/certificates/{file}/create");
        assert_eq!(visit.fail("POST", &path, &json!({})), expected_error(400, "BadParameter", ""));
    }
    let subject =
        &visit.succeed("GET", "/certificates/repeatedAttribute/policy", &NULL)["x509_props"];
    assert_eq!(subject["subject"], "CN=imported, DC=corp, DC=example");
}

#[test]
fn policy_of_an_import_has_the_key_and_the_fields_of_the_file() {
    let (visit, files) = (KeyVaultFixture::as_administrator(), files());
    let import = |name: &str, policy: &Value| {
        let body = json!({ "value": files["secp256k1"], "policy": policy });
        import(&visit, name, &body)
    };
    let (_, plain) = import("plain", &NULL);
    let policy = json!({
        "key_props": { "kty": "RSA", "key_size": 4096, "exportable": true },
        "x509_props": { "subject": "CN=other", "ekus": ["1.2.3"], "validity_months": 1 },
    });
    let (status, given) = import("given", &policy);
    assert_eq!(status, 200, "{given}");
    for section in ["key_props", "secret_props", "x509_props", "issuer"] {
        assert_eq!(given["policy"][section], plain["policy"][section], "{section}");
    }
    for invalid in [
        json!({ "key_props": { "kty": "RSA-HSM" } }),
        json!({ "secret_props": { "contentType": "text/plain" } }),
        json!({ "issuer": { "name": "Absent" } }),
        json!("Self"),
    ] {
        assert_eq!(import("invalid", &invalid).0, 400, "{invalid}");
    }
}

#[test]
fn files_without_one_usable_key_and_its_certificate_are_rejected() {
    let (visit, files) = (KeyVaultFixture::as_administrator(), files());
    let (text, _) = pem_file(["key", "leaf", "authority"]);
    let (other, _) = pem_file(["leaf", "authority", "key"]);
    let (key, certificates) = text.split_at(text.find("-----BEGIN CERTIFICATE").unwrap());
    let pkcs12 = "The specified PKCS#12 X.509 certificate content can not be read. Please check if \
                  certificate is in valid PKCS#12 format and if the password is correct.";
    let pem = "The specified PEM X.509 certificate content is in an unexpected format. Please check if \
               certificate is in valid PEM format.";
    let mismatch = "The public key of the end-entity certificate in the specified X.509 certificate \
                    content does not match the public part of the specified private key. Please check if \
                    certificate is valid.";
    let policy = |form: &str| json!({ "secret_props": { "contentType": form } });
    let wrong_key = key.replace("PRIVATE KEY", "EC PRIVATE KEY");
    let other_certificates = &other[..other.find("-----BEGIN PRIVATE").unwrap()];
    let cases = [
        (json!({ "value": files["aes256"], "pwd": "wrong" }), pkcs12),
        (json!({ "value": files["aes256"] }), pkcs12),
        (json!({ "value": "AAAA" }), pkcs12),
        (json!({ "value": "no base64!" }), pkcs12),
        (json!({ "value": text, "policy": policy("application/x-pkcs12") }), pkcs12),
        (json!({ "value": files["tripleDes"], "policy": policy(PEM) }), pem),
        (json!({ "value": key }), pem),
        (
            json!({ "value": format!("{key}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----") }),
            pem,
        ),
        (json!({ "value": format!("{key}{other_certificates}") }), mismatch),
        (
            json!({ "value": certificates }),
            "The specified PEM X.509 certificate content has no private key in PKCS#8 format (`BEGIN PRIVATE KEY`).",
        ),
        (
            json!({ "value": format!("{wrong_key}{certificates}") }),
            "The specified PEM X.509 certificate content has no private key in PKCS#8 format (`BEGIN PRIVATE KEY`).",
        ),
        (
            json!({ "value": format!("{key}{text}") }),
            "The specified X.509 certificate content has no private key, or more than one.",
        ),
        (json!({}), "`value` is missing"),
    ];
    for (body, message) in cases {
        let (status, reply) = import(&visit, "web", &body);
        assert_eq!((status, &reply["error"]["message"]), (400, &json!(message)));
        assert_eq!(reply["error"]["code"], "BadParameter");
    }
    assert_eq!(visit.ask("GET", "/certificates/web", &NULL).0, 404);
}

/// The certificate of a request in base64, issued by a new authority, and the certificate of the authority.
fn issue(csr: &Value) -> [String; 2] {
    let csr = STANDARD.decode(csr.as_str().unwrap()).unwrap();
    let request = rcgen::CertificateSigningRequestParams::from_der(&csr.into()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(Vec::new()).unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issued = request.signed_by(&Issuer::new(params, key)).unwrap();
    [STANDARD.encode(issued.der()), STANDARD.encode(authority.der())]
}

#[test]
fn a_waiting_request_is_completed_by_merging_its_certificate() {
    let visit = KeyVaultFixture::as_administrator();
    let merge = "/certificates/web/pending/merge";
    let absent = expected_error(404, "PendingCertificateNotFound", "");
    assert_eq!(visit.fail("POST", merge, &json!({})), absent);
    let body = json!({
        "policy": {
            "issuer": { "name": "Unknown" },
            "key_props": { "kty": "EC" },
            "x509_props": { "subject": "CN=web" },
        },
        "tags": { "a": "b" },
    });
    let record = visit.succeed("POST", "/certificates/web/create", &body);
    let waiting = visit.succeed("GET", "/certificates/web", &NULL);
    let [leaf, authority] = issue(&record["csr"]);
    for x5c in [json!([]), json!([authority]), json!(["AAAA"]), NULL] {
        let found = visit.fail("POST", merge, &json!({ "x5c": x5c }));
        assert_eq!(found, expected_error(400, "BadParameter", ""), "{x5c}");
    }
    let pem = format!("-----BEGIN CERTIFICATE-----\n{leaf}\n-----END CERTIFICATE-----\n");
    // Clients send DER in base64, or PEM in base64.
    let body = json!({ "x5c": [authority, STANDARD.encode(pem)] });
    let reply = visit.send_request(visit.test_client, "POST", merge, &body.to_string());
    assert_eq!(reply.status.as_u16(), 201, "{}", reply_json(&reply));
    let merged = reply_json(&reply);
    assert_eq!(reply.header("location"), merged["id"].as_str());
    assert_eq!(merged["id"], waiting["id"], "the version keeps its id");
    assert_eq!((&merged["cer"], &merged["tags"]), (&json!(leaf), &json!({ "a": "b" })));
    assert_eq!(merged["attributes"]["enabled"], true);
    assert_eq!(visit.succeed("GET", "/certificates/web", &NULL), merged);
    let record = visit.succeed("GET", "/certificates/web/pending", &NULL);
    assert_eq!(record["target"], format!("{VAULT}/certificates/web"));
    assert_eq!(visit.fail("POST", merge, &body), expected_error(400, "BadParameter", ""));
    let secret = visit.succeed("GET", "/secrets/web", &NULL);
    let value = STANDARD.decode(secret["value"].as_str().unwrap()).unwrap();
    let archive = Pkcs12Archive::from_pkcs12(&value, "").unwrap();
    assert_eq!((archive.keys.len(), archive.certs.len()), (1, 2));

    // The next request waits beside the issued version.
    visit.succeed("POST", "/certificates/web/create", &json!({}));
    assert_eq!(visit.succeed("GET", "/certificates/web", &NULL)["cer"], leaf);
}

#[test]
fn merge_stores_nothing_if_the_name_of_the_key_is_taken() {
    let visit = KeyVaultFixture::as_administrator();
    let body = json!({
        "policy": {
            "issuer": { "name": "Unknown" },
            "key_props": { "kty": "EC" },
            "x509_props": { "subject": "CN=web" },
        },
    });
    let record = visit.succeed("POST", "/certificates/web/create", &body);
    let [leaf, _] = issue(&record["csr"]);
    // The control API creates keys under any name.
    let key = json!({ "vaultHost": "platform-kv.vault.azure.net", "name": "web" });
    let created = visit.probe.send_request(
        Ingress::Port,
        &"PUT".parse().unwrap(),
        "http://127.0.0.1/lanyard/v1/keys",
        &[("x-lanyard-control", "1")],
        &key.to_string(),
    );
    assert_eq!(created.status.as_u16(), 201, "{}", reply_json(&created));
    visit.succeed("DELETE", "/keys/web", &NULL);
    let merge = json!({ "x5c": [leaf] });
    let conflict = expected_error(409, "Conflict", "ObjectIsDeletedButRecoverable");
    assert_eq!(visit.fail("POST", "/certificates/web/pending/merge", &merge), conflict);
    assert_eq!(visit.ask("GET", "/secrets/web", &NULL).0, 404);
    visit.ask("DELETE", "/deletedkeys/web", &NULL);
    visit.succeed("POST", "/certificates/web/pending/merge", &merge);
    assert_eq!(visit.succeed("GET", "/keys/web", &NULL)["managed"], true);
}

#[test]
fn file_above_the_limit_of_a_secret_is_rejected() {
    let visit = KeyVaultFixture::as_administrator();
    for (length, expected) in [
        (25 * 1024, "can not be read"),
        (25 * 1024 + 1, "`value` has 25601 bytes; the maximum is 25600"),
    ] {
        let (status, reply) = import(&visit, "large", &json!({ "value": "A".repeat(length) }));
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(expected), "{message}");
    }
}
