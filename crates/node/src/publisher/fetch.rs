//! Fetches the content of a requested volume.

use std::sync::{Arc, OnceLock};

use lanyard_provider::{ProviderObjectVersion, ProviderRequest, RotationPolicy, Urgency};
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::VolumeStep;

use super::PublishEngine;
use super::disk::max_files_size;
use super::failure::PublishFailure;
use super::fetched_response::FetchedResponse;
use crate::publish_request::PublishRequest;
use crate::reporter::PodEventKind;

impl PublishEngine {
    /// Reads the class and asks its provider for the content. Ends early at the fetch timeout or
    /// when `unpublished` resolves.
    pub(super) async fn fetch(
        &self,
        unpublished: impl Future<Output = ()> + Send,
        publish_request: &PublishRequest,
        urgency: Urgency,
        mounted: &[ProviderObjectVersion],
    ) -> Result<FetchedResponse, PublishFailure> {
        let started_at = self.parts.clock.now();
        self.context.fail_point.reach_step(VolumeStep::Fetch);
        let timeout = self.settings.fetch_timeout;
        let named = OnceLock::new();
        let (max_wait, clock) = (timeout.mul_f64(MEMORY_WAIT_FRACTION), &self.parts.clock);
        let memory = self.settings.memory.fetch_memory(urgency, max_wait, clock);
        let fetched = async {
            let class = self
                .parts
                .classes
                .class(&publish_request.pod.namespace, &publish_request.class_name)
                .await?;
            let provider: Arc<str> = class.spec.provider.as_deref().unwrap_or_default().into();
            let provider = named.get_or_init(|| provider);
            let target = publish_request.target.to_string_lossy();
            let request = ProviderRequest {
                class: &class,
                pod: &publish_request.pod,
                attributes: &publish_request.attributes,
                pod_credentials: &publish_request.pod_credentials,
                target: &target,
                urgency,
                mounted,
                memory: &memory,
            };
            let response = self.parts.provider.fetch(&request).await?;
            // Content that is mounted already needs no further memory, and its warnings are known.
            if response.versions != mounted {
                memory.reserve_files(max_files_size(&response)).await;
                if !response.warnings.is_empty() {
                    let message = response.warnings.join("; ");
                    let kind = PodEventKind::ContentWarning;
                    self.emit_event(&publish_request.pod, kind, message);
                }
            }
            let policy = RotationPolicy::parse(&class, self.settings.interval_bounds);
            let (provider, memory) = (Arc::clone(provider), memory.clone());
            Ok(FetchedResponse { response, policy, started_at, provider, memory })
        };
        let fetched: Result<FetchedResponse, PublishFailure> = tokio::select! {
            fetched = fetched => fetched,
            () = unpublished => Err(unpublished_during_fetch()),
            () = self.parts.clock.sleep(timeout) => Err(PublishFailure::new(
                OutcomeCode::ProviderUnavailable,
                format!("the class and its provider did not return the content within {} s", timeout.as_secs()),
            )),
        };
        fetched.map_err(|failure| PublishFailure { provider: named.get().cloned(), ..failure })
    }
}

/// The fraction of the fetch timeout for which a fetch waits for memory. The rest leaves time to
/// report that no memory was free.
const MEMORY_WAIT_FRACTION: f64 = 0.9;

fn unpublished_during_fetch() -> PublishFailure {
    let message = "the kubelet unpublished the volume before the provider answered";
    PublishFailure::new(OutcomeCode::ProviderUnavailable, message)
        .with_hint("no action is needed: the pod is gone")
        .with_grpc_code(tonic::Code::Aborted)
}
