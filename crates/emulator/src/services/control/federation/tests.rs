//! A real cluster makes itself known, and its pods read.

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::binding::server_name_of;
use crate::doors::Door;
use crate::testing::{
    FEDERATED, ISSUER, LOGIN, Probe, SUBJECT, TENANT, body as body_of, code, epoch, foreign_key,
    signed, world,
};

const CLUSTER_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const CLUSTER_SUBJECT: &str = "system:serviceaccount:team:reader";

fn control(probe: &Probe, method: &Method, path: &str, body: &Value) -> Reply {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    probe.ask(Door::Port, method, &url, &[("x-lanyard-control", "1")], &body.to_string())
}

fn key_set() -> Value {
    let (n, e) = foreign_key().jwk_parts().unwrap();
    json!({ "keys": [
        { "kty": "EC", "kid": "ec", "crv": "P-256", "x": "", "y": "" },
        { "kty": "RSA", "kid": "cluster-1", "use": "sig", "alg": "RS256", "n": n, "e": e },
    ] })
}

/// A token of the cluster, for the audience.
fn cluster_token(audience: &str) -> String {
    let now = epoch().as_second();
    let claims = json!({
        "iss": CLUSTER_ISSUER, "sub": CLUSTER_SUBJECT, "aud": [audience], "nbf": now,
        "exp": now + 600, "kubernetes.io": { "namespace": "team" },
    });
    signed(&json!({ "alg": "RS256", "kid": "cluster-1" }), &claims, &foreign_key())
}

fn asked(probe: &Probe, door: Door, host: &str, token: &str) -> Reply {
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
    probe.ask(door, &Method::POST, &url, &[], &form)
}

fn with_cluster() -> Probe {
    let probe = Probe::new(world());
    let issuer = json!({ "issuer": CLUSTER_ISSUER, "jwks": key_set() });
    let reply = control(&probe, &Method::PUT, "issuers", &issuer);
    assert_eq!(reply.status, 201);
    assert_eq!(body_of(&reply)["keys"], json!(["cluster-1"]));
    assert_eq!(control(&probe, &Method::PUT, "issuers", &issuer).status, 200);
    probe
}

#[test]
fn a_cluster_that_made_itself_known_is_trusted_for_what_was_said() {
    let probe = with_cluster();
    let token = cluster_token(EXCHANGE);
    assert_eq!(code(&asked(&probe, Door::Tunnel, LOGIN, &token)), Some(700_211));
    let credential = json!({
        "clientId": FEDERATED, "issuer": CLUSTER_ISSUER, "subject": CLUSTER_SUBJECT,
    });
    for _ in 0..2 {
        let reply = control(&probe, &Method::POST, "federated-credentials", &credential);
        assert_eq!(reply.status, 201);
    }
    assert_eq!(asked(&probe, Door::Tunnel, LOGIN, &token).status, 200);
    let other = cluster_token("api://other");
    assert_eq!(code(&asked(&probe, Door::Tunnel, LOGIN, &other)), Some(700_212));
    let state = probe.engine.state();
    let client = FEDERATED.parse().unwrap();
    let principal = state.world.directory.by_client(client).unwrap();
    assert_eq!(principal.federated_credentials.len(), 2, "the same credential is one");
}

#[test]
fn the_keys_of_an_issuer_of_this_world_are_kept() {
    let probe = Probe::new(world());
    let issuer = json!({ "issuer": ISSUER, "jwks": key_set() });
    assert_eq!(control(&probe, &Method::PUT, "issuers", &issuer).status, 200);
    let now = epoch().as_second();
    let claims = json!({
        "iss": ISSUER, "sub": SUBJECT, "aud": "openshift", "nbf": now, "exp": now + 60,
    });
    for (kid, key) in [("k1", crate::testing::issuer_key()), ("cluster-1", foreign_key())] {
        let token = signed(&json!({ "alg": "RS256", "kid": kid }), &claims, &key);
        assert_eq!(asked(&probe, Door::Tunnel, LOGIN, &token).status, 200, "{kid}");
    }
    let anonymous = signed(&json!({ "alg": "RS256" }), &claims, &foreign_key());
    assert_ne!(asked(&probe, Door::Tunnel, LOGIN, &anonymous).status, 200);
}

#[test]
fn the_token_proxy_takes_the_tokens_of_its_cluster_and_entra_does_not() {
    let probe = with_cluster();
    let binding = json!({
        "clientId": FEDERATED, "clusterId": "c1", "issuer": CLUSTER_ISSUER,
        "subject": CLUSTER_SUBJECT,
    });
    let reply = body_of(&control(&probe, &Method::POST, "identity-bindings", &binding));
    let name = server_name_of("c1");
    assert_eq!((&reply["serverName"], &reply["audience"]), (&json!(name), &json!(AUDIENCE)));
    let token = cluster_token(AUDIENCE);
    let proxy = |host: &str, token: &str| asked(&probe, Door::TokenProxy, host, token);
    assert_eq!(proxy(&name, &token).status, 200);
    assert_eq!(code(&proxy(&name, &cluster_token(EXCHANGE))), Some(700_212));
    assert_eq!(code(&proxy(&server_name_of("c2"), &token)), Some(70_021));
    assert_eq!(code(&asked(&probe, Door::Tunnel, LOGIN, &token)), Some(700_211));
}

#[test]
fn the_token_proxy_forwards_token_requests_with_tokens_and_nothing_else() {
    let probe = with_cluster();
    let host = server_name_of("c1");
    for path in ["common/discovery/instance", "v2.0/.well-known/openid-configuration", ""] {
        let reply = probe.get(Door::TokenProxy, &format!("https://{host}/{path}"), &[]);
        assert_eq!(reply.status, 404, "{path}");
    }
    let form = format!(
        "grant_type=client_credentials&scope=https://vault.azure.net/.default&client_id={}&client_secret={}",
        crate::testing::APP,
        crate::testing::SECRET,
    );
    let url = format!("https://{host}/{TENANT}/oauth2/v2.0/token");
    let reply = probe.ask(Door::TokenProxy, &Method::POST, &url, &[], &form);
    assert_eq!(code(&reply), Some(7_000_216), "{:?}", body_of(&reply));
}

#[test]
fn a_role_is_assigned_once_by_name_or_id() {
    let probe = Probe::new(world());
    let scope = "/subscriptions/s/resourceGroups/g";
    let ask = |principal: &str, role: &str, scope: &str| {
        let asked = json!({ "principal": principal, "role": role, "scope": scope });
        control(&probe, &Method::POST, "role-assignments", &asked).status.as_u16()
    };
    assert_eq!(ask(FEDERATED, "Reader", scope), 201);
    assert_eq!(ask(FEDERATED, "acdd72a7-3385-48ef-bd42-f606fba81ae7", scope), 200);
    assert_eq!(ask(FEDERATED, "No such role", scope), 404);
    assert_eq!(ask("nobody", "Reader", scope), 404);
    assert_eq!(ask(FEDERATED, "Reader", "not/a/scope"), 400);
    assert_eq!(probe.engine.state().world.authorization.iter().count(), 1);
}

#[test]
fn what_cannot_be_trusted_is_refused_and_changes_nothing() {
    let probe = Probe::new(world());
    let put = |issuer: &str, jwks: Value| {
        let asked = json!({ "issuer": issuer, "jwks": jwks });
        control(&probe, &Method::PUT, "issuers", &asked).status.as_u16()
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
        control(&probe, &Method::POST, "identity-bindings", &asked).status.as_u16()
    };
    assert_eq!(binding(json!({})), 400);
    assert_eq!(binding(json!({ "clusterId": "" })), 400);
    assert_eq!(binding(json!({ "serverName": "example.com" })), 400);
    assert_eq!(binding(json!({ "serverName": server_name_of("c"), "clusterId": "c" })), 400);
    assert_eq!(binding(json!({ "serverName": server_name_of("c") })), 201);
    let state = probe.engine.state();
    assert_eq!((state.world.directory.issuers.len(), state.world.bindings.len()), (1, 1));
}
