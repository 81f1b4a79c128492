//! The vault: encrypt and decrypt with one key version.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::headers::HeaderName;
use azure_core::http::{Context, Method, Pipeline, PipelineSendOptions, RawResponse, Request, Url};
use lanyard_azure::{Authorize, CoolingError, Refusal, Transport};
use lanyard_credential::reply;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::algorithm::Algorithm;
use crate::annotations::ReplyStamps;
use crate::error::{VaultError, VaultReply};
use crate::key::PinnedKey;

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyOperation {
    /// `encrypt`.
    Encrypt,
    /// `decrypt`.
    Decrypt,
}

impl KeyOperation {
    /// The last segment of the path, and the label of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
        }
    }
}

/// What the vault returned.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyResult {
    /// The URL of the key version that was used.
    pub kid: Option<String>,
    /// The value, as it came.
    pub value: Zeroizing<String>,
    /// What the reply says about itself.
    pub stamps: ReplyStamps,
}

/// The value may be a seed in the clear.
impl fmt::Debug for KeyResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KeyResult")
            .field("kid", &self.kid)
            .field("stamps", &self.stamps)
            .finish_non_exhaustive()
    }
}

/// Something that encrypts and decrypts with one key version.
#[async_trait]
pub trait KeyOperations: fmt::Debug + Send + Sync + 'static {
    /// Has a token at hand, so that what comes next is between the plugin and the vault alone:
    /// whoever is late is told by name.
    async fn authenticate(&self) -> Result<(), VaultError> {
        Ok(())
    }

    /// Asks once. Dropping the future gives the request up.
    async fn operate(
        &self,
        operation: KeyOperation,
        algorithm: Algorithm,
        value: &str,
    ) -> Result<KeyResult, VaultError>;
}

/// A key version in a vault on Azure.
///
/// It asks once and never again; the transport paces, and the plugin, which knows how long the API
/// server waits, repeats. The token is sent unasked: the service is known from the cloud, so that
/// there is no challenge to be followed elsewhere.
#[derive(Debug)]
pub struct VaultKey {
    pipeline: Pipeline,
    url: String,
    /// It keeps its tokens, so the pipeline finds the one that is at hand.
    credential: Arc<dyn TokenCredential>,
    scope: String,
}

/// Any version since 2016-10-01 has the two operations, and they are the same in all of them; this
/// one is served in every cloud.
const API_VERSION: &str = "7.4";

impl VaultKey {
    /// A key that is used as `credential`.
    pub fn new(
        key: &PinnedKey,
        credential: Arc<dyn TokenCredential>,
        transport: &Transport,
    ) -> Self {
        let authorize = Authorize::new(Arc::clone(&credential), key.scope());
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            transport.client_options(),
            Vec::new(),
            vec![Arc::new(authorize)],
            None,
        );
        Self { pipeline, url: key.url().to_owned(), credential, scope: key.scope() }
    }
}

#[derive(Serialize)]
struct OperationBody<'a> {
    alg: &'static str,
    value: &'a str,
}

#[derive(Deserialize)]
struct ResultBody {
    kid: Option<String>,
    value: Option<String>,
}

#[async_trait]
impl KeyOperations for VaultKey {
    async fn authenticate(&self) -> Result<(), VaultError> {
        let token = self.credential.get_token(&[&self.scope], None).await;
        token.map(drop).map_err(|source| VaultError::Token { source })
    }

    async fn operate(
        &self,
        operation: KeyOperation,
        algorithm: Algorithm,
        value: &str,
    ) -> Result<KeyResult, VaultError> {
        let url = format!("{}/{}?api-version={API_VERSION}", self.url, operation.name());
        let url: Url =
            url.parse().map_err(|_malformed| VaultError::Malformed { problem: "its url" })?;
        let body = OperationBody { alg: algorithm.name(), value };
        let body = serde_json::to_vec(&body)
            .map_err(|_unwritable| VaultError::Malformed { problem: "the request" })?;
        let mut request = Request::new(url, Method::Post);
        request.insert_header("accept", "application/json");
        request.insert_header("content-type", "application/json");
        // The transport's copy is not wiped: it is its own.
        request.set_body(body);
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        match self.pipeline.send(&Context::new(), &mut request, Some(options)).await {
            Ok(response) => read(&response),
            Err(error) => Err(unanswered(error)),
        }
    }
}

fn unanswered(source: azure_core::Error) -> VaultError {
    if *source.kind() == ErrorKind::Credential {
        return VaultError::Token { source };
    }
    match CoolingError::of(&source) {
        Some(cooling) => {
            VaultError::LeftAlone { because: cooling.because, remaining: cooling.remaining }
        }
        None => VaultError::Unreachable { source },
    }
}

fn read(response: &RawResponse) -> Result<KeyResult, VaultError> {
    let status = u16::from(response.status());
    if status != 200 {
        return Err(refusal(status, response));
    }
    let malformed = |problem| VaultError::Malformed { problem };
    let body: ResultBody = serde_json::from_slice(response.body())
        .map_err(|_quotes_the_value| malformed("it is not the JSON of a key operation"))?;
    let value = body.value.map(Zeroizing::new).ok_or_else(|| malformed("it has no value"))?;
    let header = |name: &'static str| {
        let found = response.headers().get_optional_str(&HeaderName::from_static(name));
        found.unwrap_or_default().to_owned()
    };
    let stamps = ReplyStamps {
        date: header("date"),
        request_id: header("x-ms-request-id"),
        region: header("x-ms-keyvault-region"),
    };
    Ok(KeyResult { kid: body.kid, value, stamps })
}

fn refusal(status: u16, response: &RawResponse) -> VaultError {
    let refusal = Refusal::parse(response.body());
    let code = refusal.told_code().map(str::to_owned);
    let reply = VaultReply { status, code, message: refusal.message };
    let wait = || reply::retry_after_as_told(response.headers());
    let is_restricted = |code: &str| {
        matches!(code, "KeyDisabled" | "KeyExpired" | "KeyNotYetValid" | "KeyOperationForbidden")
    };
    match status {
        401 => VaultError::Unauthorized(reply),
        403 if reply.code.as_deref().is_some_and(is_restricted) => VaultError::Restricted(reply),
        403 => VaultError::Forbidden(reply),
        404 => VaultError::NotFound(reply),
        429 => VaultError::Throttled { wait: wait(), reply },
        408 | 500..=599 => VaultError::Failed { wait: wait(), reply },
        _ => VaultError::Refused(reply),
    }
}

#[cfg(test)]
mod tests {
    use azure_core::credentials::{AccessToken, TokenRequestOptions};
    use azure_core::http::headers::{AUTHORIZATION, Headers};
    use azure_core::http::{AsyncRawResponse, Body, HttpClient, StatusCode};
    use azure_core::time::OffsetDateTime;
    use lanyard_azure::{RetryPolicy, TransportSettings};
    use lanyard_clock::SystemClock;
    use parking_lot::Mutex;

    use super::*;
    use crate::software::pinned;

    fn answered(status: u16, body: &'static str) -> Result<KeyResult, VaultError> {
        let mut headers = Headers::new();
        headers.insert("date", "Sat, 21 Nov 2026 12:00:00 GMT");
        headers.insert("retry-after", "7");
        read(&RawResponse::from_bytes(StatusCode::from(status), headers, body))
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
        let client: Arc<dyn HttpClient> = Arc::<Recorder>::clone(&recorder);
        let retry = RetryPolicy { retries: 0, ..RetryPolicy::default() };
        let settings = TransportSettings { retry, ..TransportSettings::default() };
        let transport = Transport::over(client, &settings, SystemClock::shared());
        (VaultKey::new(&pinned(), Arc::new(OneToken), &transport), recorder)
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
        for (status, body) in [(200, "planted-value"), (400, "Bearer eyJhbGciOiJub25lIn0.e30.c2ln")]
        {
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
}
