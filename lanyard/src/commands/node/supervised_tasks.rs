//! What runs beside the sockets. Without one of these parts the process would look alive and do half
//! its work: so where one ends that should go on, the process does.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use lanyard_clock::SharedClock;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::exit::CommandError;

/// The parts that run beside the sockets, until they are closed.
#[derive(Debug, Default)]
pub(super) struct SupervisedTasks {
    tasks: JoinSet<io::Result<TaskCompletion>>,
    task_names: HashMap<Id, &'static str>,
    shutdown: watch::Sender<bool>,
}

/// What it means that a part came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskCompletion {
    /// It had no more to do.
    Finished,
    /// It should have gone on, unless everything ends.
    Stopped,
}

/// Ready when the end begins.
pub(super) type TaskShutdownSignal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A part ended that should have gone on.
#[derive(Debug, thiserror::Error)]
pub(super) enum SupervisedTaskError {
    /// It came to its end without saying why.
    #[error("{part} ended by itself")]
    Stopped {
        /// Its name.
        part: &'static str,
    },
    /// It could not go on.
    #[error("{part} could not go on")]
    Failed {
        /// Its name.
        part: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It panicked.
    #[error("{part} broke off")]
    Panicked {
        /// Its name.
        part: &'static str,
        /// The panic, without its payload.
        #[source]
        source: JoinError,
    },
}

impl SupervisedTaskError {
    /// The same for the person who reads how the process ended.
    pub(super) fn into_command_error(self) -> CommandError {
        CommandError::unavailable("the process cannot do its work without all of its parts")
            .with_cause(&self)
            .with_hint(
                "nothing is lost: mounted volumes stay, and the next start goes on with them; if \
                 it comes again, see what the log says before it",
            )
    }
}

impl SupervisedTasks {
    /// Ready when the end begins.
    pub(super) fn shutdown_signal(&self) -> TaskShutdownSignal {
        let mut end = self.shutdown.subscribe();
        Box::pin(async move { drop(end.wait_for(|ended| *ended).await) })
    }

    /// Runs what goes on until it is told to end.
    pub(super) fn spawn(
        &mut self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add(part, async move {
            work.await;
            Ok(TaskCompletion::Stopped)
        });
    }

    /// The same where it may fail.
    pub(super) fn spawn_fallible(
        &mut self,
        part: &'static str,
        work: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        self.add(part, async move { work.await.map(|()| TaskCompletion::Stopped) });
    }

    /// Runs what goes on for ever and can be dropped at any moment.
    pub(super) fn spawn_cancellable(
        &mut self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_cancellable(part, work, TaskCompletion::Stopped);
    }

    /// Runs what has to be done once, and can be dropped at any moment.
    pub(super) fn spawn_once(
        &mut self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_cancellable(part, work, TaskCompletion::Finished);
    }

    fn add_cancellable(
        &mut self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
        course: TaskCompletion,
    ) {
        let ended = self.shutdown_signal();
        self.add(part, async move {
            tokio::select! {
                () = work => {}
                () = ended => {}
            }
            Ok(course)
        });
    }

    fn add(
        &mut self,
        part: &'static str,
        work: impl Future<Output = io::Result<TaskCompletion>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(work).id();
        self.task_names.insert(id, part);
    }

    /// Returns when a part ended that should have gone on.
    pub(super) async fn next_failure(&mut self) -> SupervisedTaskError {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if let Some(broken) = self.task_failure(ended) {
                return broken;
            }
        }
        std::future::pending().await
    }

    fn task_failure(
        &mut self,
        ended: Result<(Id, io::Result<TaskCompletion>), JoinError>,
    ) -> Option<SupervisedTaskError> {
        let mut part = |id| self.task_names.remove(&id).unwrap_or("a part without a name");
        match ended {
            Ok((id, Ok(TaskCompletion::Finished))) => {
                part(id);
                None
            }
            Ok((id, Ok(TaskCompletion::Stopped))) => {
                Some(SupervisedTaskError::Stopped { part: part(id) })
            }
            Ok((id, Err(source))) => Some(SupervisedTaskError::Failed { part: part(id), source }),
            Err(source) => Some(SupervisedTaskError::Panicked { part: part(source.id()), source }),
        }
    }

    /// Ends the parts; what has not ended by itself after `limit` is dropped.
    pub(super) async fn shut_down(mut self, limit: Duration, clock: &SharedClock) {
        self.shutdown.send_replace(true);
        let ended = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                match self.task_failure(ended) {
                    // What everything does now.
                    None | Some(SupervisedTaskError::Stopped { .. }) => {}
                    Some(broken) => {
                        let error: &dyn std::error::Error = &broken;
                        tracing::error!(error, "while the process ended");
                    }
                }
            }
        };
        tokio::select! {
            () = ended => {}
            () = clock.sleep(limit) => {
                tracing::warn!(?limit, "what is still at work is left; the next process finds it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::SystemClock;
    use lanyard_vocabulary::format_error_chain;

    use super::*;

    /// Parts that go on, beside which one is tried.
    fn running_tasks() -> SupervisedTasks {
        let mut beside = SupervisedTasks::default();
        let ended = beside.shutdown_signal();
        beside.spawn("a page", ended);
        beside.spawn_cancellable("a watch", std::future::pending());
        beside
    }

    /// What broke, if anything does before long.
    async fn poll_failure(beside: &mut SupervisedTasks) -> Option<SupervisedTaskError> {
        for _ in 0..16 {
            tokio::select! {
                biased;
                part = beside.next_failure() => return Some(part),
                () = tokio::task::yield_now() => {}
            }
        }
        None
    }

    #[tokio::test]
    async fn task_that_stops_by_itself_is_named() {
        let mut beside = running_tasks();
        beside.spawn("the rotation", async {});
        assert_eq!(
            poll_failure(&mut beside).await.unwrap().to_string(),
            "the rotation ended by itself"
        );
        let mut beside = running_tasks();
        beside.spawn_cancellable("the synchronization", async {});
        let error = poll_failure(&mut beside).await.unwrap().into_command_error().to_string();
        assert!(error.contains("parts: the synchronization ended by itself\n\nhint: "), "{error}");
    }

    #[tokio::test]
    async fn failed_task_is_named_with_its_error() {
        let mut beside = running_tasks();
        beside.spawn_fallible("the metrics page", async {
            Err(io::Error::other("no more descriptors"))
        });
        let text = format_error_chain(&poll_failure(&mut beside).await.unwrap());
        assert_eq!(text, "the metrics page could not go on: no more descriptors");
    }

    #[tokio::test]
    async fn panicked_task_is_named_without_its_payload() {
        for is_once in [false, true] {
            let mut beside = running_tasks();
            let work = async { panic!("planted-4711-marker") };
            if is_once {
                beside.spawn_once("the rotation", work);
            } else {
                beside.spawn_cancellable("the rotation", work);
            }
            let broken = poll_failure(&mut beside).await.unwrap();
            assert!(
                matches!(broken, SupervisedTaskError::Panicked { part: "the rotation", .. }),
                "{broken}"
            );
        }
    }

    #[tokio::test]
    async fn finished_one_time_task_is_no_failure() {
        let mut beside = running_tasks();
        beside.spawn_once("the first answer", async {});
        assert!(poll_failure(&mut beside).await.is_none());
        assert_eq!(beside.task_names.len(), 2, "what is done is forgotten");
        beside.shut_down(Duration::from_mins(1), &SystemClock::shared()).await;
    }
}
