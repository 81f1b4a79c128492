//! Runs one conformance case with the Azure SDK for Rust.
//!
//! Usage: `rust-clients CALL:CREDENTIAL < inputs.json`, or `rust-clients lifecycle:NAME < inputs.json`
//!
//! Standard input is a JSON object with the inputs. Standard output is a JSON object: the result of the call, or
//! `{"refused": {"code", "inner", "status", "message"}}` with the error that the client reported. A lifecycle
//! prints one JSON object for each step. The clients are unmodified: only `HTTPS_PROXY` and `SSL_CERT_FILE` direct
//! their requests to the local Azure.
//!
//! No case uses the certificate credential of the SDK, because it needs OpenSSL.

mod lifecycles;

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use azure_core::credentials::{Secret, TokenCredential};
use azure_core::error::ErrorKind;
use azure_core::http::RawResponse;
use azure_core::http::headers::HeaderName;
use azure_identity::{
    ClientSecretCredential, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use azure_security_keyvault_secrets::SecretClient;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RustClientInputs {
    tenant: String,
    client: String,
    client_secret: String,
    token_file: String,
    scope: String,
    vault: String,
    secret_name: String,
    storage_account: String,
}

const USAGE: &str = "usage: rust-clients CALL:CREDENTIAL|lifecycle:NAME < inputs.json";

pub type SharedCredential = Arc<dyn TokenCredential>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run_case().await {
        Ok(answer) => {
            if let Some(answer) = answer {
                println!("{answer}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rust-clients: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_case() -> Result<Option<Value>, Box<dyn Error>> {
    let case = std::env::args().nth(1).ok_or(USAGE)?;
    let (call, credential) = case.split_once(':').ok_or(USAGE)?;
    let inputs: RustClientInputs = serde_json::from_reader(io::stdin().lock())?;
    if call == "lifecycle" {
        let owner = build_credential("secret", &inputs)??;
        lifecycles::run_lifecycle(credential, owner, &inputs).await?;
        return Ok(None);
    }
    let answer = match build_credential(credential, &inputs)? {
        Ok(credential) => match call {
            "token" => read_token(&credential, &inputs).await,
            "vault" => read_secret(credential, &inputs).await,
            _ => return Err(format!("no call is named `{call}`").into()),
        },
        Err(error) => Err(error),
    };
    Ok(Some(answer.unwrap_or_else(|error| json!({ "refused": rejection(&error) }))))
}

/// Builds a credential. The inner error is that of the client, the outer one reports an unknown name.
fn build_credential(
    name: &str,
    inputs: &RustClientInputs,
) -> Result<Result<SharedCredential, azure_core::Error>, Box<dyn Error>> {
    let secret = |tenant: &str, text: &str| {
        ClientSecretCredential::new(
            tenant,
            inputs.client.clone(),
            Secret::new(text.to_owned()),
            None,
        )
        .map(|it| it as SharedCredential)
    };
    Ok(match name {
        "secret" => secret(&inputs.tenant, &inputs.client_secret),
        "wrong-secret" => secret(&inputs.tenant, "not-the-secret"),
        "foreign-tenant" => secret("2c0e6f0a-6d3b-4f57-9d0c-5b8f4e1a7c39", &inputs.client_secret),
        "federated" => WorkloadIdentityCredential::new(Some(WorkloadIdentityCredentialOptions {
            client_id: Some(inputs.client.clone()),
            tenant_id: Some(inputs.tenant.clone()),
            token_file_path: Some(inputs.token_file.clone().into()),
            ..WorkloadIdentityCredentialOptions::default()
        }))
        .map(|it| it as SharedCredential),
        "managed-identity" => {
            ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions {
                user_assigned_id: Some(UserAssignedId::ClientId(inputs.client.clone())),
                ..ManagedIdentityCredentialOptions::default()
            }))
            .map(|it| it as SharedCredential)
        }
        _ => return Err(format!("no credential is named `{name}`").into()),
    })
}

async fn read_token(
    credential: &SharedCredential,
    inputs: &RustClientInputs,
) -> azure_core::Result<Value> {
    let token = credential.get_token(&[&inputs.scope], None).await?;
    Ok(json!({ "token": decode_claims(token.token.secret()) }))
}

async fn read_secret(
    credential: SharedCredential,
    inputs: &RustClientInputs,
) -> azure_core::Result<Value> {
    let client = SecretClient::new(&inputs.vault, credential, None)?;
    let secret = client.get_secret(&inputs.secret_name, None).await?.into_model()?;
    let digest = Sha256::digest(secret.value.unwrap_or_default().as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let version =
        secret.id.as_deref().and_then(|id| id.rsplit('/').next()).unwrap_or_default().to_owned();
    Ok(json!({ "secret": { "name": inputs.secret_name, "version": version, "sha256": hex } }))
}

fn decode_claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap_or_default();
    let decoded = URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
    serde_json::from_slice(&decoded).unwrap_or_default()
}

/// The error of the innermost response of a service. The code is the AADSTS code of Entra, or that of the service.
fn rejection(error: &azure_core::Error) -> Value {
    let mut text = error.to_string();
    let mut service = service_error_response(error);
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        service = cause.downcast_ref().and_then(service_error_response).or(service);
        source = cause.source();
    }
    let entra = text.find("AADSTS").map(|start| {
        let digits = text[start + 6..].chars().take_while(char::is_ascii_digit).count();
        text[start..start + 6 + digits].to_owned()
    });
    let service = service.unwrap_or_default();
    json!({
        "code": entra.or(service.code),
        "inner": service.inner,
        "status": service.status,
        "message": text,
    })
}

#[derive(Debug, Default)]
struct ServiceErrorResponse {
    status: Option<u16>,
    code: Option<String>,
    inner: Option<String>,
}

/// The codes of an error response. They are read from the body, because the client reports the status instead of
/// the code if the message contains an escape sequence.
fn service_error_response(error: &azure_core::Error) -> Option<ServiceErrorResponse> {
    let ErrorKind::HttpResponse { status, raw_response, .. } = error.kind() else { return None };
    let body: Value = raw_response
        .as_ref()
        .and_then(|response| serde_json::from_slice(response.body().as_ref()).ok())
        .unwrap_or_default();
    let text = |pointer| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some(ServiceErrorResponse {
        status: Some(u16::from(*status)),
        code: text("/error/code").or_else(|| storage_error_code(raw_response.as_deref()?)),
        inner: text("/error/innererror/code"),
    })
}

/// The error code of storage, which is in a header.
fn storage_error_code(response: &RawResponse) -> Option<String> {
    let name = HeaderName::from_static("x-ms-error-code");
    response.headers().get_optional_string(&name)
}
