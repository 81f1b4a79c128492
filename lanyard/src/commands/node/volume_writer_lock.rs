//! A file lock that lets one process at a time write the volumes of a driver.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_telemetry::ReadinessGate;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The right to write the volumes. It is released on drop and by the kernel when the process ends.
///
/// Two processes that publish into one volume would remove each other's unfinished generations. This can
/// happen on an update: a terminating process continues for a while without its sockets, while its successor
/// starts.
#[derive(Debug)]
pub(super) struct VolumeWriterLock {
    _lock: OwnedFd,
}

impl VolumeWriterLock {
    /// Keeps the lock until the process ends, by leaking it: blocking work on a volume may continue after all
    /// tasks have ended, and the next process must not write at the same time. The kernel releases the lock.
    pub(super) fn hold_until_exit(self) {
        let _until_the_end: &'static mut Self = Box::leak(Box::new(self));
    }

    /// Waits until no other process holds the lock, and logs the reason for waiting.
    pub(super) async fn acquire(path: &Path, gate: &ReadinessGate, clock: &SharedClock) -> Self {
        let mut logged_reason = None;
        loop {
            match try_lock_file(path) {
                Ok(lock) => {
                    gate.open();
                    return Self { _lock: lock };
                }
                Err(reason) if logged_reason.as_ref() != Some(&reason) => {
                    tracing::warn!("{reason}; trying again");
                    gate.close(reason.clone());
                    logged_reason = Some(reason);
                }
                Err(_) => {}
            }
            clock.sleep(RETRY_INTERVAL).await;
        }
    }
}

fn try_lock_file(path: &Path) -> Result<OwnedFd, String> {
    let failed = |errno: Errno| format!("could not lock {}: {errno}", path.display());
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::open(path, flags, mode).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            Err(format!("another process writes the volumes: it holds {}", path.display()))
        }
        Err(errno) => Err(failed(errno)),
    }
}

/// How often locking is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lanyard_clock::SystemClock;
    use lanyard_telemetry::Readiness;

    use super::*;

    #[tokio::test]
    async fn second_process_waits_for_the_lock_and_closes_its_gate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("driver.lock");
        let readiness = Readiness::default();
        let gate = readiness.add_gate("volumes", "not recovered yet");
        let clock: SharedClock = SystemClock::shared();
        let first = VolumeWriterLock::acquire(&path, &gate, &clock).await;
        assert!(gate.is_open());
        let second = {
            let (path, gate, clock) = (path.clone(), gate.clone(), Arc::clone(&clock));
            tokio::spawn(async move { VolumeWriterLock::acquire(&path, &gate, &clock).await })
        };
        while gate.is_open() {
            tokio::task::yield_now().await;
        }
        let reason = readiness.problems()[0].reason.clone();
        assert!(reason.contains("another process writes the volumes"), "{reason}");
        drop(first);
        let _second = second.await.unwrap();
        assert!(readiness.is_ready());
    }
}
