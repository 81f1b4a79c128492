//! A way to the API server over a relay on loopback, which can be cut, and which can hold what is on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lanyard_cluster::SharedControlPlane;
use libtest_mimic::Failed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::suites::operator::OPERATOR_USER;
use crate::waiting::sleep;

/// A relay. It ends with the value.
pub(super) struct TcpRelay {
    /// Where it listens.
    pub(super) url: String,
    control: watch::Sender<RelayControl>,
    opened_connections: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// What becomes of connections, by when they were opened.
#[derive(Debug, Clone, Copy, Default)]
struct RelayControl {
    /// All before this one are cut.
    cut_before: u64,
    /// All before this one hold what is on them, in both directions.
    held_before: u64,
    /// What is sent to the API server is held on all of them.
    is_sending_held: bool,
}

/// Which way something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelayDirection {
    /// To the API server.
    ToServer,
    /// From it.
    FromServer,
}

impl RelayControl {
    fn holds(&self, number: u64, direction: RelayDirection) -> bool {
        number < self.held_before || self.is_sending_held && direction == RelayDirection::ToServer
    }
}

impl TcpRelay {
    /// A relay to the API server.
    pub(super) async fn start(plane: &SharedControlPlane) -> Result<Self, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let target = plane.url().trim_start_matches("https://").to_owned();
        let control = watch::Sender::new(RelayControl::default());
        let opened = Arc::new(AtomicU64::new(0));
        let (changes, count) = (control.clone(), Arc::clone(&opened));
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(relay_connection(near, target.clone(), number, changes.subscribe()));
            }
        });
        Ok(Self { url, control, opened_connections: opened, task })
    }

    /// The file with which the operator signs in over this relay.
    pub(super) fn write_kubeconfig(&self, plane: &SharedControlPlane) -> Result<PathBuf, Failed> {
        let text = std::fs::read_to_string(plane.kubeconfig_path(OPERATOR_USER))?;
        let port = self.url.rsplit(':').next().unwrap_or_default();
        let path = plane.directory().join(format!("relay-{port}.kubeconfig"));
        std::fs::write(&path, text.replace(&plane.url(), &self.url))?;
        Ok(path)
    }

    /// Cuts every connection; new ones are relayed.
    pub(super) fn cut_connections(&self) {
        let opened = self.opened_connections.load(Ordering::SeqCst);
        self.control.send_modify(|control| control.cut_before = opened);
    }

    /// Holds whatever is on the connections that there are, without a word; new ones are relayed.
    pub(super) fn hold_connections(&self) {
        let opened = self.opened_connections.load(Ordering::SeqCst);
        self.control.send_modify(|control| control.held_before = opened);
    }

    /// Holds whatever is on any connection.
    pub(super) fn hold_all_connections(&self) {
        self.control.send_modify(|control| control.held_before = u64::MAX);
    }

    /// Holds what is sent to the API server on any connection; what it says goes on to arrive.
    pub(super) fn hold_requests(&self) {
        self.control.send_modify(|control| control.is_sending_held = true);
    }

    /// Lets go what was held: it arrives now.
    pub(super) fn release_connections(&self) {
        self.control.send_modify(|control| {
            (control.held_before, control.is_sending_held) = (0, false);
        });
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.task.abort();
        self.control.send_modify(|control| control.cut_before = u64::MAX);
    }
}

async fn relay_connection(
    near: TcpStream,
    target: String,
    number: u64,
    control: watch::Receiver<RelayControl>,
) {
    let Ok(far) = TcpStream::connect(target).await else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let mut ends = control.clone();
    tokio::select! {
        // What is held when it is cut is lost, though it may be let go at the same moment.
        biased;
        _ = ends.wait_for(|control| number < control.cut_before) => {}
        // What was sent arrives, though nobody waits for the answer any more.
        ((), ()) = async {
            tokio::join!(
                copy_direction(near_in, far_out, (number, RelayDirection::ToServer), control.clone()),
                copy_direction(far_in, near_out, (number, RelayDirection::FromServer), control.clone()),
            )
        } => {}
    }
}

/// Copies one direction to its end.
async fn copy_direction(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (number, direction): (u64, RelayDirection),
    mut control: watch::Receiver<RelayControl>,
) {
    let mut buffer = vec![0; 16 << 10];
    let mut was_held = false;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        was_held |= control.borrow().holds(number, direction);
        if control.wait_for(|control| !control.holds(number, direction)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    if was_held {
        // A server that hears at once that nobody waits for the answer may not do what was asked.
        sleep(CLOSE_DELAY_AFTER_HOLD).await;
    }
    drop(to.shutdown().await);
}

/// By how much the end of a connection is later than what was held on it.
const CLOSE_DELAY_AFTER_HOLD: Duration = Duration::from_secs(2);
