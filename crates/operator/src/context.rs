//! What every look at a cluster needs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lanyard_desired::drift::Memory;
use lanyard_desired::validate;
use lanyard_kubernetes::KubernetesApi;
use parking_lot::Mutex;

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
        let valid = seen.and_then(|seen| validate(&seen.read().ok()?).ok());
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

    /// Forgets what was remembered of all clusters but those that were led here all the time. What
    /// others found meanwhile is unknown here; the status of a cluster that comes back tells it.
    pub(crate) fn forget_all_but(&self, was_led: impl Fn(&ClusterKey) -> bool) {
        self.memories.lock().retain(|key, _| was_led(key));
        self.budgets.lock().retain(was_led);
    }

    /// Forgets a cluster that is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.shared.lock().forget(key);
        self.memories.lock().remove(key);
        self.budgets.lock().forget(key);
    }
}
