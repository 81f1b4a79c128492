//! How many connections may be open, of all peers and of one.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::connection_activity::ConnectionActivity;

/// The maximum number of open connections.
pub const MAX_CONNECTIONS: usize = 1024;
/// The maximum number of open connections of one address. Loopback addresses share all connections.
const MAX_CONNECTIONS_OF_PEER: usize = 256;

/// How long a connection may send no request before it gives way to a new one, if no further one can be open.
pub const REQUEST_GRACE: Duration = Duration::from_secs(1);

/// The number of open connections of each peer.
#[derive(Debug, Clone, Default)]
pub(super) struct PeerConnections(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Counts as a connection of its peer until it is dropped.
#[derive(Debug)]
pub(super) struct PeerConnection {
    peer: IpAddr,
    open: PeerConnections,
}

impl PeerConnections {
    /// Counts a connection; `None` if the peer has too many.
    pub(super) fn open(&self, peer: IpAddr) -> Option<PeerConnection> {
        let mut open = self.0.lock();
        let count = open.entry(peer).or_default();
        if *count >= MAX_CONNECTIONS_OF_PEER && !peer.is_loopback() {
            return None;
        }
        *count += 1;
        Some(PeerConnection { peer, open: self.clone() })
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        let mut open = self.open.0.lock();
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

/// The connections that have sent no request yet, oldest first.
#[derive(Debug, Default)]
pub(super) struct UnusedConnections(VecDeque<UnusedConnection>);

#[derive(Debug)]
struct UnusedConnection {
    task: AbortHandle,
    activity: ConnectionActivity,
    /// The monotonic time of the accept.
    accepted: Duration,
}

impl UnusedConnection {
    fn is_waiting(&self) -> bool {
        !self.task.is_finished() && self.activity.is_unused()
    }
}

impl UnusedConnections {
    /// Adds a connection that was accepted at a monotonic time.
    pub(super) fn add(
        &mut self,
        task: AbortHandle,
        activity: ConnectionActivity,
        accepted: Duration,
    ) {
        if self.0.len() >= 2 * MAX_CONNECTIONS {
            self.0.retain(UnusedConnection::is_waiting);
        }
        self.0.push_back(UnusedConnection { task, activity, accepted });
    }

    /// Closes the oldest connection that has sent no request, if it had the time to send one. Otherwise, returns for
    /// how long it still has the time; `None` if no connection remains to be closed.
    pub(super) fn close_oldest(&mut self, now: Duration) -> Option<Duration> {
        while let Some(oldest) = self.0.front() {
            let remaining = REQUEST_GRACE.saturating_sub(now.saturating_sub(oldest.accepted));
            if oldest.is_waiting() {
                if !remaining.is_zero() {
                    return Some(remaining);
                }
                oldest.task.abort();
                self.0.pop_front();
                return None;
            }
            self.0.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_loopback_addresses_may_have_all_connections() {
        let connections = PeerConnections::default();
        let open = |peer| {
            let open = || connections.open(IpAddr::V4(peer));
            std::iter::repeat_with(open).take(MAX_CONNECTIONS).flatten().collect::<Vec<_>>()
        };
        let remote = Ipv4Addr::new(192, 0, 2, 1);
        let of_remote = open(remote);
        assert_eq!(of_remote.len(), MAX_CONNECTIONS_OF_PEER);
        assert_eq!(open(Ipv4Addr::new(192, 0, 2, 2)).len(), MAX_CONNECTIONS_OF_PEER);
        assert_eq!(open(Ipv4Addr::LOCALHOST).len(), MAX_CONNECTIONS);
        drop(of_remote);
        assert_eq!(open(remote).len(), MAX_CONNECTIONS_OF_PEER, "closed connections do not count");
        assert!(connections.0.lock().is_empty());
    }
}
