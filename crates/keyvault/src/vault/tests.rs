use std::sync::Mutex;
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::http::headers::{AUTHORIZATION, HeaderName, Headers};
use azure_core::http::{AsyncRawResponse, HttpClient, Request, StatusCode, Transport};
use lanyard_azure::{ThrottleCause, ThrottledError};
use lanyard_clock::{ErrorHint as _, RetryClass};
use lanyard_credential::TokenError;
use lanyard_vocabulary::{Cloud, Hop};

use super::*;
use crate::memory::MAX_OBJECT_RESPONSE_BYTES;

#[derive(Debug, Default)]
struct FakeVaultPage {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

/// A vault with one page per path. It challenges requests without a token, and replaces [`ECHO`] in a page by
/// the request's `Authorization` header.
#[derive(Debug, Default)]
struct FakeVaultServer {
    pages: HashMap<&'static str, FakeVaultPage>,
    recorded_requests: Mutex<Vec<String>>,
    challenge: &'static str,
}

const CHALLENGE: &str = r#"Bearer authorization="https://login.microsoftonline.com/t", resource="https://vault.azure.net""#;

type ResponseHeaderPairs = &'static [(&'static str, &'static str)];

const ECHO: &str = "{authorization}";

impl FakeVaultServer {
    fn new() -> Self {
        Self { challenge: CHALLENGE, ..Self::default() }
    }

    fn with_page(mut self, path: &'static str, status: u16, body: impl Into<String>) -> Self {
        self.pages
            .insert(path, FakeVaultPage { status, body: body.into(), ..FakeVaultPage::default() });
        self
    }

    fn with_page_header(
        mut self,
        path: &'static str,
        name: &'static str,
        value: &'static str,
    ) -> Self {
        self.pages.get_mut(path).unwrap().headers.push((name, value));
        self
    }
}

#[async_trait]
impl HttpClient for FakeVaultServer {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let token = request.headers().get_optional_str(&AUTHORIZATION);
        let path = request.url().path().trim_end_matches('/').to_owned();
        let query = request.url().query().unwrap_or_default();
        let next = query.split('&').find(|pair| pair.starts_with("page")).unwrap_or_default();
        let path = format!("{path}{next}");
        self.recorded_requests.lock().unwrap().push(format!("{path} {}", token.unwrap_or("-")));
        let mut headers = Headers::new();
        let Some(token) = token else {
            headers.insert("www-authenticate", self.challenge);
            return Ok(AsyncRawResponse::from_bytes(StatusCode::Unauthorized, headers, ""));
        };
        let Some(page) = self.pages.get(path.as_str()) else {
            return Err(azure_core::Error::with_message(ErrorKind::Io, "connection reset"));
        };
        for (name, value) in &page.headers {
            headers.insert(HeaderName::from_static(name), *value);
        }
        let status = StatusCode::from(page.status);
        Ok(AsyncRawResponse::from_bytes(status, headers, page.body.replace(ECHO, token)))
    }
}

/// Returns a new token for each request.
#[derive(Debug, Default)]
struct CountingTokenCredential(Mutex<u32>, Option<ErrorKind>);

#[async_trait]
impl TokenCredential for CountingTokenCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        assert_eq!(scopes, ["https://vault.azure.net/.default"]);
        if let Some(kind) = &self.1 {
            return Err(azure_core::Error::with_message(kind.clone(), "AADSTS700027"));
        }
        let mut count = self.0.lock().unwrap();
        *count += 1;
        let expires_on = OffsetDateTime::now_utc() + azure_core::time::Duration::hours(1);
        Ok(AccessToken::new(format!("token-{count}"), expires_on))
    }
}

fn open_vault(
    vault: FakeVaultServer,
    tokens: CountingTokenCredential,
) -> (Arc<FakeVaultServer>, KeyVault) {
    let url = KeyVault::url_in_cloud(&"kv1".parse().unwrap(), Cloud::Public.endpoints().unwrap());
    open_vault_at(&url, vault, tokens)
}

/// A vault of an unknown cloud, whose challenge cannot be predicted.
fn open_vault_in_unknown_cloud(
    vault: FakeVaultServer,
    tokens: CountingTokenCredential,
) -> (Arc<FakeVaultServer>, KeyVault) {
    open_vault_at("https://kv1.sub.vault.azure.net", vault, tokens)
}

fn open_vault_at(
    url: &str,
    vault: FakeVaultServer,
    tokens: CountingTokenCredential,
) -> (Arc<FakeVaultServer>, KeyVault) {
    let vault = Arc::new(vault);
    let client: Arc<dyn HttpClient> = Arc::<FakeVaultServer>::clone(&vault);
    let options =
        ClientOptions { transport: Some(Transport::new(client)), ..ClientOptions::default() };
    (vault, KeyVault::new(url, Arc::new(tokens), options).unwrap())
}

fn secret_name() -> SecretName {
    "cpo".parse().unwrap()
}

async fn read_error_for(status: u16, body: &str) -> VaultReadError {
    let vault = FakeVaultServer::new().with_page("/secrets/cpo", status, body);
    open_vault(vault, CountingTokenCredential::default())
        .1
        .fetch_secret(&secret_name(), None)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn secret_is_read_with_all_attributes() {
    let body = r#"{
        "value": "planted", "id": "https://kv1.vault.azure.net/secrets/cpo/v7",
        "contentType": "application/x-pkcs12", "kid": "https://kv1.vault.azure.net/keys/cpo/v7",
        "attributes": {"enabled": true, "created": 100, "updated": 200, "nbf": 300, "exp": 400},
        "tags": {"renew_after": "2026-11-21T12:00:00Z", "other": "x"}, "unknown": {"a": 1}
    }"#;
    let vault = FakeVaultServer::new().with_page("/secrets/cpo/v7", 200, body);
    let (vault, client) = open_vault(vault, CountingTokenCredential::default());
    let secret = client.fetch_secret(&secret_name(), Some(&"v7".parse().unwrap())).await.unwrap();
    assert_eq!(secret.value.expose(), b"planted");
    assert_eq!(secret.version.as_str(), "v7");
    assert!(secret.is_certificate_secret);
    assert_eq!(secret.content_type.as_deref(), Some("application/x-pkcs12"));
    let attributes = &secret.attributes;
    let seconds = [attributes.created, attributes.updated, attributes.not_before]
        .map(|time| time.unwrap().as_second());
    assert_eq!(seconds, [100, 200, 300]);
    assert_eq!(attributes.expires.unwrap().as_second(), 400);
    assert_eq!(attributes.renew_after(), "2026-11-21T12:00:00Z".parse().ok());
    assert!(!format!("{secret:?}").contains("planted"));
    let asked = vault.recorded_requests.lock().unwrap();
    assert_eq!(*asked, ["/secrets/cpo/v7 Bearer token-1"]);
}

#[tokio::test]
async fn challenge_is_requested_once_and_token_per_request() {
    let body = r#"{"value": "x", "id": "https://kv1.vault.azure.net/secrets/cpo/v7"}"#;
    let vault = FakeVaultServer::new().with_page("/secrets/cpo", 200, body);
    let (vault, client) = open_vault_in_unknown_cloud(vault, CountingTokenCredential::default());
    for _ in 0..3 {
        client.fetch_secret(&secret_name(), None).await.unwrap();
    }
    let asked = vault.recorded_requests.lock().unwrap();
    let tokens: Vec<_> = asked.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(tokens, ["-", "token-1", "token-2", "token-3"]);
}

#[tokio::test]
async fn vault_in_a_known_cloud_gets_no_challenge_request() {
    let body = r#"{"value": "x", "id": "https://kv1.vault.azure.net/secrets/cpo/v7"}"#;
    let vault = FakeVaultServer::new().with_page("/secrets/cpo", 200, body);
    let (vault, client) = open_vault(vault, CountingTokenCredential::default());
    for _ in 0..2 {
        client.fetch_secret(&secret_name(), None).await.unwrap();
    }
    let asked = vault.recorded_requests.lock().unwrap();
    let tokens: Vec<_> = asked.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(tokens, ["token-1", "token-2"]);
}

#[tokio::test]
async fn keys_and_certificates_are_read_with_their_version() {
    let key = r#"{"key": {"kid": "https://kv1.vault.azure.net/keys/cpo/k1", "kty": "RSA-HSM",
        "n": "wMDA", "e": "AQAB"}, "attributes": {"enabled": true}}"#;
    let curve = r#"{"key": {"kid": "https://kv1.vault.azure.net/keys/cpo/k2", "kty": "EC",
        "crv": "P-256K", "x": "AQ", "y": "AQ"}}"#;
    let certificate = r#"{"id": "https://kv1.vault.azure.net/certificates/cpo/c1",
        "cer": "AQID", "attributes": {"exp": 400}}"#;
    let vault = FakeVaultServer::new()
        .with_page("/keys/cpo", 200, key)
        .with_page("/keys/cpo/k2", 200, curve)
        .with_page("/certificates/cpo", 200, certificate);
    let client = open_vault(vault, CountingTokenCredential::default()).1;
    let key = client.fetch_key(&secret_name(), None).await.unwrap();
    assert_eq!(key.version.as_str(), "k1");
    let (modulus, exponent) = (vec![0xc0, 0xc0, 0xc0], vec![1, 0, 1]);
    assert_eq!(key.key, PublicJwk::Rsa { modulus, exponent });
    let key = client.fetch_key(&secret_name(), Some(&"k2".parse().unwrap())).await.unwrap();
    let (key_type, curve) = ("EC".to_owned(), Some("P-256K".to_owned()));
    assert_eq!(key.key, PublicJwk::Unsupported { key_type, curve });
    let certificate = client.fetch_certificate(&secret_name(), None).await.unwrap();
    assert_eq!((certificate.version.as_str(), certificate.der), ("c1", vec![1, 2, 3]));
}

#[tokio::test]
async fn versions_are_listed_over_all_pages() {
    let first = r#"{"value": [{"id": "https://kv1.vault.azure.net/secrets/cpo/v1",
        "attributes": {"enabled": false, "created": 1}}],
        "nextLink": "https://kv1.vault.azure.net/secrets/cpo/versions?page=2"}"#;
    let second = r#"{"value": [{"id": "https://kv1.vault.azure.net/secrets/cpo/v2"}]}"#;
    let keys = r#"{"value": [{"kid": "https://kv1.vault.azure.net/keys/cpo/k1"}]}"#;
    let certificates = r#"{"value": [{"id": "https://kv1.vault.azure.net/certificates/cpo/c1"}]}"#;
    let vault = FakeVaultServer::new()
        .with_page("/secrets/cpo/versions", 200, first)
        .with_page("/secrets/cpo/versionspage=2", 200, second)
        .with_page("/keys/cpo/versions", 200, keys)
        .with_page("/certificates/cpo/versions", 200, certificates);
    let client = open_vault(vault, CountingTokenCredential::default()).1;
    let mut found = Vec::new();
    for kind in VaultObjectKind::ALL {
        for listed in client.fetch_versions(kind, &secret_name()).await.unwrap() {
            found.push((listed.version.to_string(), listed.attributes.enabled));
        }
    }
    let expected = [("v1", Some(false)), ("v2", None), ("k1", None), ("c1", None)];
    assert_eq!(found, expected.map(|(version, enabled)| (version.to_owned(), enabled)));
}

#[tokio::test]
async fn error_statuses_map_to_errors_with_code_and_hint() {
    let forbidden = |inner: &str| {
        format!(
            r#"{{"error": {{"code": "Forbidden", "message": "Caller is not authorized",
            "innererror": {{"code": "{inner}"}}}}}}"#
        )
    };
    let cases = [
        (404, r#"{"error": {"code": "SecretNotFound", "message": "no"}}"#.to_owned()),
        (403, forbidden("SecretDisabled")),
        (403, forbidden("ForbiddenByRbac")),
        (403, forbidden("ForbiddenByFirewall")),
        (403, forbidden("KeyOperationForbidden")),
        (403, forbidden("ForbiddenByTheMoon")),
        (503, String::new()),
        (302, "<html>captive portal</html>".to_owned()),
    ];
    let mut described = Vec::new();
    for (status, body) in cases {
        let error = read_error_for(status, &body).await;
        assert_eq!(error.status(), Some(status));
        assert_eq!(error.hop(), Hop::VaultRead);
        let hint = error.hint().unwrap();
        let begin: Vec<_> = hint.split([' ', ',']).take(2).collect();
        described.push(format!("{error} | {:?} | {}", error.retry(), begin.join(" ")));
    }
    let expected = [
        "the vault has no such object: 404 SecretNotFound (no) | Invalid | check name",
        "the object is disabled: 403 Forbidden SecretDisabled (Caller is not authorized) | \
         Invalid | enable this",
        "the vault forbids it: 403 Forbidden ForbiddenByRbac (Caller is not authorized) | \
         Denied | assign `Key",
        "the vault forbids it: 403 Forbidden ForbiddenByFirewall (Caller is not authorized) | \
         Denied | allow the",
        "the vault forbids it: 403 Forbidden KeyOperationForbidden (Caller is not authorized) | \
         Denied | add the",
        "the vault forbids it: 403 Forbidden ForbiddenByTheMoon (Caller is not authorized) | \
         Denied | look up",
        "the vault failed: 503 | Transient | wait ",
        "the vault responded with an unexpected status: 302 (<html>captive portal</html>) | \
         Denied | check that",
    ];
    assert_eq!(described, expected);
}

#[tokio::test]
async fn rejected_token_does_not_loop_on_challenges() {
    let body = r#"{"error": {"code": "Unauthorized", "message": "AKV10032: Invalid issuer."}}"#;
    let error = read_error_for(401, body).await;
    assert!(
        matches!(&error, VaultReadError::Unauthorized(reply) if reply.message.contains("AKV10032"))
    );
    assert_eq!(error.retry(), RetryClass::Denied);
}

#[tokio::test]
async fn throttling_returns_retry_after_without_client_retry() {
    const NOON: (&str, &str) = ("date", "Sat, 21 Nov 2026 12:00:00 GMT");
    let cases: [(ResponseHeaderPairs, Option<u64>); 7] = [
        (&[("retry-after", "7")], Some(7_000)),
        (&[("retry-after-ms", "250")], Some(250)),
        (&[("retry-after", "0")], None),
        (&[("retry-after", "Sat, 21 Nov 2026 12:01:30 GMT"), NOON], Some(90_000)),
        (&[("retry-after", "Sat, 21 Nov 2026 11:59:00 GMT"), NOON], None),
        (&[("retry-after", "Sat, 21 Nov 2026 12:01:30 GMT")], None),
        (&[], None),
    ];
    for (headers, millis) in cases {
        let mut vault = FakeVaultServer::new().with_page("/secrets/cpo", 429, "");
        for (name, value) in headers {
            vault = vault.with_page_header("/secrets/cpo", name, value);
        }
        let (vault, client) = open_vault(vault, CountingTokenCredential::default());
        let error = client.fetch_secret(&secret_name(), None).await.unwrap_err();
        let after = millis.map(Duration::from_millis);
        assert_eq!(error.retry(), RetryClass::Throttled { after }, "{headers:?}");
        assert_eq!(vault.recorded_requests.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn credential_failure_is_reported_as_the_token_hop() {
    for kind in [ErrorKind::Credential, ErrorKind::Io] {
        let (vault, client) = open_vault(
            FakeVaultServer::new(),
            CountingTokenCredential(Mutex::default(), Some(kind)),
        );
        let error = client.fetch_secret(&secret_name(), None).await.unwrap_err();
        assert_eq!(error.hop(), Hop::ImdsToken, "{error:?}");
        let cause = std::error::Error::source(&error).unwrap();
        assert!(cause.to_string().contains("AADSTS700027"));
        assert!(vault.recorded_requests.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn unreachable_vault_error_has_its_cause() {
    let client = open_vault(FakeVaultServer::new(), CountingTokenCredential::default()).1;
    let error = client.fetch_secret(&secret_name(), None).await.unwrap_err();
    assert!(matches!(error, VaultReadError::Unreachable { .. }), "{error:?}");
    assert_eq!(error.retry(), RetryClass::Transient);
}

#[tokio::test]
async fn token_is_never_sent_to_another_host_or_over_http() {
    let other = r#"Bearer authorization="https://login.microsoftonline.com/t", resource="https://vault.azure.cn""#;
    let body = r#"{"value": "x"}"#;
    let vault = FakeVaultServer { challenge: other, ..FakeVaultServer::new() }.with_page(
        "/secrets/cpo",
        200,
        body,
    );
    let (vault, client) = open_vault_in_unknown_cloud(vault, CountingTokenCredential::default());
    let error = client.fetch_secret(&secret_name(), None).await.unwrap_err();
    assert!(matches!(error, VaultReadError::UntrustedVault { .. }), "{error:?}");
    assert_eq!(vault.recorded_requests.lock().unwrap().len(), 1);

    let client: Arc<dyn HttpClient> = Arc::<FakeVaultServer>::clone(&vault);
    let options =
        ClientOptions { transport: Some(Transport::new(client)), ..ClientOptions::default() };
    let plain =
        KeyVault::new("http://kv1", Arc::new(CountingTokenCredential::default()), options).unwrap();
    let error = plain.fetch_secret(&secret_name(), None).await.unwrap_err();
    assert!(matches!(error, VaultReadError::UntrustedVault { .. }), "{error:?}");
    assert_eq!(vault.recorded_requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn too_large_body_is_malformed_and_no_outage() {
    let error = read_error_for(200, &"x".repeat(MAX_OBJECT_RESPONSE_BYTES + 1)).await;
    assert!(matches!(error, VaultReadError::Malformed { .. }), "{error:?}");
    assert!(!error.is_outage());
}

#[tokio::test]
async fn invalid_success_body_is_malformed_and_not_quoted() {
    for body in [
        r#"{"value": {"planted": 1}}"#,
        r#"{"value": "planted"}"#,
        r#"{"id": "https://kv1.vault.azure.net/secrets/cpo/planted"}"#,
        r#"{"value": "planted", "id": "https://kv1.vault.azure.net/secrets/cpo"}"#,
        "planted",
    ] {
        let error = read_error_for(200, body).await;
        assert!(matches!(error, VaultReadError::Malformed { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
    }
}

#[tokio::test]
async fn echoed_token_is_redacted_from_the_error() {
    let json = |code: &str, message: &str| {
        format!(
            r#"{{"error": {{"code": "{code}", "message": "{message}",
            "innererror": {{"code": "{code}"}}}}}}"#
        )
    };
    for body in [
        format!("<html><h1>Bad gateway</h1><pre>GET /\r\nAuthorization: {ECHO}</pre></html>"),
        format!("{} Authorization: {ECHO}", "x ".repeat(180)),
        json("Forbidden", &format!("you sent 'Authorization: {ECHO}'")),
        json(&format!("Authorization: {ECHO}"), "no"),
    ] {
        for status in [401, 403, 404, 418, 429, 502] {
            let error = read_error_for(status, &body).await;
            assert!(!format!("{error} {error:?}").contains("token-1"), "{error:?}");
            assert!(error.to_string().contains("[redacted]"), "{error}");
        }
    }
}

#[test]
fn transport_cool_down_is_throttling_with_remaining_time() {
    let remaining = Duration::from_secs(30);
    let cooling = ThrottledError {
        host: "kv1.vault.azure.net".to_owned(),
        cause: ThrottleCause::Throttled,
        remaining,
    };
    let error = classify_client_error(azure_core::Error::new(ErrorKind::Other, cooling));
    assert_eq!(error.retry(), RetryClass::Throttled { after: Some(remaining) });
    assert_eq!(error.hop(), Hop::VaultRead);
    assert_eq!(
        error.to_string(),
        "kv1.vault.azure.net requested a cool-down, which lasts another 30 s"
    );
    assert!(error.hint().unwrap().starts_with("wait"));
}

#[test]
fn only_an_open_circuit_reports_circuit_open_for() {
    let remaining = Duration::from_secs(30);
    let cooling = |because| {
        let host = "kv1.vault.azure.net".to_owned();
        classify_client_error(azure_core::Error::from(ThrottledError {
            host,
            cause: because,
            remaining,
        }))
    };
    for (because, turned_away, is_outage) in [
        (ThrottleCause::CircuitOpen, Some(remaining), true),
        // The vault requested this cool-down itself, so it does not count as an outage.
        (ThrottleCause::Throttled, None, true),
        (ThrottleCause::LocalRateLimit, None, false),
    ] {
        let error = cooling(because);
        assert_eq!(
            (error.circuit_open_for(), error.is_outage()),
            (turned_away, is_outage),
            "{error}"
        );
    }
    let refused = VaultReadError::Malformed { problem: "it is not the JSON of a list" };
    assert_eq!(refused.circuit_open_for(), None);
}

#[test]
fn full_request_queue_is_not_a_vault_outage() {
    let remaining = Duration::from_secs(70);
    let host = "kv1.vault.azure.net".to_owned();
    let cooling = ThrottledError { host, cause: ThrottleCause::LocalRateLimit, remaining };
    let error = classify_client_error(azure_core::Error::new(ErrorKind::Other, cooling));
    assert!(!error.is_outage() && !error.is_denied());
    assert_eq!(error.retry(), RetryClass::Throttled { after: Some(remaining) });
    assert_eq!(
        error.to_string(),
        "the rate limit of this node for kv1.vault.azure.net is reached, and this read would wait for 70 s"
    );
    assert!(error.hint().unwrap().contains("--vault-requests-per-second"));
}

#[test]
fn token_error_uses_retry_class_and_hint_of_the_credential() {
    let remaining = Duration::from_secs(30);
    let endpoint = || "https://login.microsoftonline.com/t/oauth2/v2.0/token".to_owned();
    for (cause, class) in [
        (TokenError::InvalidClaims, RetryClass::Invalid),
        (
            TokenError::TokenFileContent {
                path: "/var/run/token".into(),
                variable: "AZURE_FEDERATED_TOKEN_FILE",
                problem: "is empty",
            },
            RetryClass::Denied,
        ),
        (TokenError::Abandoned, RetryClass::Transient),
        (
            TokenError::CoolingDown { endpoint: endpoint(), client: None, remaining },
            RetryClass::Throttled { after: Some(remaining) },
        ),
    ] {
        let hint = cause.hint();
        // As `UncachedCredential` passes on an error of a credential, of any kind.
        let inner = azure_core::Error::new(ErrorKind::Io, cause);
        let error = classify_client_error(azure_core::Error::new(ErrorKind::Credential, inner));
        assert_eq!((error.retry(), error.hint()), (class, hint), "{error:?}");
        assert_eq!(error.hop(), Hop::ImdsToken);
    }
    let foreign = azure_core::Error::with_message(ErrorKind::Credential, "az is not there");
    assert_eq!(classify_client_error(foreign).retry(), RetryClass::Transient);
}

#[tokio::test]
async fn a_long_message_is_shortened() {
    let error = read_error_for(400, &"x".repeat(10_000)).await;
    assert!(error.to_string().len() < 500);
}

#[test]
fn vault_url_uses_the_suffix_of_its_cloud() {
    let name: VaultName = "kv1".parse().unwrap();
    let url = |cloud: Cloud| KeyVault::url_in_cloud(&name, cloud.endpoints().unwrap());
    assert_eq!(url(Cloud::Public), "https://kv1.vault.azure.net/");
    assert_eq!(url(Cloud::UsGovernment), "https://kv1.vault.usgovcloudapi.net/");
    assert_eq!(url(Cloud::China), "https://kv1.vault.azure.cn/");
}
