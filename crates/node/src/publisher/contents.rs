//! What a provider gave, judged beside what is mounted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_vocabulary::{OutcomeCode, causes};

use super::failure::PublishFailure;
use super::mounted::Mounted;
use crate::guard::{Judgement, OlderCredential, found_credentials, judge, keep_mounted};
use crate::marker::{Marker, MountedObject, Trouble};
use crate::memory::FillMemory;
use crate::order::MountOrder;
use crate::path::FilePath;
use crate::provider::{Filling, ObjectVersion, Stale, Stamps};
use crate::rotation::{ClassWishes, OlderVersion, VolumeClock};
use crate::volume::{Changed, Published, Volume};

/// What a volume is filled with, and what its class wishes.
#[derive(Debug)]
pub(super) struct Supply {
    pub(super) filling: Filling,
    pub(super) wishes: ClassWishes,
    /// When the provider was asked: content is as old as the question.
    pub(super) began: Timestamp,
    /// Who filled it, as the class names it.
    pub(super) provider: Arc<str>,
    /// What the filling holds of the node's memory.
    pub(super) memory: FillMemory,
}

/// What is noted of a supply once it is written: everything but the content.
#[derive(Debug)]
pub(super) struct Contents {
    objects: Vec<MountedObject>,
    stale: Option<Stale>,
    /// What is wrong though the volume was filled.
    trouble: Option<Trouble>,
    wishes: ClassWishes,
    began: Timestamp,
    pub(super) accepted: Vec<OlderVersion>,
    /// Why older credentials were not taken.
    pub(super) refusal: Option<String>,
}

impl Supply {
    /// Splits a first supply, beside which nothing is mounted.
    pub(super) fn unopposed(self) -> (Filling, Contents) {
        self.judged(Judgement::default())
    }

    /// Keeps credentials from going back in time.
    ///
    /// # Errors
    ///
    /// Where what is mounted of an object cannot be kept beside the rest.
    pub(super) fn beside(
        mut self,
        mounted: &Mounted,
    ) -> Result<(Filling, Contents), PublishFailure> {
        let load = |path: &FilePath| Volume::load_file(&mounted.volume, path);
        let (versions, stamps): (Vec<ObjectVersion>, BTreeMap<String, Stamps>) =
            if mounted.marker.objects.is_empty() {
                found_credentials(&self.filling, load)
            } else {
                (mounted.marker.versions(), mounted.marker.stamps())
            };
        let accepts = |older: &OlderVersion| mounted.clock.may_accept(older, &self.wishes);
        let judgement = judge(&versions, &stamps, &self.filling, accepts);
        keep_mounted(&mut self.filling, &judgement.refused, &stamps, load).map_err(|error| {
            let reasons: Vec<_> = judgement.refused.iter().map(ToString::to_string).collect();
            let message = format!("{}: {}", reasons.join("; "), causes(&error));
            PublishFailure::new(OutcomeCode::CredentialOlder, message)
        })?;
        for accepted in &judgement.accepted {
            tracing::info!(
                pod = %mounted.marker.pod,
                older = %accepted.name(),
                mounted = accepted.mounted,
                "an older credential is taken because its class says so"
            );
        }
        Ok(self.judged(judgement))
    }

    fn judged(self, judgement: Judgement) -> (Filling, Contents) {
        let Self { filling, wishes, began, provider: _, memory: _ } = self;
        let stamps =
            |version: &ObjectVersion| filling.stamps.get(&version.id).copied().unwrap_or_default();
        let object = |version: &ObjectVersion| MountedObject {
            version: version.clone(),
            stamps: stamps(version),
        };
        let mut objects: Vec<_> = filling.versions.iter().map(object).collect();
        objects.sort_by(|one, other| one.version.cmp(&other.version));
        let refusals = judgement.refused.iter().map(|older| {
            format!("{}: {older}; hint: {}", OutcomeCode::CredentialOlder, older.hint())
        });
        let refusals: Vec<_> = refusals.collect();
        let contents = Contents {
            objects,
            stale: filling.stale.clone(),
            trouble: trouble_of(filling.stale.as_ref(), &judgement.refused, began),
            wishes,
            began,
            accepted: judgement.accepted.iter().map(OlderCredential::name).collect(),
            refusal: (!refusals.is_empty()).then(|| refusals.join("\n")),
        };
        (filling, contents)
    }
}

impl Contents {
    /// Notes that a volume holds this now.
    pub(super) fn note(
        self,
        order: &MountOrder,
        published: &Published,
        marker: &mut Marker,
        clock: &mut VolumeClock,
    ) {
        let Self { objects, stale, trouble, wishes, began, accepted, refusal: _ } = self;
        // Of the past, content is there, but the source was not read.
        match stale.as_ref().map(|stale| stale.instead_of.turned_away) {
            Some(Some(pause)) => clock.turned_away(began, pause),
            Some(None) => clock.failed(began, lanyard_keyvault::RetryClass::Transient),
            None => clock.succeeded(began, &wishes, accepted),
        }
        marker.set_trouble(trouble);
        let is_new = published.changed == Changed::Content;
        *marker = Marker {
            generation: published.generation.as_str().to_owned(),
            objects,
            changed: if is_new { began } else { marker.changed },
            check: clock.record().cloned(),
            trouble: marker.trouble.take(),
            stale_since: stale.map(|stale| stale.since),
            ..Marker::blank(order, began)
        };
    }
}

/// What is wrong with a volume that was filled: it was from the cache, or older credentials were not
/// taken.
fn trouble_of(
    stale: Option<&Stale>,
    refused: &[OlderCredential],
    began: Timestamp,
) -> Option<Trouble> {
    if let Some(Stale { since, instead_of }) = stale {
        return Some(Trouble::served_stale(*since, instead_of.code, &instead_of.message));
    }
    let reasons: Vec<_> = refused.iter().map(ToString::to_string).collect();
    (!reasons.is_empty())
        .then(|| Trouble::new(OutcomeCode::CredentialOlder, began, &reasons.join("; ")))
}
