//! A mounted volume, as this process knows it.

use std::sync::Arc;

use jiff::Timestamp;
use lanyard_api::{ObjectFacts, VolumeFacts};
use lanyard_keyvault::Proofs;
use lanyard_vocabulary::{Healing, Hop};

use super::failure::PublishFailure;
use super::place::{MountId, Place};
use super::state::VolumeState;
use crate::generation::Generation;
use crate::marker::{Marker, MountedObject, Trouble};
use crate::order::MountOrder;
use crate::provider::{ObjectVersion, Stamps};
use crate::reporter::VolumeReport;
use crate::rotation::VolumeClock;
use crate::volume::Volume;

/// A mounted volume.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) place: Place,
    pub(super) id: MountId,
    pub(super) volume: Volume,
    pub(super) marker: Marker,
    /// The generation that readers see, whether the marker certifies it or not.
    pub(super) shown: String,
    /// What the kubelet asked for last, or what the marker says that it asked an earlier process
    /// for; then without any proof.
    pub(super) order: MountOrder,
    pub(super) ordered: bool,
    pub(super) clock: VolumeClock,
    /// Whether readers see new content of which nobody was told: what followed the swap failed.
    pub(super) swapped: bool,
    /// Who filled it, as its class names it.
    pub(super) provider: Option<Arc<str>>,
    /// Whether the pod status may say something else.
    pub(super) report_pending: bool,
    pub(super) report_failed: bool,
}

impl Mounted {
    /// A volume that this process has filled, or found as another left it.
    pub(super) fn new(
        place: Place,
        id: MountId,
        volume: Volume,
        marker: Marker,
        order: Option<MountOrder>,
    ) -> Self {
        let shown = marker.generation.clone();
        let ordered = order.is_some();
        let order = order.unwrap_or_else(|| marker.order(&place));
        Self {
            place,
            id,
            volume,
            marker,
            shown,
            order,
            ordered,
            clock: VolumeClock::default(),
            swapped: false,
            provider: None,
            report_pending: true,
            report_failed: false,
        }
    }

    /// Whether the mount is the one that was looked at, and shows what it showed then. A few calls
    /// of the system, none of which reads content.
    pub(super) fn is_intact(&self) -> bool {
        self.place.mount_id().is_ok_and(|id| id == Some(self.id))
            && self.volume.shows(&self.shown).unwrap_or(false)
    }

    /// A publish into the volume failed, perhaps after its swap: what readers see now may not be
    /// what the marker says.
    pub(super) fn look_again(&mut self) {
        let Ok(Some(shown)) = self.volume.current() else { return };
        if shown.as_str() != self.shown {
            shown.as_str().clone_into(&mut self.shown);
            self.marker = self.marker.clone().uncertified();
            self.swapped = true;
        }
    }

    /// Whether the marker says what readers see.
    pub(super) fn is_certified(&self) -> bool {
        !self.marker.generation.is_empty()
    }

    /// Takes a new order for the volume. One for something else makes it due at once.
    pub(super) fn take_order(&mut self, order: MountOrder) {
        if self.order.class_name != order.class_name
            || self.order.attributes != order.attributes
            || self.order.group != order.group
        {
            self.clock = VolumeClock::default();
        }
        self.order = order;
        self.ordered = true;
    }

    pub(super) fn state(&self) -> VolumeState {
        let Marker { volume_id, pod, class_name, objects, .. } = self.marker.clone();
        let generation = self.shown.parse::<Generation>();
        VolumeState {
            volume_id,
            target: self.place.path().to_owned(),
            pod,
            class_name,
            provider: self.provider.clone(),
            generation: generation.map_or(0, |generation| generation.number()),
            objects,
            changed: self.marker.changed,
            clock: self.clock.clone(),
            trouble: self.marker.trouble.clone(),
            stale_since: self.marker.stale_since,
            // An open tmpfs always says it.
            memory: self.volume.usage().map_or(0, |usage| usage.held),
            proofs: self.ordered.then(|| self.order.proofs.clone()),
        }
    }

    pub(super) fn report(&self) -> VolumeReport {
        let trouble = self.marker.trouble.as_ref();
        VolumeReport {
            pod: self.marker.pod.clone(),
            class_name: self.marker.class_name.clone(),
            target: self.place.path().to_owned(),
            objects: self.marker.versions(),
            facts: VolumeFacts {
                last_good_hop: last_good_hop(trouble).map(|hop| hop.name().to_owned()),
                outcome: trouble.map(|trouble| trouble.code.name().to_owned()),
                cause: trouble.and_then(|it| it.cause).map(|cause| cause.name().to_owned()),
                since: trouble.map(|trouble| trouble.since),
                message: trouble.map(|it| it.message.clone()).filter(|it| !it.is_empty()),
                objects: self.marker.objects.iter().map(facts_of).collect(),
            },
        }
    }

    /// The source could not be read, or what it gave was not taken. Says whether that is news.
    ///
    /// As long as the source of a volume that was filled from the cache cannot be read, that is
    /// what is wrong with it; that it was tried again is no news.
    pub(super) fn failed(&mut self, failure: &PublishFailure, began: Timestamp) -> bool {
        match failure.turned_away {
            Some(pause) => self.clock.turned_away(began, pause),
            None => self.clock.failed(began, failure.retry),
        }
        let PublishFailure { code, message, .. } = failure;
        let is_outage = code.healing() == Healing::ByItself && code.hop() <= Hop::VaultRead;
        let trouble = match self.marker.stale_since.filter(|_| is_outage) {
            Some(since) => Trouble::served_stale(since, *code, message),
            None => Trouble::new(*code, began, message),
        };
        self.marker.set_trouble(Some(trouble))
    }
}

impl Marker {
    /// A marker that certifies nothing: of a volume that is being made or taken over.
    pub(super) fn blank(order: &MountOrder, now: Timestamp) -> Self {
        Self {
            generation: String::new(),
            volume_id: order.volume_id.clone(),
            pod: order.pod.clone(),
            class_name: order.class_name.clone(),
            attributes: order.attributes.clone(),
            group: order.group,
            objects: Vec::new(),
            changed: now,
            check: None,
            trouble: None,
            stale_since: None,
        }
    }

    /// The same where readers see another generation than the one that it certifies: what it says
    /// of the content does not hold, and only the files can say what does.
    pub(super) fn uncertified(self) -> Self {
        Self { generation: String::new(), objects: Vec::new(), check: None, ..self }
    }

    /// Says what is wrong. Trouble of the same code goes on as it began: since when it is so and
    /// why does not change with each look. Gives whether it is news.
    pub(super) fn set_trouble(&mut self, trouble: Option<Trouble>) -> bool {
        let code = |trouble: &Option<Trouble>| trouble.as_ref().map(|trouble| trouble.code);
        let is_news = code(&self.trouble) != code(&trouble);
        if is_news {
            self.trouble = trouble;
        }
        is_news
    }

    /// What the kubelet asked for, without any proof.
    fn order(&self, place: &Place) -> MountOrder {
        MountOrder {
            volume_id: self.volume_id.clone(),
            target: place.path().to_owned(),
            pod: self.pod.clone(),
            class_name: self.class_name.clone(),
            attributes: self.attributes.clone(),
            proofs: Proofs::default(),
            group: self.group,
        }
    }
}

/// The hop before the one that is in trouble; the file, where none is.
fn last_good_hop(trouble: Option<&Trouble>) -> Option<Hop> {
    let Some(trouble) = trouble else { return Some(Hop::File) };
    Hop::ALL.into_iter().take_while(|hop| *hop < trouble.hop()).last()
}

fn facts_of(object: &MountedObject) -> ObjectFacts {
    let Stamps { not_before, not_after, renew_after, .. } = object.stamps;
    let ObjectVersion { id, version } = object.version.clone();
    ObjectFacts { id, version, not_before, not_after, renew_after }
}
