//! What every look at a cluster needs.

use std::collections::HashMap;
use std::sync::Arc;

use lanyard_desired::drift::Memory;
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
    /// Forgets a cluster that is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.shared.lock().forget(key);
        self.memories.lock().remove(key);
        self.budgets.lock().forget(key);
    }
}
