//! The libraries that are compared, each over a service of its own.

use std::fs;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use azure_core::credentials::{AccessToken, Secret, TokenCredential};
use azure_identity::{ClientSecretCredential, ClientSecretCredentialOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::executor::block_on;
use lanyard_clock::SystemClock;
use lanyard_credential::{
    ReloadingCertificateCredential, ReloadingCertificateOptions, TokenTransportOptions,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::error::BenchError;
use crate::service::{FixedTokenService, ServiceResponse};

/// Ourselves.
pub const LANYARD: &str = "lanyard-credential";
/// The official Rust library.
pub const AZURE_IDENTITY: &str = "azure_identity 1.0.0";

const TENANT: &str = "11111111-1111-4111-8111-111111111111";
const CLIENT: &str = "22222222-2222-4222-8222-222222222222";

/// A credential and the service that it asks.
pub struct BenchmarkedLibrary {
    pub name: &'static str,
    pub credential: Arc<dyn TokenCredential>,
    pub service: Arc<FixedTokenService>,
}

/// Our credential, which has a file and can lend.
pub struct LanyardLibrary {
    pub credential: Arc<ReloadingCertificateCredential>,
    pub library: BenchmarkedLibrary,
    _folder: TempDir,
}

impl LanyardLibrary {
    /// Opens a credential file of its own.
    pub fn open(
        runtime: &Runtime,
        clock: SystemClock,
        answer: ServiceResponse,
        latency: Duration,
    ) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(BenchError::File)?;
        let path = folder.path().join("identity.json");
        fs::write(&path, credential_document(0)).map_err(BenchError::File)?;
        let service = FixedTokenService::new(clock, answer, latency);
        let mut transport = TokenTransportOptions::default();
        transport.client = service.client_options();
        let options = ReloadingCertificateOptions::with_transport(transport);
        let credential = runtime.block_on(ReloadingCertificateCredential::open(path, options))?;
        let shared: Arc<dyn TokenCredential> =
            Arc::<ReloadingCertificateCredential>::clone(&credential);
        let contestant = BenchmarkedLibrary { name: LANYARD, credential: shared, service };
        Ok(Self { credential, library: contestant, _folder: folder })
    }
}

impl BenchmarkedLibrary {
    /// The credential of `azure_identity` that needs least: no key is parsed, nothing is signed.
    pub fn azure_identity(
        clock: SystemClock,
        answer: ServiceResponse,
        latency: Duration,
    ) -> Result<Self, BenchError> {
        let service = FixedTokenService::new(clock, answer, latency);
        let options = ClientSecretCredentialOptions { client_options: service.client_options() };
        let credential = ClientSecretCredential::new(
            TENANT,
            CLIENT.to_owned(),
            Secret::new("secret"),
            Some(options),
        )?;
        Ok(Self { name: AZURE_IDENTITY, credential, service })
    }

    /// Fetches tokens for this many scopes.
    pub fn prefetch_tokens(&self, runtime: &Runtime, scopes: usize) -> Result<(), BenchError> {
        for number in 0..scopes {
            runtime.block_on(self.credential.get_token(&[&scope_name(number)], None))?;
        }
        Ok(())
    }
}

/// A scope, as long as real ones.
pub fn scope_name(number: usize) -> String {
    format!("https://service-{number:04}.example.net/.default")
}

/// Takes a token: at once where it is cached, and as soon as it comes where it is not.
pub fn get_token_now(
    credential: &dyn TokenCredential,
    scope: &str,
) -> azure_core::Result<AccessToken> {
    let scopes = [scope];
    let mut future = pin!(credential.get_token(&scopes, None));
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => block_on(future),
    }
}

/// A runtime as programs have it.
pub fn runtime() -> Result<Runtime, BenchError> {
    Runtime::new().map_err(BenchError::Runtime)
}

/// A credential document with an RSA-2048 key and two certificates in PEM; versions differ in one
/// field that means nothing.
pub fn credential_document(version: usize) -> String {
    let secret = STANDARD.encode(concat!(
        include_str!("../../../crates/credential/tests/fixtures/leaf.pkcs8.key"),
        include_str!("../../../crates/credential/tests/fixtures/leaf.pem"),
        include_str!("../../../crates/credential/tests/fixtures/intermediate.pem"),
    ));
    format!(
        r#"{{"client_id":"{CLIENT}","tenant_id":"{TENANT}","client_secret":"{secret}","authentication_endpoint":"https://login.example/","not_before":"2026-01-01T00:00:00Z","object_id":"{version}"}}"#
    )
}
