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
pub(super) struct Beside {
    tasks: JoinSet<io::Result<Course>>,
    names: HashMap<Id, &'static str>,
    end: watch::Sender<bool>,
}

/// What it means that a part came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// It had no more to do.
    Done,
    /// It should have gone on, unless everything ends.
    Over,
}

/// Ready when the end begins.
pub(super) type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A part ended that should have gone on.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenPart {
    /// It came to its end without saying why.
    #[error("{part} ended by itself")]
    Over {
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
    Broke {
        /// Its name.
        part: &'static str,
        /// The panic, without its payload.
        #[source]
        source: JoinError,
    },
}

impl BrokenPart {
    /// The same for the person who reads how the process ended.
    pub(super) fn into_command_error(self) -> CommandError {
        CommandError::unavailable("the process cannot do its work without all of its parts")
            .because(&self)
            .hint(
                "nothing is lost: mounted volumes stay, and the next start goes on with them; if \
                 it comes again, see what the log says before it",
            )
    }
}

impl Beside {
    /// Ready when the end begins.
    pub(super) fn ended(&self) -> Ended {
        let mut end = self.end.subscribe();
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
            Ok(Course::Over)
        });
    }

    /// The same where it may fail.
    pub(super) fn spawn_fallible(
        &mut self,
        part: &'static str,
        work: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        self.add(part, async move { work.await.map(|()| Course::Over) });
    }

    /// Runs what goes on for ever and can be dropped at any moment.
    pub(super) fn spawn_until_end(
        &mut self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_until_end(part, work, Course::Over);
    }

    /// Runs what has to be done once, and can be dropped at any moment.
    pub(super) fn spawn_once(
        &mut self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_until_end(part, work, Course::Done);
    }

    fn add_until_end(
        &mut self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
        course: Course,
    ) {
        let ended = self.ended();
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
        work: impl Future<Output = io::Result<Course>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(work).id();
        self.names.insert(id, part);
    }

    /// Returns when a part ended that should have gone on.
    pub(super) async fn broken(&mut self) -> BrokenPart {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if let Some(broken) = self.judge(ended) {
                return broken;
            }
        }
        std::future::pending().await
    }

    fn judge(&mut self, ended: Result<(Id, io::Result<Course>), JoinError>) -> Option<BrokenPart> {
        let mut part = |id| self.names.remove(&id).unwrap_or("a part without a name");
        match ended {
            Ok((id, Ok(Course::Done))) => {
                part(id);
                None
            }
            Ok((id, Ok(Course::Over))) => Some(BrokenPart::Over { part: part(id) }),
            Ok((id, Err(source))) => Some(BrokenPart::Failed { part: part(id), source }),
            Err(source) => Some(BrokenPart::Broke { part: part(source.id()), source }),
        }
    }

    /// Ends the parts; what has not ended by itself after `limit` is dropped.
    pub(super) async fn end(mut self, limit: Duration, clock: &SharedClock) {
        self.end.send_replace(true);
        let ended = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                match self.judge(ended) {
                    // What everything does now.
                    None | Some(BrokenPart::Over { .. }) => {}
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
    use lanyard_vocabulary::causes;

    use super::*;

    /// Parts that go on, beside which one is tried.
    fn company() -> Beside {
        let mut beside = Beside::default();
        let ended = beside.ended();
        beside.spawn("a page", ended);
        beside.spawn_until_end("a watch", std::future::pending());
        beside
    }

    /// What broke, if anything does before long.
    async fn broken(beside: &mut Beside) -> Option<BrokenPart> {
        for _ in 0..16 {
            tokio::select! {
                biased;
                part = beside.broken() => return Some(part),
                () = tokio::task::yield_now() => {}
            }
        }
        None
    }

    #[tokio::test]
    async fn a_part_that_ends_without_a_word_is_named() {
        let mut beside = company();
        beside.spawn("the rotation", async {});
        assert_eq!(broken(&mut beside).await.unwrap().to_string(), "the rotation ended by itself");
        let mut beside = company();
        beside.spawn_until_end("the synchronization", async {});
        let error = broken(&mut beside).await.unwrap().into_command_error().to_string();
        assert!(error.contains("parts: the synchronization ended by itself\n\nhint: "), "{error}");
    }

    #[tokio::test]
    async fn a_part_that_fails_is_named_and_says_why() {
        let mut beside = company();
        beside.spawn_fallible("the metrics page", async {
            Err(io::Error::other("no more descriptors"))
        });
        let text = causes(&broken(&mut beside).await.unwrap());
        assert_eq!(text, "the metrics page could not go on: no more descriptors");
    }

    #[tokio::test]
    async fn a_part_that_panics_is_named_and_its_payload_is_not_told() {
        for is_once in [false, true] {
            let mut beside = company();
            let work = async { panic!("planted-4711-marker") };
            if is_once {
                beside.spawn_once("the rotation", work);
            } else {
                beside.spawn_until_end("the rotation", work);
            }
            let broken = broken(&mut beside).await.unwrap();
            assert!(matches!(broken, BrokenPart::Broke { part: "the rotation", .. }), "{broken}");
        }
    }

    #[tokio::test]
    async fn what_is_done_once_may_end_and_what_goes_on_is_no_news() {
        let mut beside = company();
        beside.spawn_once("the first answer", async {});
        assert!(broken(&mut beside).await.is_none());
        assert_eq!(beside.names.len(), 2, "what is done is forgotten");
        beside.end(Duration::from_mins(1), &SystemClock::shared()).await;
    }
}
