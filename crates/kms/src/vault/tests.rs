use azure_core::credentials::{AccessToken, TokenRequestOptions};
use azure_core::http::headers::{AUTHORIZATION, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, StatusCode};
use azure_core::time::OffsetDateTime;
use lanyard_azure::{AzureTransportSettings, RetryPolicy};
use lanyard_clock::{ErrorHint as _, RetryClass, SystemClock};
use parking_lot::Mutex;

use super::*;
use crate::fake_vault::test_vector_key;
use crate::layout::CiphertextLayout;

fn parse_example_reply(status: u16, body: &'static str) -> Result<KeyResult, KeyOperationError> {
    let mut headers = Headers::new();
    headers.insert("date", "Sat, 21 Nov 2026 12:00:00 GMT");
    headers.insert("retry-after", "7");
    parse_reply(&RawResponse::from_bytes(StatusCode::from(status), headers, body), "QUJD")
}

#[test]
fn key_result_keeps_fields_and_hides_value() {
    let result = parse_example_reply(200, r#"{"kid":"https://k/1","value":"cGxhbnRlZA"}"#).unwrap();
    assert_eq!((result.kid.as_deref(), &**result.value), (Some("https://k/1"), "cGxhbnRlZA"));
    assert_eq!(result.reply_headers.date, "Sat, 21 Nov 2026 12:00:00 GMT");
    assert_eq!(result.reply_headers.region, "");
    assert!(!format!("{result:?}").contains("cGxhbnRlZA"));
    for body in ["", "<html>", r#"{"kid":"x"}"#, r#"{"value":7,"kid":"cGxhbnRlZA"}"#] {
        let error = parse_example_reply(200, body).unwrap_err();
        assert_eq!(error.label(), "malformed", "{body}");
        assert!(!format!("{error:?}").contains("cGxhbnRlZA"));
    }
}

#[test]
fn too_large_reply_is_not_requested_again() {
    let source = azure_core::Error::new(ErrorKind::Other, ReplyTooLarge { limit: 8 });
    let error = transport_error(source);
    assert_eq!((error.label(), error.retry_class()), ("malformed", RetryClass::Denied));
}

#[test]
fn each_error_status_has_label_and_hint() {
    const FORBIDDEN: [&str; 4] = [
        r#"{"error":{"code":"Forbidden","message":"m","innererror":{"code":"ForbiddenByRbac"}}}"#,
        r#"{"error":{"code":"Forbidden","message":"m","innererror":{"code":"KeyDisabled"}}}"#,
        r#"{"error":{"code":"Forbidden","message":"m","innererror":{"code":"KeyOperationForbidden"}}}"#,
        r#"{"error":{"code":"Forbidden","message":"m","innererror":{"code":"ForbiddenByTheMoon"}}}"#,
    ];
    let cases = [
        (401, "{}", "unauthorized", "proxy or gateway"),
        (403, FORBIDDEN[0], "forbidden", "`Key Vault Crypto User` on the key"),
        (403, FORBIDDEN[1], "key-restricted", "enable this version"),
        (403, FORBIDDEN[2], "key-restricted", "`key_ops`"),
        (403, FORBIDDEN[3], "forbidden", "no advice; the service says: m"),
        (404, r#"{"error":{"code":"KeyNotFound","message":"m"}}"#, "not-found", "--key-name"),
        (400, r#"{"error":{"code":"BadParameter","message":"m"}}"#, "refused", "RSA key"),
        (429, "", "throttled", "wait"),
        (408, "", "vault-failed", "wait"),
        (503, "<html>bad gateway</html>", "vault-failed", "wait"),
    ];
    for (status, body, word, hint) in cases {
        let error = parse_example_reply(status, body).unwrap_err();
        assert_eq!(error.label(), word, "{status}");
        let found = error.hint().unwrap();
        assert!(found.contains(hint), "{status} {body}: {found}");
        let passes = matches!(status, 408 | 429 | 503);
        assert_eq!(error.retry_class().is_temporary(), passes, "{status}");
    }
    let text = parse_example_reply(403, FORBIDDEN[1]).unwrap_err().to_string();
    assert_eq!(text, "the key cannot be used: 403 KeyDisabled: m");
}

#[test]
fn retry_after_of_vault_is_kept() {
    let error = parse_example_reply(429, "").unwrap_err();
    let after = Some(std::time::Duration::from_secs(7));
    assert_eq!(error.retry_class(), RetryClass::Throttled { after });
}

/// Gives each request the same reply, and records the requests.
#[derive(Debug)]
struct RecordingHttpClient {
    requests: Mutex<Vec<(String, String, Vec<u8>)>>,
    status: u16,
    body: &'static str,
}

#[async_trait]
impl HttpClient for RecordingHttpClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let header = request.headers().get_optional_str(&AUTHORIZATION).unwrap_or_default();
        let Body::Bytes(body) = request.body() else { panic!("the body is a stream") };
        let line = format!("{} {}", request.method(), request.url());
        self.requests.lock().push((line, header.to_owned(), body.to_vec()));
        let status = StatusCode::from(self.status);
        Ok(AsyncRawResponse::from_bytes(status, Headers::new(), self.body))
    }
}

#[derive(Debug)]
struct FakeTokenCredential;

#[async_trait]
impl TokenCredential for FakeTokenCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        _options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let token = format!("token for {}", scopes.join(" "));
        Ok(AccessToken::new(token, OffsetDateTime::UNIX_EPOCH))
    }
}

fn recording_vault(
    status: u16,
    body: &'static str,
) -> (KeyVaultKeyClient, Arc<RecordingHttpClient>) {
    let recorder = Arc::new(RecordingHttpClient { requests: Mutex::default(), status, body });
    (vault_with_client(Arc::<RecordingHttpClient>::clone(&recorder)), recorder)
}

fn vault_with_client(client: Arc<dyn HttpClient>) -> KeyVaultKeyClient {
    let retry = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let settings = AzureTransportSettings { retry, ..AzureTransportSettings::default() };
    let transport = AzureTransport::from_http_client(client, &settings, SystemClock::shared());
    KeyVaultKeyClient::new(&test_vector_key(), Arc::new(FakeTokenCredential), &transport)
}

#[tokio::test]
async fn key_operation_sends_one_authorized_request() {
    let (vault, recorder) = recording_vault(200, r#"{"kid":"k","value":"AAEC"}"#);
    let decrypt = KmsKeyOperation::Decrypt;
    let result = vault.run_operation(decrypt, KeyAlgorithm::Rsa15, "QUJD").await.unwrap();
    assert_eq!(&**result.value, "AAEC");
    let asked = recorder.requests.lock();
    let [(line, authorization, body)] = asked.as_slice() else { panic!("{asked:?}") };
    let url = "https://example.vault.azure.net/keys/mykey/ABCD/decrypt?api-version=7.4";
    assert_eq!(line, &format!("POST {url}"));
    assert_eq!(authorization, "Bearer token for https://vault.azure.net/.default");
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body, serde_json::json!({ "alg": "RSA1_5", "value": "QUJD" }));
}

#[tokio::test]
async fn errors_contain_no_value_and_no_token() {
    for (status, body) in [(200, "planted-value"), (400, "Bearer eyJhbGciOiJub25lIn0.e30.c2ln")] {
        let (vault, recorder) = recording_vault(status, body);
        let asked =
            vault.run_operation(KmsKeyOperation::Encrypt, KeyAlgorithm::RsaOaep256, "cGxhbnRlZA");
        let error = asked.await.unwrap_err();
        let text = format!("{error} {error:?}");
        for secret in ["cGxhbnRlZA", "planted-value", "eyJ", "token for"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(recorder.requests.lock().len(), 1, "only the plugin retries");
    }
}

/// A gateway whose error page echoes the request.
#[derive(Debug)]
struct EchoingGateway(u16, fn(&str) -> String);

#[async_trait]
impl HttpClient for EchoingGateway {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let Body::Bytes(body) = request.body() else { panic!("the body is a stream") };
        let page = self.1(std::str::from_utf8(body).unwrap());
        Ok(AsyncRawResponse::from_bytes(StatusCode::from(self.0), Headers::new(), page))
    }
}

#[tokio::test]
async fn echoed_request_is_redacted_in_every_layout() {
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
    let algorithms = [KeyAlgorithm::RsaOaep256, KeyAlgorithm::Rsa15];
    for (layout, algorithm) in [CiphertextLayout::Upstream, CiphertextLayout::OpenShift]
        .into_iter()
        .flat_map(|layout| algorithms.map(|algorithm| (layout, algorithm)))
    {
        let value = layout.encrypt_value(&PLAINTEXT);
        for (status, page) in
            [400, 403, 429, 502].into_iter().flat_map(|it| pages.map(|page| (it, page)))
        {
            let vault = vault_with_client(Arc::new(EchoingGateway(status, page)));
            let error =
                vault.run_operation(KmsKeyOperation::Encrypt, algorithm, &value).await.unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains("Blocked") && text.contains("[redacted]"), "{text}");
            let shown = value
                .as_bytes()
                .windows(12)
                .find(|part| text.contains(std::str::from_utf8(part).unwrap()));
            assert_eq!(shown, None, "{layout} {text}");
        }
    }
}
