use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

use crate::testing::arm_fixture::ArmFixture;
use crate::testing::{aadsts_code, reply_json, sign_token, token_claims, untrusted_key};

const CLUSTER: &str = "/subscriptions/sub/resourceGroups/platform/providers/Microsoft.ContainerService/managedClusters/aks";
const SUBJECT: &str = "system:serviceaccount:team:reader";

fn control(fixture: &ArmFixture, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    let header = [("x-lanyard-control", "1")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = fixture.probe.send_request(Ingress::Port, method, &url, &header, &body);
    (reply.status.as_u16(), reply_json(&reply))
}

fn change(fixture: &ArmFixture, fields: &Value) -> Value {
    let mut body = json!({ "clusterId": CLUSTER.to_uppercase() });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (status, reply) = control(fixture, &Method::PATCH, "managed-clusters", &body);
    assert_eq!(status, 200, "{reply}");
    reply
}

fn put_cluster(fixture: &ArmFixture, has_issuer: bool) -> ServiceReply {
    let body = json!({
        "location": "eastus",
        "identity": { "type": "SystemAssigned" },
        "properties": {
            "agentPoolProfiles": [{ "name": "system", "count": 1, "mode": "System" }],
            "oidcIssuerProfile": { "enabled": has_issuer },
        },
    });
    let reply = fixture.send_request(fixture.owner, "PUT", CLUSTER, &body.to_string());
    assert!(reply.status.is_success(), "{reply:?}");
    reply
}

fn cluster_properties(fixture: &ArmFixture) -> Value {
    reply_json(&fixture.get(fixture.owner, CLUSTER))["properties"].take()
}

fn issuer_of(cluster: &Value) -> String {
    cluster["oidcIssuerProfile"]["issuerURL"].as_str().unwrap().to_owned()
}

/// An anonymous read through the proxy.
fn get_anonymously(fixture: &ArmFixture, url: &str) -> ServiceReply {
    fixture.probe.send_request(Ingress::Tunnel, &Method::GET, url, &[], "")
}

fn key_set(issuer: &str, fixture: &ArmFixture) -> Value {
    let document = get_anonymously(fixture, &format!("{issuer}.well-known/openid-configuration"));
    assert_eq!(document.status, 200);
    let document = reply_json(&document);
    assert_eq!(document["issuer"], issuer);
    let keys = format!("{issuer}openid/v1/jwks");
    assert_eq!(document["jwks_uri"], keys);
    reply_json(&get_anonymously(fixture, &keys))
}

fn is_published(fixture: &ArmFixture, issuer: &str) -> bool {
    let url = format!("{issuer}.well-known/openid-configuration");
    get_anonymously(fixture, &url).status == 200
}

fn api_server(issuer: Option<&str>) -> Value {
    let (n, e) = untrusted_key().jwk_modulus_and_exponent().unwrap();
    let keys = json!([{ "kty": "RSA", "kid": "api-server-1", "n": n, "e": e }]);
    json!({ "apiServer": { "issuer": issuer, "jwks": { "keys": keys } } })
}

/// The AADSTS code of an exchange of a token by the seeded test workload; `None` if Entra issues a token.
fn exchange(fixture: &ArmFixture, issuer: &str, token: &str) -> Option<u64> {
    let clients = fixture.probe.engine.state().azure.registry.test_clients.clone().unwrap();
    let credential = json!({
        "clientId": clients.federated_client, "name": "aks", "issuer": issuer, "subject": SUBJECT,
    });
    assert_eq!(control(fixture, &Method::POST, "federated-credentials", &credential).0, 201);
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .append_pair("scope", "https://vault.azure.net/.default")
        .append_pair("client_id", &clients.federated_client.to_string())
        .append_pair(
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        )
        .append_pair("client_assertion", token)
        .finish();
    let url = format!("https://login.microsoftonline.com/{}/oauth2/v2.0/token", clients.tenant);
    let reply = fixture.probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &form);
    aadsts_code(&reply)
}

fn minted(fixture: &ArmFixture) -> (u16, Value) {
    let body = json!({
        "clusterId": CLUSTER, "namespace": "team", "serviceAccount": "reader", "lifetimeSeconds": 3600,
    });
    control(fixture, &Method::POST, "federated-token", &body)
}

#[test]
fn enabled_issuer_without_api_server_publishes_documents_and_signs_tokens() {
    let fixture = ArmFixture::new();
    put_cluster(&fixture, false);
    assert_eq!(minted(&fixture).1["error"]["code"], "IssuerKeyMissing");
    put_cluster(&fixture, true);
    let issuer = issuer_of(&cluster_properties(&fixture));
    assert!(issuer.starts_with("https://eastus.oic.prod-aks.azure.com/") && issuer.ends_with('/'));
    let keys = key_set(&issuer, &fixture);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1);
    put_cluster(&fixture, true);
    assert_eq!(key_set(&issuer, &fixture), keys);

    let token = minted(&fixture).1["token"].as_str().unwrap().to_owned();
    let claims = token_claims(&token);
    assert_eq!((&claims["iss"], &claims["sub"]), (&json!(issuer), &json!(SUBJECT)));
    assert_eq!(claims["aud"], json!(["api://AzureADTokenExchange"]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    assert_eq!(claims["kubernetes.io"]["namespace"], "team");
    assert_eq!(claims["kubernetes.io"]["serviceaccount"]["name"], "reader");
    assert_eq!(exchange(&fixture, &issuer, &token), None);
}

#[test]
fn deleted_cluster_has_no_issuer_and_a_new_cluster_has_another_one() {
    let fixture = ArmFixture::new();
    put_cluster(&fixture, true);
    let issuer = issuer_of(&cluster_properties(&fixture));
    change(&fixture, &json!({ "kubeconfig": "of the first cluster" }));
    fixture.send_request(fixture.owner, "DELETE", CLUSTER, "");
    assert!(!is_published(&fixture, &issuer));
    put_cluster(&fixture, true);
    let second = issuer_of(&cluster_properties(&fixture));
    assert_ne!(issuer, second);
    assert!(is_published(&fixture, &second));
    assert!(fixture.probe.engine.state().azure.resources.managed_clusters.is_empty());
}

#[test]
fn issuer_of_an_api_server_is_published_after_its_restart() {
    let fixture = ArmFixture::new();
    put_cluster(&fixture, false);
    let registered = change(&fixture, &api_server(Some("https://kubernetes.default.svc")));
    assert_eq!(
        (&registered["hasApiServer"], &registered["restartPending"]),
        (&json!(true), &json!(false))
    );

    let enabled = put_cluster(&fixture, true);
    let cluster = cluster_properties(&fixture);
    assert_eq!(cluster["provisioningState"], "Updating");
    let issuer = issuer_of(&cluster);
    let status_url = enabled.header("azure-asyncoperation").unwrap().to_owned();
    let path = status_url.split_once("azure.com").unwrap().1.split('?').next().unwrap().to_owned();
    let status = || reply_json(&fixture.get(fixture.owner, &path))["status"].take();
    assert_eq!((status(), status()), (json!("InProgress"), json!("InProgress")));
    assert!(!is_published(&fixture, &issuer));
    let (_, listed) = control(&fixture, &Method::GET, "managed-clusters", &Value::Null);
    let expected = json!({
        "clusterId": CLUSTER, "issuer": issuer, "hasApiServer": true,
        "reportedIssuer": "https://kubernetes.default.svc", "restartPending": true,
    });
    assert_eq!(listed["value"], json!([expected]));
    assert_eq!(minted(&fixture).1["error"]["code"], "IssuerKeyMissing");

    let restarted = change(&fixture, &api_server(Some(&issuer)));
    assert_eq!(restarted["restartPending"], false);
    assert_eq!(status(), "Succeeded");
    assert_eq!(cluster_properties(&fixture)["provisioningState"], "Succeeded");
    assert_eq!(key_set(&issuer, &fixture)["keys"][0]["kid"], "api-server-1");
    let now = fixture.probe.engine.state().azure.clock.emulated_time(crate::testing::start_time());
    let claims = json!({
        "iss": issuer, "sub": SUBJECT, "aud": ["api://AzureADTokenExchange"],
        "nbf": now.as_second(), "exp": now.as_second() + 600,
    });
    let token =
        sign_token(&json!({ "alg": "RS256", "kid": "api-server-1" }), &claims, &untrusted_key());
    assert_eq!(exchange(&fixture, &issuer, &token), None);
    assert_eq!(put_cluster(&fixture, true).header("azure-asyncoperation"), None);
}

#[test]
fn each_cluster_has_the_kubeconfigs_of_its_settings() {
    let fixture = ArmFixture::new();
    put_cluster(&fixture, false);
    let settings = json!({ "resourceManager": { "kubeconfig": "of all clusters" } });
    assert_eq!(control(&fixture, &Method::PATCH, "settings", &settings).0, 200);
    let kubeconfig = |action: &str| {
        let reply = fixture.send_request(fixture.owner, "POST", &format!("{CLUSTER}/{action}"), "");
        let value = reply_json(&reply)["kubeconfigs"][0]["value"].take();
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            value.as_str().unwrap(),
        );
        String::from_utf8(bytes.unwrap()).unwrap()
    };
    let both =
        || (kubeconfig("listClusterUserCredential"), kubeconfig("listClusterAdminCredential"));
    let texts = |user: &str, admin: &str| (user.to_owned(), admin.to_owned());
    assert_eq!(both(), texts("of all clusters", "of all clusters"));
    let reply = change(&fixture, &json!({ "kubeconfig": "of the user" }));
    assert!(!reply.to_string().contains("of the user"));
    assert_eq!(both(), texts("of the user", "of the user"));
    change(&fixture, &json!({ "adminKubeconfig": "of the admin" }));
    assert_eq!(both(), texts("of the user", "of the admin"));
}

#[test]
fn unknown_cluster_and_key_sets_without_rsa_keys_are_rejected() {
    let fixture = ArmFixture::new();
    let missing =
        control(&fixture, &Method::PATCH, "managed-clusters", &json!({ "clusterId": CLUSTER }));
    assert_eq!((missing.0, &missing.1["error"]["code"]), (404, &json!("ClusterNotFound")));
    assert_eq!(minted(&fixture).1["error"]["code"], "ClusterNotFound");
    put_cluster(&fixture, true);
    for server in [
        json!({ "jwks": { "keys": [{ "kty": "EC" }] } }),
        json!({ "issuer": "http://issuer", "jwks": api_server(None)["apiServer"]["jwks"] }),
    ] {
        let body = json!({ "clusterId": CLUSTER, "apiServer": server });
        let (status, reply) = control(&fixture, &Method::PATCH, "managed-clusters", &body);
        assert_eq!((status, &reply["error"]["code"]), (400, &json!("BodyInvalid")));
    }
}
