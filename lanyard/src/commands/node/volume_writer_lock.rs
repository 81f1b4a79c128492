//! One process at a time writes the volumes of a driver.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_telemetry::ReadinessGate;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The right to write the volumes, until it is dropped or the process ends, however it does.
///
/// Two processes that publish into one volume take each other's unfinished generations away. One
/// that is told to end goes on for a while without its sockets, and its successor starts meanwhile.
#[derive(Debug)]
pub(super) struct VolumeWriterLock {
    _lock: OwnedFd,
}

impl VolumeWriterLock {
    /// Keeps it until the process ends: work on a volume that blocks goes on after everything else
    /// has ended, and the next process must not write beside it. So it is leaked on purpose; the
    /// kernel gives it back.
    pub(super) fn hold_until_exit(self) {
        let _until_the_end: &'static mut Self = Box::leak(Box::new(self));
    }

    /// Waits until no other process has it, and says why it waits.
    pub(super) async fn acquire(path: &Path, gate: &ReadinessGate, clock: &SharedClock) -> Self {
        let mut told = None;
        loop {
            match try_lock_file(path) {
                Ok(lock) => {
                    gate.open();
                    return Self { _lock: lock };
                }
                Err(reason) if told.as_ref() != Some(&reason) => {
                    tracing::warn!("{reason}; trying again");
                    gate.close(reason.clone());
                    told = Some(reason);
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
            Err(format!("another process has the volumes: it holds {}", path.display()))
        }
        Err(errno) => Err(failed(errno)),
    }
}

/// How soon the end of the other process is noticed.
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
        let gate = readiness.add_gate("volumes", "not looked at yet");
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
        assert!(reason.contains("another process has the volumes"), "{reason}");
        drop(first);
        let _second = second.await.unwrap();
        assert!(readiness.is_ready());
    }
}
