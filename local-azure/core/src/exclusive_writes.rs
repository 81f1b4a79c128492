//! Writes that Azure rejects while another write to the same object is in progress.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// How long a connection holds the reply to an exclusive write. Without it, the writes of a client that does not wait
/// for replies would rarely overlap, because each takes some microseconds.
pub(crate) const EXCLUSIVE_WRITE_TIME: Duration = Duration::from_millis(20);

/// The objects with an exclusive write in progress.
#[derive(Debug, Clone, Default)]
pub struct ExclusiveWrites(Arc<Mutex<HashSet<String>>>);

/// An exclusive write, in progress until it is dropped: then the connection has sent the reply, or closed.
#[derive(Debug)]
pub struct ExclusiveWrite {
    object: String,
    writes: ExclusiveWrites,
}

impl ExclusiveWrites {
    /// Begins a write; `None` if another write to the object is in progress.
    pub(crate) fn begin(&self, object: &str) -> Option<ExclusiveWrite> {
        let is_first = self.0.lock().insert(object.to_owned());
        is_first.then(|| ExclusiveWrite { object: object.to_owned(), writes: self.clone() })
    }
}

impl Drop for ExclusiveWrite {
    fn drop(&mut self) {
        self.writes.0.lock().remove(&self.object);
    }
}
