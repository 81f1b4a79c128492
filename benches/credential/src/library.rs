//! The compared libraries, each with its own token service.

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

/// The name of lanyard's library in the measurements.
pub const LANYARD: &str = "lanyard-credential";
/// The name and version of the Azure SDK for Rust in the measurements.
pub const AZURE_IDENTITY: &str = "azure_identity 1.0.0";

const TENANT: &str = "11111111-1111-4111-8111-111111111111";
const CLIENT: &str = "22222222-2222-4222-8222-222222222222";

/// A credential and its token service.
pub struct BenchmarkedLibrary {
    pub name: &'static str,
    pub credential: Arc<dyn TokenCredential>,
    pub service: Arc<FixedTokenService>,
}

/// The credential of lanyard, with its credential file. The concrete type has `with_cached_token`.
pub struct LanyardLibrary {
    pub credential: Arc<ReloadingCertificateCredential>,
    pub library: BenchmarkedLibrary,
    _directory: TempDir,
}

impl LanyardLibrary {
    /// Writes a credential file and opens a credential from it.
    pub fn open(
        runtime: &Runtime,
        clock: SystemClock,
        response: ServiceResponse,
        latency: Duration,
    ) -> Result<Self, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::File)?;
        let path = directory.path().join("identity.json");
        fs::write(&path, credential_document(0)).map_err(BenchError::File)?;
        let service = FixedTokenService::new(clock, response, latency);
        let mut transport = TokenTransportOptions::default();
        transport.client = service.client_options();
        let options = ReloadingCertificateOptions::with_transport(transport);
        let credential = runtime.block_on(ReloadingCertificateCredential::open(path, options))?;
        let shared: Arc<dyn TokenCredential> =
            Arc::<ReloadingCertificateCredential>::clone(&credential);
        let library = BenchmarkedLibrary { name: LANYARD, credential: shared, service };
        Ok(Self { credential, library, _directory: directory })
    }
}

impl BenchmarkedLibrary {
    /// Creates the cheapest credential of `azure_identity`: it parses no key and signs nothing.
    pub fn azure_identity(
        clock: SystemClock,
        response: ServiceResponse,
        latency: Duration,
    ) -> Result<Self, BenchError> {
        let service = FixedTokenService::new(clock, response, latency);
        let options = ClientSecretCredentialOptions { client_options: service.client_options() };
        let credential = ClientSecretCredential::new(
            TENANT,
            CLIENT.to_owned(),
            Secret::new("secret"),
            Some(options),
        )?;
        Ok(Self { name: AZURE_IDENTITY, credential, service })
    }

    /// Fetches tokens for the scopes 0 to `scopes` - 1.
    pub fn prefetch_tokens(&self, runtime: &Runtime, scopes: usize) -> Result<(), BenchError> {
        for number in 0..scopes {
            runtime.block_on(self.credential.get_token(&[&scope_name(number)], None))?;
        }
        Ok(())
    }
}

/// A scope with the length of a real one.
pub fn scope_name(number: usize) -> String {
    format!("https://service-{number:04}.example.net/.default")
}

/// Gets a token. Polls the call once, which is enough for a cached token, and blocks on it otherwise.
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

/// A multi-thread runtime with the defaults of Tokio.
pub fn runtime() -> Result<Runtime, BenchError> {
    Runtime::new().map_err(BenchError::Runtime)
}

/// A credential document with an RSA-2048 key and two certificates in PEM. Versions differ only in
/// `object_id`, which no library uses.
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
