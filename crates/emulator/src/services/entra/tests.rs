use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::*;
use crate::certificates::{days_after, sha1_thumbprint, sha256_thumbprint};
use crate::directory::FederatedCredential;
use crate::doors::Door;
use crate::keys::RsaKey;
use crate::testing::*;

fn registered() -> Vec<u8> {
    world().directory.principals[0].certificates[0].certificate.clone()
}

fn msi_leaf() -> Vec<u8> {
    leaf(MSI_SUBJECT, &client_key(), (MSI_AUTHORITY, &authority_key()), (-1, 90))
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn with(mut base: Value, name: &str, value: Value) -> Value {
    base[name] = value;
    base
}

fn app_assertion(header: &Value, claims: &Value) -> Reply {
    Probe::new(world()).assert(APP, &signed(header, claims, &client_key()))
}

fn s256() -> Value {
    let thumbprint = URL_SAFE_NO_PAD.encode(sha256_thumbprint(&registered()));
    json!({ "alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint })
}

#[test]
fn every_form_of_assertion_that_clients_really_send_is_accepted() {
    let leaf = registered();
    let (sha1, sha256) = (sha1_thumbprint(&leaf), sha256_thumbprint(&leaf));
    let plain = assertion_claims(APP);
    let now = f64::from(u32::try_from(epoch().as_second()).unwrap());
    let mut floating = with(plain.clone(), "exp", json!(now + 600.75));
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
        ("the specification: base64url SHA-256", s256(), plain.clone()),
        (
            "old clients: the thumbprint as kid in hexadecimal digits",
            json!({ "alg": "RS256", "kid": hex::encode_upper(&sha1) }),
            plain,
        ),
    ];
    for (name, header, claims) in cases {
        let reply = app_assertion(&header, &claims);
        assert_eq!(reply.status, StatusCode::OK, "{name}: {}", body(&reply));
    }
}

#[test]
fn an_assertion_is_accepted_for_every_name_of_its_endpoint_and_for_no_other() {
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
        // The name of the issuer is no authority, although it answers.
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
    let probe = Probe::new(world());
    for (host, audience, expected) in cases {
        let claims = with(assertion_claims(APP), "aud", json!(audience));
        let assertion = signed(&s256(), &claims, &client_key());
        let fields = [
            ("client_id", APP),
            ("client_assertion_type", JWT_BEARER),
            ("client_assertion", assertion.as_str()),
        ];
        let reply = probe.token_at(host, TENANT, &fields);
        assert_eq!(code(&reply), expected, "{host} {audience}");
    }
}

#[test]
fn each_fault_of_an_assertion_has_its_code() {
    let now = epoch().as_second();
    let good = assertion_claims(APP);
    let other = "22222222-0000-4000-8000-0000000000ff";
    let unknown_key = json!({ "alg": "PS256", "x5t#S256": URL_SAFE_NO_PAD.encode([7; 32]) });
    let unsupported = with(s256(), "alg", json!("RS512"));
    let broken_chain = json!({ "alg": "PS256", "x5c": ["%%%"] });
    let cases = [
        ("sub of another", s256(), with(good.clone(), "sub", json!(other)), 700_021),
        ("iss of another", s256(), with(good.clone(), "iss", json!(other)), 700_021),
        ("expired", s256(), with(good.clone(), "exp", json!(now - 301)), 700_024),
        ("not yet", s256(), with(good.clone(), "nbf", json!(now + 301)), 700_024),
        ("no expiry", s256(), with(good.clone(), "exp", Value::Null), 50_027),
        ("unknown thumbprint", unknown_key, good.clone(), 700_027),
        ("no key named", json!({ "alg": "PS256" }), good.clone(), 700_027),
        ("algorithm", unsupported, good.clone(), 50_027),
        ("algorithm none", json!({ "alg": "none" }), good.clone(), 50_027),
        ("chain not base64", broken_chain, good.clone(), 50_027),
    ];
    for (name, header, claims, expected) in cases {
        let reply = app_assertion(&header, &claims);
        assert_eq!(code(&reply), Some(expected), "{name}: {}", body(&reply));
    }
    let within_skew = with(good.clone(), "exp", json!(now - 299));
    assert_eq!(code(&app_assertion(&s256(), &within_skew)), None);
    let forged = signed(&s256(), &good, &foreign_key());
    assert_eq!(code(&Probe::new(world()).assert(APP, &forged)), Some(700_027));
    assert_eq!(code(&Probe::new(world()).assert(APP, "not.a-token")), Some(50_027));
}

#[test]
fn padding_of_one_algorithm_is_not_accepted_for_the_other() {
    let pss = signed(&s256(), &assertion_claims(APP), &client_key());
    let (rest, signature) = pss.rsplit_once('.').unwrap();
    let claims = rest.split_once('.').unwrap().1;
    let header = URL_SAFE_NO_PAD.encode(with(s256(), "alg", json!("RS256")).to_string());
    let swapped = format!("{header}.{claims}.{signature}");
    assert_eq!(code(&Probe::new(world()).assert(APP, &swapped)), Some(700_027));
}

#[test]
fn a_certificate_outside_its_validity_is_refused_and_so_is_an_ended_registration() {
    for (validity, expected) in [((-90, -1), 1_000_502), ((1, 90), 1_000_502)] {
        let mut world = world();
        let leaf = self_signed("app", &client_key(), validity);
        let header =
            json!({ "alg": "PS256", "x5t#S256": URL_SAFE_NO_PAD.encode(sha256_thumbprint(&leaf)) });
        world.directory.principals[0].certificates[0].certificate = leaf;
        let assertion = signed(&header, &assertion_claims(APP), &client_key());
        assert_eq!(code(&Probe::new(world).assert(APP, &assertion)), Some(expected));
    }
    let mut world = world();
    world.directory.principals[0].certificates[0].expires = days_after(epoch(), -1);
    let assertion = signed(&s256(), &assertion_claims(APP), &client_key());
    assert_eq!(code(&Probe::new(world).assert(APP, &assertion)), Some(700_027));
}

fn msi_assertion(x5c: &[Vec<u8>], key: &RsaKey) -> String {
    let entries: Vec<_> = x5c.iter().map(|der| STANDARD.encode(der)).collect();
    let mut header = json!({ "alg": "PS256", "x5t#S256": STANDARD.encode([1; 32]) });
    if !entries.is_empty() {
        header["x5c"] = json!(entries);
    }
    signed(&header, &assertion_claims(MSI), key)
}

/// What it is, the chain, and the code of the refusal.
type ChainCase<'a> = (&'a str, Vec<Vec<u8>>, Option<u64>);

#[test]
fn a_managed_identity_is_trusted_by_subject_and_issuer_and_only_with_its_chain() {
    let world = world();
    let root = world.directory.authorities[MSI_AUTHORITY].certificate.clone();
    let probe = Probe::new(world);
    let stranger = ("stranger", &foreign_key());
    let impostor = (MSI_AUTHORITY, &foreign_key());
    let of = |subject: &str, authority: (&str, &RsaKey), days: (i64, i64)| {
        leaf(subject, &client_key(), authority, days)
    };
    let trusted = (MSI_AUTHORITY, &authority_key());
    let cases: [ChainCase<'_>; 9] = [
        ("leaf and root", vec![msi_leaf(), root.clone()], None),
        ("leaf alone, of the trusted authority", vec![msi_leaf()], None),
        ("no chain", vec![], Some(700_027)),
        ("another subject", vec![of("uamsi-other", trusted, (-1, 90))], Some(700_027)),
        ("another authority", vec![of(MSI_SUBJECT, stranger, (-1, 90))], Some(700_027)),
        ("an authority of the same name", vec![of(MSI_SUBJECT, impostor, (-1, 90))], Some(700_027)),
        ("self-signed", vec![self_signed(MSI_SUBJECT, &client_key(), (-1, 90))], Some(700_027)),
        ("expired leaf", vec![of(MSI_SUBJECT, trusted, (-90, -1))], Some(1_000_502)),
        ("root first", vec![root, msi_leaf()], Some(700_027)),
    ];
    for (name, x5c, expected) in cases {
        let reply = probe.assert(MSI, &msi_assertion(&x5c, &client_key()));
        assert_eq!(code(&reply), expected, "{name}: {}", body(&reply));
    }
    let forged = msi_assertion(&[msi_leaf()], &foreign_key());
    assert_eq!(code(&probe.assert(MSI, &forged)), Some(700_027));
}

#[test]
fn a_leaf_cannot_vouch_for_another_leaf() {
    // The middle certificate has the right key chain and is no authority.
    let middle = leaf("middle", &foreign_key(), (MSI_AUTHORITY, &authority_key()), (-1, 90));
    let end = leaf(MSI_SUBJECT, &client_key(), ("middle", &foreign_key()), (-1, 90));
    let probe = Probe::new(world());
    let reply = probe.assert(MSI, &msi_assertion(&[end, middle], &client_key()));
    assert_eq!(code(&reply), Some(700_027));
}

#[test]
fn secrets_come_by_form_or_by_basic_and_are_compared_whole() {
    let probe = Probe::new(world());
    let form = |secret: &str| probe.token(&[("client_id", APP), ("client_secret", secret)]);
    assert_eq!(form(SECRET).status, StatusCode::OK);
    assert_eq!(code(&form("wrong")), Some(7_000_215));
    assert_eq!(code(&form(&SECRET[1..])), Some(7_000_215));

    let encoded: String = url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
    let header = format!("Basic {}", STANDARD.encode(format!("{APP}:{encoded}")));
    let reply = probe.ask(
        Door::Tunnel,
        &Method::POST,
        &format!("https://{LOGIN}/{DOMAIN}/oauth2/v2.0/token"),
        &[("authorization", &header)],
        "grant_type=client_credentials&scope=https%3A%2F%2Fvault.azure.net%2F.default",
    );
    assert_eq!(reply.status, StatusCode::OK, "{}", body(&reply));
    let token = body(&reply)["access_token"].as_str().unwrap().to_owned();
    assert_eq!(claims(&token)["appidacr"], "1");

    let mut expired = world();
    expired.directory.principals[0].secrets[0].expires = epoch();
    let reply = Probe::new(expired).token(&[("client_id", APP), ("client_secret", SECRET)]);
    assert_eq!(code(&reply), Some(7_000_222));
}

#[test]
fn each_fault_of_a_token_request_has_its_code_status_and_error() {
    let mut disabled = world();
    disabled.directory.principals[0].enabled = false;
    let secret = ("client_secret", SECRET);
    let app = ("client_id", APP);
    let unknown = ("client_id", "22222222-0000-4000-8000-0000000000ff");
    let good = Probe::new(world());
    let cases: [(&str, Reply, u64, u16, &str); 12] = [
        (
            "tenant",
            good.token_at(LOGIN, "nowhere.example", &[app, secret]),
            90_002,
            400,
            "invalid_request",
        ),
        ("common", good.token_at(LOGIN, "common", &[app, secret]), 50_059, 400, "invalid_request"),
        ("application", good.token(&[unknown, secret]), 700_016, 400, "unauthorized_client"),
        ("no application", good.token(&[secret]), 900_144, 400, "invalid_request"),
        ("no credential", good.token(&[app]), 7_000_216, 401, "invalid_client"),
        (
            "wrong secret",
            good.token(&[app, ("client_secret", "x")]),
            7_000_215,
            401,
            "invalid_client",
        ),
        (
            "disabled",
            Probe::new(disabled).token(&[app, secret]),
            7_000_112,
            400,
            "unauthorized_client",
        ),
        (
            "resource",
            post(&good, &[app, secret, ("scope", "https://example.com/.default")]),
            500_011,
            400,
            "invalid_resource",
        ),
        (
            "scope",
            post(&good, &[app, secret, ("scope", "https://vault.azure.net/read")]),
            1_002_012,
            400,
            "invalid_scope",
        ),
        ("no scope", post(&good, &[app, secret]), 900_144, 400, "invalid_request"),
        (
            "another cloud's vaults",
            post(&good, &[app, secret, ("scope", "https://vault.azure.cn/.default")]),
            500_011,
            400,
            "invalid_resource",
        ),
        (
            "no assertion type",
            good.token(&[app, ("client_assertion", "a.b.c")]),
            900_144,
            400,
            "invalid_request",
        ),
    ];
    for (name, reply, number, status, error) in cases {
        let body = body(&reply);
        assert_eq!(body["error_codes"], json!([number]), "{name}: {body}");
        assert_eq!(reply.status.as_u16(), status, "{name}");
        assert_eq!(body["error"], error, "{name}");
        let description = body["error_description"].as_str().unwrap();
        assert!(description.starts_with(&format!("AADSTS{number}: ")), "{name}: {description}");
        for field in ["timestamp", "trace_id", "correlation_id", "error_uri"] {
            assert!(body[field].is_string(), "{name}: {field}");
        }
        assert_eq!(reply.reason.as_deref(), Some(format!("AADSTS{number}").as_str()), "{name}");
    }
}

fn post(probe: &Probe, fields: &[(&str, &str)]) -> Reply {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .extend_pairs(fields)
        .finish();
    let url = format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token");
    probe.ask(Door::Tunnel, &Method::POST, &url, &[], &body)
}

#[test]
fn grants_that_are_not_implemented_are_refused_as_unsupported() {
    let probe = Probe::new(world());
    let url = format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token");
    for grant in [
        "password",
        "refresh_token",
        "authorization_code",
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
    ] {
        let form = format!("grant_type={grant}&client_id={APP}&client_secret=x");
        let reply = probe.ask(Door::Tunnel, &Method::POST, &url, &[], &form);
        assert_eq!(body(&reply)["error"], "unsupported_grant_type", "{grant}");
    }
    assert_eq!(code(&probe.ask(Door::Tunnel, &Method::POST, &url, &[], "")), Some(900_144));
}

#[test]
fn an_access_token_says_what_azure_says_and_that_it_is_not_azure() {
    let probe = Probe::new(world());
    let scope = "https://management.core.windows.net//.default";
    let reply = post(&probe, &[("client_id", APP), ("client_secret", SECRET), ("scope", scope)]);
    let reply = body(&reply);
    assert_eq!(reply["token_type"], "Bearer");
    assert_eq!(reply["expires_in"], 3_599);
    assert!(reply.get("refresh_in").is_none());
    let token = reply["access_token"].as_str().unwrap();
    let found = claims(token);
    let now = epoch().as_second();
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
    let parsed = Token::parse(token).unwrap();
    let public = tenant_key().public_der().unwrap();
    assert!(parsed.is_signed_by(crate::jose::Algorithm::Rs256, &public));
}

#[test]
fn the_token_of_a_managed_identity_lives_a_day_and_names_its_resource() {
    let assertion = msi_assertion(&[msi_leaf()], &client_key());
    let reply = body(&Probe::new(world()).assert(MSI, &assertion));
    assert_eq!(reply["expires_in"], 86_399);
    assert_eq!(reply["refresh_in"], 43_199);
    let found = claims(reply["access_token"].as_str().unwrap());
    let resource = found["xms_mirid"].as_str().unwrap();
    assert!(resource.ends_with("/userAssignedIdentities/msi"), "{resource}");
    assert_eq!(found["appidacr"], "2");
}

#[test]
fn the_first_version_takes_a_resource_and_writes_numbers_as_texts() {
    let probe = Probe::new(world());
    let url = format!("https://{LOGIN}/{TENANT}/oauth2/token");
    let secret: String = url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
    let form = format!("grant_type=client_credentials&client_id={APP}&client_secret={secret}");
    let reply = probe.ask(Door::Tunnel, &Method::POST, &url, &[], &form);
    assert_eq!(code(&reply), Some(900_144));
    let form = format!("{form}&resource=https://vault.azure.net");
    let reply = body(&probe.ask(Door::Tunnel, &Method::POST, &url, &[], &form));
    assert_eq!(reply["expires_in"], "3599");
    assert_eq!(reply["expires_on"], (epoch().as_second() + 3_599).to_string());
    assert_eq!(reply["resource"], "https://vault.azure.net");
}

fn federated(header: &Value, claims: &Value, key: &RsaKey) -> Option<u64> {
    code(&Probe::new(world()).assert(FEDERATED, &signed(header, claims, key)))
}

#[test]
fn a_foreign_token_stands_for_a_principal_only_if_all_of_it_matches() {
    let now = epoch().as_second();
    let header = json!({ "alg": "RS256", "kid": "k1" });
    let good = json!({
        "iss": ISSUER, "sub": SUBJECT, "aud": ["openshift"], "nbf": now, "exp": now + 3_600,
    });
    let key = issuer_key();
    assert_eq!(federated(&header, &good, &key), None);
    assert_eq!(federated(&header, &with(good.clone(), "aud", json!("openshift")), &key), None);
    assert_eq!(federated(&json!({ "alg": "RS256" }), &good, &key), None);
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
    ];
    for (claim, value, expected) in cases {
        let claims = with(good.clone(), claim, value.clone());
        assert_eq!(federated(&header, &claims, &key), Some(expected), "{claim}={value}");
    }
    assert_eq!(federated(&header, &good, &foreign_key()), Some(700_027));
    let other_kid = json!({ "alg": "RS256", "kid": "k2" });
    assert_eq!(federated(&other_kid, &good, &key), Some(700_027));
    let pss = json!({ "alg": "PS256", "kid": "k1" });
    assert_eq!(federated(&pss, &good, &key), Some(50_027));
}

#[test]
fn a_principal_without_federated_credentials_and_an_unknown_issuer_have_their_own_codes() {
    let now = epoch().as_second();
    let header = json!({ "alg": "RS256", "kid": "k1" });
    let claims = json!({ "iss": ISSUER, "sub": SUBJECT, "aud": "openshift", "exp": now + 60 });
    let assertion = signed(&header, &claims, &issuer_key());
    assert_eq!(code(&Probe::new(world()).assert(APP, &assertion)), Some(70_021));

    let mut unreachable = world();
    let credential = FederatedCredential {
        name: "two".to_owned(),
        issuer: "https://gone.example".to_owned(),
        subject: SUBJECT.to_owned(),
        audiences: vec!["openshift".to_owned()],
    };
    unreachable.directory.principals[2].federated_credentials.push(credential);
    let claims = with(claims, "iss", json!("https://gone.example"));
    let assertion = signed(&header, &claims, &issuer_key());
    assert_eq!(code(&Probe::new(unreachable).assert(FEDERATED, &assertion)), Some(90_061));
}

#[test]
fn discovery_names_endpoints_of_the_asked_host_and_a_known_issuer() {
    let probe = Probe::new(world());
    let document = |host: &str, path: &str| {
        body(&probe.get(Door::Tunnel, &format!("https://{host}/{path}"), &[]))
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
        body(&probe.get(Door::Tunnel, &url, &[]))
    };
    assert_eq!(instance("login.example")["error"], "invalid_instance");
    let found = instance(LOGIN);
    let hosts = found["metadata"][0]["aliases"].as_array().unwrap();
    assert!(hosts.iter().any(|host| host == "login.windows.net"));
}

#[test]
fn the_key_set_publishes_public_parts_only_and_verifies_tokens() {
    let probe = Probe::new(world());
    for path in [format!("{TENANT}/discovery/v2.0/keys"), "common/discovery/keys".to_owned()] {
        let set = body(&probe.get(Door::Tunnel, &format!("https://{LOGIN}/{path}"), &[]));
        let key = set["keys"][0].as_object().unwrap();
        let mut names: Vec<_> = key.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["e", "kid", "kty", "n", "use", "x5c", "x5t"]);
        assert_eq!(key["e"], "AQAB");
        let certificate = STANDARD.decode(key["x5c"][0].as_str().unwrap()).unwrap();
        assert_eq!(key["kid"], URL_SAFE_NO_PAD.encode(sha1_thumbprint(&certificate)));
    }
}
