mod users;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use http::{Method, StatusCode};
use lanyard_emulator::testing::*;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::certificates::{days_after, sha1_thumbprint, sha256_thumbprint};
use lanyard_emulator_state::directory::FederatedCredential;
use lanyard_emulator_state::jose::UnverifiedToken;
use lanyard_emulator_state::keys::RsaKey;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

fn registered_certificate() -> Vec<u8> {
    application_mut(&mut azure_with_test_principals(), APP).keys[0].certificate.clone()
}

fn managed_identity_leaf() -> Vec<u8> {
    signed_leaf_certificate(MSI_SUBJECT, &client_key(), (MSI_AUTHORITY, &authority_key()), (-1, 90))
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn with_claim(mut base: Value, name: &str, value: Value) -> Value {
    base[name] = value;
    base
}

fn app_assertion(header: &Value, claims: &Value) -> ServiceReply {
    EngineFixture::new(azure_with_test_principals())
        .request_token_with_assertion(APP, &sign_token(header, claims, &client_key()))
}

fn sha256_header() -> Value {
    let thumbprint = URL_SAFE_NO_PAD.encode(sha256_thumbprint(&registered_certificate()));
    json!({ "alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint })
}

#[test]
fn assertion_forms_sent_by_real_clients_are_accepted() {
    let leaf = registered_certificate();
    let (sha1, sha256) = (sha1_thumbprint(&leaf), sha256_thumbprint(&leaf));
    let plain = assertion_claims(APP);
    let now = f64::from(u32::try_from(start_time().as_second()).unwrap());
    let mut floating = with_claim(plain.clone(), "exp", json!(now + 600.75));
    floating["iat"] = json!(now + 0.25);
    floating.as_object_mut().unwrap().remove("nbf");
    let folded = STANDARD
        .encode(&leaf)
        .as_bytes()
        .chunks(64)
        .fold(String::new(), |text, line| text + std::str::from_utf8(line).unwrap() + "\n");
    let cases = [
        (
            "Python: RS256, padded base64url SHA-1, floating exp and iat, no nbf",
            json!({ "alg": "RS256", "typ": "JWT", "x5t": URL_SAFE.encode(&sha1) }),
            floating,
        ),
        (
            "az with chain: base64 of DER with line breaks",
            json!({ "alg": "RS256", "x5t": URL_SAFE.encode(&sha1), "x5c": [folded] }),
            plain.clone(),
        ),
        (
            "MSAL Go: PS256, padded standard base64 SHA-256, chain of DER",
            json!({ "alg": "PS256", "x5t#S256": STANDARD.encode(&sha256), "x5c": [STANDARD.encode(&leaf)] }),
            plain.clone(),
        ),
        (
            "azure_identity for Rust: standard base64 SHA-1",
            json!({ "alg": "RS256", "typ": "JWT", "x5t": STANDARD.encode(&sha1) }),
            plain.clone(),
        ),
        (
            "azure_identity for Rust with chain: base64 of the PEM text",
            json!({ "alg": "RS256", "x5t": STANDARD.encode(&sha1), "x5c": [STANDARD.encode(pem(&leaf))] }),
            plain.clone(),
        ),
        (
            "PEM as it is, no thumbprint",
            json!({ "alg": "RS256", "x5c": [pem(&leaf)] }),
            plain.clone(),
        ),
        ("the specification: base64url SHA-256", sha256_header(), plain.clone()),
        (
            "old clients: the thumbprint as kid in hexadecimal digits",
            json!({ "alg": "RS256", "kid": hex::encode_upper(&sha1) }),
            plain,
        ),
    ];
    for (name, header, claims) in cases {
        let reply = app_assertion(&header, &claims);
        assert_eq!(reply.status, StatusCode::OK, "{name}: {}", reply_json(&reply));
    }
}

#[test]
fn assertion_audience_may_be_any_name_of_its_endpoint_only() {
    let cases = [
        (LOGIN, format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token"), None),
        (LOGIN, format!("https://{LOGIN}/{TENANT}/oauth2/token"), None),
        (LOGIN, format!("https://{LOGIN}/{DOMAIN}/oauth2/v2.0/token"), Some(700_023)),
        (LOGIN, format!("https://{LOGIN}/{TENANT}/v2.0"), None),
        (LOGIN, format!("https://sts.windows.net/{TENANT}/"), None),
        (LOGIN, format!("https://sts.windows.net/{TENANT}/oauth2/v2.0/token"), Some(700_023)),
        (
            LOGIN,
            format!("https://login.microsoftonline.us/{TENANT}/oauth2/v2.0/token"),
            Some(700_023),
        ),
        (LOGIN, format!("https://{LOGIN}/common/oauth2/v2.0/token"), Some(700_023)),
        (LOGIN, "https://vault.azure.net".to_owned(), Some(700_023)),
        // The issuer host is not a token service, although it responds.
        (
            "sts.windows.net",
            format!("https://sts.windows.net/{TENANT}/oauth2/v2.0/token"),
            Some(700_023),
        ),
        (
            "westeurope.login.microsoft.com",
            format!("https://westeurope.login.microsoft.com/{TENANT}/oauth2/v2.0/token"),
            None,
        ),
        (
            "westeurope.login.microsoft.com",
            format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token"),
            None,
        ),
        (
            LOGIN,
            format!("https://westeurope.login.microsoft.com/{TENANT}/oauth2/v2.0/token"),
            Some(700_023),
        ),
    ];
    let probe = EngineFixture::new(azure_with_test_principals());
    for (host, audience, expected) in cases {
        let claims = with_claim(assertion_claims(APP), "aud", json!(audience));
        let assertion = sign_token(&sha256_header(), &claims, &client_key());
        let fields = [
            ("client_id", APP),
            ("client_assertion_type", JWT_BEARER),
            ("client_assertion", assertion.as_str()),
        ];
        let reply = probe.request_token_at_host(host, TENANT, &fields);
        assert_eq!(aadsts_code(&reply), expected, "{host} {audience}");
    }
}

#[test]
fn each_invalid_assertion_has_its_aadsts_code() {
    let now = start_time().as_second();
    let good = assertion_claims(APP);
    let other = "22222222-0000-4000-8000-0000000000ff";
    let unknown_key = json!({ "alg": "PS256", "x5t#S256": URL_SAFE_NO_PAD.encode([7; 32]) });
    let unsupported = with_claim(sha256_header(), "alg", json!("RS512"));
    let broken_chain = json!({ "alg": "PS256", "x5c": ["%%%"] });
    let cases = [
        ("sub of another", sha256_header(), with_claim(good.clone(), "sub", json!(other)), 700_021),
        ("iss of another", sha256_header(), with_claim(good.clone(), "iss", json!(other)), 700_021),
        ("expired", sha256_header(), with_claim(good.clone(), "exp", json!(now - 301)), 700_024),
        ("not yet", sha256_header(), with_claim(good.clone(), "nbf", json!(now + 301)), 700_024),
        ("no expiry", sha256_header(), with_claim(good.clone(), "exp", Value::Null), 50_027),
        ("unknown thumbprint", unknown_key, good.clone(), 700_027),
        ("no key named", json!({ "alg": "PS256" }), good.clone(), 700_027),
        ("algorithm", unsupported, good.clone(), 50_027),
        ("algorithm none", json!({ "alg": "none" }), good.clone(), 50_027),
        ("chain not base64", broken_chain, good.clone(), 50_027),
    ];
    for (name, header, claims, expected) in cases {
        let reply = app_assertion(&header, &claims);
        assert_eq!(aadsts_code(&reply), Some(expected), "{name}: {}", reply_json(&reply));
    }
    let within_skew = with_claim(good.clone(), "exp", json!(now - 299));
    assert_eq!(aadsts_code(&app_assertion(&sha256_header(), &within_skew)), None);
    let forged = sign_token(&sha256_header(), &good, &untrusted_key());
    assert_eq!(
        aadsts_code(
            &EngineFixture::new(azure_with_test_principals())
                .request_token_with_assertion(APP, &forged)
        ),
        Some(700_027)
    );
    assert_eq!(
        aadsts_code(
            &EngineFixture::new(azure_with_test_principals())
                .request_token_with_assertion(APP, "not.a-token")
        ),
        Some(50_027)
    );
}

#[test]
fn signature_padding_must_match_the_algorithm() {
    let pss = sign_token(&sha256_header(), &assertion_claims(APP), &client_key());
    let (rest, signature) = pss.rsplit_once('.').unwrap();
    let claims = rest.split_once('.').unwrap().1;
    let header =
        URL_SAFE_NO_PAD.encode(with_claim(sha256_header(), "alg", json!("RS256")).to_string());
    let swapped = format!("{header}.{claims}.{signature}");
    assert_eq!(
        aadsts_code(
            &EngineFixture::new(azure_with_test_principals())
                .request_token_with_assertion(APP, &swapped)
        ),
        Some(700_027)
    );
}

#[test]
fn a_certificate_outside_its_validity_is_refused_and_so_is_an_ended_registration() {
    for (validity, expected) in [((-90, -1), 1_000_502), ((1, 90), 1_000_502)] {
        let mut azure = azure_with_test_principals();
        let leaf = self_signed_certificate("app", &client_key(), validity);
        let header =
            json!({ "alg": "PS256", "x5t#S256": URL_SAFE_NO_PAD.encode(sha256_thumbprint(&leaf)) });
        application_mut(&mut azure, APP).keys[0].certificate = leaf;
        let assertion = sign_token(&header, &assertion_claims(APP), &client_key());
        assert_eq!(
            aadsts_code(&EngineFixture::new(azure).request_token_with_assertion(APP, &assertion)),
            Some(expected)
        );
    }
    let mut azure = azure_with_test_principals();
    application_mut(&mut azure, APP).keys[0].expires = days_after(start_time(), -1);
    let assertion = sign_token(&sha256_header(), &assertion_claims(APP), &client_key());
    assert_eq!(
        aadsts_code(&EngineFixture::new(azure).request_token_with_assertion(APP, &assertion)),
        Some(700_027)
    );
}

fn msi_assertion(x5c: &[Vec<u8>], key: &RsaKey) -> String {
    let entries: Vec<_> = x5c.iter().map(|der| STANDARD.encode(der)).collect();
    let mut header = json!({ "alg": "PS256", "x5t#S256": STANDARD.encode([1; 32]) });
    if !entries.is_empty() {
        header["x5c"] = json!(entries);
    }
    sign_token(&header, &assertion_claims(MSI), key)
}

/// A description, the chain, and the expected code.
type ChainCase<'a> = (&'a str, Vec<Vec<u8>>, Option<u64>);

#[test]
fn managed_identity_needs_trusted_subject_issuer_and_chain() {
    let azure = azure_with_test_principals();
    let root = azure.directory.authorities[MSI_AUTHORITY].certificate.clone();
    let probe = EngineFixture::new(azure);
    let stranger = ("stranger", &untrusted_key());
    let impostor = (MSI_AUTHORITY, &untrusted_key());
    let of = |subject: &str, authority: (&str, &RsaKey), days: (i64, i64)| {
        signed_leaf_certificate(subject, &client_key(), authority, days)
    };
    let trusted = (MSI_AUTHORITY, &authority_key());
    let cases: [ChainCase<'_>; 9] = [
        ("leaf and root", vec![managed_identity_leaf(), root.clone()], None),
        ("leaf alone, of the trusted authority", vec![managed_identity_leaf()], None),
        ("no chain", vec![], Some(700_027)),
        ("another subject", vec![of("uamsi-other", trusted, (-1, 90))], Some(700_027)),
        ("another authority", vec![of(MSI_SUBJECT, stranger, (-1, 90))], Some(700_027)),
        ("an authority of the same name", vec![of(MSI_SUBJECT, impostor, (-1, 90))], Some(700_027)),
        (
            "self-signed",
            vec![self_signed_certificate(MSI_SUBJECT, &client_key(), (-1, 90))],
            Some(700_027),
        ),
        ("expired leaf", vec![of(MSI_SUBJECT, trusted, (-90, -1))], Some(1_000_502)),
        ("root first", vec![root, managed_identity_leaf()], Some(700_027)),
    ];
    for (name, x5c, expected) in cases {
        let reply = probe.request_token_with_assertion(MSI, &msi_assertion(&x5c, &client_key()));
        assert_eq!(aadsts_code(&reply), expected, "{name}: {}", reply_json(&reply));
    }
    let forged = msi_assertion(&[managed_identity_leaf()], &untrusted_key());
    assert_eq!(aadsts_code(&probe.request_token_with_assertion(MSI, &forged)), Some(700_027));
}

#[test]
fn leaf_certificate_cannot_sign_another_leaf() {
    // The intermediate certificate has the right key but is not a CA.
    let middle = signed_leaf_certificate(
        "middle",
        &untrusted_key(),
        (MSI_AUTHORITY, &authority_key()),
        (-1, 90),
    );
    let end =
        signed_leaf_certificate(MSI_SUBJECT, &client_key(), ("middle", &untrusted_key()), (-1, 90));
    let probe = EngineFixture::new(azure_with_test_principals());
    let reply =
        probe.request_token_with_assertion(MSI, &msi_assertion(&[end, middle], &client_key()));
    assert_eq!(aadsts_code(&reply), Some(700_027));
}

#[test]
fn client_secret_is_accepted_by_form_or_basic_and_compared_whole() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let form = |secret: &str| probe.request_token(&[("client_id", APP), ("client_secret", secret)]);
    assert_eq!(form(SECRET).status, StatusCode::OK);
    assert_eq!(aadsts_code(&form("wrong")), Some(7_000_215));
    assert_eq!(aadsts_code(&form(&SECRET[1..])), Some(7_000_215));

    let encoded: String = url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
    let header = format!("Basic {}", STANDARD.encode(format!("{APP}:{encoded}")));
    let reply = probe.send_request(
        Ingress::Tunnel,
        &Method::POST,
        &format!("https://{LOGIN}/{DOMAIN}/oauth2/v2.0/token"),
        &[("authorization", &header)],
        "grant_type=client_credentials&scope=https%3A%2F%2Fvault.azure.net%2F.default",
    );
    assert_eq!(reply.status, StatusCode::OK, "{}", reply_json(&reply));
    let token = reply_json(&reply)["access_token"].as_str().unwrap().to_owned();
    assert_eq!(token_claims(&token)["appidacr"], "1");

    let mut expired = azure_with_test_principals();
    application_mut(&mut expired, APP).passwords[0].expires = start_time();
    let reply =
        EngineFixture::new(expired).request_token(&[("client_id", APP), ("client_secret", SECRET)]);
    assert_eq!(aadsts_code(&reply), Some(7_000_222));
}

/// Invalid token requests: name, reply, `AADSTS` number, HTTP status and OAuth error.
fn invalid_token_requests() -> [(&'static str, ServiceReply, u64, u16, &'static str); 12] {
    let mut disabled = azure_with_test_principals();
    principal_mut(&mut disabled, APP).enabled = false;
    let secret = ("client_secret", SECRET);
    let app = ("client_id", APP);
    let unknown = ("client_id", "22222222-0000-4000-8000-0000000000ff");
    let good = EngineFixture::new(azure_with_test_principals());
    [
        (
            "tenant",
            good.request_token_at_host(LOGIN, "nowhere.example", &[app, secret]),
            90_002,
            400,
            "invalid_request",
        ),
        (
            "common",
            good.request_token_at_host(LOGIN, "common", &[app, secret]),
            50_059,
            400,
            "invalid_request",
        ),
        (
            "application",
            good.request_token(&[unknown, secret]),
            700_016,
            400,
            "unauthorized_client",
        ),
        ("no application", good.request_token(&[secret]), 900_144, 400, "invalid_request"),
        ("no credential", good.request_token(&[app]), 7_000_216, 401, "invalid_client"),
        (
            "wrong secret",
            good.request_token(&[app, ("client_secret", "x")]),
            7_000_215,
            401,
            "invalid_client",
        ),
        (
            "disabled",
            EngineFixture::new(disabled).request_token(&[app, secret]),
            7_000_112,
            400,
            "unauthorized_client",
        ),
        (
            "resource",
            post_token_request(&good, &[app, secret, ("scope", "https://example.com/.default")]),
            500_011,
            400,
            "invalid_resource",
        ),
        (
            "scope",
            post_token_request(&good, &[app, secret, ("scope", "https://vault.azure.net/read")]),
            1_002_012,
            400,
            "invalid_scope",
        ),
        ("no scope", post_token_request(&good, &[app, secret]), 900_144, 400, "invalid_request"),
        (
            "another cloud's vaults",
            post_token_request(&good, &[app, secret, ("scope", "https://vault.azure.cn/.default")]),
            500_011,
            400,
            "invalid_resource",
        ),
        (
            "no assertion type",
            good.request_token(&[app, ("client_assertion", "a.b.c")]),
            900_144,
            400,
            "invalid_request",
        ),
    ]
}

#[test]
fn each_invalid_token_request_has_its_code_status_and_error() {
    for (name, reply, number, status, error) in invalid_token_requests() {
        let body = reply_json(&reply);
        assert_eq!(body["error_codes"], json!([number]), "{name}: {body}");
        assert_eq!(reply.status.as_u16(), status, "{name}");
        assert_eq!(body["error"], error, "{name}");
        let description = body["error_description"].as_str().unwrap();
        assert!(description.starts_with(&format!("AADSTS{number}: ")), "{name}: {description}");
        for field in ["timestamp", "trace_id", "correlation_id", "error_uri"] {
            assert!(body[field].is_string(), "{name}: {field}");
        }
        assert_eq!(
            reply.rejection_reason.as_deref(),
            Some(format!("AADSTS{number}").as_str()),
            "{name}"
        );
    }
}

fn post_token_request(probe: &EngineFixture, fields: &[(&str, &str)]) -> ServiceReply {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .extend_pairs(fields)
        .finish();
    let url = format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token");
    probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &body)
}

#[test]
fn grants_that_are_not_implemented_are_refused_as_unsupported() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let url = format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token");
    for grant in [
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "urn:ietf:params:oauth:grant-type:saml2-bearer",
        "implicit",
    ] {
        let form = format!("grant_type={grant}&client_id={APP}&client_secret=x");
        let reply = probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &form);
        assert_eq!(reply_json(&reply)["error"], "unsupported_grant_type", "{grant}");
    }
    assert_eq!(
        aadsts_code(&probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], "")),
        Some(900_144)
    );
}

#[test]
fn access_token_has_azure_claims_and_an_emulator_marker() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let scope = "https://management.core.windows.net//.default";
    let reply = post_token_request(
        &probe,
        &[("client_id", APP), ("client_secret", SECRET), ("scope", scope)],
    );
    let reply = reply_json(&reply);
    assert_eq!(reply["token_type"], "Bearer");
    assert_eq!(reply["expires_in"], 3_599);
    assert!(reply.get("refresh_in").is_none());
    let token = reply["access_token"].as_str().unwrap();
    let found = token_claims(token);
    let now = start_time().as_second();
    assert_eq!(found["aud"], "https://management.core.windows.net/");
    assert_eq!(found["iss"], format!("https://sts.windows.net/{TENANT}/"));
    assert_eq!(found["appid"], APP);
    assert_eq!(found["oid"], found["sub"]);
    assert_eq!(found["tid"], TENANT);
    assert_eq!(found["idtyp"], "app");
    assert_eq!(found["nbf"], now);
    assert_eq!(found["exp"], now + 3_599);
    assert_eq!(found["xms_emu"], "lanyard");
    assert!(found.get("xms_mirid").is_none());
    let parsed = UnverifiedToken::parse(token).unwrap();
    let public = tenant_key().public_der().unwrap();
    assert!(parsed.is_signed_by(lanyard_emulator_state::jose::AssertionAlgorithm::Rs256, &public));
}

#[test]
fn the_token_of_a_managed_identity_lives_a_day_and_names_its_resource() {
    let assertion = msi_assertion(&[managed_identity_leaf()], &client_key());
    let reply = reply_json(
        &EngineFixture::new(azure_with_test_principals())
            .request_token_with_assertion(MSI, &assertion),
    );
    assert_eq!(reply["expires_in"], 86_399);
    assert_eq!(reply["refresh_in"], 43_199);
    let found = token_claims(reply["access_token"].as_str().unwrap());
    let resource = found["xms_mirid"].as_str().unwrap();
    assert!(resource.ends_with("/userAssignedIdentities/msi"), "{resource}");
    assert_eq!(found["appidacr"], "2");
}

#[test]
fn v1_endpoint_takes_resource_and_returns_numbers_as_strings() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let url = format!("https://{LOGIN}/{TENANT}/oauth2/token");
    let secret: String = url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
    let form = format!("grant_type=client_credentials&client_id={APP}&client_secret={secret}");
    let reply = probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &form);
    assert_eq!(aadsts_code(&reply), Some(900_144));
    let form = format!("{form}&resource=https://vault.azure.net");
    let reply = reply_json(&probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &form));
    assert_eq!(reply["expires_in"], "3599");
    assert_eq!(reply["expires_on"], (start_time().as_second() + 3_599).to_string());
    assert_eq!(reply["resource"], "https://vault.azure.net");
}

fn request_federated_token(header: &Value, claims: &Value, key: &RsaKey) -> Option<u64> {
    aadsts_code(
        &EngineFixture::new(azure_with_test_principals())
            .request_token_with_assertion(FEDERATED, &sign_token(header, claims, key)),
    )
}

#[test]
fn federated_token_needs_matching_issuer_subject_and_audience() {
    let now = start_time().as_second();
    let header = json!({ "alg": "RS256", "kid": "k1" });
    let good = json!({
        "iss": ISSUER, "sub": SUBJECT, "aud": ["openshift"], "nbf": now, "exp": now + 3_600,
    });
    let key = issuer_key();
    assert_eq!(request_federated_token(&header, &good, &key), None);
    assert_eq!(
        request_federated_token(
            &header,
            &with_claim(good.clone(), "aud", json!("openshift")),
            &key
        ),
        None
    );
    assert_eq!(request_federated_token(&json!({ "alg": "RS256" }), &good, &key), None);
    let longest = with_claim(good.clone(), "exp", json!(now + 25 * 3_600));
    assert_eq!(request_federated_token(&header, &longest, &key), None);
    let slash = format!("{ISSUER}/");
    let entra = format!("https://sts.windows.net/{TENANT}/");
    let v2 = format!("https://{LOGIN}/{TENANT}/v2.0");
    let cases = [
        ("iss", json!(slash), 700_211),
        ("iss", json!(entra), 700_222),
        ("iss", json!(v2), 700_222),
        ("sub", json!("system:serviceaccount:ns:app"), 7_002_138),
        ("sub", json!("system:serviceaccount:other:app"), 700_213),
        ("aud", json!("OpenShift"), 700_212),
        ("aud", json!("api://AzureADTokenExchange"), 700_212),
        ("exp", json!(now - 301), 700_024),
        ("nbf", json!(now + 301), 700_024),
        // Longer than 25 hours.
        ("exp", json!(now + 365 * 86_400), 70_023),
        ("exp", json!(now + 25 * 3_600 + 1), 70_023),
        ("iat", json!(now + 3_599 - 25 * 3_600), 70_023),
    ];
    for (claim, value, expected) in cases {
        let claims = with_claim(good.clone(), claim, value.clone());
        assert_eq!(
            request_federated_token(&header, &claims, &key),
            Some(expected),
            "{claim}={value}"
        );
    }
    assert_eq!(request_federated_token(&header, &good, &untrusted_key()), Some(700_027));
    let other_kid = json!({ "alg": "RS256", "kid": "k2" });
    assert_eq!(request_federated_token(&other_kid, &good, &key), Some(700_027));
    let pss = json!({ "alg": "PS256", "kid": "k1" });
    assert_eq!(request_federated_token(&pss, &good, &key), Some(50_027));
}

#[test]
fn a_principal_without_federated_credentials_and_an_unknown_issuer_have_their_own_codes() {
    let now = start_time().as_second();
    let header = json!({ "alg": "RS256", "kid": "k1" });
    let claims = json!({ "iss": ISSUER, "sub": SUBJECT, "aud": "openshift", "exp": now + 60 });
    let assertion = sign_token(&header, &claims, &issuer_key());
    assert_eq!(
        aadsts_code(
            &EngineFixture::new(azure_with_test_principals())
                .request_token_with_assertion(APP, &assertion)
        ),
        Some(70_021)
    );

    let mut unreachable = azure_with_test_principals();
    let credential = FederatedCredential::new("two", "https://gone.example", SUBJECT, "openshift");
    principal_mut(&mut unreachable, FEDERATED).federated_credentials.push(credential);
    let claims = with_claim(claims, "iss", json!("https://gone.example"));
    let assertion = sign_token(&header, &claims, &issuer_key());
    assert_eq!(
        aadsts_code(
            &EngineFixture::new(unreachable).request_token_with_assertion(FEDERATED, &assertion)
        ),
        Some(90_061)
    );
}

#[test]
fn discovery_returns_endpoints_of_the_requested_host() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let document = |host: &str, path: &str| {
        reply_json(&probe.get(Ingress::Tunnel, &format!("https://{host}/{path}"), &[]))
    };
    let two = document(LOGIN, &format!("{DOMAIN}/v2.0/.well-known/openid-configuration"));
    assert_eq!(two["issuer"], format!("https://{LOGIN}/{TENANT}/v2.0"));
    assert_eq!(two["token_endpoint"], format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token"));
    let one = document(LOGIN, &format!("{TENANT}/.well-known/openid-configuration"));
    assert_eq!(one["issuer"], format!("https://sts.windows.net/{TENANT}/"));
    assert_eq!(one["token_endpoint"], format!("https://{LOGIN}/{TENANT}/oauth2/token"));
    let regional = "westus.login.microsoft.com";
    let path = format!("{TENANT}/v2.0/.well-known/openid-configuration");
    let near = document(regional, &path);
    assert_eq!(near["token_endpoint"], format!("https://{regional}/{TENANT}/oauth2/v2.0/token"));
    let common = document(LOGIN, "common/v2.0/.well-known/openid-configuration");
    assert_eq!(common["issuer"], format!("https://{LOGIN}/{{tenantid}}/v2.0"));
    let unknown = document(LOGIN, "nowhere.example/v2.0/.well-known/openid-configuration");
    assert_eq!(unknown["error"], "invalid_tenant");
    assert_eq!(unknown["error_codes"], json!([90_002]));

    let instance = |host: &str| {
        let url = format!(
            "https://{LOGIN}/common/discovery/instance?api-version=1.1&authorization_endpoint=https://{host}/{TENANT}/oauth2/v2.0/authorize"
        );
        reply_json(&probe.get(Ingress::Tunnel, &url, &[]))
    };
    assert_eq!(instance("login.example")["error"], "invalid_instance");
    let found = instance(LOGIN);
    let hosts = found["metadata"][0]["aliases"].as_array().unwrap();
    assert!(hosts.iter().any(|host| host == "login.windows.net"));
}

#[test]
fn the_key_set_publishes_public_parts_only_and_verifies_tokens() {
    let probe = EngineFixture::new(azure_with_test_principals());
    for path in [format!("{TENANT}/discovery/v2.0/keys"), "common/discovery/keys".to_owned()] {
        let set = reply_json(&probe.get(Ingress::Tunnel, &format!("https://{LOGIN}/{path}"), &[]));
        let key = set["keys"][0].as_object().unwrap();
        let mut names: Vec<_> = key.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["e", "kid", "kty", "n", "use", "x5c", "x5t"]);
        assert_eq!(key["e"], "AQAB");
        let certificate = STANDARD.decode(key["x5c"][0].as_str().unwrap()).unwrap();
        assert_eq!(key["kid"], URL_SAFE_NO_PAD.encode(sha1_thumbprint(&certificate)));
    }
}
