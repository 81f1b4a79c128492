//! A real cluster registers its issuer, and its pods read the vault.

use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::identity_binding::proxy_server_name;
use serde_json::{Value, json};

use super::*;
use crate::testing::{
    EngineFixture, FEDERATED, ISSUER, LOGIN, SUBJECT, TENANT, aadsts_code,
    azure_with_test_principals, client_key, reply_json as body_of, sign_token, start_time,
    untrusted_key,
};

const CLUSTER_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const CLUSTER_SUBJECT: &str = "system:serviceaccount:team:reader";

fn send_control_request(
    probe: &EngineFixture,
    method: &Method,
    path: &str,
    body: &Value,
) -> ServiceReply {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    probe.send_request(
        Ingress::Port,
        method,
        &url,
        &[("x-lanyard-control", "1")],
        &body.to_string(),
    )
}

fn key_set() -> Value {
    let (n, e) = untrusted_key().jwk_modulus_and_exponent().unwrap();
    json!({ "keys": [
        { "kty": "EC", "kid": "ec", "crv": "P-256", "x": "", "y": "" },
        { "kty": "RSA", "kid": "cluster-1", "use": "sig", "alg": "RS256", "n": n, "e": e },
    ] })
}

/// A service account token of the cluster for the audience.
fn cluster_token(audience: &str) -> String {
    let now = start_time().as_second();
    let claims = json!({
        "iss": CLUSTER_ISSUER, "sub": CLUSTER_SUBJECT, "aud": [audience], "nbf": now,
        "exp": now + 600, "kubernetes.io": { "namespace": "team" },
    });
    sign_token(&json!({ "alg": "RS256", "kid": "cluster-1" }), &claims, &untrusted_key())
}

fn request_token_as_cluster(
    probe: &EngineFixture,
    ingress: Ingress,
    host: &str,
    token: &str,
) -> ServiceReply {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .append_pair("scope", "https://vault.azure.net/.default")
        .append_pair("client_id", FEDERATED)
        .append_pair(
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        )
        .append_pair("client_assertion", token)
        .finish();
    let url = format!("https://{host}/{TENANT}/oauth2/v2.0/token");
    probe.send_request(ingress, &Method::POST, &url, &[], &form)
}

fn fixture_with_cluster_issuer() -> EngineFixture {
    let probe = EngineFixture::new(azure_with_test_principals());
    let issuer = json!({ "issuer": CLUSTER_ISSUER, "jwks": key_set() });
    let reply = send_control_request(&probe, &Method::PUT, "issuers", &issuer);
    assert_eq!(reply.status, 201);
    assert_eq!(body_of(&reply)["keys"], json!(["cluster-1"]));
    assert_eq!(send_control_request(&probe, &Method::PUT, "issuers", &issuer).status, 200);
    probe
}

#[test]
fn registered_cluster_issuer_is_trusted_for_its_credential() {
    let probe = fixture_with_cluster_issuer();
    let token = cluster_token(DEFAULT_AUDIENCE);
    assert_eq!(
        aadsts_code(&request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, &token)),
        Some(700_211)
    );
    let credential = json!({
        "clientId": FEDERATED, "issuer": CLUSTER_ISSUER, "subject": CLUSTER_SUBJECT,
    });
    for _ in 0..2 {
        let reply =
            send_control_request(&probe, &Method::POST, "federated-credentials", &credential);
        assert_eq!(reply.status, 201);
    }
    assert_eq!(request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, &token).status, 200);
    let other = cluster_token("api://other");
    assert_eq!(
        aadsts_code(&request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, &other)),
        Some(700_212)
    );
    let state = probe.engine.state();
    let client = FEDERATED.parse().unwrap();
    let principal = state.azure.directory.service_principal_by_client_id(client).unwrap();
    assert_eq!(principal.federated_credentials.len(), 2, "the same credential is one");
}

#[test]
fn putting_a_seeded_issuer_keeps_its_signing_keys() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let issuer = json!({ "issuer": ISSUER, "jwks": key_set() });
    assert_eq!(send_control_request(&probe, &Method::PUT, "issuers", &issuer).status, 200);
    let now = start_time().as_second();
    let claims = json!({
        "iss": ISSUER, "sub": SUBJECT, "aud": "openshift", "nbf": now, "exp": now + 60,
    });
    for (kid, key) in [("k1", crate::testing::issuer_key()), ("cluster-1", untrusted_key())] {
        let token = sign_token(&json!({ "alg": "RS256", "kid": kid }), &claims, &key);
        assert_eq!(
            request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, &token).status,
            200,
            "{kid}"
        );
    }
    let anonymous = sign_token(&json!({ "alg": "RS256" }), &claims, &untrusted_key());
    assert_ne!(request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, &anonymous).status, 200);
}

#[test]
fn token_proxy_accepts_cluster_tokens_that_entra_rejects() {
    let probe = fixture_with_cluster_issuer();
    let binding = json!({
        "clientId": FEDERATED, "clusterId": "c1", "issuer": CLUSTER_ISSUER,
        "subject": CLUSTER_SUBJECT,
    });
    let reply =
        body_of(&send_control_request(&probe, &Method::POST, "identity-bindings", &binding));
    let name = proxy_server_name("c1");
    assert_eq!(
        (&reply["serverName"], &reply["audience"]),
        (&json!(name), &json!(PROXY_TOKEN_AUDIENCE))
    );
    let token = cluster_token(PROXY_TOKEN_AUDIENCE);
    let proxy = |host: &str, token: &str| {
        request_token_as_cluster(&probe, Ingress::TokenProxy, host, token)
    };
    assert_eq!(proxy(&name, &token).status, 200);
    assert_eq!(aadsts_code(&proxy(&name, &cluster_token(DEFAULT_AUDIENCE))), Some(700_212));
    assert_eq!(aadsts_code(&proxy(&proxy_server_name("c2"), &token)), Some(70_021));
    assert_eq!(
        aadsts_code(&request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, &token)),
        Some(700_211)
    );
}

#[test]
fn the_token_proxy_forwards_token_requests_with_tokens_and_nothing_else() {
    let probe = fixture_with_cluster_issuer();
    let host = proxy_server_name("c1");
    for path in ["common/discovery/instance", "v2.0/.well-known/openid-configuration", ""] {
        let reply = probe.get(Ingress::TokenProxy, &format!("https://{host}/{path}"), &[]);
        assert_eq!(reply.status, 404, "{path}");
    }
    let form = format!(
        "grant_type=client_credentials&scope=https://vault.azure.net/.default&client_id={}&client_secret={}",
        crate::testing::APP,
        crate::testing::SECRET,
    );
    let url = format!("https://{host}/{TENANT}/oauth2/v2.0/token");
    let reply = probe.send_request(Ingress::TokenProxy, &Method::POST, &url, &[], &form);
    assert_eq!(aadsts_code(&reply), Some(7_000_216), "{:?}", body_of(&reply));
}

#[test]
fn role_is_assigned_once_by_name_or_id() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let scope = "/subscriptions/s/resourceGroups/g";
    let ask = |principal: &str, role: &str, scope: &str| {
        let asked = json!({ "principal": principal, "role": role, "scope": scope });
        send_control_request(&probe, &Method::POST, "role-assignments", &asked).status.as_u16()
    };
    assert_eq!(ask(FEDERATED, "Reader", scope), 201);
    assert_eq!(ask(FEDERATED, "acdd72a7-3385-48ef-bd42-f606fba81ae7", scope), 200);
    assert_eq!(ask(FEDERATED, "No such role", scope), 404);
    assert_eq!(ask("unknown", "Reader", scope), 404);
    assert_eq!(ask(FEDERATED, "Reader", "not/a/scope"), 400);
    assert_eq!(probe.engine.state().azure.authorization.assignment_count(), 1);
}

#[test]
fn invalid_federation_requests_are_rejected_without_change() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let put = |issuer: &str, jwks: Value| {
        let asked = json!({ "issuer": issuer, "jwks": jwks });
        send_control_request(&probe, &Method::PUT, "issuers", &asked).status.as_u16()
    };
    assert_eq!(put("http://insecure.example", key_set()), 400);
    assert_eq!(put("not a url", key_set()), 400);
    assert_eq!(put(CLUSTER_ISSUER, json!({ "keys": [] })), 400);
    let binding = |cluster: Value| {
        let mut asked = json!({
            "clientId": FEDERATED, "issuer": CLUSTER_ISSUER, "subject": CLUSTER_SUBJECT,
        });
        for (member, value) in cluster.as_object().unwrap() {
            asked[member] = value.clone();
        }
        send_control_request(&probe, &Method::POST, "identity-bindings", &asked).status.as_u16()
    };
    assert_eq!(binding(json!({})), 400);
    assert_eq!(binding(json!({ "clusterId": "" })), 400);
    assert_eq!(binding(json!({ "serverName": "example.com" })), 400);
    assert_eq!(binding(json!({ "serverName": proxy_server_name("c"), "clusterId": "c" })), 400);
    assert_eq!(binding(json!({ "serverName": proxy_server_name("c") })), 201);
    let state = probe.engine.state();
    assert_eq!((state.azure.directory.issuers.len(), state.azure.bindings.len()), (1, 1));
}

#[test]
fn federated_credential_with_a_longer_text_than_entra_permits_is_rejected() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let credential_count = || {
        let state = probe.engine.state();
        let principal =
            state.azure.directory.service_principal_by_client_id(FEDERATED.parse().unwrap());
        principal.unwrap().federated_credentials.len()
    };
    let before = credential_count();
    for (property, length, status) in
        [("subject", 600_usize, 201_u16), ("subject", 601, 400), ("issuer", 601, 400)]
    {
        let mut credential = json!({
            "clientId": FEDERATED, "issuer": CLUSTER_ISSUER, "subject": CLUSTER_SUBJECT,
        });
        let text = credential[property].as_str().unwrap();
        let separator = if property == "issuer" { "/" } else { ":" };
        let longer = format!("{text}{separator}{}", "a".repeat(length - text.len() - 1));
        credential[property] = json!(longer);
        let reply =
            send_control_request(&probe, &Method::POST, "federated-credentials", &credential);
        let message = body_of(&reply);
        assert_eq!(reply.status, status, "{property} {length}: {message}");
        if status == 400 {
            let expected = format!("`{property}` has more than 600 characters.");
            assert!(message.to_string().contains(&expected), "{message}");
        }
    }
    assert_eq!(credential_count(), before + 1);
}

#[test]
fn a_removed_key_of_an_issuer_works_until_the_cached_key_set_expires() {
    let probe = fixture_with_cluster_issuer();
    let credential = json!({
        "clientId": FEDERATED, "issuer": CLUSTER_ISSUER, "subject": CLUSTER_SUBJECT,
    });
    send_control_request(&probe, &Method::POST, "federated-credentials", &credential);
    let token_of = |kid: &str, key: &lanyard_emulator_state::keys::RsaKey| {
        let now = start_time().as_second();
        let claims = json!({
            "iss": CLUSTER_ISSUER,
            "sub": CLUSTER_SUBJECT,
            "aud": DEFAULT_AUDIENCE,
            "nbf": now,
            "exp": now + 7_200,
        });
        sign_token(&json!({ "alg": "RS256", "kid": kid }), &claims, key)
    };
    let exchange =
        |token: &str| aadsts_code(&request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, token));
    let (old, new) = (token_of("cluster-1", &untrusted_key()), token_of("k2", &client_key()));
    assert_eq!(exchange(&old), None);
    assert_eq!(exchange(&new), Some(700_027), "not published yet");

    let (modulus, exponent) = client_key().jwk_modulus_and_exponent().unwrap();
    let keys = json!([{ "kty": "RSA", "kid": "k2", "n": modulus, "e": exponent }]);
    let issuer = json!({ "issuer": CLUSTER_ISSUER, "jwks": { "keys": keys } });
    assert_eq!(send_control_request(&probe, &Method::PUT, "issuers", &issuer).status, 200);
    assert_eq!(exchange(&old), None, "cached");
    probe.clock.advance(std::time::Duration::from_secs(3_599));
    assert_eq!(exchange(&old), None, "still cached");
    // An unknown key is fetched at once, and the fetched key set replaces the cached one.
    assert_eq!(exchange(&new), None);
    assert_eq!(exchange(&old), Some(700_027));
}

#[test]
fn cached_keys_expire_after_the_time_of_the_token_policy() {
    let probe = fixture_with_cluster_issuer();
    let credential = json!({
        "clientId": FEDERATED, "issuer": CLUSTER_ISSUER, "subject": CLUSTER_SUBJECT,
    });
    send_control_request(&probe, &Method::POST, "federated-credentials", &credential);
    let policy = json!({ "issuerKeyCacheSeconds": 10 });
    assert_eq!(send_control_request(&probe, &Method::PUT, "tokens", &policy).status, 200);
    let token = cluster_token(DEFAULT_AUDIENCE);
    let exchange = || request_token_as_cluster(&probe, Ingress::Tunnel, LOGIN, &token);
    assert_eq!(exchange().status, 200);
    probe.engine.state().azure.directory.issuers.clear();
    assert_eq!(exchange().status, 200);
    probe.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(aadsts_code(&exchange()), Some(90_061));
}
