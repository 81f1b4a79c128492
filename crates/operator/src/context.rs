//! What every look at a cluster needs.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_desired::drift::{ChangedObject, DriftHistory};
use lanyard_desired::validate;
use lanyard_kubernetes::KubernetesApi;
use parking_lot::Mutex;

use crate::cluster_key::ClusterKey;
use crate::conflict_backoff::{ConflictBackoff, WriteTarget};
use crate::events::EventBudgets;
use crate::metrics::OperatorMetrics;
use crate::settings::OperatorSettings;
use crate::shared_credentials::SharedCredentials;
use crate::store::WatchStores;

/// What every look at a cluster needs.
#[derive(Debug)]
pub(crate) struct ReconcileContext {
    pub(crate) api: KubernetesApi,
    pub(crate) stores: Arc<WatchStores>,
    pub(crate) settings: OperatorSettings,
    pub(crate) metrics: OperatorMetrics,
    pub(crate) event_budgets: Mutex<EventBudgets>,
    pub(crate) shared_credentials: Mutex<SharedCredentials>,
    /// What is written again and again.
    pub(crate) conflict_backoff: Mutex<ConflictBackoff>,
    /// Since when what of a cluster is different.
    pub(crate) drift_histories: Mutex<HashMap<ClusterKey, DriftHistory>>,
}

impl ReconcileContext {
    /// Notes which secrets a HostedCluster names, whoever leads it. Returns the others for which that
    /// changes something.
    ///
    /// A look at one cluster would come too late: until all were looked at, and for ever where other
    /// replicas look at some, a secret of two clusters would seem to be of one.
    pub(crate) fn track_shared_credentials(&self, key: &ClusterKey) -> BTreeSet<ClusterKey> {
        let seen = self.stores.cluster(key);
        let valid = catch_panic(|| seen.and_then(|seen| validate(&seen.parse().ok()?).ok()));
        let mut shared = self.shared_credentials.lock();
        let before = shared.sharing_clusters(key);
        let after = if let Some(valid) = valid {
            shared.update_cluster(key, &valid.hosted_cluster)
        } else {
            shared.remove_cluster(key);
            BTreeSet::new()
        };
        before.symmetric_difference(&after).cloned().collect()
    }

    /// Until when something is left as it is, because somebody else writes it, too.
    pub(crate) fn backoff_until(
        &self,
        key: &ClusterKey,
        subject: WriteTarget<'_>,
        wish: u64,
    ) -> Option<Duration> {
        self.conflict_backoff.lock().backoff_until(key, subject, wish, self.api.clock().monotonic())
    }

    /// When the first of what is left as it is may be written again.
    pub(crate) fn next_write_due(&self, key: &ClusterKey) -> Option<Duration> {
        self.conflict_backoff.lock().next_write_due(key, self.api.clock().monotonic())
    }

    /// Notes that something was written. `told` says of what, should it be contested.
    pub(crate) fn record_write(
        &self,
        key: &ClusterKey,
        subject: WriteTarget<'_>,
        wish: u64,
        told: impl FnOnce() -> ChangedObject,
    ) {
        self.conflict_backoff.lock().record_write(
            key,
            subject,
            wish,
            self.api.clock().monotonic(),
            told,
        );
    }

    /// The time of the wall at a moment of the monotonic clock.
    pub(crate) fn wall_time(&self, moment: Duration) -> Timestamp {
        let clock = self.api.clock();
        let now = clock.now();
        now.checked_add(moment.saturating_sub(clock.monotonic())).unwrap_or(now)
    }

    /// Forgets what was remembered of all clusters but those that were led here all the time. What
    /// others found meanwhile is unknown here; the status of a cluster that comes back tells it.
    pub(crate) fn retain_clusters(&self, was_led: impl Fn(&ClusterKey) -> bool) {
        self.drift_histories.lock().retain(|key, _| was_led(key));
        self.conflict_backoff.lock().retain(&was_led);
        self.event_budgets.lock().retain(was_led);
    }

    /// Forgets a cluster that is gone.
    pub(crate) fn forget_cluster(&self, key: &ClusterKey) {
        self.shared_credentials.lock().remove_cluster(key);
        self.drift_histories.lock().remove(key);
        self.conflict_backoff.lock().forget(key);
        self.event_budgets.lock().forget(key);
    }
}

/// Reads on the watch, which all clusters live by: what leads into a defect is nothing here, and a look
/// at its cluster tells of the defect.
fn catch_panic<T>(read: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_while_reading_cluster_is_caught() {
        assert_eq!(catch_panic(|| Some("a cluster")), Some("a cluster"));
        let defect = || -> Option<&str> { unreachable!("a defect") };
        assert_eq!(catch_panic(defect), None);
    }
}
