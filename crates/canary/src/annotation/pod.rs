//! The annotation of the canary's own pod.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::CanaryStatusReport;
use lanyard_clock::ErrorHint as _;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};
use serde_json::json;

use super::{FactsSink, PublishFactsError};

/// Stores the status report in [`CanaryStatusReport::REPORT_ANNOTATION`] of a pod.
///
/// The canary needs `get` on pods and `patch` on `pods/status` in its own namespace, and no other
/// permission. The patch goes through the `status` subresource because the API server ignores
/// changes of the pod spec there: a compromised canary cannot read other pods' secrets. A merge
/// patch of this one key leaves the rest of the pod unchanged.
pub struct PodAnnotation {
    api: KubernetesApi,
    namespace: String,
    pod: String,
}

/// The field manager of the annotation.
const FIELD_MANAGER: &str = "lanyard-canary";

impl PodAnnotation {
    /// Creates a store in the annotation of this pod.
    pub fn new(api: KubernetesApi, namespace: impl Into<String>, pod: impl Into<String>) -> Self {
        Self { api, namespace: namespace.into(), pod: pod.into() }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api.client().clone(), &self.namespace)
    }
}

#[async_trait]
impl FactsSink for PodAnnotation {
    async fn fetch_facts(&self) -> Result<Option<CanaryStatusReport>, PublishFactsError> {
        let pods = self.pods();
        let action = format!("read pod {}/{}", self.namespace, self.pod);
        let read = || pods.get_metadata(&self.pod);
        let pod =
            self.api.call(ApiRetryPolicy::STANDARD, action, read).await.map_err(publish_error)?;
        let annotations = pod.metadata.annotations.unwrap_or_default();
        // An unreadable report is overwritten.
        let facts = annotations.get(CanaryStatusReport::REPORT_ANNOTATION);
        Ok(facts.and_then(|text| serde_json::from_str(text).ok()))
    }

    async fn apply_facts(&self, facts: &CanaryStatusReport) -> Result<(), PublishFactsError> {
        let text = serde_json::to_string(facts).map_err(|error| PublishFactsError {
            message: format!("cannot serialize the status report as JSON: {error}"),
            hint: "report this defect".into(),
        })?;
        let patch =
            json!({"metadata": {"annotations": {CanaryStatusReport::REPORT_ANNOTATION: text}}});
        let (pods, patch) = (self.pods(), Patch::Merge(patch));
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let action = format!("annotate pod {}/{}", self.namespace, self.pod);
        let write = || pods.patch_status(&self.pod, &parameters, &patch);
        self.api.call(ApiRetryPolicy::STANDARD, action, write).await.map_err(publish_error)?;
        Ok(())
    }
}

fn publish_error(error: ApiError) -> PublishFactsError {
    let hint = match &error {
        ApiError::Refused { status: 401 | 403, .. } => {
            "allow the pod's service account to get pods and patch pods/status in its namespace, \
             or set `--no-annotation`"
                .into()
        }
        ApiError::Refused { status: 404, .. } => {
            "check the environment variables `POD_NAME` and `POD_NAMESPACE`".into()
        }
        _ => error.hint().unwrap_or_default(),
    };
    PublishFactsError { message: error.to_string(), hint }
}

lanyard_vocabulary::debug_fields!(PodAnnotation { namespace, pod });
