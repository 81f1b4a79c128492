//! From an order to what its volume shall hold.

use std::sync::{Arc, OnceLock};

use lanyard_vocabulary::OutcomeCode;

use super::Engine;
use super::contents::Supply;
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
            };
            let filling = self.parts.provider.fill(&request).await?;
            let wishes = ClassWishes::parse(&class, self.settings.interval_bounds);
            Ok(Supply { filling, wishes, began, provider: Arc::clone(provider) })
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

fn left_behind() -> PublishFailure {
    let message = "the volume was to be taken away before the provider had answered";
    PublishFailure::new(OutcomeCode::ProviderUnavailable, message)
        .with_hint("nothing has to be done: the pod is gone")
        .told_as(tonic::Code::Aborted)
}
