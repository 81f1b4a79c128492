//! The Kubernetes API as the node uses it.

use std::fmt;
use std::ops::Deref;

use kube::Api;
use kube::api::ListParams;
use lanyard_api::SecretProviderClass;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};

use crate::metrics::NodeMetrics;

/// The Kubernetes API, and the metrics of what is written through it. Clones share both.
#[derive(Clone)]
pub struct NodeKubernetesApi {
    kubernetes: KubernetesApi,
    metrics: Option<NodeMetrics>,
}

impl NodeKubernetesApi {
    /// The node's way to the API.
    pub const fn new(kubernetes: KubernetesApi) -> Self {
        Self { kubernetes, metrics: None }
    }

    /// The same, and what is written through it is counted.
    #[must_use]
    pub fn with_metrics(self, metrics: NodeMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Whether the API gives what no volume can be mounted without: asks for one class of all
    /// namespaces, without what it says.
    ///
    /// # Errors
    ///
    /// What came back.
    pub async fn probe(&self) -> Result<(), ApiError> {
        let classes = Api::<SecretProviderClass>::all(self.client().clone());
        let one = ListParams::default().limit(1);
        let list = || classes.list_metadata(&one);
        self.call(ApiRetryPolicy::SINGLE_ATTEMPT, "list SecretProviderClasses", list)
            .await
            .map(|_| ())
    }

    pub(crate) fn record_metrics(&self, count: impl FnOnce(&NodeMetrics)) {
        if let Some(metrics) = &self.metrics {
            count(metrics);
        }
    }
}

impl Deref for NodeKubernetesApi {
    type Target = KubernetesApi;

    fn deref(&self) -> &KubernetesApi {
        &self.kubernetes
    }
}

impl fmt::Debug for NodeKubernetesApi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NodeApi").finish_non_exhaustive()
    }
}
