//! Sleep of the Azure SDK in virtual time: it polls the vault until a certificate is issued.

use std::cell::RefCell;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use azure_core::async_runtime::{
    AbortableTask, AsyncRuntime, SpawnedTask, TaskFuture, set_async_runtime,
};
use azure_core::time::Duration;
use lanyard_clock::{Clock as _, ManualClock};
use tokio::task::JoinHandle;

thread_local! {
    /// The clock of the test that this thread runs.
    static CLOCK: RefCell<Option<ManualClock>> = const { RefCell::new(None) };
}

/// Lets the Azure SDK sleep with this clock in this thread.
pub(crate) fn sleep_with(clock: &ManualClock) {
    CLOCK.set(Some(clock.clone()));
    // Another test may have set it before.
    drop(set_async_runtime(Arc::new(VirtualSleep)));
}

struct VirtualSleep;

impl AsyncRuntime for VirtualSleep {
    fn spawn(&self, work: TaskFuture) -> SpawnedTask {
        Box::pin(Task(tokio::spawn(work)))
    }

    fn sleep(&self, duration: Duration) -> TaskFuture {
        let clock = CLOCK.with_borrow(|clock| clock.clone().unwrap());
        Box::pin(async move { clock.sleep(duration.try_into().unwrap()).await })
    }

    fn yield_now(&self) -> TaskFuture {
        Box::pin(tokio::task::yield_now())
    }
}

struct Task(JoinHandle<()>);

impl Future for Task {
    type Output = Result<(), Box<dyn Error + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(result.map_err(|error| -> Box<dyn Error + Send> { Box::new(error) }))
    }
}

impl AbortableTask for Task {
    fn abort(&self) {
        self.0.abort();
    }
}
