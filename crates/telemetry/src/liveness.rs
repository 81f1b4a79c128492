//! Whether the process still works at all: if not, its supervisor starts it again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;

/// A check that the process answers, with a time limit.
#[derive(Clone)]
pub struct LivenessProbe {
    check: Arc<LivenessCheckFn>,
    timeout: Duration,
    clock: SharedClock,
}

type LivenessCheckFn =
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;

impl LivenessProbe {
    /// A check that takes `limit` at most. What it fails with is shown to whoever asks.
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
        formatter.debug_struct("Liveness").field("limit", &self.timeout).finish_non_exhaustive()
    }
}
