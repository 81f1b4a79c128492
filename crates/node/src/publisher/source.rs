//! From an order to what its volume shall hold.

use std::sync::{Arc, OnceLock};

use lanyard_vocabulary::OutcomeCode;

use super::Engine;
use super::contents::Supply;
use super::disk::files_size;
use super::failure::PublishFailure;
use crate::order::MountOrder;
use crate::provider::{FillRequest, ObjectVersion, Urgency};
use crate::rotation::ClassWishes;
use crate::step::Step;

impl Engine {
    /// Asks for the class and then the provider, for as long as it may take and nobody wants the
    /// volume away.
    pub(super) async fn fetch(
        &self,
        left: impl Future<Output = ()> + Send,
        order: &MountOrder,
        urgency: Urgency,
        mounted: &[ObjectVersion],
    ) -> Result<Supply, PublishFailure> {
        let began = self.parts.clock.now();
        self.desk.fuse.reach(Step::Fill);
        let deadline = self.settings.fill_deadline;
        let named = OnceLock::new();
        let (patience, clock) = (deadline.mul_f64(PATIENCE), &self.parts.clock);
        let memory = self.settings.memory.fill(urgency, patience, clock);
        let asked = async {
            let class = self.parts.classes.class(&order.pod.namespace, &order.class_name).await?;
            let provider: Arc<str> = class.spec.provider.as_deref().unwrap_or_default().into();
            let provider = named.get_or_init(|| provider);
            let target = order.target.to_string_lossy();
            let request = FillRequest {
                class: &class,
                pod: &order.pod,
                attributes: &order.attributes,
                proofs: &order.proofs,
                target: &target,
                urgency,
                mounted,
                memory: &memory,
            };
            let filling = self.parts.provider.fill(&request).await?;
            // What is mounted already takes no more room.
            if filling.versions != mounted {
                memory.wait_for_files(files_size(&filling)).await;
            }
            let wishes = ClassWishes::parse(&class, self.settings.interval_bounds);
            let (provider, memory) = (Arc::clone(provider), memory.clone());
            Ok(Supply { filling, wishes, began, provider, memory })
        };
        let asked: Result<Supply, PublishFailure> = tokio::select! {
            asked = asked => asked,
            () = left => Err(left_behind()),
            () = self.parts.clock.sleep(deadline) => Err(PublishFailure::new(
                OutcomeCode::ProviderUnavailable,
                format!("neither class nor provider gave a whole answer in {} s", deadline.as_secs()),
            )),
        };
        asked.map_err(|failure| PublishFailure { provider: named.get().cloned(), ..failure })
    }
}

/// The part of its deadline for which a fill waits for memory, so that it can say that there was none.
const PATIENCE: f64 = 0.9;

fn left_behind() -> PublishFailure {
    let message = "the volume was to be taken away before the provider had answered";
    PublishFailure::new(OutcomeCode::ProviderUnavailable, message)
        .with_hint("nothing has to be done: the pod is gone")
        .told_as(tonic::Code::Aborted)
}
