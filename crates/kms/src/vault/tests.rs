use azure_core::credentials::{AccessToken, TokenRequestOptions};
use azure_core::http::headers::{AUTHORIZATION, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, StatusCode};
use azure_core::time::OffsetDateTime;
use lanyard_azure::{RetryPolicy, TransportSettings};
use lanyard_clock::SystemClock;
use parking_lot::Mutex;

use super::*;
use crate::layout::Layout;
use crate::software::pinned;

fn answered(status: u16, body: &'static str) -> Result<KeyResult, VaultError> {
    let mut headers = Headers::new();
    headers.insert("date", "Sat, 21 Nov 2026 12:00:00 GMT");
    headers.insert("retry-after", "7");
    read(&RawResponse::from_bytes(StatusCode::from(status), headers, body), "QUJD")
}

#[test]
fn a_result_keeps_value_kid_and_stamps_and_prints_no_value() {
    let result = answered(200, r#"{"kid":"https://k/1","value":"cGxhbnRlZA"}"#).unwrap();
    assert_eq!((result.kid.as_deref(), &**result.value), (Some("https://k/1"), "cGxhbnRlZA"));
    assert_eq!(result.stamps.date, "Sat, 21 Nov 2026 12:00:00 GMT");
    assert_eq!(result.stamps.region, "");
    assert!(!format!("{result:?}").contains("cGxhbnRlZA"));
    for body in ["", "<html>", r#"{"kid":"x"}"#, r#"{"value":7,"kid":"cGxhbnRlZA"}"#] {
        let error = answered(200, body).unwrap_err();
        assert_eq!(error.word(), "malformed", "{body}");
        assert!(!format!("{error:?}").contains("cGxhbnRlZA"));
    }
}

#[test]
fn each_refusal_has_its_class_and_its_next_step() {
    let inner = |code: &'static str| -> &'static str {
        match code {
            "ForbiddenByRbac" => {
                r#"{"error":{"code":"Forbidden","message":"m","innererror":{"code":"ForbiddenByRbac"}}}"#
            }
            _ => {
                r#"{"error":{"code":"Forbidden","message":"m","innererror":{"code":"KeyDisabled"}}}"#
            }
        }
    };
    let cases = [
        (401, "{}", "unauthorized"),
        (403, inner("ForbiddenByRbac"), "forbidden"),
        (403, inner("KeyDisabled"), "key-restricted"),
        (404, r#"{"error":{"code":"KeyNotFound","message":"m"}}"#, "not-found"),
        (400, r#"{"error":{"code":"BadParameter","message":"m"}}"#, "refused"),
        (429, "", "throttled"),
        (408, "", "vault-failed"),
        (503, "<html>bad gateway</html>", "vault-failed"),
    ];
    for (status, body, word) in cases {
        let error = answered(status, body).unwrap_err();
        assert_eq!(error.word(), word, "{status}");
        assert!(error.hint().is_some());
        let passes = matches!(status, 408 | 429 | 503);
        assert_eq!(error.passes().is_some(), passes, "{status}");
    }
    let text = answered(403, inner("KeyDisabled")).unwrap_err().to_string();
    assert_eq!(text, "the key cannot be used: 403 KeyDisabled: m");
}

#[test]
fn what_the_vault_wants_to_be_waited_for_is_kept() {
    let error = answered(429, "").unwrap_err();
    assert_eq!(error.passes(), Some(std::time::Duration::from_secs(7)));
}

/// Answers one reply to everything, and keeps what was asked.
#[derive(Debug)]
struct Recorder {
    asked: Mutex<Vec<(String, String, Vec<u8>)>>,
    status: u16,
    body: &'static str,
}

#[async_trait]
impl HttpClient for Recorder {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let header = request.headers().get_optional_str(&AUTHORIZATION).unwrap_or_default();
        let Body::Bytes(body) = request.body() else { panic!("the body is a stream") };
        let line = format!("{} {}", request.method(), request.url());
        self.asked.lock().push((line, header.to_owned(), body.to_vec()));
        let status = StatusCode::from(self.status);
        Ok(AsyncRawResponse::from_bytes(status, Headers::new(), self.body))
    }
}

#[derive(Debug)]
struct OneToken;

#[async_trait]
impl TokenCredential for OneToken {
    async fn get_token(
        &self,
        scopes: &[&str],
        _options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let token = format!("token for {}", scopes.join(" "));
        Ok(AccessToken::new(token, OffsetDateTime::UNIX_EPOCH))
    }
}

fn vault(status: u16, body: &'static str) -> (VaultKey, Arc<Recorder>) {
    let recorder = Arc::new(Recorder { asked: Mutex::default(), status, body });
    (vault_behind(Arc::<Recorder>::clone(&recorder)), recorder)
}

fn vault_behind(client: Arc<dyn HttpClient>) -> VaultKey {
    let retry = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let settings = TransportSettings { retry, ..TransportSettings::default() };
    let transport = Transport::over(client, &settings, SystemClock::shared());
    VaultKey::new(&pinned(), Arc::new(OneToken), &transport)
}

#[tokio::test]
async fn an_operation_is_one_request_with_the_token_of_the_vaults_service() {
    let (vault, recorder) = vault(200, r#"{"kid":"k","value":"AAEC"}"#);
    let decrypt = KeyOperation::Decrypt;
    let result = vault.operate(decrypt, Algorithm::Rsa15, "QUJD").await.unwrap();
    assert_eq!(&**result.value, "AAEC");
    let asked = recorder.asked.lock();
    let [(line, authorization, body)] = asked.as_slice() else { panic!("{asked:?}") };
    let url = "https://example.vault.azure.net/keys/mykey/ABCD/decrypt?api-version=7.4";
    assert_eq!(line, &format!("POST {url}"));
    assert_eq!(authorization, "Bearer token for https://vault.azure.net/.default");
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body, serde_json::json!({ "alg": "RSA1_5", "value": "QUJD" }));
}

#[tokio::test]
async fn no_error_shows_the_value_or_the_token() {
    for (status, body) in [(200, "planted-value"), (400, "Bearer eyJhbGciOiJub25lIn0.e30.c2ln")] {
        let (vault, recorder) = vault(status, body);
        let asked = vault.operate(KeyOperation::Encrypt, Algorithm::RsaOaep256, "cGxhbnRlZA");
        let error = asked.await.unwrap_err();
        let told = format!("{error} {error:?}");
        for secret in ["cGxhbnRlZA", "planted-value", "eyJ", "token for"] {
            assert!(!told.contains(secret), "{told}");
        }
        assert_eq!(recorder.asked.lock().len(), 1, "the plugin repeats, not the transport");
    }
}

/// A gateway that answers with the request in its page.
#[derive(Debug)]
struct Echo(u16, fn(&str) -> String);

#[async_trait]
impl HttpClient for Echo {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let Body::Bytes(body) = request.body() else { panic!("the body is a stream") };
        let page = self.1(std::str::from_utf8(body).unwrap());
        Ok(AsyncRawResponse::from_bytes(StatusCode::from(self.0), Headers::new(), page))
    }
}

#[tokio::test]
async fn a_page_that_echoes_the_request_shows_no_seed_of_any_layout_and_version() {
    const PLAINTEXT: [u8; 32] = *b"a seed of an API server's, as is";
    let pages: [fn(&str) -> String; 4] = [
        |body| format!("<html>Blocked<pre>POST {body}</pre>"),
        |body| format!("Blocked {}", &body[..body.len() - 9]),
        |body| {
            format!(
                "Blocked {}",
                body.split("")
                    .collect::<Vec<_>>()
                    .chunks(26)
                    .map(<[_]>::concat)
                    .collect::<Vec<_>>()
                    .join("\n")
            )
        },
        |body| serde_json::json!({"error": {"code": "Blocked", "message": body}}).to_string(),
    ];
    let algorithms = [Algorithm::RsaOaep256, Algorithm::Rsa15];
    for (layout, algorithm) in [Layout::Upstream, Layout::OpenShift]
        .into_iter()
        .flat_map(|layout| algorithms.map(|algorithm| (layout, algorithm)))
    {
        let value = layout.encrypt_value(&PLAINTEXT);
        for (status, page) in
            [400, 403, 429, 502].into_iter().flat_map(|it| pages.map(|page| (it, page)))
        {
            let vault = vault_behind(Arc::new(Echo(status, page)));
            let error = vault.operate(KeyOperation::Encrypt, algorithm, &value).await.unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(told.contains("Blocked") && told.contains("[redacted]"), "{told}");
            let shown = value
                .as_bytes()
                .windows(12)
                .find(|part| told.contains(std::str::from_utf8(part).unwrap()));
            assert_eq!(shown, None, "{layout} {told}");
        }
    }
}
