use std::sync::Mutex;
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::http::headers::{AUTHORIZATION, HeaderName, Headers};
use azure_core::http::{AsyncRawResponse, HttpClient, Request, StatusCode, Transport};
use lanyard_azure::{CoolingCause, CoolingError};
use lanyard_credential::{RetryClass, TokenError};
use lanyard_vocabulary::{Cloud, Hop};

use super::*;

#[derive(Debug, Default)]
struct Page {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

/// A vault of one page for each path. It challenges whoever comes without a token, and puts the
/// request's `Authorization` where a page says [`ECHO`].
#[derive(Debug, Default)]
struct FakeVault {
    pages: HashMap<&'static str, Page>,
    asked: Mutex<Vec<String>>,
    challenge: &'static str,
}

const CHALLENGE: &str = r#"Bearer authorization="https://login.microsoftonline.com/t", resource="https://vault.azure.net""#;

type Pairs = &'static [(&'static str, &'static str)];

const ECHO: &str = "{authorization}";

impl FakeVault {
    fn new() -> Self {
        Self { challenge: CHALLENGE, ..Self::default() }
    }

    fn page(mut self, path: &'static str, status: u16, body: impl Into<String>) -> Self {
        self.pages.insert(path, Page { status, body: body.into(), ..Page::default() });
        self
    }

    fn header(mut self, path: &'static str, name: &'static str, value: &'static str) -> Self {
        self.pages.get_mut(path).unwrap().headers.push((name, value));
        self
    }
}

#[async_trait]
impl HttpClient for FakeVault {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let token = request.headers().get_optional_str(&AUTHORIZATION);
        let path = request.url().path().trim_end_matches('/').to_owned();
        let query = request.url().query().unwrap_or_default();
        let next = query.split('&').find(|pair| pair.starts_with("page")).unwrap_or_default();
        let path = format!("{path}{next}");
        self.asked.lock().unwrap().push(format!("{path} {}", token.unwrap_or("-")));
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

/// Hands out a new token each time.
#[derive(Debug, Default)]
struct Tokens(Mutex<u32>, Option<ErrorKind>);

#[async_trait]
impl TokenCredential for Tokens {
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

fn open(vault: FakeVault, tokens: Tokens) -> (Arc<FakeVault>, KeyVault) {
    let url = KeyVault::url_of(&"kv1".parse().unwrap(), Cloud::Public.endpoints().unwrap());
    open_at(&url, vault, tokens)
}

/// A vault of no cloud that we know, so that it has to be asked for its challenge.
fn open_elsewhere(vault: FakeVault, tokens: Tokens) -> (Arc<FakeVault>, KeyVault) {
    open_at("https://kv1.sub.vault.azure.net", vault, tokens)
}

fn open_at(url: &str, vault: FakeVault, tokens: Tokens) -> (Arc<FakeVault>, KeyVault) {
    let vault = Arc::new(vault);
    let client: Arc<dyn HttpClient> = Arc::<FakeVault>::clone(&vault);
    let options =
        ClientOptions { transport: Some(Transport::new(client)), ..ClientOptions::default() };
    (vault, KeyVault::new(url, Arc::new(tokens), options).unwrap())
}

fn name() -> SecretName {
    "cpo".parse().unwrap()
}

async fn error_of(status: u16, body: &str) -> VaultError {
    let vault = FakeVault::new().page("/secrets/cpo", status, body);
    open(vault, Tokens::default()).1.fetch_secret(&name(), None).await.unwrap_err()
}

#[tokio::test]
async fn a_secret_is_read_with_everything_the_vault_tells() {
    let body = r#"{
        "value": "planted", "id": "https://kv1.vault.azure.net/secrets/cpo/v7",
        "contentType": "application/x-pkcs12", "kid": "https://kv1.vault.azure.net/keys/cpo/v7",
        "attributes": {"enabled": true, "created": 100, "updated": 200, "nbf": 300, "exp": 400},
        "tags": {"renew_after": "2026-11-21T12:00:00Z", "other": "x"}, "unknown": {"a": 1}
    }"#;
    let vault = FakeVault::new().page("/secrets/cpo/v7", 200, body);
    let (vault, client) = open(vault, Tokens::default());
    let secret = client.fetch_secret(&name(), Some(&"v7".parse().unwrap())).await.unwrap();
    assert_eq!(secret.value.expose(), b"planted");
    assert_eq!(secret.version.as_str(), "v7");
    assert!(secret.of_certificate);
    assert_eq!(secret.content_type.as_deref(), Some("application/x-pkcs12"));
    let attributes = &secret.attributes;
    let seconds = [attributes.created, attributes.updated, attributes.not_before]
        .map(|time| time.unwrap().as_second());
    assert_eq!(seconds, [100, 200, 300]);
    assert_eq!(attributes.expires.unwrap().as_second(), 400);
    assert_eq!(attributes.renew_after(), "2026-11-21T12:00:00Z".parse().ok());
    assert!(!format!("{secret:?}").contains("planted"));
    let asked = vault.asked.lock().unwrap();
    assert_eq!(*asked, ["/secrets/cpo/v7 Bearer token-1"]);
}

#[tokio::test]
async fn the_challenge_is_asked_for_once_and_the_token_for_each_request() {
    let body = r#"{"value": "x", "id": "https://kv1.vault.azure.net/secrets/cpo/v7"}"#;
    let vault = FakeVault::new().page("/secrets/cpo", 200, body);
    let (vault, client) = open_elsewhere(vault, Tokens::default());
    for _ in 0..3 {
        client.fetch_secret(&name(), None).await.unwrap();
    }
    let asked = vault.asked.lock().unwrap();
    let tokens: Vec<_> = asked.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(tokens, ["-", "token-1", "token-2", "token-3"]);
}

#[tokio::test]
async fn a_vault_of_a_known_cloud_is_not_asked_for_its_challenge() {
    let body = r#"{"value": "x", "id": "https://kv1.vault.azure.net/secrets/cpo/v7"}"#;
    let vault = FakeVault::new().page("/secrets/cpo", 200, body);
    let (vault, client) = open(vault, Tokens::default());
    for _ in 0..2 {
        client.fetch_secret(&name(), None).await.unwrap();
    }
    let asked = vault.asked.lock().unwrap();
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
    let vault = FakeVault::new().page("/keys/cpo", 200, key).page("/keys/cpo/k2", 200, curve).page(
        "/certificates/cpo",
        200,
        certificate,
    );
    let client = open(vault, Tokens::default()).1;
    let key = client.fetch_key(&name(), None).await.unwrap();
    assert_eq!(key.version.as_str(), "k1");
    let (modulus, exponent) = (vec![0xc0, 0xc0, 0xc0], vec![1, 0, 1]);
    assert_eq!(key.key, PublicJwk::Rsa { modulus, exponent });
    let key = client.fetch_key(&name(), Some(&"k2".parse().unwrap())).await.unwrap();
    let (key_type, curve) = ("EC".to_owned(), Some("P-256K".to_owned()));
    assert_eq!(key.key, PublicJwk::Unsupported { key_type, curve });
    let certificate = client.fetch_certificate(&name(), None).await.unwrap();
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
    let vault = FakeVault::new()
        .page("/secrets/cpo/versions", 200, first)
        .page("/secrets/cpo/versionspage=2", 200, second)
        .page("/keys/cpo/versions", 200, keys)
        .page("/certificates/cpo/versions", 200, certificates);
    let client = open(vault, Tokens::default()).1;
    let mut found = Vec::new();
    for kind in ObjectKind::ALL {
        for listed in client.fetch_versions(kind, &name()).await.unwrap() {
            found.push((listed.version.to_string(), listed.attributes.enabled));
        }
    }
    let expected = [("v1", Some(false)), ("v2", None), ("k1", None), ("c1", None)];
    assert_eq!(found, expected.map(|(version, enabled)| (version.to_owned(), enabled)));
}

#[tokio::test]
async fn refusals_are_told_apart_with_code_and_next_step() {
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
        (503, String::new()),
        (302, "<html>captive portal</html>".to_owned()),
    ];
    let mut told = Vec::new();
    for (status, body) in cases {
        let error = error_of(status, &body).await;
        assert_eq!(error.status(), Some(status));
        assert_eq!(error.hop(), Hop::VaultRead);
        let hint = error.hint().unwrap();
        let begin: Vec<_> = hint.split([' ', ',']).take(2).collect();
        told.push(format!("{error} | {:?} | {}", error.retry(), begin.join(" ")));
    }
    let expected = [
        "the vault has no such object: 404 SecretNotFound (no) | Invalid | the identity",
        "the object is disabled: 403 Forbidden SecretDisabled (Caller is not authorized) | \
         Invalid | enable the",
        "the vault forbids it: 403 Forbidden ForbiddenByRbac (Caller is not authorized) | \
         Denied | assign `Key",
        "the vault forbids it: 403 Forbidden ForbiddenByFirewall (Caller is not authorized) | \
         Denied | the vault's",
        "the vault failed: 503 | Transient | wait ",
        "the vault answered what a read does not have: 302 (<html>captive portal</html>) | \
         Transient | check that",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_token_that_the_vault_refuses_is_no_endless_challenge() {
    let body = r#"{"error": {"code": "Unauthorized", "message": "AKV10032: Invalid issuer."}}"#;
    let error = error_of(401, body).await;
    assert!(
        matches!(&error, VaultError::Unauthorized(reply) if reply.message.contains("AKV10032"))
    );
    assert_eq!(error.retry(), RetryClass::Denied);
}

#[tokio::test]
async fn throttling_tells_the_pause_and_is_not_retried_by_the_client() {
    const NOON: (&str, &str) = ("date", "Sat, 21 Nov 2026 12:00:00 GMT");
    let cases: [(Pairs, Option<u64>); 7] = [
        (&[("retry-after", "7")], Some(7_000)),
        (&[("retry-after-ms", "250")], Some(250)),
        (&[("retry-after", "0")], None),
        (&[("retry-after", "Sat, 21 Nov 2026 12:01:30 GMT"), NOON], Some(90_000)),
        (&[("retry-after", "Sat, 21 Nov 2026 11:59:00 GMT"), NOON], None),
        (&[("retry-after", "Sat, 21 Nov 2026 12:01:30 GMT")], None),
        (&[], None),
    ];
    for (headers, millis) in cases {
        let mut vault = FakeVault::new().page("/secrets/cpo", 429, "");
        for (name, value) in headers {
            vault = vault.header("/secrets/cpo", name, value);
        }
        let (vault, client) = open(vault, Tokens::default());
        let error = client.fetch_secret(&name(), None).await.unwrap_err();
        let after = millis.map(Duration::from_millis);
        assert_eq!(error.retry(), RetryClass::Throttled { after }, "{headers:?}");
        assert_eq!(vault.asked.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_credential_that_fails_is_another_hop_whatever_its_error() {
    for kind in [ErrorKind::Credential, ErrorKind::Io] {
        let (vault, client) = open(FakeVault::new(), Tokens(Mutex::default(), Some(kind)));
        let error = client.fetch_secret(&name(), None).await.unwrap_err();
        assert_eq!(error.hop(), Hop::ImdsToken, "{error:?}");
        let cause = std::error::Error::source(&error).unwrap();
        assert!(cause.to_string().contains("AADSTS700027"));
        assert!(vault.asked.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_vault_that_cannot_be_reached_is_told_with_its_cause() {
    let client = open(FakeVault::new(), Tokens::default()).1;
    let error = client.fetch_secret(&name(), None).await.unwrap_err();
    assert!(matches!(error, VaultError::Unreachable { .. }), "{error:?}");
    assert_eq!(error.retry(), RetryClass::Transient);
}

#[tokio::test]
async fn no_token_goes_to_a_host_that_the_challenge_does_not_cover_nor_over_plain_http() {
    let other = r#"Bearer authorization="https://login.microsoftonline.com/t", resource="https://vault.azure.cn""#;
    let body = r#"{"value": "x"}"#;
    let vault = FakeVault { challenge: other, ..FakeVault::new() }.page("/secrets/cpo", 200, body);
    let (vault, client) = open_elsewhere(vault, Tokens::default());
    let error = client.fetch_secret(&name(), None).await.unwrap_err();
    assert!(matches!(error, VaultError::Untrusted { .. }), "{error:?}");
    assert_eq!(vault.asked.lock().unwrap().len(), 1);

    let client: Arc<dyn HttpClient> = Arc::<FakeVault>::clone(&vault);
    let options =
        ClientOptions { transport: Some(Transport::new(client)), ..ClientOptions::default() };
    let plain = KeyVault::new("http://kv1", Arc::new(Tokens::default()), options).unwrap();
    let error = plain.fetch_secret(&name(), None).await.unwrap_err();
    assert!(matches!(error, VaultError::Untrusted { .. }), "{error:?}");
    assert_eq!(vault.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_success_that_is_no_object_is_malformed_and_quotes_nothing() {
    for body in [
        r#"{"value": {"planted": 1}}"#,
        r#"{"value": "planted"}"#,
        r#"{"id": "https://kv1.vault.azure.net/secrets/cpo/planted"}"#,
        r#"{"value": "planted", "id": "https://kv1.vault.azure.net/secrets/cpo"}"#,
        "planted",
    ] {
        let error = error_of(200, body).await;
        assert!(matches!(error, VaultError::Malformed { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
    }
}

#[tokio::test]
async fn a_service_that_echoes_the_request_does_not_put_the_token_into_the_error() {
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
            let error = error_of(status, &body).await;
            assert!(!format!("{error} {error:?}").contains("token-1"), "{error:?}");
            assert!(error.to_string().contains("[redacted]"), "{error}");
        }
    }
}

#[test]
fn a_cool_down_of_the_transport_is_throttling_and_tells_the_rest_of_the_pause() {
    let remaining = Duration::from_secs(30);
    let cooling = CoolingError {
        host: "kv1.vault.azure.net".to_owned(),
        because: CoolingCause::Throttled,
        remaining,
    };
    let error = vault_error(azure_core::Error::new(ErrorKind::Other, cooling));
    assert_eq!(error.retry(), RetryClass::Throttled { after: Some(remaining) });
    assert_eq!(error.hop(), Hop::VaultRead);
    assert_eq!(error.to_string(), "kv1.vault.azure.net asked to be left alone for another 30 s");
    assert!(error.hint().unwrap().starts_with("wait"));
}

#[test]
fn only_who_was_not_asked_because_others_failed_was_turned_away() {
    let remaining = Duration::from_secs(30);
    let cooling = |because| {
        let host = "kv1.vault.azure.net".to_owned();
        vault_error(azure_core::Error::from(CoolingError { host, because, remaining }))
    };
    for (because, turned_away, is_outage) in [
        (CoolingCause::Outage, Some(remaining), true),
        // It asked for this pause itself, which says how often it wants to be asked.
        (CoolingCause::Throttled, None, true),
        (CoolingCause::Busy, None, false),
    ] {
        let error = cooling(because);
        assert_eq!((error.turned_away(), error.is_outage()), (turned_away, is_outage), "{error}");
    }
    let refused = VaultError::Malformed { problem: "it is not the JSON of a list" };
    assert_eq!(refused.turned_away(), None);
}

#[test]
fn the_queue_of_the_node_is_no_outage_of_the_vault() {
    let remaining = Duration::from_secs(70);
    let host = "kv1.vault.azure.net".to_owned();
    let cooling = CoolingError { host, because: CoolingCause::Busy, remaining };
    let error = vault_error(azure_core::Error::new(ErrorKind::Other, cooling));
    assert!(!error.is_outage() && !error.is_refusal());
    assert_eq!(error.retry(), RetryClass::Throttled { after: Some(remaining) });
    assert_eq!(
        error.to_string(),
        "this node asks kv1.vault.azure.net as fast as it may, and this read would wait for 70 s"
    );
    assert!(error.hint().unwrap().contains("--vault-requests-per-second"));
}

#[test]
fn a_read_without_a_token_is_retried_as_the_credential_says_and_hints_what_it_hints() {
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
        // As `Uncached` passes on what a credential of any kind of error gives.
        let inner = azure_core::Error::new(ErrorKind::Io, cause);
        let error = vault_error(azure_core::Error::new(ErrorKind::Credential, inner));
        assert_eq!((error.retry(), error.hint()), (class, hint), "{error:?}");
        assert_eq!(error.hop(), Hop::ImdsToken);
    }
    let foreign = azure_core::Error::with_message(ErrorKind::Credential, "az is not there");
    assert_eq!(vault_error(foreign).retry(), RetryClass::Transient);
}

#[tokio::test]
async fn a_long_message_is_shortened() {
    let error = error_of(400, &"x".repeat(10_000)).await;
    assert!(error.to_string().len() < 500);
}

#[test]
fn a_vault_has_its_place_in_every_cloud() {
    let name: VaultName = "kv1".parse().unwrap();
    let url = |cloud: Cloud| KeyVault::url_of(&name, cloud.endpoints().unwrap());
    assert_eq!(url(Cloud::Public), "https://kv1.vault.azure.net/");
    assert_eq!(url(Cloud::UsGovernment), "https://kv1.vault.usgovcloudapi.net/");
    assert_eq!(url(Cloud::China), "https://kv1.vault.azure.cn/");
}
