//! What a provider gave, judged beside what is mounted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_vocabulary::{OutcomeCode, format_error_chain};

use super::failure::PublishFailure;
use super::mounted_volume::MountedVolume;
use crate::file_path::FilePath;
use crate::marker::{MountedObject, VolumeLastError, VolumeMarker};
use crate::memory::FetchMemory;
use crate::older_credential::{
    OlderCredential, OlderCredentialCheck, find_older_credentials, read_mounted_credentials,
    restore_mounted_objects,
};
use crate::provider::{ObjectTimestamps, ProviderObjectVersion, ProviderResponse, StaleResponse};
use crate::publish_request::PublishRequest;
use crate::rotation::{OlderVersion, PollHistory, RotationPolicy};
use crate::volume::{AtomicVolume, PublishOutcome, VolumeChange};

/// What a volume is filled with, and what its class wishes.
#[derive(Debug)]
pub(super) struct FetchedResponse {
    pub(super) response: ProviderResponse,
    pub(super) policy: RotationPolicy,
    /// When the provider was asked: content is as old as the question.
    pub(super) started_at: Timestamp,
    /// Who filled it, as the class names it.
    pub(super) provider: Arc<str>,
    /// What the filling holds of the node's memory.
    pub(super) memory: FetchMemory,
}

/// What is noted of a supply once it is written: everything but the content.
#[derive(Debug)]
pub(super) struct ContentRecord {
    objects: Vec<MountedObject>,
    stale: Option<StaleResponse>,
    /// What is wrong though the volume was filled.
    last_error: Option<VolumeLastError>,
    policy: RotationPolicy,
    started_at: Timestamp,
    pub(super) accepted_older: Vec<OlderVersion>,
    /// Why older credentials were not taken.
    pub(super) older_rejection: Option<String>,
}

impl FetchedResponse {
    /// Splits a first supply, beside which nothing is mounted.
    pub(super) fn into_first_content(self) -> (ProviderResponse, ContentRecord) {
        self.split_with_check(OlderCredentialCheck::default())
    }

    /// Keeps credentials from going back in time.
    ///
    /// # Errors
    ///
    /// Where what is mounted of an object cannot be kept beside the rest.
    pub(super) fn without_older_credentials(
        mut self,
        mounted: &MountedVolume,
    ) -> Result<(ProviderResponse, ContentRecord), PublishFailure> {
        let load = |path: &FilePath| AtomicVolume::load_file(&mounted.volume, path);
        let (versions, stamps): (Vec<ProviderObjectVersion>, BTreeMap<String, ObjectTimestamps>) =
            if mounted.marker.objects.is_empty() {
                read_mounted_credentials(&self.response, load)
            } else {
                (mounted.marker.versions(), mounted.marker.timestamps_by_object())
            };
        let accepts = |older: &OlderVersion| mounted.history.may_accept_older(older, &self.policy);
        let judgement = find_older_credentials(&versions, &stamps, &self.response, accepts);
        restore_mounted_objects(&mut self.response, &judgement.refused, &stamps, load).map_err(
            |error| {
                let reasons: Vec<_> = judgement.refused.iter().map(ToString::to_string).collect();
                let message = format!("{}: {}", reasons.join("; "), format_error_chain(&error));
                PublishFailure::new(OutcomeCode::CredentialOlder, message)
            },
        )?;
        for accepted in &judgement.accepted {
            tracing::info!(
                pod = %mounted.marker.pod,
                older = %accepted.older_version(),
                mounted = accepted.mounted_version,
                "an older credential is taken because its class says so"
            );
        }
        Ok(self.split_with_check(judgement))
    }

    fn split_with_check(
        self,
        judgement: OlderCredentialCheck,
    ) -> (ProviderResponse, ContentRecord) {
        let Self { response: filling, policy: wishes, started_at: began, provider: _, memory: _ } =
            self;
        let stamps = |version: &ProviderObjectVersion| {
            filling.timestamps.get(&version.id).copied().unwrap_or_default()
        };
        let object = |version: &ProviderObjectVersion| MountedObject {
            version: version.clone(),
            timestamps: stamps(version),
        };
        let mut objects: Vec<_> = filling.versions.iter().map(object).collect();
        objects.sort_by(|one, other| one.version.cmp(&other.version));
        let refusals = judgement.refused.iter().map(|older| {
            format!("{}: {older}; hint: {}", OutcomeCode::CredentialOlder, older.hint())
        });
        let refusals: Vec<_> = refusals.collect();
        let contents = ContentRecord {
            objects,
            stale: filling.stale.clone(),
            last_error: last_error_of(filling.stale.as_ref(), &judgement.refused, began),
            policy: wishes,
            started_at: began,
            accepted_older: judgement.accepted.iter().map(OlderCredential::older_version).collect(),
            older_rejection: (!refusals.is_empty()).then(|| refusals.join("\n")),
        };
        (filling, contents)
    }
}

impl ContentRecord {
    /// Notes that a volume holds this now.
    pub(super) fn apply_to(
        self,
        order: &PublishRequest,
        published: &PublishOutcome,
        marker: &mut VolumeMarker,
        clock: &mut PollHistory,
    ) {
        let Self {
            objects,
            stale,
            last_error: trouble,
            policy: wishes,
            started_at: began,
            accepted_older: accepted,
            older_rejection: _,
        } = self;
        // Of the past, content is there, but the source was not read.
        match stale.as_ref().map(|stale| stale.fetch_error.suppressed_for) {
            Some(Some(pause)) => clock.record_suppressed(began, pause),
            Some(None) => clock.record_failure(began, lanyard_keyvault::RetryClass::Transient),
            None => clock.record_success(began, &wishes, accepted),
        }
        marker.set_last_error(trouble);
        let is_new = published.change == VolumeChange::Content;
        *marker = VolumeMarker {
            generation: published.generation.as_str().to_owned(),
            objects,
            content_changed: if is_new { began } else { marker.content_changed },
            poll_record: clock.record().cloned(),
            last_error: marker.last_error.take(),
            stale_since: stale.map(|stale| stale.since),
            ..VolumeMarker::uncertified_for(order, began)
        };
    }
}

/// What is wrong with a volume that was filled: it was from the cache, or older credentials were not
/// taken.
fn last_error_of(
    stale: Option<&StaleResponse>,
    refused: &[OlderCredential],
    began: Timestamp,
) -> Option<VolumeLastError> {
    if let Some(StaleResponse { since, fetch_error: instead_of }) = stale {
        return Some(VolumeLastError::served_stale(*since, instead_of.code, &instead_of.message));
    }
    let reasons: Vec<_> = refused.iter().map(ToString::to_string).collect();
    (!reasons.is_empty())
        .then(|| VolumeLastError::new(OutcomeCode::CredentialOlder, began, &reasons.join("; ")))
}
