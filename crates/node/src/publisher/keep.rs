//! Keeping a mounted volume fresh. Whatever goes wrong here, the volume keeps what it holds.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_vocabulary::OutcomeCode;

use super::disk::{self, Refilled};
use super::failure::PublishFailure;
use super::lane::Turn;
use super::mounted::Mounted;
use super::{Engine, blocking, tell};
use crate::error::PublishError;
use crate::order::MountOrder;
use crate::provider::{ObjectVersion, Urgency};
use crate::reporter::{Looked, NoticeKind};
use crate::rotation::{Decision, Look, PollInterval, decide};
use crate::volume::Changed;

/// What a refresh came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refreshed {
    /// The volume has new content.
    Changed,
    /// The volume holds what its source holds.
    Unchanged,
    /// The source wants a proof that only the kubelet brings, and it has not ordered the volume
    /// from this process yet.
    AwaitsOrder,
    /// The volume is not mounted any more. The kubelet's next order mounts it anew.
    Gone,
}

impl Engine {
    /// The kubelet asked for a volume that is whole.
    pub(super) async fn keep(&self, turn: &mut Turn, order: MountOrder) {
        let Some(mounted) = turn.mounted() else { return };
        mounted.take_order(order);
        match self.due(mounted) {
            Some(urgency) => {
                // Told to whom it concerns. The kubelet would take the volume from a running pod.
                if let Err(failure) = self.renew(turn, urgency).await {
                    tracing::debug!(code = %failure.code, "the volume keeps what it holds");
                }
            }
            None if mounted.report_pending => self.report(turn).await,
            None => {}
        }
    }

    /// Whether the source of a volume that the kubelet asks for is to be asked. Where the node
    /// does not rotate, only what nobody knows anything about is.
    fn due(&self, mounted: &Mounted) -> Option<Urgency> {
        let stamps: Vec<_> = mounted.marker.objects.iter().map(|object| object.stamps).collect();
        let interval = match self.settings.interval {
            Some(interval) => interval,
            None if mounted.clock.checked().is_none() => PollInterval::DEFAULT,
            None => return None,
        };
        let volume_id = &mounted.marker.volume_id;
        let look = Look::at_republish(volume_id, &mounted.clock, interval, &stamps);
        match decide(self.parts.clock.now(), &look) {
            Decision::Due { urgency, .. } => Some(urgency),
            Decision::NotBefore(_) | Decision::AwaitsProofs { .. } => None,
        }
    }

    pub(super) async fn refresh(
        &self,
        mut turn: Turn,
        urgency: Urgency,
    ) -> Result<Refreshed, PublishFailure> {
        if !self.is_intact(&mut turn).await? {
            return Ok(Refreshed::Gone);
        }
        self.renew(&mut turn, urgency).await
    }

    /// The same, unless somebody else was quicker.
    pub(super) async fn rotate(
        &self,
        mut turn: Turn,
        urgency: Urgency,
        looked: Option<Timestamp>,
    ) -> Result<Refreshed, PublishFailure> {
        let was_looked_at = turn.mounted().as_ref().is_none_or(|it| it.clock.looked() != looked);
        if was_looked_at {
            return Ok(Refreshed::Unchanged);
        }
        self.refresh(turn, urgency).await
    }

    pub(super) async fn scrub(&self, mut turn: Turn) -> Result<Option<Timestamp>, PublishError> {
        let scrubbed = self.at_work(&mut turn, |mounted| mounted.volume.scrub()).await;
        // A volume that is gone needs it no more, and one whose scrub broke off is looked at anew
        // by the next order.
        scrubbed.map_or(Ok(None), |scrubbed| scrubbed.map(|scrubbed| scrubbed.next))
    }

    /// Asks the source again and makes the volume hold what it gives.
    async fn renew(&self, turn: &mut Turn, urgency: Urgency) -> Result<Refreshed, PublishFailure> {
        let left = turn.left();
        let now = self.parts.clock.now();
        let start = self.parts.clock.monotonic();
        let Some(mounted) = turn.mounted() else { return Ok(Refreshed::Gone) };
        let before = mounted.marker.trouble.as_ref().map(|trouble| trouble.code);
        let versions = mounted.marker.versions();
        let outcome = match self.fetch(left, &mounted.order, urgency, &versions).await {
            Ok(supply) => {
                let desk = self.desk.clone();
                let provider = Arc::clone(&supply.provider);
                let account = turn.account(supply.memory.clone());
                let refill = move |mounted: &mut Mounted| {
                    mounted.provider = Some(Arc::clone(&provider));
                    disk::refill(&desk, mounted, supply, &account)
                        .map_err(|failure| PublishFailure { provider: Some(provider), ..failure })
                };
                self.at_work(turn, refill).await?
            }
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(refilled) => {
                self.tell_looked(turn, start, &versions, &refilled);
                self.tell_renewed(turn, before, &refilled);
                self.report(turn).await;
                let is_new = refilled.published.changed == Changed::Content;
                Ok(if is_new { Refreshed::Changed } else { Refreshed::Unchanged })
            }
            Err(failure) => self.keep_old(turn, failure, (now, start)).await,
        }
    }

    /// Says to those who count what readers see of a look.
    fn tell_looked(
        &self,
        turn: &mut Turn,
        start: Duration,
        before: &[ObjectVersion],
        refilled: &Refilled,
    ) {
        let Some(mounted) = turn.mounted() else { return };
        let clock = &self.parts.clock;
        let now = clock.now();
        let is_newer = refilled.published.changed == Changed::Content;
        let is_told = is_newer && mounted.marker.stale_since.is_none();
        let newer = mounted.marker.objects.iter().filter(|it| !before.contains(&it.version));
        let created = newer.filter_map(|object| object.stamps.created).filter(|_| is_told);
        let lag = |created: Timestamp| -> Duration {
            now.duration_since(created).try_into().unwrap_or_default()
        };
        self.parts.reporter.looked(&Looked {
            provider: mounted.provider.clone(),
            took: clock.monotonic().saturating_sub(start),
            outcome: Ok(is_newer),
            lags: created.map(lag).collect(),
        });
    }

    /// The volume keeps what it holds: says so, once.
    async fn keep_old(
        &self,
        turn: &mut Turn,
        failure: PublishFailure,
        (began, start): (Timestamp, Duration),
    ) -> Result<Refreshed, PublishFailure> {
        let Some(mounted) = turn.mounted() else { return Err(failure) };
        if failure.is_departure() {
            return Ok(Refreshed::Gone);
        }
        if !mounted.ordered && is_about_proofs(&failure) {
            mounted.clock.began(began);
            return Ok(Refreshed::AwaitsOrder);
        }
        self.parts.reporter.looked(&Looked {
            provider: failure.provider.clone(),
            took: self.parts.clock.monotonic().saturating_sub(start),
            outcome: Err(failure.code),
            lags: Vec::new(),
        });
        let is_news = mounted.failed(&failure, began);
        let (pod, code, hop) = (&mounted.marker.pod, failure.code, failure.code.hop());
        let failures = mounted.clock.failures();
        if failure.turned_away.is_some() && !is_news {
            tracing::debug!(%pod, %code, %hop, failures, "turned away once more: {failure}");
        } else {
            tracing::warn!(%pod, %code, %hop, failures, "the volume keeps what it holds: {failure}");
        }
        if is_news {
            let (code, message) = match &mounted.marker.trouble {
                Some(trouble) if trouble.code != failure.code => {
                    (trouble.code, tell::told(trouble))
                }
                _ => (failure.code, failure.status_message()),
            };
            self.tell(&mounted.marker.pod, NoticeKind::Failed(code), message);
            self.note_trouble(turn).await;
            self.report(turn).await;
        } else if mounted.report_pending {
            self.report(turn).await;
        }
        Err(failure)
    }

    /// Notes the trouble where the next process finds it. Not being able to is no trouble of the
    /// volume: it is found again.
    async fn note_trouble(&self, turn: &mut Turn) {
        let desk = self.desk.clone();
        let noted = self
            .at_work(turn, move |mounted| {
                // What is not known to be what readers see is not certified by a note on the side.
                if mounted.is_certified() {
                    disk::note(&desk, &mounted.volume, &mounted.marker)
                } else {
                    Ok(())
                }
            })
            .await;
        if let Err(error) | Ok(Err(error)) = noted {
            tracing::debug!(%error, "the trouble of the volume is not noted beside its files");
        }
    }

    fn tell_renewed(&self, turn: &mut Turn, was: Option<OutcomeCode>, refilled: &Refilled) {
        let Some(mounted) = turn.mounted() else { return };
        let (pod, marker) = (mounted.marker.pod.clone(), &mounted.marker);
        let is = marker.trouble.as_ref();
        if refilled.published.changed == Changed::Content {
            let versions = marker
                .objects
                .iter()
                .map(|object| format!("{} {}", object.version.id, object.version.version));
            let message = format!(
                "the volume of SecretProviderClass {}/{} holds {} now",
                pod.namespace,
                marker.class_name,
                versions.collect::<Vec<_>>().join(", ")
            );
            self.tell(&pod, NoticeKind::MountRotationComplete, message);
        }
        match (was, is) {
            (was, Some(is)) if was != Some(is.code) => {
                let told = refilled.refusal.clone().unwrap_or_else(|| tell::told(is));
                self.tell(&pod, NoticeKind::Failed(is.code), told);
            }
            (Some(was), None) => {
                let message = format!("{was} is over: the volume holds what its source holds");
                self.tell(&pod, NoticeKind::Recovered(was), message);
            }
            _ => {}
        }
    }

    /// Does something about the mounted volume beside the threads that serve. Should the work
    /// break off, the volume is forgotten, and looked at anew by the next order.
    async fn at_work<T: Send + 'static>(
        &self,
        turn: &mut Turn,
        work: impl FnOnce(&mut Mounted) -> T + Send + 'static,
    ) -> Result<T, PublishFailure> {
        let Some(mut mounted) = turn.mounted().take() else {
            let message = "the volume is not mounted any more";
            return Err(PublishFailure::new(OutcomeCode::FailedToMount, message));
        };
        let (mounted, done) = blocking(move || {
            let done = work(&mut mounted);
            (mounted, done)
        })
        .await?;
        *turn.mounted() = Some(mounted);
        Ok(done)
    }
}

fn is_about_proofs(failure: &PublishFailure) -> bool {
    matches!(failure.code, OutcomeCode::TokenNotFound | OutcomeCode::CredentialsNotFound)
}
