//! The delay between a write to the vault and the use of the new credential in a pod.

use std::time::Duration;

/// The maximum delay between a write to the vault and the use of the new credential in a pod, by
/// part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropagationDelay {
    /// The interval at which the node polls the vault for a volume.
    pub poll_interval: Duration,
    /// The maximum additional delay of a poll.
    pub jitter: Duration,
    /// The maximum age of a cached vault response that volumes share.
    pub shared_read_age: Duration,
    /// The maximum time until the kubelet's next publish call, for which a poll may have to wait.
    pub republish_interval: Duration,
    /// The time that the consumer needs to load a changed file.
    pub reload_delay: Duration,
}

impl PropagationDelay {
    /// Returns the delay of lanyard's node plugin at this poll interval: jitter of a tenth of the
    /// interval, and cached responses of up to one interval.
    pub fn for_node_plugin(poll_interval: Duration) -> Self {
        Self {
            poll_interval,
            jitter: poll_interval / 10,
            shared_read_age: poll_interval,
            republish_interval: REPUBLISH_INTERVAL,
            reload_delay: Duration::from_secs(1),
        }
    }

    /// Returns the delay of the Secrets Store CSI driver with the Azure provider at this poll
    /// interval. The driver polls when the kubelet publishes and caches no responses. msi-dataplane
    /// notices the replaced file only at its own timer.
    pub fn for_secrets_store_driver(poll_interval: Duration) -> Self {
        Self {
            poll_interval,
            jitter: Duration::ZERO,
            shared_read_age: Duration::ZERO,
            republish_interval: REPUBLISH_INTERVAL,
            reload_delay: Duration::from_hours(6),
        }
    }

    /// Returns the total delay.
    pub fn total(&self) -> Duration {
        [self.jitter, self.shared_read_age, self.republish_interval, self.reload_delay]
            .into_iter()
            .fold(self.poll_interval, Duration::saturating_add)
    }
}

impl Default for PropagationDelay {
    /// Returns the delay of lanyard's node plugin at its default interval.
    fn default() -> Self {
        Self::for_node_plugin(DEFAULT_POLL_INTERVAL)
    }
}

/// The time limits by which renewals are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewalPolicy {
    /// The maximum delay between a write to the vault and the use of the new credential.
    pub propagation_delay: PropagationDelay,
    /// The maximum time after `renew_after` within which a working rotator writes the new
    /// credential.
    pub grace_period: Duration,
}

impl RenewalPolicy {
    /// The default of [`Self::grace_period`]: one day.
    pub const DEFAULT_GRACE_PERIOD: Duration = Duration::from_hours(24);
}

impl Default for RenewalPolicy {
    fn default() -> Self {
        Self {
            propagation_delay: PropagationDelay::default(),
            grace_period: Self::DEFAULT_GRACE_PERIOD,
        }
    }
}

/// Observed intervals between publish calls: 60 to 83 seconds.
const REPUBLISH_INTERVAL: Duration = Duration::from_secs(90);

/// `--rotation-poll-interval` of the node plugin, as of the Secrets Store CSI driver.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_mins(2);
