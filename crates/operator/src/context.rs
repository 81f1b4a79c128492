//! The shared state of all reconciliations.

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
use crate::references::ReferenceReads;
use crate::settings::OperatorSettings;
use crate::shared_credentials::SharedCredentials;
use crate::store::WatchStores;

/// The shared state of all reconciliations.
#[derive(Debug)]
pub(crate) struct ReconcileContext {
    pub(crate) api: KubernetesApi,
    pub(crate) stores: Arc<WatchStores>,
    pub(crate) settings: OperatorSettings,
    pub(crate) metrics: OperatorMetrics,
    pub(crate) event_budgets: Mutex<EventBudgets>,
    pub(crate) shared_credentials: Mutex<SharedCredentials>,
    /// When the objects that HostedClusters refer to were read.
    pub(crate) reference_reads: Mutex<ReferenceReads>,
    /// The back-off of writes that other managers keep reverting.
    pub(crate) conflict_backoff: Mutex<ConflictBackoff>,
    /// Since when which objects of a cluster differ.
    pub(crate) drift_histories: Mutex<HashMap<ClusterKey, DriftHistory>>,
}

impl ReconcileContext {
    /// Records which secrets a HostedCluster names, also for clusters that other replicas lead. Returns the
    /// other clusters whose set of shared secrets changes.
    ///
    /// A reconciliation could not do this: until all clusters were reconciled, and always where other
    /// replicas lead some of them, a secret of two clusters would seem to belong to one.
    pub(crate) fn track_shared_credentials(&self, key: &ClusterKey) -> BTreeSet<ClusterKey> {
        let cached = self.stores.cluster(key);
        let valid = catch_panic(|| cached.and_then(|cached| validate(&cached.parse().ok()?).ok()));
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

    /// Until when a write is held back, because another manager keeps reverting it.
    pub(crate) fn backoff_until(
        &self,
        key: &ClusterKey,
        subject: WriteTarget<'_>,
        desired_digest: u64,
    ) -> Option<Duration> {
        self.conflict_backoff.lock().backoff_until(
            key,
            subject,
            desired_digest,
            self.api.clock().monotonic(),
        )
    }

    /// When the first write in back-off is due.
    pub(crate) fn next_write_due(&self, key: &ClusterKey) -> Option<Duration> {
        self.conflict_backoff.lock().next_write_due(key, self.api.clock().monotonic())
    }

    /// Records a write. `describe_object` returns the object to report if the write conflicts.
    pub(crate) fn record_write(
        &self,
        key: &ClusterKey,
        subject: WriteTarget<'_>,
        desired_digest: u64,
        describe_object: impl FnOnce() -> ChangedObject,
    ) {
        self.conflict_backoff.lock().record_write(
            key,
            subject,
            desired_digest,
            self.api.clock().monotonic(),
            describe_object,
        );
    }

    /// Converts a time of the monotonic clock to wall-clock time.
    pub(crate) fn wall_time(&self, moment: Duration) -> Timestamp {
        let clock = self.api.clock();
        let now = clock.now();
        now.checked_add(moment.saturating_sub(clock.monotonic())).unwrap_or(now)
    }

    /// Drops the in-memory state of all clusters except those that this process led all the time. The status
    /// of a cluster preserves what another replica found meanwhile.
    pub(crate) fn retain_clusters(&self, was_led: impl Fn(&ClusterKey) -> bool) {
        self.drift_histories.lock().retain(|key, _| was_led(key));
        self.conflict_backoff.lock().retain(&was_led);
        self.reference_reads.lock().retain(&was_led);
        self.event_budgets.lock().retain(was_led);
    }

    /// Drops the in-memory state of a deleted cluster.
    pub(crate) fn forget_cluster(&self, key: &ClusterKey) {
        self.shared_credentials.lock().remove_cluster(key);
        self.drift_histories.lock().remove(key);
        self.conflict_backoff.lock().forget(key);
        self.reference_reads.lock().forget(key);
        self.event_budgets.lock().forget(key);
    }
}

/// Catches a panic on the watch task, which all clusters share. The reconciliation of the cluster
/// reports the defect.
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
