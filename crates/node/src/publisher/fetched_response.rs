//! A provider's response, checked against the mounted content.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_clock::ErrorHint as _;
use lanyard_keyvault::SharedSecretBytes;
use lanyard_provider::{
    ObjectTimestamps, OlderVersion, ProviderObjectVersion, ProviderResponse, RotationPolicy,
    StaleResponse,
};
use lanyard_vocabulary::{OutcomeCode, format_error_chain};
use lanyard_volume::{AtomicVolume, FilePath, PublishOutcome, VolumeChange};

use super::failure::PublishFailure;
use super::mounted_volume::MountedVolume;
use crate::marker::{MountedObject, VolumeLastError, VolumeMarker};
use crate::memory::FetchMemory;
use crate::older_credential::{
    OlderCredential, OlderCredentialCheck, find_older_credentials, read_mounted_credentials,
    restore_mounted_objects,
};
use crate::publish_request::PublishRequest;
use crate::rotation::PollHistory;

/// A provider's response with the rotation policy of its class.
#[derive(Debug)]
pub(super) struct FetchedResponse {
    pub(super) response: ProviderResponse,
    pub(super) policy: RotationPolicy,
    /// When the request started. The content counts as read at this time.
    pub(super) started_at: Timestamp,
    /// The provider, as named in the class.
    pub(super) provider: Arc<str>,
    /// The node memory that the response reserves.
    pub(super) memory: FetchMemory,
}

/// What the marker and the poll history record about a response once it is written: everything but
/// the content.
#[derive(Debug)]
pub(super) struct ContentRecord {
    objects: Vec<MountedObject>,
    stale: Option<StaleResponse>,
    /// An error although the volume was written, for example content from the cache.
    last_error: Option<VolumeLastError>,
    policy: RotationPolicy,
    started_at: Timestamp,
    pub(super) accepted_older: Vec<OlderVersion>,
    /// Why older credentials were rejected.
    pub(super) older_rejection: Option<String>,
}

impl FetchedResponse {
    /// Splits the first response of a volume, when nothing is mounted yet.
    pub(super) fn into_first_content(self) -> (ProviderResponse, ContentRecord) {
        self.split_with_check(OlderCredentialCheck::default())
    }

    /// Splits the response after replacing older credentials with the mounted ones.
    ///
    /// # Errors
    ///
    /// Fails if the mounted files of a rejected object conflict with the rest of the response.
    pub(super) fn without_older_credentials(
        mut self,
        mounted: &MountedVolume,
    ) -> Result<(ProviderResponse, ContentRecord), PublishFailure> {
        let load = |path: &FilePath| {
            let content = AtomicVolume::load_file(&mounted.volume, path)?;
            Ok(content.map(SharedSecretBytes::from))
        };
        let (versions, stamps): (Vec<ProviderObjectVersion>, BTreeMap<String, ObjectTimestamps>) =
            if mounted.marker.objects.is_empty() {
                read_mounted_credentials(&self.response, load)
            } else {
                (mounted.marker.versions(), mounted.marker.timestamps_by_object())
            };
        let accepts = |older: &OlderVersion| mounted.history.may_accept_older(older, &self.policy);
        let check = find_older_credentials(&versions, &stamps, &self.response, accepts);
        restore_mounted_objects(&mut self.response, &check.refused, &stamps, load).map_err(
            |error| {
                let reasons: Vec<_> = check.refused.iter().map(ToString::to_string).collect();
                let message = format!("{}: {}", reasons.join("; "), format_error_chain(&error));
                PublishFailure::new(OutcomeCode::CredentialOlder, message)
            },
        )?;
        for accepted in &check.accepted {
            tracing::info!(
                pod = %mounted.marker.pod,
                older = %accepted.older_version(),
                mounted = accepted.mounted_version,
                "accepted an older credential because its class allows it"
            );
        }
        Ok(self.split_with_check(check))
    }

    fn split_with_check(self, check: OlderCredentialCheck) -> (ProviderResponse, ContentRecord) {
        let Self { response, policy, started_at, provider: _, memory: _ } = self;
        let stamps = |version: &ProviderObjectVersion| {
            response.timestamps.get(&version.id).copied().unwrap_or_default()
        };
        let object = |version: &ProviderObjectVersion| MountedObject {
            version: version.clone(),
            timestamps: stamps(version),
        };
        let mut objects: Vec<_> = response.versions.iter().map(object).collect();
        objects.sort_by(|one, other| one.version.cmp(&other.version));
        let refusals = check.refused.iter().map(|older| {
            let hint = older.hint().unwrap_or_default();
            format!("{}: {older}; hint: {hint}", OutcomeCode::CredentialOlder)
        });
        let refusals: Vec<_> = refusals.collect();
        let contents = ContentRecord {
            objects,
            stale: response.stale.clone(),
            last_error: last_error_of(response.stale.as_ref(), &check.refused, started_at),
            policy,
            started_at,
            accepted_older: check.accepted.iter().map(OlderCredential::older_version).collect(),
            older_rejection: (!refusals.is_empty()).then(|| refusals.join("\n")),
        };
        (response, contents)
    }
}

impl ContentRecord {
    /// Records in `marker` and `history` that the volume has this content.
    pub(super) fn apply_to(
        self,
        request: &PublishRequest,
        published: &PublishOutcome,
        marker: &mut VolumeMarker,
        history: &mut PollHistory,
    ) {
        let Self {
            objects,
            stale,
            last_error,
            policy,
            started_at,
            accepted_older,
            older_rejection: _,
        } = self;
        // With stale content there are files, but the provider was not read.
        match stale.as_ref().map(|stale| stale.fetch_error.suppressed_for) {
            Some(Some(pause)) => history.record_suppressed(started_at, pause),
            Some(None) => {
                history.record_failure(started_at, lanyard_clock::RetryClass::Transient);
            }
            None => history.record_success(started_at, &policy, accepted_older),
        }
        marker.set_last_error(last_error);
        let is_new = published.change == VolumeChange::Content;
        *marker = VolumeMarker {
            generation: published.generation.as_str().to_owned(),
            objects,
            content_changed: if is_new { started_at } else { marker.content_changed },
            poll_record: history.record().cloned(),
            last_error: marker.last_error.take(),
            stale_since: stale.map(|stale| stale.since),
            ..VolumeMarker::uncertified_for(request, started_at)
        };
    }
}

/// The error of a volume that was written: stale content from the cache, or rejected older
/// credentials.
fn last_error_of(
    stale: Option<&StaleResponse>,
    refused: &[OlderCredential],
    started_at: Timestamp,
) -> Option<VolumeLastError> {
    if let Some(StaleResponse { since, fetch_error: instead_of }) = stale {
        return Some(VolumeLastError::served_stale(*since, instead_of.code, &instead_of.message));
    }
    let reasons: Vec<_> = refused.iter().map(ToString::to_string).collect();
    (!reasons.is_empty()).then(|| {
        VolumeLastError::new(OutcomeCode::CredentialOlder, started_at, &reasons.join("; "))
    })
}
