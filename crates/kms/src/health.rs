//! The pages for probes.
//!
//! The path of the other plugins proves the key, over our own socket; it fails when the identity
//! or the vault does, as theirs. They also prove `RSA1_5`, for version 1 of the API: a key that
//! refuses it fails their probe while all traffic works, so it is left out here. `/livez` asks the
//! process alone and is what a liveness probe should ask: a restart repairs no vault.
//!
//! Neither vouches for somebody else. Every instance and both other plugins have the same name on
//! the socket, so the server's own word counts for whether it is ours, and the key id for whether it
//! is our key's.

use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::any;
use lanyard_clock::SharedClock;
use lanyard_grpc::kms_v1beta1::VersionRequest;
use lanyard_grpc::kms_v1beta1::key_management_service_client::KeyManagementServiceClient as ClientV1;
use lanyard_grpc::kms_v2::StatusRequest;
use lanyard_grpc::kms_v2::key_management_service_client::KeyManagementServiceClient as ClientV2;
use lanyard_telemetry::Readiness;
use tonic::Request;

use crate::service::{RUNTIME_NAME, V1_VERSION};

/// What the pages ask.
#[derive(Debug, Clone)]
pub struct KmsHealthEndpoints {
    /// Our socket.
    pub socket: PathBuf,
    /// Whether it is ours: the server's gate is in it.
    pub readiness: Readiness,
    /// The id of our key.
    pub key_id: String,
    /// How long everything behind one page may take.
    pub timeout: Duration,
    /// The time.
    pub clock: SharedClock,
}

/// The path of the page that asks the process alone.
pub const LIVE_PATH: &str = "/livez";

impl KmsHealthEndpoints {
    /// The pages, with the one that proves the key at `path`. Every method is answered, as the other
    /// plugins do.
    pub fn routes(self, path: &str) -> Router {
        async fn proof(State(health): State<KmsHealthEndpoints>) -> (StatusCode, String) {
            health_response(health.with_timeout(health.check_key()).await)
        }
        async fn live(State(health): State<KmsHealthEndpoints>) -> (StatusCode, String) {
            health_response(health.with_timeout(health.check_socket()).await)
        }
        let mut routes = Router::new().route(path, any(proof));
        if path != LIVE_PATH {
            routes = routes.route(LIVE_PATH, any(live));
        }
        routes.with_state(self)
    }

    async fn with_timeout(
        &self,
        check: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        tokio::select! {
            result = check => result,
            () = self.clock.sleep(self.timeout) => {
                Err(format!("no answer within {:?}", self.timeout))
            }
        }
    }

    /// Whether the process has its socket, and answers on it.
    async fn check_socket(&self) -> Result<(), String> {
        let closed: Vec<_> = self.readiness.problems().iter().map(ToString::to_string).collect();
        if !closed.is_empty() {
            return Err(closed.join("; "));
        }
        let mut client = ClientV1::new(lanyard_grpc::channel_to_socket(&self.socket));
        let asked = VersionRequest { version: V1_VERSION.to_owned() };
        let told = client.version(asked).await.map_err(|status| status.message().to_owned())?;
        let name = &told.get_ref().runtime_name;
        if name == RUNTIME_NAME { Ok(()) } else { Err(format!("`{name}` has the socket")) }
    }

    /// Whether it answers, and the key encrypts and decrypts.
    async fn check_key(&self) -> Result<(), String> {
        self.check_socket().await?;
        let mut client = ClientV2::new(lanyard_grpc::channel_to_socket(&self.socket));
        let mut request = Request::new(StatusRequest {});
        request.set_timeout(self.timeout);
        let told = client.status(request).await.map_err(|status| status.message().to_owned())?;
        let served = &told.get_ref().key_id;
        if *served == self.key_id {
            return Ok(());
        }
        Err(format!(
            "the socket serves the key with the id {served}, and this instance's is {}",
            self.key_id
        ))
    }
}

fn health_response(result: Result<(), String>) -> (StatusCode, String) {
    match result {
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem),
    }
}
