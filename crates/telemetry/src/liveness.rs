//! Liveness: whether the process still responds. If not, its supervisor restarts it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;

/// A check that the process responds, with a timeout.
#[derive(Clone)]
pub struct LivenessProbe {
    check: Arc<LivenessCheckFn>,
    timeout: Duration,
    clock: SharedClock,
}

type LivenessCheckFn =
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;

impl LivenessProbe {
    /// Creates a probe that runs `check` for at most `timeout`. The response of the endpoint
    /// contains the error of a failed check.
    pub fn new<F>(
        check: impl Fn() -> F + Send + Sync + 'static,
        timeout: Duration,
        clock: SharedClock,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { check: Arc::new(move || Box::pin(check())), timeout, clock }
    }

    pub(crate) async fn check(&self) -> Result<(), String> {
        tokio::select! {
            result = (self.check)() => result,
            () = self.clock.sleep(self.timeout) => {
                Err(format!("no answer within {:?}", self.timeout))
            }
        }
    }
}

impl fmt::Debug for LivenessProbe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LivenessProbe")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
