//! The complete identity flow over sockets, with plain HTTP clients: machine identity, vault secret,
//! certificate assertion, token, Azure Resource Manager.

#![cfg(test)]

#[path = "support/seed_plan.rs"]
mod support;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PSS_SHA256, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use lanyard_clock::{Clock as _, SystemClock};
use lanyard_emulator::{Emulator, FaultPlan, IdentityFault};
use lanyard_vocabulary::Component;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use support::{TENANT_OF_VAULT, seed_plan};

const VAULT: &str = "platform-kv.vault.azure.net";
const CONTROL: (&str, &str) = ("x-lanyard-control", "1");

/// An HTTP client with a proxy and a CA that shares no code with this workspace.
struct PlainHttpClient<'a> {
    emulator: &'a Emulator,
    proxied: reqwest::Client,
    direct: reqwest::Client,
}

impl<'a> PlainHttpClient<'a> {
    fn for_emulator(emulator: &'a Emulator) -> Self {
        let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
        let proxied = reqwest::Client::builder()
            .proxy(reqwest::Proxy::all(emulator.proxy_url()).unwrap())
            .tls_certs_only([authority])
            .build()
            .unwrap();
        let direct = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { emulator, proxied, direct }
    }

    async fn send_request(request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.bytes().await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn send_control_request(
        &self,
        method: reqwest::Method,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        let url = format!("{}/lanyard/v1/{path}", self.emulator.proxy_url());
        let request = self.direct.request(method, url).header(CONTROL.0, CONTROL.1);
        Self::send_request(request.body(body.to_owned())).await
    }

    /// Gets a token for the vaults from the metadata service.
    async fn machine_token(&self) -> String {
        let url = format!(
            "{}/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://vault.azure.net",
            self.emulator.proxy_url()
        );
        let (status, body) =
            Self::send_request(self.direct.get(url).header("Metadata", "true")).await;
        assert_eq!(status, 200, "{body}");
        body["access_token"].as_str().unwrap().to_owned()
    }

    async fn read_credential_document(&self, component: Component) -> Value {
        let token = self.machine_token().await;
        let name = component.definition().secret_suffix;
        let url = format!("https://{VAULT}/secrets/{name}?api-version=7.5");
        let (status, body) = Self::send_request(self.proxied.get(url).bearer_auth(token)).await;
        assert_eq!(status, 200, "{component:?}: {body}");
        serde_json::from_str(body["value"].as_str().unwrap()).unwrap()
    }

    /// Requests a token with the credential of a document, as the MSI data plane's clients do.
    async fn request_arm_token(&self, document: &Value, now: i64) -> (u16, Value) {
        let field = |name: &str| document[name].as_str().unwrap().to_owned();
        let endpoint =
            format!("{}{}/oauth2/v2.0/token", field("authentication_endpoint"), field("tenant_id"));
        let pem = STANDARD.decode(field("client_secret")).unwrap();
        let assertion = sign_client_assertion(&pem, &field("client_id"), &endpoint, now);
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", &field("client_id"))
            .append_pair("scope", "https://management.core.windows.net//.default")
            .append_pair(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            )
            .append_pair("client_assertion", &assertion)
            .finish();
        Self::send_request(self.proxied.post(endpoint).body(form)).await
    }
}

fn sign_client_assertion(pem: &[u8], client: &str, audience: &str, now: i64) -> String {
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(pem).map(|certificate| certificate.unwrap()).collect();
    let x5c: Vec<_> = chain.iter().map(|certificate| STANDARD.encode(certificate)).collect();
    let header = json!({
        "alg": "PS256",
        "typ": "JWT",
        "x5t#S256": STANDARD.encode(digest(&SHA256, &chain[0])),
        "x5c": x5c,
    });
    let claims = json!({
        "aud": audience, "iss": client, "sub": client, "jti": "1", "nbf": now, "exp": now + 600,
    });
    let encode = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let message = format!("{}.{}", encode(&header), encode(&claims));
    let pair = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PSS_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn token_claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn every_component_gets_an_arm_token_from_its_vault_credential() {
    let clock = SystemClock::shared();
    let emulator = Emulator::builder().seed(seed_plan()).start().await.unwrap();
    let stranger = PlainHttpClient::for_emulator(&emulator);
    let now = clock.now().as_second();

    let challenge = stranger
        .proxied
        .get(format!("https://{VAULT}/secrets/kms?api-version=7.5"))
        .send()
        .await
        .unwrap();
    assert_eq!(challenge.status().as_u16(), 401);
    assert_eq!(
        challenge.headers()["www-authenticate"],
        format!(
            "Bearer authorization=\"https://login.microsoftonline.com/{TENANT_OF_VAULT}\", \
             resource=\"https://vault.azure.net\""
        )
    );
    let mut tokens = Vec::new();
    for component in Component::ALL {
        let document = stranger.read_credential_document(component).await;
        let (status, body) = stranger.request_arm_token(&document, now).await;
        assert_eq!(status, 200, "{component:?}: {body}");
        tokens.push(body["access_token"].as_str().unwrap().to_owned());
    }
    // The cloud provider reads load balancers of its group and has no access to blobs.
    let at = Component::ALL.iter().position(|component| component.name() == "cloudProvider");
    let token = &tokens[at.unwrap()];
    let group =
        "https://management.azure.com/subscriptions/sub/resourceGroups/demo-abcde/providers";
    for (path, expected) in
        [("Microsoft.Network/loadBalancers", 200), ("Microsoft.Storage/storageAccounts", 403)]
    {
        let url = format!("{group}/{path}?api-version=2023-11-01");
        let (status, body) =
            PlainHttpClient::send_request(stranger.proxied.get(url).bearer_auth(token)).await;
        assert_eq!(status, expected, "{path}: {body}");
    }

    let principal = token_claims(token)["oid"].as_str().unwrap().to_owned();
    let scope = "/subscriptions/sub/resourceGroups/demo-abcde";
    let ask = |action: &str| format!("explain?principal={principal}&scope={scope}&action={action}");
    for (action, granted) in [
        ("Microsoft.Network/loadBalancers/read", true),
        ("Microsoft.Storage/storageAccounts/read", false),
    ] {
        let (status, why) =
            stranger.send_control_request(reqwest::Method::GET, &ask(action), "").await;
        assert_eq!((status, &why["granted"]), (200, &json!(granted)), "{why}");
        assert!(why["reason"].is_string(), "{why}");
    }

    let before = stranger.read_credential_document(Component::ALL[0]).await;
    let rotation = json!({ "component": Component::ALL[0].name(), "padding": 8_000 }).to_string();
    let (status, rotated) =
        stranger.send_control_request(reqwest::Method::POST, "rotate", &rotation).await;
    assert_eq!(status, 201, "{rotated}");
    assert!(rotated["bytes"].as_u64().unwrap() > 12_000, "{rotated}");
    let after = stranger.read_credential_document(Component::ALL[0]).await;
    assert_ne!(before["client_secret"], after["client_secret"]);
    assert!(after["not_before"].as_str() > before["not_before"].as_str());
    assert_eq!(stranger.request_arm_token(&after, now).await.0, 200);

    let log = serde_json::to_string(&emulator.request_log()).unwrap();
    for secret in tokens.iter().chain([&before["client_secret"].to_string()]) {
        assert!(!log.contains(secret.as_str()));
    }
    assert!(!log.contains("eyJ"));
    assert!(emulator.request_log().iter().all(|entry| !entry.missing));
    emulator.shutdown().await;
}

#[tokio::test]
async fn injected_fault_breaks_its_component_at_the_named_hop() {
    let now = SystemClock::new().now().as_second();
    let drills = [
        (IdentityFault::Audience, 700_023),
        (IdentityFault::Expired, 1_000_502),
        (IdentityFault::KeyMismatch, 700_027),
        (IdentityFault::UnknownApplication, 700_016),
    ];
    let mut plan = seed_plan();
    for ((fault, _), component) in drills.iter().zip(Component::ALL) {
        plan.drills.push(FaultPlan { fault: *fault, component });
    }
    let emulator = Emulator::builder().seed(plan).start().await.unwrap();
    let stranger = PlainHttpClient::for_emulator(&emulator);
    for ((fault, code), component) in drills.into_iter().zip(Component::ALL) {
        let document = stranger.read_credential_document(component).await;
        let (_, body) = stranger.request_arm_token(&document, now).await;
        assert_eq!(body["error_codes"], json!([code]), "{fault}: {body}");
    }
    let untouched = stranger.read_credential_document(Component::ALL[5]).await;
    assert_eq!(stranger.request_arm_token(&untouched, now).await.0, 200);
}

#[tokio::test]
async fn test_clients_sign_in_by_secret_and_by_subject_token() {
    let mut plan = seed_plan();
    plan.test_clients = true;
    plan.vault.tenant = plan.tenant.clone();
    let emulator = Emulator::builder().seed(plan).start().await.unwrap();
    let stranger = PlainHttpClient::for_emulator(&emulator);
    let (_, test_clients) =
        stranger.send_control_request(reqwest::Method::GET, "test-clients", "").await;
    let (status, minted) =
        stranger.send_control_request(reqwest::Method::POST, "federated-token", "").await;
    assert_eq!(status, 201, "{minted}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let endpoint = format!(
        "https://login.microsoftonline.com/{}/oauth2/v2.0/token",
        text(&test_clients["tenant"])
    );
    let jwt_bearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer".to_owned();
    let by_secret = vec![
        ("client_id", text(&test_clients["secret"]["clientId"])),
        ("client_secret", text(&test_clients["secret"]["clientSecret"])),
    ];
    let by_token = vec![
        ("client_id", text(&test_clients["federated"]["clientId"])),
        ("client_assertion_type", jwt_bearer),
        ("client_assertion", text(&minted["token"])),
    ];
    for credential in [by_secret, by_token] {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("scope", "https://vault.azure.net/.default")
            .extend_pairs(credential)
            .finish();
        let (status, body) =
            PlainHttpClient::send_request(stranger.proxied.post(&endpoint).body(form)).await;
        assert_eq!(status, 200, "{body}");
        let token = text(&body["access_token"]);
        let url = format!(
            "https://{}/secrets/{}?api-version=7.5",
            text(&test_clients["vaultHost"]),
            text(&test_clients["secretName"])
        );
        let (status, body) =
            PlainHttpClient::send_request(stranger.proxied.get(url).bearer_auth(token)).await;
        assert_eq!(status, 200, "{body}");
    }
}

#[tokio::test]
async fn seeded_state_survives_restart_with_every_key() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemClock::new().now().as_second();
    let first =
        Emulator::builder().seed(seed_plan()).state_dir(directory.path()).start().await.unwrap();
    let document =
        PlainHttpClient::for_emulator(&first).read_credential_document(Component::ALL[3]).await;
    let rotation = json!({ "clientId": document["client_id"] }).to_string();
    let (status, body) = PlainHttpClient::for_emulator(&first)
        .send_control_request(reqwest::Method::POST, "rotate", &rotation)
        .await;
    assert_eq!(status, 201, "{body}");
    first.shutdown().await;
    let second =
        Emulator::builder().seed(seed_plan()).state_dir(directory.path()).start().await.unwrap();
    let stranger = PlainHttpClient::for_emulator(&second);
    let rotated = stranger.read_credential_document(Component::ALL[3]).await;
    assert_eq!(rotated["client_id"], document["client_id"]);
    assert_ne!(rotated["client_secret"], document["client_secret"]);
    for old_or_new in [&document, &rotated] {
        assert_eq!(stranger.request_arm_token(old_or_new, now).await.0, 200);
    }
}
