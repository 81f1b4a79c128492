//! Whether the process still works at all: if not, its supervisor starts it again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;

/// A check that the process answers, with a time limit.
#[derive(Clone)]
pub struct Liveness {
    check: Arc<Check>,
    limit: Duration,
    clock: SharedClock,
}

type Check = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;

impl Liveness {
    /// A check that takes `limit` at most. What it fails with is shown to whoever asks.
    pub fn new<F>(
        check: impl Fn() -> F + Send + Sync + 'static,
        limit: Duration,
        clock: SharedClock,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { check: Arc::new(move || Box::pin(check())), limit, clock }
    }

    pub(crate) async fn check(&self) -> Result<(), String> {
        tokio::select! {
            result = (self.check)() => result,
            () = self.clock.sleep(self.limit) => {
                Err(format!("no answer within {:?}", self.limit))
            }
        }
    }
}

impl fmt::Debug for Liveness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Liveness").field("limit", &self.limit).finish_non_exhaustive()
    }
}
