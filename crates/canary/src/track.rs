//! What is known of something that is tried again and again: a pure state machine.
//!
//! The rules:
//!
//! 1. A success is told at once, and so is trouble of somebody who knows ([`Nature::Final`]).
//! 2. Trouble on the way is counted, and told once it came [`Patience::failures`] times in a row
//!    over [`Patience::lasting`]. Until then what was known stays known.
//! 3. What is told stays as it was told while it has the same code, its beginning included. Trouble
//!    on the way says nothing new about what is known to be bad, but for rule 5.
//! 4. A service that wants to be left alone ([`Nature::Throttled`]) says nothing: what was known
//!    stays known however long it lasts. It is counted as in rule 2, and then told beside what is
//!    known, until somebody answers; at once where nothing is known, for it is why, and where it is
//!    to last as long as that by its own word: nobody asks before.
//! 5. What is known of something that was replaced ([`Track::outdate`]) is not known of what took its
//!    place. It stands while that is tried, within the patience of rule 2; where a service that
//!    throttles keeps it from being tried, nothing is known.

use std::time::Duration;

use jiff::Timestamp;

use crate::trouble::{Nature, Trouble};

/// How long trouble that may pass by itself is only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How many tries in a row have to fail.
    pub failures: u32,
    /// Over what time.
    pub lasting: Duration,
}

impl Patience {
    /// For the hops of the identity: a node that restarts or an API that throttles is no news.
    pub const HOPS: Self = Self { failures: 3, lasting: Duration::from_mins(5) };
    /// For probes, which are made every ten minutes.
    pub const PROBES: Self = Self { failures: 3, lasting: Duration::from_mins(30) };
}

/// A moment, by both clocks: the wall's leaves the process, the monotonic one measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Duration,
}

/// What is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    #[default]
    Unknown,
    /// It works.
    Good { since: Timestamp },
    /// It does not.
    Bad { trouble: Trouble, since: Timestamp },
}

/// What is known of one thing, and what has not been told yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Track {
    standing: Standing,
    run: Option<Run>,
    throttling: Option<Throttling>,
    /// Whether what is known is of something that was replaced.
    is_outdated: bool,
}

/// Failures in a row that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    failures: u32,
    first: Moment,
}

/// Since when, and how often, nobody answers because somebody asked too much.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Throttling {
    run: Run,
    /// What was said first, and then what is told.
    trouble: Trouble,
    is_told: bool,
}

impl Run {
    const fn beginning(first: Moment) -> Self {
        Self { failures: 0, first }
    }

    /// One more. Whether it is worth telling.
    fn grow(&mut self, now: Moment, patience: Patience) -> bool {
        self.failures = self.failures.saturating_add(1);
        let lasted = now.monotonic.saturating_sub(self.first.monotonic);
        self.failures >= patience.failures && lasted >= patience.lasting
    }
}

impl Throttling {
    const fn beginning(trouble: Trouble, first: Moment) -> Self {
        Self { run: Run::beginning(first), trouble, is_told: false }
    }

    /// It is told from now on, in the words that it was told in first.
    fn tell(&mut self, trouble: Trouble) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.trouble = trouble;
        }
    }
}

impl Track {
    /// What is known.
    pub(crate) const fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(crate) const fn is_good(&self) -> bool {
        matches!(self.standing, Standing::Good { .. })
    }

    /// Whether the last try succeeded.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.is_good() && self.run.is_none() && self.throttling.is_none()
    }

    /// That nobody may ask, and since when, where that is told.
    pub(crate) fn throttled(&self) -> Option<(&Trouble, Timestamp)> {
        let throttling = self.throttling.as_ref().filter(|throttling| throttling.is_told)?;
        Some((&throttling.trouble, throttling.run.first.wall))
    }

    /// A try came to something.
    pub(crate) fn note(&mut self, outcome: Result<(), Trouble>, now: Moment, patience: Patience) {
        match outcome {
            Ok(()) => self.succeed(now),
            Err(trouble) => self.fail(trouble, now, patience),
        }
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// What is tried was replaced by another: what is known is of the one before.
    pub(crate) fn outdate(&mut self) {
        self.is_outdated = true;
        if let Some(throttling) = &mut self.throttling {
            throttling.is_told = true;
            self.take_back();
        }
    }

    /// Whether what is known is of what was replaced.
    pub(crate) fn is_of_replaced(&self) -> bool {
        self.is_outdated && self.standing != Standing::Unknown
    }

    /// Nothing is known where it was known of something else.
    fn take_back(&mut self) {
        if std::mem::take(&mut self.is_outdated) {
            self.standing = Standing::Unknown;
        }
    }

    fn succeed(&mut self, now: Moment) {
        (self.run, self.throttling, self.is_outdated) = (None, None, false);
        if !self.is_good() {
            self.standing = Standing::Good { since: now.wall };
        }
    }

    fn fail(&mut self, trouble: Trouble, now: Moment, patience: Patience) {
        if trouble.is_throttled() {
            self.take_back();
        }
        match trouble.nature {
            Nature::Final => self.refuse(trouble, now),
            Nature::Passing => {
                let run = self.run.get_or_insert(Run::beginning(now));
                let since = run.first.wall;
                if run.grow(now, patience) {
                    let is_outdated = std::mem::take(&mut self.is_outdated);
                    // Trouble on the way is one story, whatever is tried on it.
                    let stays = |told: &Trouble| !is_outdated || told.nature == Nature::Passing;
                    if !matches!(&self.standing, Standing::Bad { trouble, .. } if stays(trouble)) {
                        self.standing = Standing::Bad { trouble, since };
                    }
                }
            }
            Nature::Throttled => {
                let is_to_last = trouble.asks_for(patience.lasting);
                let first = || Throttling::beginning(trouble.clone(), now);
                let throttling = self.throttling.get_or_insert_with(first);
                if throttling.run.grow(now, patience)
                    || is_to_last
                    || self.standing == Standing::Unknown
                {
                    throttling.tell(trouble);
                }
            }
        }
    }

    fn refuse(&mut self, trouble: Trouble, now: Moment) {
        (self.run, self.throttling, self.is_outdated) = (None, None, false);
        let is_told = |told: &Standing| matches!(told, Standing::Bad { trouble: told, .. } if told.is_same(&trouble));
        if !is_told(&self.standing) {
            self.standing = Standing::Bad { trouble, since: now.wall };
        }
    }
}

#[cfg(test)]
mod tests;
