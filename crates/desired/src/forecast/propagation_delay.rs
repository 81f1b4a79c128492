//! How long what is written to the vault takes to be in use.

use std::time::Duration;

/// How long what is written to the vault takes at most to be in use in a pod, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropagationDelay {
    /// How often a volume is looked at: the poll interval of the node.
    pub poll_interval: Duration,
    /// By how much a look may be later than that.
    pub jitter: Duration,
    /// How old an answer of the vault may be that volumes share.
    pub shared_read_age: Duration,
    /// How long the kubelet's next publish may take, which a look may have to wait for.
    pub republish_interval: Duration,
    /// How long the consumer takes to load a file that changed.
    pub reload_delay: Duration,
}

impl PropagationDelay {
    /// The node plugin of lanyard at this interval: a tenth of jitter, and answers that volumes
    /// share for one interval.
    pub fn for_node_plugin(poll_interval: Duration) -> Self {
        Self {
            poll_interval,
            jitter: poll_interval / 10,
            shared_read_age: poll_interval,
            republish_interval: REPUBLISH_INTERVAL,
            reload_delay: Duration::from_secs(1),
        }
    }

    /// The Secrets Store CSI driver with the Azure provider at this interval. It looks when the
    /// kubelet publishes, and shares nothing. What it swaps in is noticed by msi-dataplane at its
    /// own timer only.
    pub fn for_secrets_store_driver(poll_interval: Duration) -> Self {
        Self {
            poll_interval,
            jitter: Duration::ZERO,
            shared_read_age: Duration::ZERO,
            republish_interval: REPUBLISH_INTERVAL,
            reload_delay: Duration::from_hours(6),
        }
    }

    /// All of it together.
    pub fn total(&self) -> Duration {
        [self.jitter, self.shared_read_age, self.republish_interval, self.reload_delay]
            .into_iter()
            .fold(self.poll_interval, Duration::saturating_add)
    }
}

impl Default for PropagationDelay {
    /// The node plugin at its default interval.
    fn default() -> Self {
        Self::for_node_plugin(DEFAULT_POLL_INTERVAL)
    }
}

/// What renewals are measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewalPolicy {
    /// How long what is written takes to be in use.
    pub propagation_delay: PropagationDelay,
    /// How long after `renew_after` a rotator that does its work may take to write.
    pub grace_period: Duration,
}

impl RenewalPolicy {
    /// A day.
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

/// Gaps between publishes of 60 to 83 seconds were observed.
const REPUBLISH_INTERVAL: Duration = Duration::from_secs(90);

/// `--rotation-poll-interval` of the node plugin, as of the Secrets Store CSI driver.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_mins(2);
