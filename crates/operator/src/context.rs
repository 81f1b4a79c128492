//! What every look at a cluster needs.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_desired::drift::{ChangedObject, Memory};
use lanyard_desired::validate;
use lanyard_kubernetes::KubernetesApi;
use parking_lot::Mutex;

use crate::contest::{Contests, Subject};
use crate::events::EventBudgets;
use crate::key::ClusterKey;
use crate::metrics::OperatorMetrics;
use crate::settings::OperatorSettings;
use crate::shared::SharedCredentials;
use crate::store::Stores;

/// What every look at a cluster needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) api: KubernetesApi,
    pub(crate) stores: Arc<Stores>,
    pub(crate) settings: OperatorSettings,
    pub(crate) metrics: OperatorMetrics,
    pub(crate) budgets: Mutex<EventBudgets>,
    pub(crate) shared: Mutex<SharedCredentials>,
    /// What is written again and again.
    pub(crate) contests: Mutex<Contests>,
    /// Since when what of a cluster is different.
    pub(crate) memories: Mutex<HashMap<ClusterKey, Memory>>,
}

impl Context {
    /// Notes which secrets a HostedCluster names, whoever leads it. Returns the others for which that
    /// changes something.
    ///
    /// A look at one cluster would come too late: until all were looked at, and for ever where other
    /// replicas look at some, a secret of two clusters would seem to be of one.
    pub(crate) fn learn(&self, key: &ClusterKey) -> BTreeSet<ClusterKey> {
        let seen = self.stores.cluster(key);
        let valid = unharmed(|| seen.and_then(|seen| validate(&seen.read().ok()?).ok()));
        let mut shared = self.shared.lock();
        let before = shared.fellows(key);
        let after = if let Some(valid) = valid {
            shared.note(key, &valid.hosted_cluster)
        } else {
            shared.forget(key);
            BTreeSet::new()
        };
        before.symmetric_difference(&after).cloned().collect()
    }

    /// Until when something is left as it is, because somebody else writes it, too.
    pub(crate) fn held_until(
        &self,
        key: &ClusterKey,
        subject: Subject<'_>,
        wish: u64,
    ) -> Option<Duration> {
        self.contests.lock().due(key, subject, wish, self.api.clock().monotonic())
    }

    /// When the first of what is left as it is may be written again.
    pub(crate) fn next_due(&self, key: &ClusterKey) -> Option<Duration> {
        self.contests.lock().next_due(key, self.api.clock().monotonic())
    }

    /// Notes that something was written. `told` says of what, should it be contested.
    pub(crate) fn wrote(
        &self,
        key: &ClusterKey,
        subject: Subject<'_>,
        wish: u64,
        told: impl FnOnce() -> ChangedObject,
    ) {
        self.contests.lock().wrote(key, subject, wish, self.api.clock().monotonic(), told);
    }

    /// The time of the wall at a moment of the monotonic clock.
    pub(crate) fn wall_time(&self, moment: Duration) -> Timestamp {
        let clock = self.api.clock();
        let now = clock.now();
        now.checked_add(moment.saturating_sub(clock.monotonic())).unwrap_or(now)
    }

    /// Forgets what was remembered of all clusters but those that were led here all the time. What
    /// others found meanwhile is unknown here; the status of a cluster that comes back tells it.
    pub(crate) fn forget_all_but(&self, was_led: impl Fn(&ClusterKey) -> bool) {
        self.memories.lock().retain(|key, _| was_led(key));
        self.contests.lock().retain(&was_led);
        self.budgets.lock().retain(was_led);
    }

    /// Forgets a cluster that is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.shared.lock().forget(key);
        self.memories.lock().remove(key);
        self.contests.lock().forget(key);
        self.budgets.lock().forget(key);
    }
}

/// Reads on the watch, which all clusters live by: what leads into a defect is nothing here, and a look
/// at its cluster tells of the defect.
fn unharmed<T>(read: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_that_one_cluster_leads_into_ends_no_watch() {
        assert_eq!(unharmed(|| Some("a cluster")), Some("a cluster"));
        let defect = || -> Option<&str> { unreachable!("a defect") };
        assert_eq!(unharmed(defect), None);
    }
}
