//! A TCP relay to the API server on loopback that can cut connections and hold their data.

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

use crate::suites::operator::operator_account::OPERATOR_USER;
use crate::waiting::sleep;

/// A relay. Dropping it closes its connections.
pub(super) struct TcpRelay {
    /// The URL on which it listens.
    pub(super) url: String,
    control: watch::Sender<RelayControl>,
    opened_connections: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// The state of connections, by the order in which they were opened.
#[derive(Debug, Clone, Copy, Default)]
struct RelayControl {
    /// Connections before this number are cut.
    cut_before: u64,
    /// Connections before this number are held in both directions.
    held_before: u64,
    /// Data to the API server is held on all connections.
    is_sending_held: bool,
}

/// The direction of data.
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
    /// Starts a relay to the API server.
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

    /// Writes a kubeconfig of the operator's user with the URL of this relay.
    pub(super) fn write_kubeconfig(&self, plane: &SharedControlPlane) -> Result<PathBuf, Failed> {
        let text = std::fs::read_to_string(plane.kubeconfig_path(OPERATOR_USER))?;
        let port = self.url.rsplit(':').next().unwrap_or_default();
        let path = plane.directory().join(format!("relay-{port}.kubeconfig"));
        std::fs::write(&path, text.replace(&plane.url(), &self.url))?;
        Ok(path)
    }

    /// Cuts every open connection. New connections are relayed.
    pub(super) fn cut_connections(&self) {
        let opened = self.opened_connections.load(Ordering::SeqCst);
        self.control.send_modify(|control| control.cut_before = opened);
    }

    /// Holds the data on every open connection without closing it. New connections are relayed.
    pub(super) fn hold_connections(&self) {
        let opened = self.opened_connections.load(Ordering::SeqCst);
        self.control.send_modify(|control| control.held_before = opened);
    }

    /// Holds the data on every connection, including new ones.
    pub(super) fn hold_all_connections(&self) {
        self.control.send_modify(|control| control.held_before = u64::MAX);
    }

    /// Holds data to the API server on every connection. Its responses are still relayed.
    pub(super) fn hold_requests(&self) {
        self.control.send_modify(|control| control.is_sending_held = true);
    }

    /// Releases the held data, which arrives now.
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
        // A cut discards held data, even if it is released at the same moment.
        biased;
        _ = ends.wait_for(|control| number < control.cut_before) => {}
        // Data that was sent still arrives when the client has closed the connection.
        ((), ()) = async {
            tokio::join!(
                copy_direction(near_in, far_out, (number, RelayDirection::ToServer), control.clone()),
                copy_direction(far_in, near_out, (number, RelayDirection::FromServer), control.clone()),
            )
        } => {}
    }
}

/// Copies one direction until its end.
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
        // An API server that learns immediately that the client is gone may cancel the request.
        sleep(CLOSE_DELAY_AFTER_HOLD).await;
    }
    drop(to.shutdown().await);
}

/// The delay between releasing held data and closing the connection.
const CLOSE_DELAY_AFTER_HOLD: Duration = Duration::from_secs(2);
