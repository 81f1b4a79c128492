//! Refreshes mounted volumes. On any failure the volume keeps its content.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_provider::{PollInterval, ProviderObjectVersion, Urgency};
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::{PublishError, VolumeChange};

use super::disk::{self, ContentUpdate};
use super::failure::PublishFailure;
use super::mounted_volume::MountedVolume;
use super::volume_lock::VolumeLockGuard;
use super::{PublishEngine, pod_events, run_blocking};
use crate::publish_request::PublishRequest;
use crate::reporter::{PodEventKind, PollResult};
use crate::rotation::{PollDecision, PollInputs, decide_poll};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefreshOutcome {
    /// The volume has new content.
    Changed,
    /// The volume has the content that the provider returned.
    Unchanged,
    /// The provider needs pod tokens, which only a publish request from the kubelet contains, and
    /// this process has not received one for the volume yet.
    AwaitsPublish,
    /// The volume is not mounted any more. The kubelet's next publish request mounts it again.
    NotMounted,
}

impl PublishEngine {
    /// Handles a publish request for a volume that is mounted with complete content.
    pub(super) async fn handle_republish(
        &self,
        guard: &mut VolumeLockGuard,
        request: PublishRequest,
    ) {
        let Some(mounted) = guard.volume_mut() else { return };
        mounted.update_request(request);
        match self.due_urgency(mounted) {
            Some(urgency) => {
                // The failure is reported already. The kubelet must not see it: it would unmount
                // the volume of a running pod.
                if let Err(failure) = self.fetch_and_update(guard, urgency).await {
                    tracing::debug!(code = %failure.code, "refresh failed; the volume keeps its content");
                }
            }
            None if mounted.report_pending => self.report_status(guard).await,
            None => {}
        }
    }

    /// The urgency of the poll that is due for a republished volume, if one is. With rotation
    /// disabled, only volumes whose content is unknown are due.
    fn due_urgency(&self, mounted: &MountedVolume) -> Option<Urgency> {
        let stamps: Vec<_> =
            mounted.marker.objects.iter().map(|object| object.timestamps).collect();
        let interval = match self.settings.interval {
            Some(interval) => interval,
            None if mounted.history.last_success_started_at().is_none() => PollInterval::DEFAULT,
            None => return None,
        };
        let volume_id = &mounted.marker.volume_id;
        let inputs = PollInputs::at_republish(volume_id, &mounted.history, interval, &stamps);
        match decide_poll(self.parts.clock.now(), &inputs) {
            PollDecision::Due { urgency, .. } => Some(urgency),
            PollDecision::NotBefore(_) | PollDecision::AwaitsPublish { .. } => None,
        }
    }

    pub(super) async fn refresh(
        &self,
        mut guard: VolumeLockGuard,
        urgency: Urgency,
    ) -> Result<RefreshOutcome, PublishFailure> {
        if !self.is_intact(&mut guard).await? {
            return Ok(RefreshOutcome::NotMounted);
        }
        self.fetch_and_update(&mut guard, urgency).await
    }

    /// Like `refresh`, unless another poll has run since `last_attempt`.
    pub(super) async fn rotate(
        &self,
        mut guard: VolumeLockGuard,
        urgency: Urgency,
        last_attempt: Option<Timestamp>,
    ) -> Result<RefreshOutcome, PublishFailure> {
        let was_polled =
            guard.volume_mut().as_ref().is_none_or(|it| it.history.last_attempt() != last_attempt);
        if was_polled {
            return Ok(RefreshOutcome::Unchanged);
        }
        self.refresh(guard, urgency).await
    }

    pub(super) async fn scrub(
        &self,
        mut guard: VolumeLockGuard,
    ) -> Result<Option<Timestamp>, PublishError> {
        let scrubbed = self.run_on_volume(&mut guard, |mounted| mounted.volume.scrub()).await;
        // An unmounted volume needs no scrub. The next publish inspects a volume whose scrub was
        // interrupted.
        scrubbed.map_or(Ok(None), |scrubbed| scrubbed.map(|scrubbed| scrubbed.next_scrub))
    }

    /// Fetches the content and updates the volume with it.
    async fn fetch_and_update(
        &self,
        guard: &mut VolumeLockGuard,
        urgency: Urgency,
    ) -> Result<RefreshOutcome, PublishFailure> {
        let unpublished = guard.unpublish_requested();
        let now = self.parts.clock.now();
        let start = self.parts.clock.monotonic();
        let Some(mounted) = guard.volume_mut() else { return Ok(RefreshOutcome::NotMounted) };
        let before = mounted.marker.last_error.as_ref().map(|error| error.code);
        let versions = mounted.marker.versions();
        let outcome = match self.fetch(unpublished, &mounted.request, urgency, &versions).await {
            Ok(response) => {
                let context = self.context.clone();
                let provider = Arc::clone(&response.provider);
                let account = guard.memory_budget(response.memory.clone());
                let update = move |mounted: &mut MountedVolume| {
                    mounted.provider = Some(Arc::clone(&provider));
                    disk::update_content(&context, mounted, response, &account)
                        .map_err(|failure| PublishFailure { provider: Some(provider), ..failure })
                };
                self.run_on_volume(guard, update).await?
            }
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(update) => {
                self.report_poll(guard, start, &versions, &update);
                self.emit_update_events(guard, before, &update);
                self.report_status(guard).await;
                let is_new = update.published.change == VolumeChange::Content;
                Ok(if is_new { RefreshOutcome::Changed } else { RefreshOutcome::Unchanged })
            }
            Err(failure) => self.record_failed_poll(guard, failure, (now, start)).await,
        }
    }

    /// Reports duration, outcome and rotation lag of a successful poll.
    fn report_poll(
        &self,
        guard: &mut VolumeLockGuard,
        start: Duration,
        before: &[ProviderObjectVersion],
        update: &ContentUpdate,
    ) {
        let Some(mounted) = guard.volume_mut() else { return };
        let clock = &self.parts.clock;
        let now = clock.now();
        let is_newer = update.published.change == VolumeChange::Content;
        let measures_lag = is_newer && mounted.marker.stale_since.is_none();
        let newer = mounted.marker.objects.iter().filter(|it| !before.contains(&it.version));
        let created = newer.filter_map(|object| object.timestamps.created).filter(|_| measures_lag);
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

    /// Handles a failed poll: the volume keeps its content, and a new error code is reported once.
    async fn record_failed_poll(
        &self,
        guard: &mut VolumeLockGuard,
        failure: PublishFailure,
        (started_at, start): (Timestamp, Duration),
    ) -> Result<RefreshOutcome, PublishFailure> {
        let Some(mounted) = guard.volume_mut() else { return Err(failure) };
        if failure.is_aborted_by_unpublish() {
            return Ok(RefreshOutcome::NotMounted);
        }
        if !mounted.has_kubelet_request && is_missing_proofs(&failure) {
            mounted.history.record_attempt(started_at);
            return Ok(RefreshOutcome::AwaitsPublish);
        }
        self.parts.reporter.record_poll(&PollResult {
            provider: failure.provider.clone(),
            duration: self.parts.clock.monotonic().saturating_sub(start),
            outcome: Err(failure.code),
            rotation_lags: Vec::new(),
        });
        let is_new = mounted.record_failure(&failure, started_at);
        let (pod, code, hop) = (&mounted.marker.pod, failure.code, failure.code.hop());
        let failures = mounted.history.failure_count();
        if failure.suppressed_for.is_some() && !is_new {
            tracing::debug!(%pod, %code, %hop, failures, "poll suppressed by back-off: {failure}");
        } else {
            tracing::warn!(%pod, %code, %hop, failures, "poll failed; the volume keeps its content: {failure}");
        }
        if is_new {
            let (code, message) = match &mounted.marker.last_error {
                Some(error) if error.code != failure.code => {
                    (error.code, pod_events::last_error_message(error))
                }
                _ => (failure.code, failure.status_message()),
            };
            self.emit_event(&mounted.marker.pod, PodEventKind::Failed(code), message);
            self.persist_last_error(guard).await;
            self.report_status(guard).await;
        } else if mounted.report_pending {
            self.report_status(guard).await;
        }
        Err(failure)
    }

    /// Writes the last error into the marker, so that the next process finds it. A failed write is
    /// only logged: the next process would report the error again.
    async fn persist_last_error(&self, guard: &mut VolumeLockGuard) {
        let context = self.context.clone();
        let written = self
            .run_on_volume(guard, move |mounted| {
                // A marker write would certify a generation that may not be the visible one.
                if mounted.is_certified() {
                    disk::write_marker(&context, &mounted.volume, &mounted.marker)
                } else {
                    Ok(())
                }
            })
            .await;
        if let Err(error) | Ok(Err(error)) = written {
            tracing::debug!(%error, "could not write the volume's last error into its marker");
        }
    }

    fn emit_update_events(
        &self,
        guard: &mut VolumeLockGuard,
        was: Option<OutcomeCode>,
        update: &ContentUpdate,
    ) {
        let Some(mounted) = guard.volume_mut() else { return };
        let (pod, marker) = (mounted.marker.pod.clone(), &mounted.marker);
        let is = marker.last_error.as_ref();
        if update.published.change == VolumeChange::Content {
            let versions = marker
                .objects
                .iter()
                .map(|object| format!("{} {}", object.version.id, object.version.version));
            let message = format!(
                "the volume of SecretProviderClass {}/{} now has {}",
                pod.namespace,
                marker.class_name,
                versions.collect::<Vec<_>>().join(", ")
            );
            self.emit_event(&pod, PodEventKind::MountRotationComplete, message);
        }
        match (was, is) {
            (was, Some(is)) if was != Some(is.code) => {
                let message = update
                    .older_rejection
                    .clone()
                    .unwrap_or_else(|| pod_events::last_error_message(is));
                self.emit_event(&pod, PodEventKind::Failed(is.code), message);
            }
            (Some(was), None) => {
                let message = format!("{was} is resolved: the volume has the current content");
                self.emit_event(&pod, PodEventKind::Recovered(was), message);
            }
            _ => {}
        }
    }

    /// Runs blocking work on the mounted volume. If the work panics, the lock forgets the volume,
    /// and the next publish inspects the target again.
    async fn run_on_volume<T: Send + 'static>(
        &self,
        guard: &mut VolumeLockGuard,
        work: impl FnOnce(&mut MountedVolume) -> T + Send + 'static,
    ) -> Result<T, PublishFailure> {
        let Some(mut mounted) = guard.volume_mut().take() else {
            let message = "the volume is not mounted any more";
            return Err(PublishFailure::new(OutcomeCode::FailedToMount, message));
        };
        let (mounted, done) = run_blocking(move || {
            let done = work(&mut mounted);
            (mounted, done)
        })
        .await?;
        *guard.volume_mut() = Some(mounted);
        Ok(done)
    }
}

fn is_missing_proofs(failure: &PublishFailure) -> bool {
    matches!(failure.code, OutcomeCode::TokenNotFound | OutcomeCode::CredentialsNotFound)
}
