//! How long what is written to the vault takes to be in use.

use std::time::Duration;

/// How long what is written to the vault takes at most to be in use in a pod, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// How often a volume is looked at: the poll interval of the node.
    pub interval: Duration,
    /// By how much a look may be later than that.
    pub jitter: Duration,
    /// How old an answer of the vault may be that volumes share.
    pub sharing: Duration,
    /// How long the kubelet's next publish may take, which a look may have to wait for.
    pub republish: Duration,
    /// How long the consumer takes to load a file that changed.
    pub debounce: Duration,
}

impl Reach {
    /// The node plugin of lanyard at this interval: a tenth of jitter, and answers that volumes
    /// share for one interval.
    pub fn of_node_plugin(interval: Duration) -> Self {
        Self {
            interval,
            jitter: interval / 10,
            sharing: interval,
            republish: REPUBLISH,
            debounce: Duration::from_secs(1),
        }
    }

    /// The Secrets Store CSI driver with the Azure provider at this interval. It looks when the
    /// kubelet publishes, and shares nothing. What it swaps in is noticed by msi-dataplane at its
    /// own timer only.
    pub fn of_secrets_store_driver(interval: Duration) -> Self {
        Self {
            interval,
            jitter: Duration::ZERO,
            sharing: Duration::ZERO,
            republish: REPUBLISH,
            debounce: Duration::from_hours(6),
        }
    }

    /// All of it together.
    pub fn longest(&self) -> Duration {
        [self.jitter, self.sharing, self.republish, self.debounce]
            .into_iter()
            .fold(self.interval, Duration::saturating_add)
    }
}

impl Default for Reach {
    /// The node plugin at its default interval.
    fn default() -> Self {
        Self::of_node_plugin(DEFAULT_INTERVAL)
    }
}

/// What renewals are measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long what is written takes to be in use.
    pub reach: Reach,
    /// How long after `renew_after` a rotator that does its work may take to write.
    pub patience: Duration,
}

impl Policy {
    /// A day.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_hours(24);
}

impl Default for Policy {
    fn default() -> Self {
        Self { reach: Reach::default(), patience: Self::DEFAULT_PATIENCE }
    }
}

/// Gaps between publishes of 60 to 83 seconds were observed.
const REPUBLISH: Duration = Duration::from_secs(90);

/// `--rotation-poll-interval` of the node plugin, as of the Secrets Store CSI driver.
const DEFAULT_INTERVAL: Duration = Duration::from_mins(2);
