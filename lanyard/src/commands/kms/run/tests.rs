use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;

use lanyard_clock::{Clock, ManualClock};
use lanyard_kms::{
    Algorithm, KeyOperation, KeyOperations, KeyResult, Layout, VaultError, VaultKind,
};
use lanyard_vocabulary::Cloud;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

/// A vault that nobody asks.
#[derive(Debug)]
struct Unasked;

#[async_trait::async_trait]
impl KeyOperations for Unasked {
    async fn operate(
        &self,
        _operation: KeyOperation,
        _algorithm: Algorithm,
        _value: &str,
    ) -> Result<KeyResult, VaultError> {
        Err(VaultError::Malformed { problem: "nobody asks it" })
    }
}

struct Process {
    health: std::net::SocketAddr,
    readiness: Readiness,
    end: oneshot::Sender<()>,
    task: JoinHandle<CommandResult>,
}

const DRAIN: Duration = Duration::from_secs(20);

impl Process {
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
        let plugin = Plugin::new(PluginParts {
            key,
            layout: Layout::Upstream,
            vault: Arc::new(Unasked),
            metrics: metrics.clone(),
            clock: Arc::clone(&clock),
        });
        let readiness = Readiness::default();
        let gate = readiness.gate("socket", "not there yet");
        let server = KmsServer {
            socket: socket.clone(),
            plugin,
            gate,
            drain: DRAIN,
            clock: Arc::clone(&clock),
        };
        let health = Health { socket, readiness: readiness.clone(), key_id, limit: DRAIN, clock };
        let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
        let address = listening.address();
        let pages = Pages { metrics: None, health: Some(listening) };
        let (end, asked) = oneshot::channel();
        let asked = async { drop(asked.await) };
        let task = tokio::spawn(async move {
            serve(server, pages, (health, "/healthz"), &metrics, asked).await
        });
        Self { health: address, readiness, end, task }
    }
}

#[tokio::test]
async fn half_a_request_for_a_page_does_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let process = Process::start(directory.path().join("kms.s"), &clock).await;
    process.readiness.ready().await;
    let mut half = TcpStream::connect(process.health).unwrap();
    half.write_all(b"GET /live").unwrap();
    // The server looks after its socket, and the connection has its end.
    while clock.sleepers() < 2 {
        tokio::task::yield_now().await;
    }
    let began = clock.monotonic();
    process.end.send(()).unwrap();
    while !process.task.is_finished() {
        for _ in 0..32 {
            tokio::task::yield_now().await;
        }
        assert!(clock.monotonic().saturating_sub(began) < DRAIN, "it waits for the connection");
        clock.advance(Duration::from_millis(100));
    }
    assert!(process.task.await.unwrap().is_ok());
    assert!(!directory.path().join("kms.s").exists());
}

#[tokio::test]
async fn a_socket_whose_directory_is_missing_ends_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let process = Process::start(directory.path().join("typo/kms.s"), &clock).await;
    while !process.task.is_finished() {
        let told = process.readiness.problems();
        assert!(!told.iter().any(|it| it.reason.contains("could not")), "it waits: {told:?}");
        tokio::task::yield_now().await;
    }
    let error = process.task.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the socket for the API server cannot be made"), "{error}");
    drop(process.end);
}
