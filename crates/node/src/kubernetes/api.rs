//! The Kubernetes API client of the node.

use std::fmt;
use std::ops::Deref;

use kube::Api;
use kube::api::ListParams;
use lanyard_api::SecretProviderClass;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};

use crate::metrics::NodeMetrics;

/// The Kubernetes API client, with metrics of its writes. Clones share both.
#[derive(Clone)]
pub struct NodeKubernetesApi {
    kubernetes: KubernetesApi,
    metrics: Option<NodeMetrics>,
}

impl NodeKubernetesApi {
    /// Creates a client without metrics.
    pub const fn new(kubernetes: KubernetesApi) -> Self {
        Self { kubernetes, metrics: None }
    }

    /// Records metrics of the writes through this client.
    #[must_use]
    pub fn with_metrics(self, metrics: NodeMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Checks whether the API serves what every mount needs: lists SecretProviderClasses of all namespaces
    /// with a limit of one, metadata only.
    ///
    /// # Errors
    ///
    /// Returns the error of the API.
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
