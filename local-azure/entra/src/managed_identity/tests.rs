use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use lanyard_clock::Clock as _;
use lanyard_emulator::testing::seeded_state::{issue_access_token_for, seeded_nine_identities};
use lanyard_emulator::testing::{EngineFixture, LOGIN, aadsts_code, reply_json, sign_token};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::keys::RsaKey;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{ArmResourceId, Component, EntraClientId};
use p12_keystore::Pkcs12Archive;
use serde_json::{Value, json};

const CLUSTER: &str = "/subscriptions/sub/resourceGroups/rg/providers/\
                       Microsoft.RedHatOpenShift/hcpOpenShiftClusters/one";

/// A resource provider with the client of an application.
struct ResourceProvider {
    azure: EngineFixture,
    client: EntraClientId,
}

impl ResourceProvider {
    /// A resource provider that may assign every identity.
    fn with_role() -> Self {
        let (azure, _) = seeded_nine_identities();
        let client = azure.registry.test_clients.as_ref().unwrap().secret_client;
        Self { azure: EngineFixture::new(azure), client }
    }

    /// A resource provider without any role at the identities.
    fn without_role() -> Self {
        let (azure, _) = seeded_nine_identities();
        let client = azure.registry.test_clients.as_ref().unwrap().certificate_client;
        Self { azure: EngineFixture::new(azure), client }
    }

    fn control(&self, method: &Method, path: &str, body: &Value) -> ServiceReply {
        let url = format!("http://127.0.0.1/lanyard/v1/{path}");
        let header = [("x-lanyard-control", "1")];
        self.azure.send_request(Ingress::Port, method, &url, &header, &body.to_string())
    }

    fn advance_days(&self, days: u64) {
        self.azure.clock.advance(Duration::from_hours(24 * days));
    }

    fn identity_url_headers(&self, body: &Value) -> Value {
        let reply = self.control(&Method::POST, "identity-urls", body);
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply_json(&reply));
        reply_json(&reply)["headers"].clone()
    }

    fn identity_url(&self) -> String {
        let headers = self.identity_url_headers(&json!({ "resourceId": CLUSTER }));
        headers["x-ms-identity-url"].as_str().unwrap().to_owned()
    }

    /// Sends a request with a token of the resource provider.
    fn send(&self, method: &Method, url: &str, body: &Value) -> ServiceReply {
        let token = issue_access_token_for(&self.azure, self.client, "https://identity.azure.net");
        let header = format!("Bearer {token}");
        let url = format!("{url}&api-version=2024-01-01");
        let headers = [("authorization", header.as_str())];
        self.azure.send_request(Ingress::Tunnel, method, &url, &headers, &body.to_string())
    }

    fn request_credentials(&self, url: &str, ids: &[&ArmResourceId]) -> ServiceReply {
        self.send(&Method::POST, url, &json!({ "identityIds": ids }))
    }

    fn issue(&self, url: &str, id: &ArmResourceId) -> Value {
        let reply = self.request_credentials(url, &[id]);
        assert_eq!(reply.status, StatusCode::OK, "{}", reply_json(&reply));
        reply_json(&reply)["explicit_identities"][0].clone()
    }

    fn identity(&self) -> ArmResourceId {
        let state = self.azure.engine.state();
        let holder = state.azure.registry.component_identity(Component::Disk).unwrap();
        holder.resource_id.clone()
    }

    /// Requests a token with a credential document; returns the AADSTS code of an error.
    fn sign_in(&self, credential: &Value, with_chain: bool) -> Option<u64> {
        let bytes = STANDARD.decode(credential["client_secret"].as_str().unwrap()).unwrap();
        let archive = Pkcs12Archive::from_pkcs12(&bytes, "").unwrap();
        let key = RsaKey::from_pkcs8(archive.keys[0].key.as_der().to_vec());
        let chain: Vec<_> =
            archive.certs.iter().map(|bag| STANDARD.encode(bag.cert.as_der())).collect();
        let mut header = json!({ "alg": "PS256" });
        if with_chain {
            header["x5c"] = json!(chain);
        }
        let (client, tenant) =
            (&credential["client_id"], credential["tenant_id"].as_str().unwrap());
        let now = self.azure.clock.now().as_second();
        let claims = json!({
            "aud": format!("https://{LOGIN}/{tenant}/oauth2/v2.0/token"),
            "iss": client, "sub": client, "jti": "1", "nbf": now, "exp": now + 600,
        });
        let assertion = sign_token(&header, &claims, &key);
        let reply = self.azure.request_token_at_host(
            LOGIN,
            tenant,
            &[
                ("client_id", client.as_str().unwrap()),
                ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
                ("client_assertion", &assertion),
            ],
        );
        aadsts_code(&reply)
    }
}

fn without_parameter(url: &str, name: &str) -> String {
    let mut parsed = url::Url::parse(url).unwrap();
    let others: Vec<(String, String)> =
        parsed.query_pairs().into_owned().filter(|(key, _)| key != name).collect();
    parsed.query_pairs_mut().clear().extend_pairs(others);
    parsed.to_string()
}

#[test]
fn request_without_token_is_challenged_with_the_tenant_of_the_url() {
    let provider = ResourceProvider::with_role();
    let url = format!("{}&api-version=2024-01-01", provider.identity_url());
    let reply = provider.azure.get(Ingress::Tunnel, &url, &[]);
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    let challenge = reply.header("www-authenticate").unwrap();
    assert_eq!(
        challenge,
        "Bearer authorization=\"https://login.microsoftonline.com/\
         11111111-1111-4111-8111-111111111111\""
    );
    let wrong =
        issue_access_token_for(&provider.azure, provider.client, "https://management.azure.com");
    let header = format!("Bearer {wrong}");
    let reply = provider.azure.get(Ingress::Tunnel, &url, &[("authorization", &header)]);
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
}

#[test]
fn issued_credential_signs_in_with_its_certificate_chain_only() {
    let provider = ResourceProvider::with_role();
    let identity = provider.identity();
    let credential = provider.issue(&provider.identity_url(), &identity);
    assert_eq!(credential["resource_id"], identity.as_str());
    assert_eq!(credential["authentication_endpoint"], "https://login.microsoftonline.com/");
    assert_eq!(credential["custom_claims"]["xms_az_tm"], "azureinfra");
    provider.advance_days(46);
    let renewed = provider.issue(&provider.identity_url(), &identity);
    assert_eq!(provider.sign_in(&renewed, true), None);
    assert_eq!(provider.sign_in(&renewed, false), Some(700_027));
}

#[test]
fn credential_changes_after_renew_after_and_expires_after_not_after() {
    let provider = ResourceProvider::with_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    let seeded = provider.issue(&url, &identity);
    provider.advance_days(44);
    assert_eq!(provider.issue(&url, &identity)["not_before"], seeded["not_before"]);
    provider.advance_days(2);
    let first = provider.issue(&url, &identity);
    assert_ne!(first["client_secret"], seeded["client_secret"]);
    provider.advance_days(46);
    let second = provider.issue(&url, &identity);
    assert!(first["not_before"].as_str() < second["not_before"].as_str());
    assert_eq!(provider.sign_in(&first, true), None, "the earlier certificate is still valid");
    provider.advance_days(45);
    assert_eq!(provider.sign_in(&first, true), Some(1_000_502));
    assert_eq!(provider.sign_in(&second, true), None);
}

#[test]
fn identity_url_ends_with_its_last_credential_until_the_resource_is_updated() {
    let provider = ResourceProvider::with_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    let credential = provider.issue(&url, &identity);
    let own_url = credential["client_secret_url"].as_str().unwrap();
    provider.advance_days(181);
    for reply in [
        provider.request_credentials(&url, &[&identity]),
        provider.send(&Method::GET, own_url, &Value::Null),
    ] {
        assert_eq!(reply.status, StatusCode::FORBIDDEN);
        assert_eq!(reply_json(&reply)["error"]["code"], "IdentityUrlExpired");
    }
    let new_url = provider.identity_url();
    assert_ne!(new_url, url);
    let renewed = provider.issue(&new_url, &identity);
    assert_eq!(provider.sign_in(&renewed, true), None);
    let reply = provider.request_credentials(&url, &[&identity]);
    assert_eq!(reply_json(&reply)["error"]["code"], "InvalidIdentityUrl");
}

#[test]
fn updated_resource_keeps_its_identity_url() {
    let provider = ResourceProvider::with_role();
    let url = provider.identity_url();
    provider.advance_days(100);
    assert_eq!(provider.identity_url(), url);
    provider.advance_days(100);
    let reply = provider.request_credentials(&url, &[&provider.identity()]);
    assert_eq!(reply.status, StatusCode::OK, "the update extended the URL");
}

#[test]
fn each_query_parameter_of_an_identity_url_is_required() {
    let provider = ResourceProvider::with_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    for name in ["arpid", "keyid", "sig", "sigver"] {
        let reply = provider.request_credentials(&without_parameter(&url, name), &[&identity]);
        assert_eq!(reply_json(&reply)["error"]["code"], "InvalidIdentityUrl", "{name}");
    }
    let own_url = provider.issue(&url, &identity)["client_secret_url"].as_str().unwrap().to_owned();
    for name in ["oid", "aid"] {
        let reply = provider.send(&Method::GET, &without_parameter(&own_url, name), &Value::Null);
        assert_eq!(reply_json(&reply)["error"]["code"], "InvalidIdentityUrl", "{name}");
    }
}

#[test]
fn credentials_need_the_assign_action_at_each_identity() {
    let provider = ResourceProvider::without_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    let missing: ArmResourceId = format!("{identity}-missing").parse().unwrap();
    for id in [&identity, &missing] {
        let reply = provider.request_credentials(&url, &[id]);
        assert_eq!(reply.status, StatusCode::FORBIDDEN);
        assert_eq!(reply_json(&reply)["error"]["code"], "AuthorizationFailed");
    }
    let role = json!({
        "principal": provider.client, "role": "Managed Identity Operator", "scope": identity,
    });
    assert_eq!(provider.control(&Method::POST, "role-assignments", &role).status, 201);
    assert_eq!(provider.request_credentials(&url, &[&identity]).status, StatusCode::OK);
    let both = provider.request_credentials(&url, &[&identity, &missing]);
    assert_eq!(both.status, StatusCode::FORBIDDEN);
}

#[test]
fn invalid_requests_for_credentials_are_rejected() {
    let provider = ResourceProvider::with_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    let missing = format!("{identity}-missing");
    let perimeters = vec!["11111111-1111-4111-8111-111111111111"; 6];
    let cases = [
        ("no identity", json!({}), 400),
        ("no ARM id", json!({ "identityIds": ["one"] }), 400),
        ("unknown identity", json!({ "identityIds": [missing] }), 404),
        (
            "six perimeters",
            json!({ "identityIds": [identity], "customClaims": {
            "xms_az_nwperimid": perimeters } }),
            400,
        ),
        (
            "trust mode",
            json!({ "identityIds": [identity], "customClaims": {
            "xms_az_tm": "other" } }),
            400,
        ),
        ("delegation", json!({ "identityIds": [identity], "delegatedResources": ["a"] }), 501),
    ];
    for (name, body, expected) in cases {
        let reply = provider.send(&Method::POST, &url, &body);
        assert_eq!(reply.status.as_u16(), expected, "{name}: {}", reply_json(&reply));
        assert!(reply_json(&reply)["error"]["message"].is_string(), "{name}");
    }
}

#[test]
fn custom_claims_change_the_credential() {
    let provider = ResourceProvider::with_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    let before = provider.issue(&url, &identity);
    let body = json!({ "identityIds": [identity], "customClaims": { "xms_az_tm": "user" } });
    let reply = reply_json(&provider.send(&Method::POST, &url, &body));
    let after = &reply["explicit_identities"][0];
    assert_eq!(after["custom_claims"]["xms_az_tm"], "user");
    assert_ne!(after["client_secret"], before["client_secret"]);
    assert_eq!(provider.issue(&url, &identity)["client_secret"], after["client_secret"]);
}

#[test]
fn seeded_credential_is_the_one_of_its_client_secret_url() {
    let provider = ResourceProvider::with_role();
    let identity = provider.identity();
    let issued = provider.issue(&provider.identity_url(), &identity);
    let own_url = issued["client_secret_url"].as_str().unwrap();
    let reply = reply_json(&provider.send(&Method::GET, own_url, &Value::Null));
    assert_eq!(reply["explicit_identities"][0], issued);
    let state = provider.azure.engine.state();
    let holder = state.azure.registry.component_identity(Component::Disk).unwrap();
    assert_eq!(holder.not_before.unwrap().to_string(), issued["not_before"].as_str().unwrap());
}

#[test]
fn system_assigned_identity_is_read_moved_and_deleted_by_the_url() {
    let provider = ResourceProvider::with_role();
    let url = provider.identity_url();
    assert_eq!(provider.send(&Method::GET, &url, &Value::Null).status, StatusCode::NOT_FOUND);
    let body = json!({ "resourceId": CLUSTER, "systemAssigned": true });
    let headers = provider.identity_url_headers(&body);
    let credential = reply_json(&provider.send(&Method::GET, &url, &Value::Null));
    assert_eq!(credential["object_id"], headers["x-ms-identity-principal-id"]);
    assert_eq!(credential["client_secret_url"], url);
    assert_eq!(credential["explicit_identities"], json!([]));
    assert_eq!(provider.sign_in(&credential, true), None);

    let target = CLUSTER.replace("/rg/", "/other/");
    let move_url = url.replacen("/identities?", "/identities/proxy/move?", 1);
    let moved = provider.send(&Method::POST, &move_url, &json!({ "targetResourceId": target }));
    let moved = reply_json(&moved)["identityUrl"].as_str().unwrap().to_owned();
    assert!(moved.contains("/other/"), "{moved}");
    assert_eq!(provider.send(&Method::GET, &url, &Value::Null).status, StatusCode::FORBIDDEN);
    let read = reply_json(&provider.send(&Method::GET, &moved, &Value::Null));
    assert_eq!(read["object_id"], credential["object_id"]);
    assert_eq!(read["client_secret_url"], moved, "the earlier URL returns no credential any more");
    let same = reply_json(&provider.send(&Method::GET, &moved, &Value::Null));
    assert_eq!(same, read);

    assert_eq!(provider.send(&Method::DELETE, &moved, &Value::Null).status, StatusCode::OK);
    assert_eq!(provider.send(&Method::DELETE, &moved, &Value::Null).status, StatusCode::NO_CONTENT);
    assert_eq!(provider.sign_in(&credential, true), Some(700_016));
}

#[test]
fn credentials_of_a_deleted_identity_stop() {
    let provider = ResourceProvider::with_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    let body = json!({ "identityIds": [identity], "customClaims": { "xms_az_tm": "user" } });
    let issued = reply_json(&provider.send(&Method::POST, &url, &body));
    let issued = &issued["explicit_identities"][0];
    assert_eq!(provider.sign_in(issued, true), None);
    {
        let mut state = provider.azure.engine.state();
        let directory = &mut state.azure.directory;
        let object_id = directory.managed_identity(&identity).unwrap().object_id;
        directory.remove_service_principal(object_id);
        assert!(directory.managed_identity_credential(object_id).is_none());
    }
    assert_eq!(provider.sign_in(issued, true), Some(700_016));
    let reply = provider.request_credentials(&url, &[&identity]);
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
}

#[test]
fn credential_has_the_url_of_the_current_location() {
    let provider = ResourceProvider::with_role();
    let body = json!({ "resourceId": CLUSTER, "systemAssigned": true, "location": "eastus" });
    for location in ["eastus", "westus3"] {
        let mut body = body.clone();
        body["location"] = json!(location);
        let headers = provider.identity_url_headers(&body);
        let url = headers["x-ms-identity-url"].as_str().unwrap();
        let credential = reply_json(&provider.send(&Method::GET, url, &Value::Null));
        assert_eq!(credential["client_secret_url"], url);
        let own_url = credential["client_secret_url"].as_str().unwrap();
        assert_eq!(provider.send(&Method::GET, own_url, &Value::Null).status, StatusCode::OK);
    }
}

#[test]
fn identity_is_not_moved_to_a_resource_with_an_identity() {
    let provider = ResourceProvider::with_role();
    let target = CLUSTER.replace("/one", "/two");
    let issue = |id: &str, system_assigned: bool| {
        let body = json!({ "resourceId": id, "systemAssigned": system_assigned });
        provider.identity_url_headers(&body)["x-ms-identity-url"].as_str().unwrap().to_owned()
    };
    let url = issue(CLUSTER, true);
    let move_url = url.replacen("/identities?", "/identities/proxy/move?", 1);
    let credential = reply_json(&provider.send(&Method::GET, &url, &Value::Null));
    let identity = provider.identity().to_string();
    for (target, system_assigned) in [(&target, false), (&target, true), (&identity, false)] {
        if *target != identity {
            issue(target, system_assigned);
        }
        let body = json!({ "targetResourceId": target });
        let rejected = provider.send(&Method::POST, &move_url, &body);
        assert_eq!(rejected.status, StatusCode::CONFLICT, "{target} {system_assigned}");
        assert_eq!(reply_json(&rejected)["error"]["code"], "Conflict");
    }
    let body = json!({ "targetResourceId": CLUSTER.to_uppercase().replace("/SUB/", "/sub/") });
    let same = provider.send(&Method::POST, &move_url, &body);
    assert_eq!(same.status, StatusCode::OK, "only the case of the id changes");
    let moved = reply_json(&same)["identityUrl"].as_str().unwrap().to_owned();
    let read = reply_json(&provider.send(&Method::GET, &moved, &Value::Null));
    assert_eq!(read["object_id"], credential["object_id"]);
}

#[test]
fn repeated_identity_ids_have_one_credential() {
    let provider = ResourceProvider::with_role();
    let (identity, url) = (provider.identity(), provider.identity_url());
    provider.advance_days(46);
    let other_case = identity.to_string().to_uppercase().replace("/SUB/", "/sub/").parse().unwrap();
    let reply = provider.request_credentials(&url, &[&identity, &other_case, &identity]);
    let credentials = reply_json(&reply)["explicit_identities"].clone();
    assert_eq!(credentials.as_array().unwrap().len(), 1, "{credentials}");
    assert_eq!(provider.issue(&url, &identity), credentials[0]);
}
