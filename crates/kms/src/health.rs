//! The HTTP health endpoints.
//!
//! The health path, which is that of the other plugins, proves the key through the plugin's own
//! socket; like theirs, it fails when the identity or the vault fails. The other plugins also check
//! `RSA1_5`, for version 1 of the API: a key that rejects it fails their probe while all traffic
//! works, so this plugin does not check it. `/livez` checks only the process and is the right
//! target of a liveness probe, because a restart repairs no vault.
//!
//! Both endpoints check that the socket belongs to this instance. All instances and both other
//! plugins report the same runtime name on the socket, so the readiness of the own server shows
//! whether the socket is this instance's, and the key id shows whether the key is.

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

/// What the health endpoints check.
#[derive(Debug, Clone)]
pub struct KmsHealthEndpoints {
    /// The path of this instance's socket.
    pub socket: PathBuf,
    /// The readiness of the process, which includes the gate of its server.
    pub readiness: Readiness,
    /// The id of this instance's key.
    pub key_id: String,
    /// The time limit of one check.
    pub timeout: Duration,
    /// The source of time.
    pub clock: SharedClock,
}

/// The path of the liveness endpoint, which checks only the process.
pub const LIVE_PATH: &str = "/livez";

impl KmsHealthEndpoints {
    /// The routes, with the key proof at `path`. They answer every method, as the other plugins do.
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

    /// Checks that this process owns the socket and answers on it.
    async fn check_socket(&self) -> Result<(), String> {
        let closed: Vec<_> = self.readiness.problems().iter().map(ToString::to_string).collect();
        if !closed.is_empty() {
            return Err(closed.join("; "));
        }
        let mut client = ClientV1::new(lanyard_grpc::channel_to_socket(&self.socket));
        let request = VersionRequest { version: V1_VERSION.to_owned() };
        let reply = client.version(request).await.map_err(|status| status.message().to_owned())?;
        let name = &reply.get_ref().runtime_name;
        if name == RUNTIME_NAME {
            Ok(())
        } else {
            Err(format!("another server, `{name}`, listens on the socket"))
        }
    }

    /// Checks the socket, and that the key encrypts and decrypts.
    async fn check_key(&self) -> Result<(), String> {
        self.check_socket().await?;
        let mut client = ClientV2::new(lanyard_grpc::channel_to_socket(&self.socket));
        let mut request = Request::new(StatusRequest {});
        request.set_timeout(self.timeout);
        let reply = client.status(request).await.map_err(|status| status.message().to_owned())?;
        let served = &reply.get_ref().key_id;
        if *served == self.key_id {
            return Ok(());
        }
        Err(format!(
            "the socket serves key id {served}, but the key id of this instance is {}",
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
