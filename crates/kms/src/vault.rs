//! The vault client: encrypts and decrypts with one key version.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::headers::HeaderName;
use azure_core::http::{Context, Method, Pipeline, PipelineSendOptions, RawResponse, Request, Url};
use lanyard_azure::{
    AzureErrorDetails, AzureTransport, BearerTokenPolicy, ReplyTooLarge, ThrottledError,
};
use lanyard_credential::reply;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::algorithm::KeyAlgorithm;
use crate::annotations::VaultReplyHeaders;
use crate::error::{KeyOperationError, VaultErrorReply};
use crate::key::PinnedKey;

/// An operation on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KmsKeyOperation {
    /// `encrypt`.
    Encrypt,
    /// `decrypt`.
    Decrypt,
}

impl KmsKeyOperation {
    /// The last segment of the request path.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
        }
    }
}

/// The result of a key operation.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyResult {
    /// The URL of the key version that was used.
    pub kid: Option<String>,
    /// The value as returned by the vault, base64url-encoded.
    pub value: Zeroizing<String>,
    pub reply_headers: VaultReplyHeaders,
}

// Omits the value, which may be a plaintext seed.
lanyard_vocabulary::debug_fields!(KeyResult { kid, reply_headers });

/// A client that encrypts and decrypts with one key version.
#[async_trait]
pub trait VaultKeyClient: fmt::Debug + Send + Sync + 'static {
    /// Makes sure that a token is cached, so that the next operation depends only on the vault and
    /// a timeout can be attributed to the token issuer or to the vault.
    async fn prepare_token(&self) -> Result<(), KeyOperationError> {
        Ok(())
    }

    /// Sends one request. Dropping the future cancels the request.
    async fn run_operation(
        &self,
        operation: KmsKeyOperation,
        algorithm: KeyAlgorithm,
        value: &str,
    ) -> Result<KeyResult, KeyOperationError>;
}

/// A key version in Azure Key Vault or a managed HSM.
///
/// The client sends each request once: the transport limits the rate, and the plugin, which knows
/// the API server's deadline, retries. It sends the token without waiting for an authentication
/// challenge: the cloud determines the service, so a challenge can never redirect the token
/// elsewhere.
#[derive(Debug)]
pub struct KeyVaultKeyClient {
    pipeline: Pipeline,
    url: String,
    /// The credential caches tokens, so the pipeline gets the token that `prepare_token` requested.
    credential: Arc<dyn TokenCredential>,
    scope: String,
}

/// The two operations are the same in all versions since 2016-10-01; every cloud serves this one.
const API_VERSION: &str = "7.4";

impl KeyVaultKeyClient {
    /// Creates a client that authenticates with `credential`.
    pub fn new(
        key: &PinnedKey,
        credential: Arc<dyn TokenCredential>,
        transport: &AzureTransport,
    ) -> Self {
        let authorize = BearerTokenPolicy::new(Arc::clone(&credential), key.scope());
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
struct KeyOperationBody<'a> {
    alg: &'static str,
    value: &'a str,
}

#[derive(Deserialize)]
struct KeyResultBody {
    kid: Option<String>,
    value: Option<String>,
}

#[async_trait]
impl VaultKeyClient for KeyVaultKeyClient {
    async fn prepare_token(&self) -> Result<(), KeyOperationError> {
        let token = self.credential.get_token(&[&self.scope], None).await;
        token.map(drop).map_err(|source| KeyOperationError::Token { source })
    }

    async fn run_operation(
        &self,
        operation: KmsKeyOperation,
        algorithm: KeyAlgorithm,
        value: &str,
    ) -> Result<KeyResult, KeyOperationError> {
        let url = format!("{}/{}?api-version={API_VERSION}", self.url, operation.name());
        let url: Url = url
            .parse()
            .map_err(|_malformed| KeyOperationError::Malformed { problem: "the request URL" })?;
        let body = KeyOperationBody { alg: algorithm.name(), value };
        let body = serde_json::to_vec(&body)
            .map_err(|_unwritable| KeyOperationError::Malformed { problem: "the request" })?;
        let mut request = Request::new(url, Method::Post);
        request.insert_header("accept", "application/json");
        request.insert_header("content-type", "application/json");
        // The body belongs to the transport and cannot be zeroized.
        request.set_body(body);
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        match self.pipeline.send(&Context::new(), &mut request, Some(options)).await {
            Ok(response) => parse_reply(&response, value),
            Err(error) => Err(transport_error(error)),
        }
    }
}

fn transport_error(source: azure_core::Error) -> KeyOperationError {
    if *source.kind() == ErrorKind::Credential {
        return KeyOperationError::Token { source };
    }
    if ReplyTooLarge::of(&source).is_some() {
        return KeyOperationError::Malformed { problem: "it is too large" };
    }
    match ThrottledError::of(&source) {
        Some(error) => {
            KeyOperationError::RequestWithheld { because: error.cause, remaining: error.remaining }
        }
        None => KeyOperationError::Unreachable { source },
    }
}

/// Parses the reply to a request that contained `value`.
fn parse_reply(response: &RawResponse, value: &str) -> Result<KeyResult, KeyOperationError> {
    let status = u16::from(response.status());
    if status != 200 {
        return Err(reply_error(status, response, value));
    }
    let malformed = |problem| KeyOperationError::Malformed { problem };
    let body: KeyResultBody = serde_json::from_slice(response.body())
        .map_err(|_quotes_the_value| malformed("it is not the JSON result of a key operation"))?;
    let value = body.value.map(Zeroizing::new).ok_or_else(|| malformed("it has no value"))?;
    let header = |name: &'static str| {
        let found = response.headers().get_optional_str(&HeaderName::from_static(name));
        found.unwrap_or_default().to_owned()
    };
    let reply_headers = VaultReplyHeaders {
        date: header("date"),
        request_id: header("x-ms-request-id"),
        region: header("x-ms-keyvault-region"),
    };
    Ok(KeyResult { kid: body.kid, value, reply_headers })
}

fn reply_error(status: u16, response: &RawResponse, value: &str) -> KeyOperationError {
    // A gateway may echo the request. A seed in it looks like a thumbprint, so it is redacted by value.
    let details = AzureErrorDetails::parse_redacting(response.body(), &[value]);
    let code = details.most_specific_code().map(str::to_owned);
    let reply = VaultErrorReply { status, code, message: details.message };
    let wait = || reply::retry_after_from_headers(response.headers());
    let is_restricted = |code: &str| {
        matches!(code, "KeyDisabled" | "KeyExpired" | "KeyNotYetValid" | "KeyOperationForbidden")
    };
    match status {
        401 => KeyOperationError::Unauthorized(reply),
        403 if reply.code.as_deref().is_some_and(is_restricted) => {
            KeyOperationError::KeyUnusable(reply)
        }
        403 => KeyOperationError::Forbidden(reply),
        404 => KeyOperationError::NotFound(reply),
        429 => KeyOperationError::Throttled { retry_after: wait(), reply },
        408 | 500..=599 => KeyOperationError::Failed { retry_after: wait(), reply },
        _ => KeyOperationError::Refused(reply),
    }
}

#[cfg(test)]
mod tests;
