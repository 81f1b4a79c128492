//! The lease of a blob, which a task renews until it is released or lost.

use std::sync::Arc;
use std::time::Duration;

use azure_core::http::StatusCode;
use azure_storage_blob::BlobClient;
use lanyard_clock::SharedClock;
use lanyard_vocabulary::format_error_chain;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use url::Url;

use super::container_error::{JournalContainerError, status_of};

/// The duration of the lease: the longest one of Azure that ends by itself.
pub(super) const LEASE_SECONDS: i32 = 60;
/// How long after its last renewal the lease counts as held. The rest of its duration is for requests that are on
/// their way to Azure.
const HELD_FOR: Duration = Duration::from_secs(50);
/// The pause between two renewals.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(15);
/// The pause after a renewal that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long one renewal may take. A connection that hangs must leave time for further attempts.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A lease that is renewed until this value is dropped.
#[derive(Debug)]
pub(super) struct BlobLease {
    id: String,
    status: LeaseStatus,
    renewal: JoinHandle<()>,
}

/// Whether the lease is held.
#[derive(Debug, Clone)]
pub(crate) struct LeaseStatus {
    blob: Url,
    clock: SharedClock,
    state: watch::Receiver<LeaseState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LeaseState {
    /// The lease is held until this time, unless it is renewed.
    HeldUntil(Duration),
    /// The lease is lost for this reason.
    Lost(String),
}

impl BlobLease {
    /// Renews a lease that was acquired by a request at `acquired`.
    pub(super) fn keep(
        blob: Arc<BlobClient>,
        id: String,
        acquired: Duration,
        clock: &SharedClock,
    ) -> Self {
        let (sender, state) = watch::channel(LeaseState::HeldUntil(acquired + HELD_FOR));
        let status =
            LeaseStatus { blob: blob.url().clone(), clock: SharedClock::clone(clock), state };
        let clock = SharedClock::clone(clock);
        let renewal = LeaseRenewal { blob, id: id.clone(), clock, state: sender };
        let renewal = tokio::spawn(renewal.run(acquired));
        Self { id, status, renewal }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) const fn status(&self) -> &LeaseStatus {
        &self.status
    }
}

impl Drop for BlobLease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl LeaseStatus {
    /// Checks that the lease is held.
    ///
    /// # Errors
    ///
    /// [`JournalContainerError::LeaseLost`] with the reason.
    pub(crate) fn check(&self) -> Result<(), JournalContainerError> {
        match &*self.state.borrow() {
            LeaseState::HeldUntil(end) if self.clock.monotonic() < *end => Ok(()),
            LeaseState::HeldUntil(_) => Err(self.lost_error(&not_renewed())),
            LeaseState::Lost(reason) => Err(self.lost_error(reason)),
        }
    }

    /// Waits until the lease is lost.
    pub(crate) async fn lost(&self) -> JournalContainerError {
        let mut state = self.state.clone();
        loop {
            let end = match self.check() {
                Err(error) => return error,
                Ok(()) => match &*state.borrow_and_update() {
                    LeaseState::HeldUntil(end) => *end,
                    LeaseState::Lost(_) => continue,
                },
            };
            let left = end.saturating_sub(self.clock.monotonic());
            tokio::select! {
                changed = state.changed() => if changed.is_err() {
                    return self.lost_error("the renewal ended");
                },
                () = self.clock.sleep(left) => {}
            }
        }
    }

    pub(super) fn lost_error(&self, reason: &str) -> JournalContainerError {
        JournalContainerError::LeaseLost { blob: self.blob.to_string(), reason: reason.to_owned() }
    }
}

fn not_renewed() -> String {
    format!("it was not renewed for {} s", HELD_FOR.as_secs())
}

/// The task that renews a lease.
struct LeaseRenewal {
    blob: Arc<BlobClient>,
    id: String,
    clock: SharedClock,
    state: watch::Sender<LeaseState>,
}

impl LeaseRenewal {
    async fn run(self, acquired: Duration) {
        let mut end = acquired + HELD_FOR;
        let (mut pause, mut last_error) = (RENEWAL_INTERVAL, None);
        let reason = loop {
            self.clock.sleep(pause.min(self.left(end))).await;
            let began = self.clock.monotonic();
            let renewed = tokio::select! {
                renewed = self.blob.renew_lease(self.id.clone(), None) => renewed,
                () = self.clock.sleep(RENEWAL_TIMEOUT.min(self.left(end))) => {
                    if !self.left(end).is_zero() {
                        let seconds = RENEWAL_TIMEOUT.as_secs();
                        last_error = Some(format!("no reply within {seconds} s"));
                        pause = RETRY_PAUSE;
                        continue;
                    }
                    let cause = last_error.map(|error| format!(": {error}"));
                    break format!("{}{}", not_renewed(), cause.unwrap_or_default());
                }
            };
            match renewed {
                Ok(_) => {
                    end = began + HELD_FOR;
                    self.state.send_replace(LeaseState::HeldUntil(end));
                    pause = RENEWAL_INTERVAL;
                }
                Err(error) if is_lost(&error) => {
                    break format!("Azure does not renew it: {}", format_error_chain(&error));
                }
                Err(error) => {
                    last_error = Some(format_error_chain(&error));
                    pause = RETRY_PAUSE;
                }
            }
        };
        self.state.send_replace(LeaseState::Lost(reason));
        // The reason stays until the journal is closed.
        self.state.closed().await;
    }

    fn left(&self, end: Duration) -> Duration {
        end.saturating_sub(self.clock.monotonic())
    }
}

/// Whether the reply shows that the lease does not exist any more, or belongs to another command.
fn is_lost(error: &azure_core::Error) -> bool {
    let lost = [StatusCode::NotFound, StatusCode::Conflict, StatusCode::PreconditionFailed];
    status_of(error).is_some_and(|status| lost.contains(&status))
}
