//! Health of the process, for gRPC clients (`grpc.health.v1`) and for the liveness probe.

use std::path::Path;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_telemetry::{LivenessProbe, ReadinessGate};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

/// Sets the gRPC health status to whether every gate except the registration's is open. Never returns.
pub(super) async fn report_health(reporter: HealthReporter, registration: &ReadinessGate) {
    loop {
        reporter.set_service_status("", ServingStatus::NotServing).await;
        registration.wait_until_others_open().await;
        reporter.set_service_status("", ServingStatus::Serving).await;
        registration.wait_until_another_closes().await;
    }
}

/// Creates a liveness probe that checks whether the process answers calls on its own socket, ready or not: a
/// restart does not make an unready process ready. While `gate` is closed, the socket does not exist or
/// belongs to another process, `/readyz` reports the reason, and the probe succeeds. Needs a tokio runtime.
pub(super) fn liveness(
    socket: &Path,
    gate: ReadinessGate,
    limit: Duration,
    clock: SharedClock,
) -> LivenessProbe {
    let client = HealthClient::new(lanyard_grpc::channel_to_socket(socket));
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
    LivenessProbe::new(check, limit, clock)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use http::{Request, StatusCode};
    use lanyard_clock::ManualClock;
    use lanyard_telemetry::{Readiness, ReadinessWarnings, health_routes};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn process_is_alive_while_its_socket_is_known_to_be_closed() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
        let readiness = Readiness::default();
        let gate = readiness.add_gate("csi socket", "another process listens on the socket");
        let socket = dir.path().join("csi.sock");
        let liveness = liveness(&socket, gate.clone(), Duration::from_secs(5), clock);
        let routes = health_routes("/healthz", liveness, readiness, ReadinessWarnings::default());
        let status = async || {
            let request = Request::get("/healthz").body(Body::empty()).unwrap();
            routes.clone().oneshot(request).await.unwrap().status()
        };
        assert_eq!(status().await, StatusCode::OK);
        gate.open();
        assert_eq!(status().await, StatusCode::SERVICE_UNAVAILABLE, "it should answer then");
    }
}
