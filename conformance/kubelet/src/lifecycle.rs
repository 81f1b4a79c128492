//! What becomes of one volume: pure.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

/// A volume between the pod that wants it and the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lifecycle {
    id: String,
    hold: Hold,
    is_wanted: bool,
    is_busy: bool,
    /// Whether a restarted kubelet found it on disk, so that a failure does not say that it is not
    /// mounted.
    is_found: bool,
    /// Successes in a row.
    published: u32,
    publish_failures: u32,
    unpublish_failures: u32,
    publish_due: Option<Duration>,
    unpublish_due: Duration,
}

/// What the node holds of a volume, as far as the kubelet knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nothing.
    Nothing,
    /// Nobody knows: a publish ended with a code that is not final.
    Uncertain,
    /// The driver said that it is there.
    Mounted,
}

/// What to do with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Publish,
    Unpublish,
}

/// How a publish ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishEnd {
    Done,
    /// The driver refused or failed.
    Failed {
        is_final: bool,
    },
    /// The driver was not asked.
    NotSent,
}

impl Lifecycle {
    /// A volume of a pod that has just been added.
    pub(crate) fn new(id: String, now: Duration) -> Self {
        Self {
            id,
            hold: Hold::Nothing,
            is_wanted: true,
            is_busy: false,
            is_found: false,
            published: 0,
            publish_failures: 0,
            unpublish_failures: 0,
            publish_due: Some(now),
            unpublish_due: now,
        }
    }

    /// A volume that a restarted kubelet found on disk. Whether it is mounted will show.
    pub(crate) fn found(id: String, is_wanted: bool, now: Duration) -> Self {
        Self {
            hold: Hold::Uncertain,
            is_wanted,
            is_found: true,
            publish_due: Some(now.saturating_add(AFTER_RESTART)),
            unpublish_due: now.saturating_add(ORPHAN_AFTER_RESTART),
            ..Self::new(id, now)
        }
    }

    pub(crate) const fn hold(&self) -> Hold {
        self.hold
    }

    pub(crate) const fn published(&self) -> u32 {
        self.published
    }

    /// What is due now.
    pub(crate) fn step(&self, now: Duration) -> Option<Step> {
        let (step, due) = self.next()?;
        (due <= now).then_some(step)
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.next().map(|(_, due)| due)
    }

    fn next(&self) -> Option<(Step, Duration)> {
        match (self.is_busy, self.is_wanted, self.hold) {
            (true, _, _) | (false, false, Hold::Nothing) => None,
            (false, true, _) => self.publish_due.map(|due| (Step::Publish, due)),
            (false, false, _) => Some((Step::Unpublish, self.unpublish_due)),
        }
    }

    /// Whether nothing will ever be due again.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_wanted && !self.is_busy && self.hold == Hold::Nothing
    }

    pub(crate) const fn begin(&mut self) {
        self.is_busy = true;
    }

    /// The pod is gone. A publish in flight is waited for, a back-off is not.
    pub(crate) const fn release(&mut self, now: Duration) {
        self.is_wanted = false;
        self.unpublish_due = now;
    }

    pub(crate) fn publish_ended(
        &mut self,
        end: PublishEnd,
        now: Duration,
        sync_period: Option<Duration>,
    ) {
        self.is_busy = false;
        self.unpublish_due = now.saturating_add(AFTER_PUBLISH);
        match end {
            PublishEnd::Done => {
                self.hold = Hold::Mounted;
                self.publish_failures = 0;
                self.published = self.published.saturating_add(1);
                self.publish_due = sync_period.map(|period| now.saturating_add(self.gap(period)));
                return;
            }
            PublishEnd::Failed { is_final } if self.hold != Hold::Mounted => {
                let is_nothing = is_final && !self.is_found;
                self.hold = if is_nothing { Hold::Nothing } else { Hold::Uncertain };
            }
            PublishEnd::Failed { .. } | PublishEnd::NotSent => {}
        }
        self.publish_failures = self.publish_failures.saturating_add(1);
        self.publish_due = Some(now.saturating_add(backoff(self.publish_failures)));
    }

    pub(crate) fn unpublish_ended(&mut self, is_done: bool, now: Duration) {
        self.is_busy = false;
        if is_done {
            self.hold = Hold::Nothing;
            return;
        }
        self.unpublish_failures = self.unpublish_failures.saturating_add(1);
        self.unpublish_due = now.saturating_add(backoff(self.unpublish_failures));
    }

    /// How long after a success the volume is published again.
    fn gap(&self, period: Duration) -> Duration {
        let (least, most) = match self.published {
            1 => SECOND_PUBLISH,
            _ => (period.mul_f64(1.05), period.mul_f64(1.4)),
        };
        least.saturating_add(most.saturating_sub(least).mul_f64(self.draw()))
    }

    /// A number in `[0, 1)` that differs from volume to volume and from time to time.
    fn draw(&self) -> f64 {
        let digest = digest(&SHA256, format!("{}/{}", self.id, self.published).as_bytes());
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&digest.as_ref()[..4]);
        f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// How long to wait after the `failures`-th failure in a row.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF)
}

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(122);

/// The kubelet's first look at a pod after its volumes are there.
const SECOND_PUBLISH: (Duration, Duration) =
    (Duration::from_millis(600), Duration::from_millis(900));

/// From the end of a publish to the unpublish of a pod that was deleted meanwhile.
const AFTER_PUBLISH: Duration = Duration::from_millis(64);

const AFTER_RESTART: Duration = Duration::from_millis(1_400);
const ORPHAN_AFTER_RESTART: Duration = Duration::from_millis(1_300);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Option<Duration> = Some(Duration::from_mins(1));

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn ended(volume: &mut Lifecycle, end: PublishEnd, now: Duration) {
        assert_eq!(volume.step(now), Some(Step::Publish));
        volume.begin();
        assert_eq!(volume.next_due(), None, "one volume is served in order");
        volume.publish_ended(end, now, MINUTE);
    }

    #[test]
    fn a_volume_is_published_again_within_a_second_and_then_once_per_sync() {
        let mut volume = Lifecycle::new("csi-1".to_owned(), ms(0));
        let mut now = ms(0);
        let mut gaps = Vec::new();
        for _ in 0..50 {
            ended(&mut volume, PublishEnd::Done, now);
            let due = volume.next_due().unwrap();
            gaps.push(due.saturating_sub(now));
            now = due;
        }
        assert!((ms(600)..=ms(900)).contains(&gaps[0]), "{gaps:?}");
        assert!(gaps[1..].iter().all(|gap| (ms(63_000)..=ms(84_000)).contains(gap)), "{gaps:?}");
        assert_ne!(gaps[1], gaps[2]);
    }

    #[test]
    fn a_driver_that_does_not_require_it_is_called_once_for_ever() {
        let mut volume = Lifecycle::new("csi-1".to_owned(), ms(0));
        volume.begin();
        volume.publish_ended(PublishEnd::Done, ms(10), None);
        assert_eq!(volume.next_due(), None);
        volume.release(ms(20));
        assert_eq!(volume.step(ms(74)), Some(Step::Unpublish));
    }

    #[test]
    fn a_final_code_at_the_first_publish_leaves_nothing_to_unpublish() {
        for (is_final, over) in [(true, true), (false, false)] {
            let mut volume = Lifecycle::new("csi-1".to_owned(), ms(0));
            ended(&mut volume, PublishEnd::Failed { is_final }, ms(0));
            assert_eq!(volume.next_due(), Some(ms(500)));
            volume.release(ms(100));
            assert_eq!(volume.is_over(), over);
        }
    }

    #[test]
    fn a_volume_that_is_mounted_stays_so_whatever_the_code_and_backs_off() {
        let mut volume = Lifecycle::new("csi-1".to_owned(), ms(0));
        ended(&mut volume, PublishEnd::Done, ms(0));
        let mut now = volume.next_due().unwrap();
        let mut waits = Vec::new();
        for _ in 0..10 {
            ended(&mut volume, PublishEnd::Failed { is_final: true }, now);
            assert_eq!(volume.hold(), Hold::Mounted);
            let due = volume.next_due().unwrap();
            waits.push(due.saturating_sub(now).as_millis());
            now = due;
        }
        assert_eq!(
            waits,
            [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 122_000, 122_000]
        );
        volume.release(now);
        assert!(volume.next_due().unwrap() <= now, "deletion waits for no back-off");
    }

    #[test]
    fn deletion_waits_for_a_publish_in_flight() {
        let mut volume = Lifecycle::new("csi-1".to_owned(), ms(0));
        volume.begin();
        volume.release(ms(2_000));
        assert_eq!(volume.next_due(), None);
        volume.publish_ended(PublishEnd::Failed { is_final: false }, ms(120_000), MINUTE);
        assert_eq!(volume.next_due(), Some(ms(120_064)));
    }

    #[test]
    fn an_unpublish_that_failed_is_tried_again() {
        let mut volume = Lifecycle::found("csi-1".to_owned(), false, ms(0));
        assert_eq!(volume.step(ms(1_299)), None);
        assert_eq!(volume.step(ms(1_300)), Some(Step::Unpublish));
        volume.begin();
        volume.unpublish_ended(false, ms(1_300));
        assert_eq!(volume.next_due(), Some(ms(1_800)));
        volume.begin();
        volume.unpublish_ended(true, ms(1_800));
        assert!(volume.is_over());
    }
}
