use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use lanyard_emulator::testing::start_time;
use p12_keystore::Pkcs12Archive;
use serde_json::{Value, json};
use x509_parser::asn1_rs::BitString;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::SubjectPublicKeyInfo;

use super::super::vault_fixture::{KeyVaultFixture, VAULT, expected_error};

const NULL: Value = Value::Null;

fn policy(issuer: &str, more: &Value) -> Value {
    let mut policy = json!({
        "issuer": { "name": issuer },
        "x509_props": { "subject": "CN=web, O=Contoso, C=DE" },
    });
    for (section, fields) in more.as_object().unwrap() {
        for (name, value) in fields.as_object().unwrap() {
            policy[section][name] = value.clone();
        }
    }
    json!({ "policy": policy })
}

fn der(certificate: &Value) -> Vec<u8> {
    STANDARD.decode(certificate["cer"].as_str().unwrap()).unwrap()
}

/// Whether a signature is that of a key, with the algorithm of the key's type.
fn is_signed(key: &SubjectPublicKeyInfo<'_>, message: &[u8], signature: &BitString<'_>) -> bool {
    let key = &key.subject_public_key.data;
    let algorithm: &'static dyn VerificationAlgorithm = match key.len() {
        65 => &ECDSA_P256_SHA256_ASN1,
        97 => &ECDSA_P384_SHA384_ASN1,
        133 => &ECDSA_P521_SHA512_ASN1,
        _ => &RSA_PKCS1_2048_8192_SHA256,
    };
    UnparsedPublicKey::new(algorithm, key).verify(message, &signature.data).is_ok()
}

#[test]
fn self_signed_certificate_has_the_key_the_form_and_the_validity_of_its_policy() {
    let visit = KeyVaultFixture::as_administrator();
    let (pkcs12, pem) = ("application/x-pkcs12", "application/x-pem-file");
    let cases = [
        (json!({}), pkcs12, "RSA", 2048, 12),
        (json!({ "kty": "RSA", "key_size": 3072 }), pem, "RSA", 3072, 1),
        (json!({ "kty": "EC" }), pkcs12, "EC", 256, 24),
        (json!({ "kty": "EC", "crv": "P-384" }), pem, "EC", 384, 12),
        (json!({ "kty": "EC", "crv": "P-521" }), pkcs12, "EC", 521, 1200),
    ];
    for (at, (key, form, kty, bits, months)) in cases.into_iter().enumerate() {
        let path = format!("/certificates/own-{at}");
        let body = policy(
            "Self",
            &json!({
                "key_props": key,
                "secret_props": { "contentType": form },
                "x509_props": { "validity_months": months },
            }),
        );
        visit.succeed("POST", &format!("{path}/create"), &body);
        let certificate = visit.succeed("GET", &path, &NULL);
        let der = der(&certificate);
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let (public_key, signature) = (parsed.public_key(), &parsed.signature_value);
        assert!(is_signed(public_key, parsed.tbs_certificate.as_ref(), signature), "{at}");
        assert_eq!(parsed.subject(), parsed.issuer());
        let attributes = &certificate["attributes"];
        assert_eq!(attributes["nbf"], start_time().as_second() - 600);
        assert_eq!(attributes["nbf"], parsed.validity().not_before.timestamp());
        assert_eq!(attributes["exp"], parsed.validity().not_after.timestamp());
        let days = (parsed.validity().not_after.timestamp() - start_time().as_second()) / 86_400;
        assert!((months * 30..=months * 31).contains(&days), "{months} months: {days} days");

        let key = visit.succeed("GET", &format!("/keys/own-{at}"), &NULL);
        assert_eq!((&key["key"]["kty"], &key["managed"]), (&json!(kty), &json!(true)), "{at}");
        assert_eq!(certificate["policy"]["key_props"]["key_size"], bits, "{at}");
        let secret = visit.succeed("GET", &format!("/secrets/own-{at}"), &NULL);
        assert_eq!(secret["contentType"], form);
        let value = secret["value"].as_str().unwrap();
        if form == pem {
            assert!(value.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{at}");
            assert!(value.contains("-----BEGIN CERTIFICATE-----"), "{at}");
        } else {
            let archive = Pkcs12Archive::from_pkcs12(&STANDARD.decode(value).unwrap(), "").unwrap();
            assert_eq!(archive.certs[0].cert.as_der(), der);
            assert_eq!(archive.keys.len(), 1);
        }
    }
}

#[test]
fn self_signed_certificate_has_the_names_and_usages_of_its_policy() {
    let visit = KeyVaultFixture::as_administrator();
    let fields = json!({
        "x509_props": {
            "sans": {
                "dns_names": ["web.example", "*.web.example"],
                "emails": ["a@example.com"],
                "upns": ["a@example.onmicrosoft.com"],
                "uris": ["spiffe://example/web"],
                "ipAddresses": ["192.0.2.1", "2001:db8::1"],
            },
            "ekus": ["1.3.6.1.5.5.7.3.1", "1.3.6.1.4.1.311.10.3.12"],
            "key_usage": ["digitalSignature", "cRLSign", "decipherOnly"],
        },
    });
    let names = |version: &str| {
        let path = format!("/certificates/names-{}", version.replace('.', "-"));
        let create = format!("{path}/create?api-version={version}");
        visit.succeed("POST", &create, &policy("Self", &fields));
        let der = der(&visit.succeed("GET", &path, &NULL));
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let subject = parsed.subject().to_string();
        let usage = parsed.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && usage.crl_sign() && usage.decipher_only());
        assert!(!usage.key_encipherment());
        let extended = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.server_auth && !extended.client_auth);
        assert_eq!(extended.other[0].to_id_string(), "1.3.6.1.4.1.311.10.3.12");
        assert!(!parsed.basic_constraints().unwrap().unwrap().value.ca);
        let names: Vec<_> = parsed
            .subject_alternative_name()
            .unwrap()
            .unwrap()
            .value
            .general_names
            .iter()
            .map(|name| match name {
                GeneralName::DNSName(text) => format!("dns {text}"),
                GeneralName::RFC822Name(text) => format!("mail {text}"),
                GeneralName::URI(text) => format!("uri {text}"),
                GeneralName::IPAddress(octets) => format!("ip {}", octets.len()),
                GeneralName::OtherName(oid, _) => format!("other {oid}"),
                other => format!("{other:?}"),
            })
            .collect();
        (subject, names)
    };
    let (subject, all) = names("2025-07-01");
    // The encoding begins with the last attribute of the text.
    assert_eq!(subject, "C=DE, O=Contoso, CN=web");
    let common = ["dns web.example", "dns *.web.example", "mail a@example.com"];
    let upn = "other 1.3.6.1.4.1.311.20.2.3";
    let later = [upn, "uri spiffe://example/web", "ip 4", "ip 16"];
    assert_eq!(all, [&common[..], &later[..]].concat());
    assert_eq!(names("7.4").1, [&common[..], &[upn]].concat());
}

#[test]
fn creation_replies_with_a_request_in_progress_and_a_location() {
    let visit = KeyVaultFixture::as_administrator();
    let body = policy("Self", &json!({})).to_string();
    let reply = visit.send_request(visit.test_client, "POST", "/certificates/web/create", &body);
    assert_eq!(reply.status.as_u16(), 202);
    let record = lanyard_emulator::testing::reply_json(&reply);
    assert_eq!(record["id"], format!("{VAULT}/certificates/web/pending"));
    assert_eq!(
        (&record["status"], &record["issuer"]),
        (&json!("inProgress"), &json!({ "name": "Self" }))
    );
    assert_eq!(record["cancellation_requested"], false);
    let request_id = record["request_id"].as_str().unwrap();
    let location = reply.header("location").unwrap();
    assert_eq!(
        location,
        format!("{VAULT}/certificates/web/pending?api-version=7.4&request_id={request_id}")
    );
    let record = visit.succeed("GET", location.strip_prefix(VAULT).unwrap(), &NULL);
    assert_eq!(record["status"], "completed");
    assert_eq!(record["target"], format!("{VAULT}/certificates/web"));
    let csr = STANDARD.decode(record["csr"].as_str().unwrap()).unwrap();
    let (_, csr) = X509CertificationRequest::from_der(&csr).unwrap();
    let info = &csr.certification_request_info;
    assert!(is_signed(&info.subject_pki, info.raw, &csr.signature_value));
}

#[test]
fn the_key_is_reused_only_if_the_policy_says_so() {
    let visit = KeyVaultFixture::as_administrator();
    for (reuse, expected) in [(false, 2), (true, 1)] {
        let name = format!("reuse-{reuse}");
        let key = json!({ "key_props": { "kty": "EC", "reuse_key": reuse } });
        let create = format!("/certificates/{name}/create");
        visit.succeed("POST", &create, &policy("Self", &key));
        // The stored policy is that of the next version.
        visit.succeed("POST", &create, &json!({}));
        let keys = visit.succeed("GET", &format!("/keys/{name}/versions"), &NULL);
        let mut points: Vec<_> = keys["value"]
            .as_array()
            .unwrap()
            .iter()
            .map(|key| key["kid"].as_str().unwrap().strip_prefix(VAULT).unwrap().to_owned())
            .map(|path| visit.succeed("GET", &path, &NULL)["key"]["x"].to_string())
            .collect();
        assert_eq!(points.len(), 2);
        points.sort();
        points.dedup();
        assert_eq!(points.len(), expected, "reuse_key {reuse}");
    }
}

#[test]
fn a_key_that_is_not_exportable_is_not_in_the_secret() {
    let visit = KeyVaultFixture::as_administrator();
    for form in ["application/x-pkcs12", "application/x-pem-file"] {
        let name = if form.ends_with("12") { "sealed-12" } else { "sealed-pem" };
        let fields = json!({
            "key_props": { "kty": "EC", "exportable": false },
            "secret_props": { "contentType": form },
        });
        visit.succeed("POST", &format!("/certificates/{name}/create"), &policy("Self", &fields));
        let secret = visit.succeed("GET", &format!("/secrets/{name}"), &NULL);
        let value = secret["value"].as_str().unwrap();
        if form.ends_with("12") {
            let archive = Pkcs12Archive::from_pkcs12(&STANDARD.decode(value).unwrap(), "").unwrap();
            assert_eq!((archive.keys.len(), archive.certs.len()), (0, 1));
        } else {
            assert!(!value.contains("PRIVATE KEY") && value.contains("BEGIN CERTIFICATE"));
        }
    }
}

#[test]
fn certificate_of_an_external_issuer_waits_and_can_be_cancelled() {
    let visit = KeyVaultFixture::as_administrator();
    let create = |fields: &Value| visit.ask("POST", "/certificates/web/create", fields);
    let (status, record) = create(&policy("Unknown", &json!({})));
    assert_eq!(status, 202);
    assert_eq!(
        record["status_details"],
        "Pending certificate created. Please Perform Merge to complete the request."
    );
    let certificate = visit.succeed("GET", "/certificates/web", &NULL);
    assert_eq!(certificate["attributes"]["enabled"], false);
    assert_eq!(certificate["pending"]["id"], format!("{VAULT}/certificates/web/pending"));
    for field in ["cer", "kid", "sid", "x5t"] {
        assert!(certificate.get(field).is_none(), "{field}");
    }
    assert_eq!(visit.ask("GET", "/secrets/web", &NULL).0, 404);
    let listed = |query: &str| {
        let list = visit.succeed("GET", &format!("/certificates{query}"), &NULL);
        list["value"].as_array().unwrap().len()
    };
    assert_eq!((listed(""), listed("?includePending=true")), (0, 1));
    let conflict = expected_error(409, "Conflict", "");
    assert_eq!(
        visit.fail("POST", "/certificates/web/create", &policy("Self", &json!({}))),
        conflict
    );

    let cancel = json!({ "cancellation_requested": true });
    let record = visit.succeed("PATCH", "/certificates/web/pending", &cancel);
    assert_eq!(
        (&record["status"], &record["cancellation_requested"]),
        (&json!("cancelled"), &json!(true))
    );
    assert_eq!(visit.succeed("DELETE", "/certificates/web/pending", &NULL)["status"], "cancelled");
    let absent = expected_error(404, "PendingCertificateNotFound", "");
    for method in ["GET", "DELETE"] {
        assert_eq!(visit.fail(method, "/certificates/web/pending", &NULL), absent);
    }
    assert!(visit.succeed("GET", "/certificates/web", &NULL).get("pending").is_none());
    assert_eq!(create(&policy("Self", &json!({}))).0, 202);
    let versions = visit.succeed("GET", "/certificates/web/versions", &NULL);
    assert_eq!(versions["value"].as_array().unwrap().len(), 1, "the empty version is replaced");
}

#[test]
fn policies_that_no_certificate_can_have_are_rejected() {
    let visit = KeyVaultFixture::as_administrator();
    let with = |section: &str, fields: Value| policy("Self", &json!({ section: fields }));
    let trigger = |trigger: Value, action: &str| {
        let mut body = policy("Self", &json!({}));
        body["policy"]["lifetime_actions"] =
            json!([{ "trigger": trigger, "action": { "action_type": action } }]);
        body
    };
    let cases = [
        json!({}),
        json!({ "policy": {} }),
        json!({ "policy": { "x509_props": { "subject": "CN=a" } } }),
        json!({ "policy": { "issuer": { "name": "Self" } } }),
        policy("Absent", &json!({})),
        with("key_props", json!({ "kty": "RSA", "key_size": 1024 })),
        with("key_props", json!({ "kty": "RSA-HSM" })),
        with("key_props", json!({ "kty": "EC", "crv": "P-256K" })),
        with("key_props", json!({ "kty": "EC", "crv": "P-255" })),
        with("secret_props", json!({ "contentType": "text/plain" })),
        with("x509_props", json!({ "subject": "web" })),
        with("x509_props", json!({ "subject": "CN=web, XY=1" })),
        with("x509_props", json!({ "validity_months": 0 })),
        with("x509_props", json!({ "validity_months": 1201 })),
        with("x509_props", json!({ "ekus": ["serverAuth"] })),
        with("x509_props", json!({ "ekus": ["2.18446744073709551615"] })),
        with("x509_props", json!({ "subject": "OID.2.18446744073709551615=x" })),
        with("x509_props", json!({ "key_usage": ["signing"] })),
        with("x509_props", json!({ "sans": { "dns_names": ["dömain"] } })),
        with("x509_props", json!({ "sans": { "dns_names": "web" } })),
        trigger(json!({ "lifetime_percentage": 100 }), "AutoRenew"),
        trigger(json!({ "days_before_expiry": 325 }), "AutoRenew"),
        trigger(json!({ "days_before_expiry": 1, "lifetime_percentage": 1 }), "AutoRenew"),
        trigger(json!({}), "AutoRenew"),
        trigger(json!({ "lifetime_percentage": 80 }), "Ignore"),
    ];
    for body in cases {
        let found = visit.fail("POST", "/certificates/web/create", &body);
        assert_eq!(found, expected_error(400, "BadParameter", ""), "{body}");
    }
    assert_eq!(visit.ask("GET", "/certificates/web", &NULL).0, 404);
}

#[test]
fn names_of_other_objects_are_rejected() {
    let visit = KeyVaultFixture::as_administrator();
    visit.succeed("PUT", "/secrets/secret", &json!({ "value": "x" }));
    visit.succeed("POST", "/keys/key/create", &json!({ "kty": "EC" }));
    visit.succeed("POST", "/keys/deleted/create", &json!({ "kty": "EC" }));
    visit.succeed("DELETE", "/keys/deleted", &NULL);
    let body = policy("Self", &json!({ "key_props": { "kty": "EC" } }));
    let create = |name: &str| visit.fail("POST", &format!("/certificates/{name}/create"), &body);
    assert_eq!(create("secret"), expected_error(409, "Conflict", ""));
    assert_eq!(create("KEY"), expected_error(409, "Conflict", ""));
    assert_eq!(create("deleted"), expected_error(409, "Conflict", "ObjectIsDeletedButRecoverable"));
    assert_eq!(create("new").0, 202);
    let managed = expected_error(403, "Forbidden", "ObjectIsManaged");
    assert_eq!(visit.fail("PUT", "/secrets/new", &json!({ "value": "x" })), managed);
    assert_eq!(visit.fail("POST", "/keys/new/create", &json!({ "kty": "EC" })), managed);
    for path in ["/secrets/new", "/keys/new"] {
        assert_eq!(visit.fail("DELETE", path, &NULL), managed);
    }
}

#[test]
fn deletion_recovery_and_purge_include_the_key_and_the_secret() {
    let visit = KeyVaultFixture::as_administrator();
    let body = policy("Self", &json!({ "key_props": { "kty": "EC" } }));
    let all = ["certificates", "keys", "secrets"];
    let exist = |prefix: &str| {
        all.map(|kind| visit.ask("GET", &format!("/{prefix}{kind}/web"), &NULL).0 == 200)
    };
    visit.succeed("POST", "/certificates/web/create", &body);
    let before = visit.succeed("GET", "/certificates/web", &NULL);
    let deleted = visit.succeed("DELETE", "/certificates/web", &NULL);
    assert_eq!(deleted["recoveryId"], format!("{VAULT}/deletedcertificates/web"));
    assert_eq!((exist(""), exist("deleted")), ([false; 3], [true; 3]));
    let managed = expected_error(403, "Forbidden", "ObjectIsManaged");
    assert_eq!(visit.fail("POST", "/deletedsecrets/web/recover", &NULL), managed);
    assert_eq!(visit.fail("DELETE", "/deletedkeys/web", &NULL), managed);
    visit.succeed("POST", "/deletedcertificates/web/recover", &NULL);
    assert_eq!(exist(""), [true; 3]);
    assert_eq!(visit.succeed("GET", "/certificates/web", &NULL), before);
    visit.succeed("DELETE", "/certificates/web", &NULL);
    assert_eq!(visit.ask("DELETE", "/deletedcertificates/web", &NULL).0, 204);
    assert_eq!((exist(""), exist("deleted")), ([false; 3], [false; 3]));
    assert_eq!(visit.ask("POST", "/certificates/web/create", &body).0, 202);
}

#[test]
fn certificate_signs_with_its_key() {
    let visit = KeyVaultFixture::as_administrator();
    visit.succeed("POST", "/certificates/web/create", &policy("Self", &json!({})));
    let certificate = visit.succeed("GET", "/certificates/web", &NULL);
    let kid = certificate["kid"].as_str().unwrap().strip_prefix(VAULT).unwrap();
    let digest = URL_SAFE_NO_PAD.encode([7; 32]);
    let body = json!({ "alg": "RS256", "value": digest });
    let signed = visit.succeed("POST", &format!("{kid}/sign"), &body);
    let body = json!({ "alg": "RS256", "digest": digest, "value": signed["value"] });
    assert_eq!(visit.succeed("POST", &format!("{kid}/verify"), &body)["value"], true);
}
