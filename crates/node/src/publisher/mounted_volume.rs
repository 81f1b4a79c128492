//! A mounted volume, as this process knows it.

use std::sync::Arc;

use jiff::Timestamp;
use lanyard_api::{ObjectStatusReport, VolumeStatusReport};
use lanyard_keyvault::PodCredentials;
use lanyard_vocabulary::{Hop, RecoveryMode};

use super::failure::PublishFailure;
use super::mount_target::{MountId, MountTarget};
use super::state::VolumeState;
use crate::generation::VolumeGeneration;
use crate::marker::{MountedObject, VolumeLastError, VolumeMarker};
use crate::provider::{ObjectTimestamps, ProviderObjectVersion};
use crate::publish_request::PublishRequest;
use crate::reporter::VolumeReport;
use crate::rotation::PollHistory;
use crate::volume::AtomicVolume;

/// A mounted volume.
#[derive(Debug)]
pub(super) struct MountedVolume {
    pub(super) target: MountTarget,
    pub(super) mount_id: MountId,
    pub(super) volume: AtomicVolume,
    pub(super) marker: VolumeMarker,
    /// The generation that readers see, whether the marker certifies it or not.
    pub(super) visible_generation: String,
    /// What the kubelet asked for last, or what the marker says that it asked an earlier process
    /// for; then without any proof.
    pub(super) request: PublishRequest,
    pub(super) has_kubelet_request: bool,
    pub(super) history: PollHistory,
    /// Whether readers see new content of which nobody was told: what followed the swap failed.
    pub(super) has_unreported_swap: bool,
    /// Who filled it, as its class names it.
    pub(super) provider: Option<Arc<str>>,
    /// Whether the pod status may say something else.
    pub(super) report_pending: bool,
    pub(super) report_failed: bool,
}

impl MountedVolume {
    /// A volume that this process has filled, or found as another left it.
    pub(super) fn new(
        target: MountTarget,
        mount_id: MountId,
        volume: AtomicVolume,
        marker: VolumeMarker,
        order: Option<PublishRequest>,
    ) -> Self {
        let visible_generation = marker.generation.clone();
        let has_kubelet_request = order.is_some();
        let request = order.unwrap_or_else(|| marker.to_request(&target));
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

    /// Whether the mount is the one that was looked at, and shows what it showed then. A few calls
    /// of the system, none of which reads content.
    pub(super) fn is_intact(&self) -> bool {
        self.target.mount_id().is_ok_and(|id| id == Some(self.mount_id))
            && self.volume.shows_generation(&self.visible_generation).unwrap_or(false)
    }

    /// A publish into the volume failed, perhaps after its swap: what readers see now may not be
    /// what the marker says.
    pub(super) fn recheck_generation(&mut self) {
        let Ok(Some(shown)) = self.volume.current_generation() else { return };
        if shown.as_str() != self.visible_generation {
            shown.as_str().clone_into(&mut self.visible_generation);
            self.marker = self.marker.clone().into_uncertified();
            self.has_unreported_swap = true;
        }
    }

    /// Whether the marker says what readers see.
    pub(super) fn is_certified(&self) -> bool {
        !self.marker.generation.is_empty()
    }

    /// Takes a new order for the volume. One for something else makes it due at once.
    pub(super) fn update_request(&mut self, order: PublishRequest) {
        if self.request.class_name != order.class_name
            || self.request.attributes != order.attributes
            || self.request.group != order.group
        {
            self.history = PollHistory::default();
        }
        self.request = order;
        self.has_kubelet_request = true;
    }

    pub(super) fn state(&self) -> VolumeState {
        let VolumeMarker { volume_id, pod, class_name, objects, .. } = self.marker.clone();
        let generation = self.visible_generation.parse::<VolumeGeneration>();
        VolumeState {
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
            // An open tmpfs always says it.
            memory: self.volume.usage().map_or(0, |usage| usage.used),
            proofs: self.has_kubelet_request.then(|| self.request.proofs.clone()),
        }
    }

    pub(super) fn to_report(&self) -> VolumeReport {
        let trouble = self.marker.last_error.as_ref();
        VolumeReport {
            pod: self.marker.pod.clone(),
            class_name: self.marker.class_name.clone(),
            target: self.target.path().to_owned(),
            objects: self.marker.versions(),
            facts: VolumeStatusReport {
                last_good_hop: last_good_hop(trouble).map(|hop| hop.name().to_owned()),
                outcome: trouble.map(|trouble| trouble.code.name().to_owned()),
                cause: trouble.and_then(|it| it.cause).map(|cause| cause.name().to_owned()),
                since: trouble.map(|trouble| trouble.since),
                message: trouble.map(|it| it.message.clone()).filter(|it| !it.is_empty()),
                objects: self.marker.objects.iter().map(object_facts).collect(),
            },
        }
    }

    /// The source could not be read, or what it gave was not taken. Says whether that is news.
    ///
    /// As long as the source of a volume that was filled from the cache cannot be read, that is
    /// what is wrong with it; that it was tried again is no news.
    pub(super) fn record_failure(&mut self, failure: &PublishFailure, began: Timestamp) -> bool {
        match failure.suppressed_for {
            Some(pause) => self.history.record_suppressed(began, pause),
            None => self.history.record_failure(began, failure.retry),
        }
        let PublishFailure { code, message, .. } = failure;
        let is_outage =
            code.recovery_mode() == RecoveryMode::ByItself && code.hop() <= Hop::VaultRead;
        let trouble = match self.marker.stale_since.filter(|_| is_outage) {
            Some(since) => VolumeLastError::served_stale(since, *code, message),
            None => VolumeLastError::new(*code, began, message),
        };
        self.marker.set_last_error(Some(trouble))
    }
}

impl VolumeMarker {
    /// A marker that certifies nothing: of a volume that is being made or taken over.
    pub(super) fn uncertified_for(order: &PublishRequest, now: Timestamp) -> Self {
        Self {
            generation: String::new(),
            volume_id: order.volume_id.clone(),
            pod: order.pod.clone(),
            class_name: order.class_name.clone(),
            attributes: order.attributes.clone(),
            group: order.group,
            objects: Vec::new(),
            content_changed: now,
            poll_record: None,
            last_error: None,
            stale_since: None,
        }
    }

    /// The same where readers see another generation than the one that it certifies: what it says
    /// of the content does not hold, and only the files can say what does.
    pub(super) fn into_uncertified(self) -> Self {
        Self { generation: String::new(), objects: Vec::new(), poll_record: None, ..self }
    }

    /// Says what is wrong. Trouble of the same code goes on as it began: since when it is so and
    /// why does not change with each look. Gives whether it is news.
    pub(super) fn set_last_error(&mut self, trouble: Option<VolumeLastError>) -> bool {
        let code = |trouble: &Option<VolumeLastError>| trouble.as_ref().map(|trouble| trouble.code);
        let is_news = code(&self.last_error) != code(&trouble);
        if is_news {
            self.last_error = trouble;
        }
        is_news
    }

    /// What the kubelet asked for, without any proof.
    fn to_request(&self, place: &MountTarget) -> PublishRequest {
        PublishRequest {
            volume_id: self.volume_id.clone(),
            target: place.path().to_owned(),
            pod: self.pod.clone(),
            class_name: self.class_name.clone(),
            attributes: self.attributes.clone(),
            proofs: PodCredentials::default(),
            group: self.group,
        }
    }
}

/// The hop before the one that is in trouble; the file, where none is.
fn last_good_hop(trouble: Option<&VolumeLastError>) -> Option<Hop> {
    let Some(trouble) = trouble else { return Some(Hop::File) };
    Hop::ALL.into_iter().take_while(|hop| *hop < trouble.hop()).last()
}

fn object_facts(object: &MountedObject) -> ObjectStatusReport {
    let ObjectTimestamps { not_before, not_after, renew_after, .. } = object.timestamps;
    let ProviderObjectVersion { id, version } = object.version.clone();
    ObjectStatusReport { id, version, not_before, not_after, renew_after }
}
