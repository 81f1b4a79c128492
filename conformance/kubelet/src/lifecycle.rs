//! The state machine of one volume, without I/O.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

/// The state of a volume, from which its next call follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeLifecycle {
    volume_id: String,
    mount_state: VolumeMountState,
    is_wanted: bool,
    is_busy: bool,
    /// Whether a restarted kubelet found the volume on disk. A failed publish then does not prove that it is
    /// not mounted.
    is_found_on_disk: bool,
    /// Successful publishes.
    publish_successes: u32,
    publish_failures: u32,
    unpublish_failures: u32,
    publish_due: Option<Duration>,
    unpublish_due: Duration,
}

/// Whether a volume is mounted, as far as the kubelet knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeMountState {
    /// Not mounted.
    Nothing,
    /// Unknown: a publish ended with a code that is not final.
    Uncertain,
    /// The driver published the volume.
    Mounted,
}

/// The next call for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverCall {
    Publish,
    Unpublish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishCallResult {
    Published,
    /// The driver returned an error.
    Failed {
        is_final: bool,
    },
    /// No call was made.
    NotSent,
}

impl VolumeLifecycle {
    /// A volume of a new pod.
    pub(crate) fn new(volume_id: String, now: Duration) -> Self {
        Self {
            volume_id,
            mount_state: VolumeMountState::Nothing,
            is_wanted: true,
            is_busy: false,
            is_found_on_disk: false,
            publish_successes: 0,
            publish_failures: 0,
            unpublish_failures: 0,
            publish_due: Some(now),
            unpublish_due: now,
        }
    }

    /// A volume that a restarted kubelet found on disk, and which may be mounted.
    pub(crate) fn from_disk(id: String, is_wanted: bool, now: Duration) -> Self {
        Self {
            mount_state: VolumeMountState::Uncertain,
            is_wanted,
            is_found_on_disk: true,
            publish_due: Some(now.saturating_add(PUBLISH_DELAY_AFTER_RESTART)),
            unpublish_due: now.saturating_add(UNPUBLISH_DELAY_AFTER_RESTART),
            ..Self::new(id, now)
        }
    }

    pub(crate) const fn mount_state(&self) -> VolumeMountState {
        self.mount_state
    }

    pub(crate) const fn publish_successes(&self) -> u32 {
        self.publish_successes
    }

    /// The call that is due now.
    pub(crate) fn due_call(&self, now: Duration) -> Option<DriverCall> {
        let (step, due) = self.next_call()?;
        (due <= now).then_some(step)
    }

    /// When the next call is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.next_call().map(|(_, due)| due)
    }

    fn next_call(&self) -> Option<(DriverCall, Duration)> {
        match (self.is_busy, self.is_wanted, self.mount_state) {
            (true, _, _) | (false, false, VolumeMountState::Nothing) => None,
            (false, true, _) => self.publish_due.map(|due| (DriverCall::Publish, due)),
            (false, false, _) => Some((DriverCall::Unpublish, self.unpublish_due)),
        }
    }

    /// Whether no call will be due again.
    pub(crate) fn is_finished(&self) -> bool {
        !self.is_wanted && !self.is_busy && self.mount_state == VolumeMountState::Nothing
    }

    pub(crate) const fn mark_in_progress(&mut self) {
        self.is_busy = true;
    }

    /// Records that the pod was deleted. Unpublishing waits for a publish in flight but not for a back-off.
    pub(crate) const fn mark_pod_deleted(&mut self, now: Duration) {
        self.is_wanted = false;
        self.unpublish_due = now;
    }

    pub(crate) fn record_publish_result(
        &mut self,
        end: PublishCallResult,
        now: Duration,
        sync_period: Option<Duration>,
    ) {
        self.is_busy = false;
        self.unpublish_due = now.saturating_add(UNPUBLISH_DELAY_AFTER_PUBLISH);
        match end {
            PublishCallResult::Published => {
                self.mount_state = VolumeMountState::Mounted;
                self.publish_failures = 0;
                self.publish_successes = self.publish_successes.saturating_add(1);
                self.publish_due =
                    sync_period.map(|period| now.saturating_add(self.republish_delay(period)));
                return;
            }
            PublishCallResult::Failed { is_final }
                if self.mount_state != VolumeMountState::Mounted =>
            {
                let is_nothing = is_final && !self.is_found_on_disk;
                self.mount_state = if is_nothing {
                    VolumeMountState::Nothing
                } else {
                    VolumeMountState::Uncertain
                };
            }
            PublishCallResult::Failed { .. } | PublishCallResult::NotSent => {}
        }
        self.publish_failures = self.publish_failures.saturating_add(1);
        self.publish_due = Some(now.saturating_add(backoff_delay(self.publish_failures)));
    }

    pub(crate) fn record_unpublish_result(&mut self, is_done: bool, now: Duration) {
        self.is_busy = false;
        if is_done {
            self.mount_state = VolumeMountState::Nothing;
            return;
        }
        self.unpublish_failures = self.unpublish_failures.saturating_add(1);
        self.unpublish_due = now.saturating_add(backoff_delay(self.unpublish_failures));
    }

    /// The delay from a successful publish to the next one.
    fn republish_delay(&self, period: Duration) -> Duration {
        let (least, most) = match self.publish_successes {
            1 => SECOND_PUBLISH_DELAY,
            _ => (period.mul_f64(1.05), period.mul_f64(1.4)),
        };
        least.saturating_add(most.saturating_sub(least).mul_f64(self.random_fraction()))
    }

    /// A number in `[0, 1)` that differs between volumes and between publishes.
    fn random_fraction(&self) -> f64 {
        let digest =
            digest(&SHA256, format!("{}/{}", self.volume_id, self.publish_successes).as_bytes());
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&digest.as_ref()[..4]);
        f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// The delay after the `failures`-th failure in a row.
fn backoff_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF)
}

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(122);

/// The kubelet syncs a pod soon after its volumes are mounted.
const SECOND_PUBLISH_DELAY: (Duration, Duration) =
    (Duration::from_millis(600), Duration::from_millis(900));

/// Delay from the end of a publish to the unpublish of a pod that was deleted during it.
const UNPUBLISH_DELAY_AFTER_PUBLISH: Duration = Duration::from_millis(64);

const PUBLISH_DELAY_AFTER_RESTART: Duration = Duration::from_millis(1_400);
const UNPUBLISH_DELAY_AFTER_RESTART: Duration = Duration::from_millis(1_300);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Option<Duration> = Some(Duration::from_mins(1));

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn finish_publish(volume: &mut VolumeLifecycle, end: PublishCallResult, now: Duration) {
        assert_eq!(volume.due_call(now), Some(DriverCall::Publish));
        volume.mark_in_progress();
        assert_eq!(volume.next_due(), None, "one volume is served in order");
        volume.record_publish_result(end, now, MINUTE);
    }

    #[test]
    fn volume_is_republished_within_a_second_and_then_once_per_sync() {
        let mut volume = VolumeLifecycle::new("csi-1".to_owned(), ms(0));
        let mut now = ms(0);
        let mut gaps = Vec::new();
        for _ in 0..50 {
            finish_publish(&mut volume, PublishCallResult::Published, now);
            let due = volume.next_due().unwrap();
            gaps.push(due.saturating_sub(now));
            now = due;
        }
        assert!((ms(600)..=ms(900)).contains(&gaps[0]), "{gaps:?}");
        assert!(gaps[1..].iter().all(|gap| (ms(63_000)..=ms(84_000)).contains(gap)), "{gaps:?}");
        assert_ne!(gaps[1], gaps[2]);
    }

    #[test]
    fn driver_without_requires_republish_is_called_once() {
        let mut volume = VolumeLifecycle::new("csi-1".to_owned(), ms(0));
        volume.mark_in_progress();
        volume.record_publish_result(PublishCallResult::Published, ms(10), None);
        assert_eq!(volume.next_due(), None);
        volume.mark_pod_deleted(ms(20));
        assert_eq!(volume.due_call(ms(74)), Some(DriverCall::Unpublish));
    }

    #[test]
    fn final_code_at_first_publish_needs_no_unpublish() {
        for (is_final, over) in [(true, true), (false, false)] {
            let mut volume = VolumeLifecycle::new("csi-1".to_owned(), ms(0));
            finish_publish(&mut volume, PublishCallResult::Failed { is_final }, ms(0));
            assert_eq!(volume.next_due(), Some(ms(500)));
            volume.mark_pod_deleted(ms(100));
            assert_eq!(volume.is_finished(), over);
        }
    }

    #[test]
    fn mounted_volume_stays_mounted_after_errors_and_backs_off() {
        let mut volume = VolumeLifecycle::new("csi-1".to_owned(), ms(0));
        finish_publish(&mut volume, PublishCallResult::Published, ms(0));
        let mut now = volume.next_due().unwrap();
        let mut waits = Vec::new();
        for _ in 0..10 {
            finish_publish(&mut volume, PublishCallResult::Failed { is_final: true }, now);
            assert_eq!(volume.mount_state(), VolumeMountState::Mounted);
            let due = volume.next_due().unwrap();
            waits.push(due.saturating_sub(now).as_millis());
            now = due;
        }
        assert_eq!(
            waits,
            [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 122_000, 122_000]
        );
        volume.mark_pod_deleted(now);
        assert!(volume.next_due().unwrap() <= now, "deletion waits for no back-off");
    }

    #[test]
    fn deletion_waits_for_a_publish_in_flight() {
        let mut volume = VolumeLifecycle::new("csi-1".to_owned(), ms(0));
        volume.mark_in_progress();
        volume.mark_pod_deleted(ms(2_000));
        assert_eq!(volume.next_due(), None);
        volume.record_publish_result(
            PublishCallResult::Failed { is_final: false },
            ms(120_000),
            MINUTE,
        );
        assert_eq!(volume.next_due(), Some(ms(120_064)));
    }

    #[test]
    fn failed_unpublish_is_retried() {
        let mut volume = VolumeLifecycle::from_disk("csi-1".to_owned(), false, ms(0));
        assert_eq!(volume.due_call(ms(1_299)), None);
        assert_eq!(volume.due_call(ms(1_300)), Some(DriverCall::Unpublish));
        volume.mark_in_progress();
        volume.record_unpublish_result(false, ms(1_300));
        assert_eq!(volume.next_due(), Some(ms(1_800)));
        volume.mark_in_progress();
        volume.record_unpublish_result(true, ms(1_800));
        assert!(volume.is_finished());
    }
}
