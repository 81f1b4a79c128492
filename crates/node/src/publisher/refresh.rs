//! Keeping a mounted volume fresh. Whatever goes wrong here, the volume keeps what it holds.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_vocabulary::OutcomeCode;

use super::disk::{self, ContentUpdate};
use super::failure::PublishFailure;
use super::mounted_volume::MountedVolume;
use super::volume_lock::VolumeLockGuard;
use super::{PublishEngine, pod_events, run_blocking};
use crate::error::PublishError;
use crate::provider::{ProviderObjectVersion, Urgency};
use crate::publish_request::PublishRequest;
use crate::reporter::{PodEventKind, PollResult};
use crate::rotation::{PollDecision, PollInputs, PollInterval, decide_poll};
use crate::volume::VolumeChange;

/// What a refresh came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefreshOutcome {
    /// The volume has new content.
    Changed,
    /// The volume holds what its source holds.
    Unchanged,
    /// The source wants a proof that only the kubelet brings, and it has not ordered the volume
    /// from this process yet.
    AwaitsPublish,
    /// The volume is not mounted any more. The kubelet's next order mounts it anew.
    NotMounted,
}

impl PublishEngine {
    /// The kubelet asked for a volume that is whole.
    pub(super) async fn handle_republish(&self, turn: &mut VolumeLockGuard, order: PublishRequest) {
        let Some(mounted) = turn.volume_mut() else { return };
        mounted.update_request(order);
        match self.due_urgency(mounted) {
            Some(urgency) => {
                // Told to whom it concerns. The kubelet would take the volume from a running pod.
                if let Err(failure) = self.fetch_and_update(turn, urgency).await {
                    tracing::debug!(code = %failure.code, "the volume keeps what it holds");
                }
            }
            None if mounted.report_pending => self.report_status(turn).await,
            None => {}
        }
    }

    /// Whether the source of a volume that the kubelet asks for is to be asked. Where the node
    /// does not rotate, only what nobody knows anything about is.
    fn due_urgency(&self, mounted: &MountedVolume) -> Option<Urgency> {
        let stamps: Vec<_> =
            mounted.marker.objects.iter().map(|object| object.timestamps).collect();
        let interval = match self.settings.interval {
            Some(interval) => interval,
            None if mounted.history.last_success().is_none() => PollInterval::DEFAULT,
            None => return None,
        };
        let volume_id = &mounted.marker.volume_id;
        let look = PollInputs::at_republish(volume_id, &mounted.history, interval, &stamps);
        match decide_poll(self.parts.clock.now(), &look) {
            PollDecision::Due { urgency, .. } => Some(urgency),
            PollDecision::NotBefore(_) | PollDecision::AwaitsProofs { .. } => None,
        }
    }

    pub(super) async fn refresh(
        &self,
        mut turn: VolumeLockGuard,
        urgency: Urgency,
    ) -> Result<RefreshOutcome, PublishFailure> {
        if !self.is_intact(&mut turn).await? {
            return Ok(RefreshOutcome::NotMounted);
        }
        self.fetch_and_update(&mut turn, urgency).await
    }

    /// The same, unless somebody else was quicker.
    pub(super) async fn rotate(
        &self,
        mut turn: VolumeLockGuard,
        urgency: Urgency,
        looked: Option<Timestamp>,
    ) -> Result<RefreshOutcome, PublishFailure> {
        let was_looked_at =
            turn.volume_mut().as_ref().is_none_or(|it| it.history.last_attempt() != looked);
        if was_looked_at {
            return Ok(RefreshOutcome::Unchanged);
        }
        self.refresh(turn, urgency).await
    }

    pub(super) async fn scrub(
        &self,
        mut turn: VolumeLockGuard,
    ) -> Result<Option<Timestamp>, PublishError> {
        let scrubbed = self.run_on_volume(&mut turn, |mounted| mounted.volume.scrub()).await;
        // A volume that is gone needs it no more, and one whose scrub broke off is looked at anew
        // by the next order.
        scrubbed.map_or(Ok(None), |scrubbed| scrubbed.map(|scrubbed| scrubbed.next_scrub))
    }

    /// Asks the source again and makes the volume hold what it gives.
    async fn fetch_and_update(
        &self,
        turn: &mut VolumeLockGuard,
        urgency: Urgency,
    ) -> Result<RefreshOutcome, PublishFailure> {
        let left = turn.unpublish_requested();
        let now = self.parts.clock.now();
        let start = self.parts.clock.monotonic();
        let Some(mounted) = turn.volume_mut() else { return Ok(RefreshOutcome::NotMounted) };
        let before = mounted.marker.last_error.as_ref().map(|trouble| trouble.code);
        let versions = mounted.marker.versions();
        let outcome = match self.fetch(left, &mounted.request, urgency, &versions).await {
            Ok(supply) => {
                let desk = self.context.clone();
                let provider = Arc::clone(&supply.provider);
                let account = turn.memory_budget(supply.memory.clone());
                let refill = move |mounted: &mut MountedVolume| {
                    mounted.provider = Some(Arc::clone(&provider));
                    disk::update_content(&desk, mounted, supply, &account)
                        .map_err(|failure| PublishFailure { provider: Some(provider), ..failure })
                };
                self.run_on_volume(turn, refill).await?
            }
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(refilled) => {
                self.report_poll(turn, start, &versions, &refilled);
                self.emit_update_events(turn, before, &refilled);
                self.report_status(turn).await;
                let is_new = refilled.published.change == VolumeChange::Content;
                Ok(if is_new { RefreshOutcome::Changed } else { RefreshOutcome::Unchanged })
            }
            Err(failure) => self.record_failed_poll(turn, failure, (now, start)).await,
        }
    }

    /// Says to those who count what readers see of a look.
    fn report_poll(
        &self,
        turn: &mut VolumeLockGuard,
        start: Duration,
        before: &[ProviderObjectVersion],
        refilled: &ContentUpdate,
    ) {
        let Some(mounted) = turn.volume_mut() else { return };
        let clock = &self.parts.clock;
        let now = clock.now();
        let is_newer = refilled.published.change == VolumeChange::Content;
        let is_told = is_newer && mounted.marker.stale_since.is_none();
        let newer = mounted.marker.objects.iter().filter(|it| !before.contains(&it.version));
        let created = newer.filter_map(|object| object.timestamps.created).filter(|_| is_told);
        let lag = |created: Timestamp| -> Duration {
            now.duration_since(created).try_into().unwrap_or_default()
        };
        self.parts.reporter.record_poll(&PollResult {
            provider: mounted.provider.clone(),
            duration: clock.monotonic().saturating_sub(start),
            outcome: Ok(is_newer),
            rotation_lags: created.map(lag).collect(),
        });
    }

    /// The volume keeps what it holds: says so, once.
    async fn record_failed_poll(
        &self,
        turn: &mut VolumeLockGuard,
        failure: PublishFailure,
        (began, start): (Timestamp, Duration),
    ) -> Result<RefreshOutcome, PublishFailure> {
        let Some(mounted) = turn.volume_mut() else { return Err(failure) };
        if failure.is_aborted_by_unpublish() {
            return Ok(RefreshOutcome::NotMounted);
        }
        if !mounted.has_kubelet_request && is_missing_proofs(&failure) {
            mounted.history.record_attempt(began);
            return Ok(RefreshOutcome::AwaitsPublish);
        }
        self.parts.reporter.record_poll(&PollResult {
            provider: failure.provider.clone(),
            duration: self.parts.clock.monotonic().saturating_sub(start),
            outcome: Err(failure.code),
            rotation_lags: Vec::new(),
        });
        let is_news = mounted.record_failure(&failure, began);
        let (pod, code, hop) = (&mounted.marker.pod, failure.code, failure.code.hop());
        let failures = mounted.history.failure_count();
        if failure.suppressed_for.is_some() && !is_news {
            tracing::debug!(%pod, %code, %hop, failures, "turned away once more: {failure}");
        } else {
            tracing::warn!(%pod, %code, %hop, failures, "the volume keeps what it holds: {failure}");
        }
        if is_news {
            let (code, message) = match &mounted.marker.last_error {
                Some(trouble) if trouble.code != failure.code => {
                    (trouble.code, pod_events::last_error_message(trouble))
                }
                _ => (failure.code, failure.status_message()),
            };
            self.emit_event(&mounted.marker.pod, PodEventKind::Failed(code), message);
            self.persist_last_error(turn).await;
            self.report_status(turn).await;
        } else if mounted.report_pending {
            self.report_status(turn).await;
        }
        Err(failure)
    }

    /// Notes the trouble where the next process finds it. Not being able to is no trouble of the
    /// volume: it is found again.
    async fn persist_last_error(&self, turn: &mut VolumeLockGuard) {
        let desk = self.context.clone();
        let noted = self
            .run_on_volume(turn, move |mounted| {
                // What is not known to be what readers see is not certified by a note on the side.
                if mounted.is_certified() {
                    disk::write_marker(&desk, &mounted.volume, &mounted.marker)
                } else {
                    Ok(())
                }
            })
            .await;
        if let Err(error) | Ok(Err(error)) = noted {
            tracing::debug!(%error, "the trouble of the volume is not noted beside its files");
        }
    }

    fn emit_update_events(
        &self,
        turn: &mut VolumeLockGuard,
        was: Option<OutcomeCode>,
        refilled: &ContentUpdate,
    ) {
        let Some(mounted) = turn.volume_mut() else { return };
        let (pod, marker) = (mounted.marker.pod.clone(), &mounted.marker);
        let is = marker.last_error.as_ref();
        if refilled.published.change == VolumeChange::Content {
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
            self.emit_event(&pod, PodEventKind::MountRotationComplete, message);
        }
        match (was, is) {
            (was, Some(is)) if was != Some(is.code) => {
                let told = refilled
                    .older_rejection
                    .clone()
                    .unwrap_or_else(|| pod_events::last_error_message(is));
                self.emit_event(&pod, PodEventKind::Failed(is.code), told);
            }
            (Some(was), None) => {
                let message = format!("{was} is over: the volume holds what its source holds");
                self.emit_event(&pod, PodEventKind::Recovered(was), message);
            }
            _ => {}
        }
    }

    /// Does something about the mounted volume beside the threads that serve. Should the work
    /// break off, the volume is forgotten, and looked at anew by the next order.
    async fn run_on_volume<T: Send + 'static>(
        &self,
        turn: &mut VolumeLockGuard,
        work: impl FnOnce(&mut MountedVolume) -> T + Send + 'static,
    ) -> Result<T, PublishFailure> {
        let Some(mut mounted) = turn.volume_mut().take() else {
            let message = "the volume is not mounted any more";
            return Err(PublishFailure::new(OutcomeCode::FailedToMount, message));
        };
        let (mounted, done) = run_blocking(move || {
            let done = work(&mut mounted);
            (mounted, done)
        })
        .await?;
        *turn.volume_mut() = Some(mounted);
        Ok(done)
    }
}

fn is_missing_proofs(failure: &PublishFailure) -> bool {
    matches!(failure.code, OutcomeCode::TokenNotFound | OutcomeCode::CredentialsNotFound)
}
