//! From an order to what its volume shall hold.

use std::sync::{Arc, OnceLock};

use lanyard_vocabulary::OutcomeCode;

use super::PublishEngine;
use super::disk::max_files_size;
use super::failure::PublishFailure;
use super::fetched_response::FetchedResponse;
use crate::provider::{ProviderObjectVersion, ProviderRequest, Urgency};
use crate::publish_request::PublishRequest;
use crate::rotation::RotationPolicy;
use crate::volume_step::VolumeStep;

impl PublishEngine {
    /// Asks for the class and then the provider, for as long as it may take and nobody wants the
    /// volume away.
    pub(super) async fn fetch(
        &self,
        left: impl Future<Output = ()> + Send,
        order: &PublishRequest,
        urgency: Urgency,
        mounted: &[ProviderObjectVersion],
    ) -> Result<FetchedResponse, PublishFailure> {
        let began = self.parts.clock.now();
        self.context.fail_point.reach_step(VolumeStep::Fetch);
        let deadline = self.settings.fetch_timeout;
        let named = OnceLock::new();
        let (patience, clock) = (deadline.mul_f64(MEMORY_WAIT_FRACTION), &self.parts.clock);
        let memory = self.settings.memory.fetch_memory(urgency, patience, clock);
        let asked = async {
            let class = self.parts.classes.class(&order.pod.namespace, &order.class_name).await?;
            let provider: Arc<str> = class.spec.provider.as_deref().unwrap_or_default().into();
            let provider = named.get_or_init(|| provider);
            let target = order.target.to_string_lossy();
            let request = ProviderRequest {
                class: &class,
                pod: &order.pod,
                attributes: &order.attributes,
                proofs: &order.proofs,
                target: &target,
                urgency,
                mounted,
                memory: &memory,
            };
            let filling = self.parts.provider.fetch(&request).await?;
            // What is mounted already takes no more room.
            if filling.versions != mounted {
                memory.reserve_files(max_files_size(&filling)).await;
            }
            let wishes = RotationPolicy::parse(&class, self.settings.interval_bounds);
            let (provider, memory) = (Arc::clone(provider), memory.clone());
            Ok(FetchedResponse {
                response: filling,
                policy: wishes,
                started_at: began,
                provider,
                memory,
            })
        };
        let asked: Result<FetchedResponse, PublishFailure> = tokio::select! {
            asked = asked => asked,
            () = left => Err(unpublished_during_fetch()),
            () = self.parts.clock.sleep(deadline) => Err(PublishFailure::new(
                OutcomeCode::ProviderUnavailable,
                format!("neither class nor provider gave a whole answer in {} s", deadline.as_secs()),
            )),
        };
        asked.map_err(|failure| PublishFailure { provider: named.get().cloned(), ..failure })
    }
}

/// The part of its deadline for which a fill waits for memory, so that it can say that there was none.
const MEMORY_WAIT_FRACTION: f64 = 0.9;

fn unpublished_during_fetch() -> PublishFailure {
    let message = "the volume was to be taken away before the provider had answered";
    PublishFailure::new(OutcomeCode::ProviderUnavailable, message)
        .with_hint("nothing has to be done: the pod is gone")
        .with_grpc_code(tonic::Code::Aborted)
}
