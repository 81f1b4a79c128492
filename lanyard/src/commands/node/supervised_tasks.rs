//! The tasks that run next to the socket server. If a long-running task ends, the process ends, because a
//! partially working process would look alive.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use lanyard_clock::SharedClock;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::exit::CommandError;

/// The supervised tasks, until their shutdown.
#[derive(Debug, Default)]
pub(super) struct SupervisedTasks {
    tasks: JoinSet<io::Result<TaskCompletion>>,
    task_names: HashMap<Id, &'static str>,
    shutdown: watch::Sender<bool>,
}

/// How a task completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskCompletion {
    /// The task had no more work.
    Finished,
    /// The task ended, which is an error unless the process is shutting down.
    Stopped,
}

/// Resolves when the shutdown begins.
pub(super) type TaskShutdownSignal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A long-running task ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SupervisedTaskError {
    /// The task ended without an error.
    #[error("{task} ended unexpectedly")]
    Stopped {
        /// The name of the task.
        task: &'static str,
    },
    /// The task returned an error.
    #[error("{task} failed")]
    Failed {
        /// The name of the task.
        task: &'static str,
        /// The error of the task.
        #[source]
        source: io::Error,
    },
    /// The task panicked.
    #[error("{task} panicked")]
    Panicked {
        /// The name of the task.
        task: &'static str,
        /// The panic, without its payload.
        #[source]
        source: JoinError,
    },
}

impl SupervisedTaskError {
    /// Converts the error for the command's output.
    pub(super) fn into_command_error(self) -> CommandError {
        CommandError::unavailable("the process cannot run without all of its tasks")
            .with_cause(&self)
            .with_hint(
                "nothing is lost: mounted volumes stay, and the next start recovers them; if the \
                 error repeats, see the log lines before it",
            )
    }
}

impl SupervisedTasks {
    /// Returns a future that resolves when the shutdown begins.
    pub(super) fn shutdown_signal(&self) -> TaskShutdownSignal {
        let mut end = self.shutdown.subscribe();
        Box::pin(async move { drop(end.wait_for(|ended| *ended).await) })
    }

    /// Starts a long-running task, which must end on its own at shutdown.
    pub(super) fn spawn(
        &mut self,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add(task, async move {
            work.await;
            Ok(TaskCompletion::Stopped)
        });
    }

    /// Starts a long-running task that may fail.
    pub(super) fn spawn_fallible(
        &mut self,
        task: &'static str,
        work: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        self.add(task, async move { work.await.map(|()| TaskCompletion::Stopped) });
    }

    /// Starts a long-running task that is dropped at shutdown.
    pub(super) fn spawn_cancellable(
        &mut self,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_cancellable(task, work, TaskCompletion::Stopped);
    }

    /// Starts a one-time task that is dropped at shutdown.
    pub(super) fn spawn_once(
        &mut self,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_cancellable(task, work, TaskCompletion::Finished);
    }

    fn add_cancellable(
        &mut self,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
        course: TaskCompletion,
    ) {
        let ended = self.shutdown_signal();
        self.add(task, async move {
            tokio::select! {
                () = work => {}
                () = ended => {}
            }
            Ok(course)
        });
    }

    fn add(
        &mut self,
        task: &'static str,
        work: impl Future<Output = io::Result<TaskCompletion>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(work).id();
        self.task_names.insert(id, task);
    }

    /// Returns when a long-running task has ended.
    pub(super) async fn next_failure(&mut self) -> SupervisedTaskError {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if let Some(failure) = self.task_failure(ended) {
                return failure;
            }
        }
        std::future::pending().await
    }

    fn task_failure(
        &mut self,
        ended: Result<(Id, io::Result<TaskCompletion>), JoinError>,
    ) -> Option<SupervisedTaskError> {
        let mut task = |id| self.task_names.remove(&id).unwrap_or("an unnamed task");
        match ended {
            Ok((id, Ok(TaskCompletion::Finished))) => {
                task(id);
                None
            }
            Ok((id, Ok(TaskCompletion::Stopped))) => {
                Some(SupervisedTaskError::Stopped { task: task(id) })
            }
            Ok((id, Err(source))) => Some(SupervisedTaskError::Failed { task: task(id), source }),
            Err(source) => Some(SupervisedTaskError::Panicked { task: task(source.id()), source }),
        }
    }

    /// Shuts the tasks down, and drops tasks that have not ended after `limit`.
    pub(super) async fn shut_down(mut self, limit: Duration, clock: &SharedClock) {
        self.shutdown.send_replace(true);
        let ended = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                match self.task_failure(ended) {
                    // Expected during a shutdown.
                    None | Some(SupervisedTaskError::Stopped { .. }) => {}
                    Some(failure) => {
                        let error: &dyn std::error::Error = &failure;
                        tracing::error!(error, "a task failed during shutdown");
                    }
                }
            }
        };
        tokio::select! {
            () = ended => {}
            () = clock.sleep(limit) => {
                tracing::warn!(
                    ?limit,
                    "tasks did not end in time; the next start recovers their volumes"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::SystemClock;
    use lanyard_vocabulary::format_error_chain;

    use super::*;

    /// A set of tasks that keep running, to which a test adds its own.
    fn running_tasks() -> SupervisedTasks {
        let mut tasks = SupervisedTasks::default();
        let ended = tasks.shutdown_signal();
        tasks.spawn("an endpoint", ended);
        tasks.spawn_cancellable("a watch", std::future::pending());
        tasks
    }

    /// The first failure, if there is one within a few polls.
    async fn poll_failure(tasks: &mut SupervisedTasks) -> Option<SupervisedTaskError> {
        for _ in 0..16 {
            tokio::select! {
                biased;
                task = tasks.next_failure() => return Some(task),
                () = tokio::task::yield_now() => {}
            }
        }
        None
    }

    #[tokio::test]
    async fn task_that_stops_by_itself_is_named() {
        let mut tasks = running_tasks();
        tasks.spawn("the rotation", async {});
        assert_eq!(
            poll_failure(&mut tasks).await.unwrap().to_string(),
            "the rotation ended unexpectedly"
        );
        let mut tasks = running_tasks();
        tasks.spawn_cancellable("the synchronization", async {});
        let error = poll_failure(&mut tasks).await.unwrap().into_command_error().to_string();
        assert!(
            error.contains("tasks: the synchronization ended unexpectedly\n\nhint: "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn failed_task_is_named_with_its_error() {
        let mut tasks = running_tasks();
        tasks.spawn_fallible("the metrics endpoint", async {
            Err(io::Error::other("no more descriptors"))
        });
        let text = format_error_chain(&poll_failure(&mut tasks).await.unwrap());
        assert_eq!(text, "the metrics endpoint failed: no more descriptors");
    }

    #[tokio::test]
    async fn panicked_task_is_named_without_its_payload() {
        for is_once in [false, true] {
            let mut tasks = running_tasks();
            let work = async { panic!("planted-4711-marker") };
            if is_once {
                tasks.spawn_once("the rotation", work);
            } else {
                tasks.spawn_cancellable("the rotation", work);
            }
            let failure = poll_failure(&mut tasks).await.unwrap();
            assert!(
                matches!(failure, SupervisedTaskError::Panicked { task: "the rotation", .. }),
                "{failure}"
            );
        }
    }

    #[tokio::test]
    async fn finished_one_time_task_is_no_failure() {
        let mut tasks = running_tasks();
        tasks.spawn_once("the first answer", async {});
        assert!(poll_failure(&mut tasks).await.is_none());
        assert_eq!(tasks.task_names.len(), 2, "the finished task is removed");
        tasks.shut_down(Duration::from_mins(1), &SystemClock::shared()).await;
    }
}
