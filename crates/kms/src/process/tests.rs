use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;

use lanyard_clock::{Clock, ManualClock, SharedClock};
use lanyard_telemetry::Readiness;
use lanyard_vocabulary::Cloud;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    CiphertextLayout, KeyAlgorithm, KeyOperationError, KeyResult, KmsKeyOperation, KmsPlugin,
    KmsPluginParts, PinnedKey, VaultKeyClient, VaultKind,
};

/// A vault client whose operations are never called.
#[derive(Debug)]
struct UncalledKeyOperations;

#[async_trait::async_trait]
impl VaultKeyClient for UncalledKeyOperations {
    async fn run_operation(
        &self,
        _operation: KmsKeyOperation,
        _algorithm: KeyAlgorithm,
        _value: &str,
    ) -> Result<KeyResult, KeyOperationError> {
        Err(KeyOperationError::Malformed { problem: "unexpected call" })
    }
}

struct KmsServeFixture {
    health: std::net::SocketAddr,
    readiness: Readiness,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), KmsProcessError>>,
}

const DRAIN: Duration = Duration::from_secs(20);

impl KmsServeFixture {
    async fn start(socket: PathBuf, clock: &ManualClock) -> Self {
        let clock: SharedClock = Arc::new(clock.clone());
        let metrics = KmsMetrics::default();
        let key = PinnedKey::new(
            Cloud::Public.endpoints().unwrap(),
            VaultKind::Vault,
            "harbour-keys".parse().unwrap(),
            "etcd".parse().unwrap(),
            "ABCD".parse().unwrap(),
        );
        let key_id = key.id().to_owned();
        let plugin = KmsPlugin::new(KmsPluginParts {
            key,
            layout: CiphertextLayout::Upstream,
            vault: Arc::new(UncalledKeyOperations),
            metrics: metrics.clone(),
            clock: Arc::clone(&clock),
        });
        let readiness = Readiness::default();
        let gate = readiness.add_gate("socket", "not there yet");
        let server = KmsServer {
            socket: socket.clone(),
            plugin,
            gate,
            drain: DRAIN,
            clock: Arc::clone(&clock),
        };
        let health = KmsHealthEndpoints {
            socket,
            readiness: readiness.clone(),
            key_id,
            timeout: DRAIN,
            clock,
        };
        let listening = BoundListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
        let address = listening.address();
        let pages = KmsHttpListeners { metrics: None, health: Some(listening) };
        let (end, asked) = oneshot::channel();
        let asked = async { drop(asked.await) };
        let task = tokio::spawn(async move {
            pages.serve(server, (health, "/healthz"), &metrics, asked).await
        });
        Self { health: address, readiness, stop: end, task }
    }
}

#[tokio::test]
async fn incomplete_http_request_does_not_delay_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let process = KmsServeFixture::start(directory.path().join("kms.s"), &clock).await;
    process.readiness.wait_until_ready().await;
    let mut half = TcpStream::connect(process.health).unwrap();
    half.write_all(b"GET /live").unwrap();
    // Two sleepers: the socket check of the server, and the timeout of the HTTP connection.
    while clock.sleeper_count() < 2 {
        tokio::task::yield_now().await;
    }
    let began = clock.monotonic();
    process.stop.send(()).unwrap();
    while !process.task.is_finished() {
        for _ in 0..32 {
            tokio::task::yield_now().await;
        }
        assert!(
            clock.monotonic().saturating_sub(began) < DRAIN,
            "shutdown waits for the connection"
        );
        clock.advance(Duration::from_millis(100));
    }
    assert!(process.task.await.unwrap().is_ok());
    assert!(!directory.path().join("kms.s").exists());
}

#[tokio::test]
async fn missing_socket_directory_ends_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let process = KmsServeFixture::start(directory.path().join("typo/kms.s"), &clock).await;
    while !process.task.is_finished() {
        let problems = process.readiness.problems();
        assert!(
            !problems.iter().any(|it| it.reason.contains("could not")),
            "the socket still waits: {problems:?}"
        );
        tokio::task::yield_now().await;
    }
    let error = process.task.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("cannot create the socket for the API server"), "{error}");
    drop(process.stop);
}
