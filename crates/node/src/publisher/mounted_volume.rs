//! A mounted volume and its state in this process.

use std::sync::Arc;

use jiff::Timestamp;
use lanyard_api::{ObjectStatusReport, VolumeStatusReport};
use lanyard_keyvault::PodCredentials;
use lanyard_provider::{ObjectTimestamps, ProviderObjectVersion};
use lanyard_vocabulary::{Hop, RecoveryMode};
use lanyard_volume::{AtomicVolume, VolumeGeneration};

use super::failure::PublishFailure;
use super::mount_target::{MountId, MountTarget};
use super::state::VolumeSnapshot;
use crate::marker::{MountedObject, VolumeLastError, VolumeMarker};
use crate::publish_request::PublishRequest;
use crate::reporter::VolumeStatusUpdate;
use crate::rotation::PollHistory;

#[derive(Debug)]
pub(super) struct MountedVolume {
    pub(super) target: MountTarget,
    pub(super) mount_id: MountId,
    pub(super) volume: AtomicVolume,
    pub(super) marker: VolumeMarker,
    /// The generation that readers see, whether the marker certifies it or not.
    pub(super) visible_generation: String,
    /// The last publish request of the kubelet, or the request that the marker restores from an
    /// earlier process, which has no pod tokens.
    pub(super) request: PublishRequest,
    pub(super) has_kubelet_request: bool,
    pub(super) history: PollHistory,
    /// Whether readers see new content that is not reported yet, because a step after the swap
    /// failed.
    pub(super) has_unreported_swap: bool,
    /// The provider, as named in the class.
    pub(super) provider: Option<Arc<str>>,
    /// Whether the pod status may be out of date.
    pub(super) report_pending: bool,
    pub(super) report_failed: bool,
}

impl MountedVolume {
    /// A volume that this process has written or adopted.
    pub(super) fn new(
        target: MountTarget,
        mount_id: MountId,
        volume: AtomicVolume,
        marker: VolumeMarker,
        request: Option<PublishRequest>,
    ) -> Self {
        let visible_generation = marker.generation.clone();
        let has_kubelet_request = request.is_some();
        let request = request.unwrap_or_else(|| marker.to_request(&target));
        Self {
            target,
            mount_id,
            volume,
            marker,
            visible_generation,
            request,
            has_kubelet_request,
            history: PollHistory::default(),
            has_unreported_swap: false,
            provider: None,
            report_pending: true,
            report_failed: false,
        }
    }

    /// Whether the target still has this mount and shows the same generation. Costs a few system
    /// calls and reads no content.
    pub(super) fn is_intact(&self) -> bool {
        self.target.mount_id().is_ok_and(|id| id == Some(self.mount_id))
            && self.volume.shows_generation(&self.visible_generation).unwrap_or(false)
    }

    /// Reads the visible generation after a failed publish, which may have failed after its swap.
    /// If it changed, the marker no longer certifies the content.
    pub(super) fn recheck_generation(&mut self) {
        let Ok(Some(visible)) = self.volume.current_generation() else { return };
        if visible.as_str() != self.visible_generation {
            visible.as_str().clone_into(&mut self.visible_generation);
            self.marker = self.marker.clone().into_uncertified();
            self.has_unreported_swap = true;
        }
    }

    /// Whether the marker certifies the visible generation.
    pub(super) fn is_certified(&self) -> bool {
        !self.marker.generation.is_empty()
    }

    /// Stores a new publish request. If it asks for other content, a poll is due at once.
    pub(super) fn update_request(&mut self, request: PublishRequest) {
        if self.request.class_name != request.class_name
            || self.request.attributes != request.attributes
            || self.request.group != request.group
        {
            self.history = PollHistory::default();
        }
        self.request = request;
        self.has_kubelet_request = true;
    }

    pub(super) fn state(&self) -> VolumeSnapshot {
        let VolumeMarker { volume_id, pod, class_name, objects, .. } = self.marker.clone();
        let generation = self.visible_generation.parse::<VolumeGeneration>();
        VolumeSnapshot {
            volume_id,
            target: self.target.path().to_owned(),
            pod,
            class_name,
            provider: self.provider.clone(),
            generation: generation.map_or(0, |generation| generation.number()),
            objects,
            content_changed: self.marker.content_changed,
            history: self.history.clone(),
            last_error: self.marker.last_error.clone(),
            stale_since: self.marker.stale_since,
            // `statfs` of an open tmpfs does not fail.
            memory: self.volume.usage().map_or(0, |usage| usage.used),
            pod_credentials: self.has_kubelet_request.then(|| self.request.pod_credentials.clone()),
        }
    }

    pub(super) fn to_report(&self) -> VolumeStatusUpdate {
        let error = self.marker.last_error.as_ref();
        VolumeStatusUpdate {
            pod: self.marker.pod.clone(),
            class_name: self.marker.class_name.clone(),
            target: self.target.path().to_owned(),
            objects: self.marker.versions(),
            facts: VolumeStatusReport {
                last_good_hop: last_good_hop(error).map(|hop| hop.name().to_owned()),
                outcome: error.map(|error| error.code.name().to_owned()),
                cause: error.and_then(|it| it.cause).map(|cause| cause.name().to_owned()),
                since: error.map(|error| error.since),
                message: error.map(|it| it.message.clone()).filter(|it| !it.is_empty()),
                objects: self.marker.objects.iter().map(object_facts).collect(),
            },
        }
    }

    /// Records a failed poll. Returns whether the error code is new.
    ///
    /// While the content comes from the cache, an outage of the source keeps the `served_stale`
    /// error, so a repeated failure is not new.
    pub(super) fn record_failure(
        &mut self,
        failure: &PublishFailure,
        started_at: Timestamp,
    ) -> bool {
        match failure.suppressed_for {
            Some(pause) => self.history.record_suppressed(started_at, pause),
            None => self.history.record_failure(started_at, failure.retry),
        }
        let PublishFailure { code, message, .. } = failure;
        let is_outage =
            code.recovery_mode() == RecoveryMode::ByItself && code.hop() <= Hop::VaultRead;
        let error = match self.marker.stale_since.filter(|_| is_outage) {
            Some(since) => VolumeLastError::served_stale(since, *code, message),
            None => VolumeLastError::new(*code, started_at, message),
        };
        self.marker.set_last_error(Some(error))
    }
}

impl VolumeMarker {
    /// A marker that certifies no generation, for a volume that is being written or adopted.
    pub(super) fn uncertified_for(request: &PublishRequest, now: Timestamp) -> Self {
        Self {
            generation: String::new(),
            volume_id: request.volume_id.clone(),
            pod: request.pod.clone(),
            class_name: request.class_name.clone(),
            attributes: request.attributes.clone(),
            group: request.group,
            objects: Vec::new(),
            content_changed: now,
            poll_record: None,
            last_error: None,
            stale_since: None,
        }
    }

    /// Clears the content fields of the marker, because readers see another generation than the one
    /// that it certifies.
    pub(super) fn into_uncertified(self) -> Self {
        Self { generation: String::new(), objects: Vec::new(), poll_record: None, ..self }
    }

    /// Sets the last error. An error with the same code keeps its start time and message. Returns
    /// whether the code changed.
    pub(super) fn set_last_error(&mut self, error: Option<VolumeLastError>) -> bool {
        let code = |error: &Option<VolumeLastError>| error.as_ref().map(|error| error.code);
        let is_new = code(&self.last_error) != code(&error);
        if is_new {
            self.last_error = error;
        }
        is_new
    }

    /// The publish request that the marker records, without pod tokens.
    fn to_request(&self, target: &MountTarget) -> PublishRequest {
        PublishRequest {
            volume_id: self.volume_id.clone(),
            target: target.path().to_owned(),
            pod: self.pod.clone(),
            class_name: self.class_name.clone(),
            attributes: self.attributes.clone(),
            pod_credentials: PodCredentials::default(),
            group: self.group,
        }
    }
}

/// The hop before the one that failed; [`Hop::File`] if none failed.
fn last_good_hop(error: Option<&VolumeLastError>) -> Option<Hop> {
    let Some(error) = error else { return Some(Hop::File) };
    Hop::CERTIFICATE_PATH.into_iter().take_while(|hop| *hop < error.hop()).last()
}

fn object_facts(object: &MountedObject) -> ObjectStatusReport {
    let ObjectTimestamps { not_before, not_after, renew_after, .. } = object.timestamps;
    let ProviderObjectVersion { id, version } = object.version.clone();
    ObjectStatusReport { id, version, not_before, not_after, renew_after }
}
