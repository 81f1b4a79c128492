//! The annotation of the canary's own pod.

use std::fmt;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::CanaryStatusReport;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};
use serde_json::json;

use super::{FactsSink, PublishFactsError};

/// Tells facts in [`CanaryStatusReport::ANNOTATION`] of a pod.
///
/// It needs `get` of pods and `patch` of `pods/status` in the namespace of its own, and asks for
/// nothing else. The annotation goes through the status because the API server lets nobody change
/// what a pod runs there: who takes over a canary gains no other pod's secrets. It is patched by a
/// merge of this one key, so nothing else about the pod is touched.
pub struct PodAnnotation {
    api: KubernetesApi,
    namespace: String,
    pod: String,
}

/// The field manager of the annotation.
const FIELD_MANAGER: &str = "lanyard-canary";

impl PodAnnotation {
    /// The annotation of this pod.
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
        // What cannot be read is written anew.
        let facts = annotations.get(CanaryStatusReport::REPORT_ANNOTATION);
        Ok(facts.and_then(|text| serde_json::from_str(text).ok()))
    }

    async fn apply_facts(&self, facts: &CanaryStatusReport) -> Result<(), PublishFactsError> {
        let text = serde_json::to_string(facts).map_err(|error| PublishFactsError {
            message: format!("the facts cannot be written as JSON: {error}"),
            hint: "report this defect",
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
            "let the pod's service account get pods and patch pods/status of its namespace, or \
             give --no-annotation"
        }
        ApiError::Refused { status: 404, .. } => "see POD_NAME and POD_NAMESPACE",
        _ => error.hint(),
    };
    PublishFactsError { message: error.to_string(), hint }
}

impl fmt::Debug for PodAnnotation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PodAnnotation")
            .field("namespace", &self.namespace)
            .field("pod", &self.pod)
            .finish_non_exhaustive()
    }
}
