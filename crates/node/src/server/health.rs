//! Health, for those who ask over gRPC (`grpc.health.v1`) and for the liveness page.

use std::path::Path;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_telemetry::{Gate, Liveness};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

/// Tells whoever asks whether every gate but that of the registration is open. Never returns.
pub(super) async fn report(reporter: HealthReporter, registration: &Gate) {
    loop {
        reporter.set_service_status("", ServingStatus::NotServing).await;
        registration.others_open().await;
        reporter.set_service_status("", ServingStatus::Serving).await;
        registration.others_close().await;
    }
}

/// Whether the process answers calls on its own socket, be it ready or not: a process that is not
/// ready does not become so by being started again. While `gate` is closed the socket is not
/// there, or is another process's, and `/readyz` says why. Needs a tokio runtime.
pub(super) fn liveness(socket: &Path, gate: Gate, limit: Duration, clock: SharedClock) -> Liveness {
    let client = HealthClient::new(lanyard_grpc::connect(socket));
    let check = move || {
        let (mut client, gate) = (client.clone(), gate.clone());
        async move {
            if !gate.is_open() {
                return Ok(());
            }
            let request = HealthCheckRequest { service: String::new() };
            let answer = client.check(request).await;
            answer.map(drop).map_err(|status| format!("{}: {}", status.code(), status.message()))
        }
    };
    Liveness::new(check, limit, clock)
}
