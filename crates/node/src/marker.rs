//! The marker of a volume: `..lanyard/marker`.
//!
//! It certifies one generation: for which pod it was written, with which objects, and that it is
//! complete. If `..data` points to another generation, an operation was interrupted. The marker
//! also lets a new process continue where the last one ended. It contains neither tokens nor
//! secrets, and pods that do not run as root cannot read it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_keyvault::VolumePod;
use lanyard_provider::{ObjectTimestamps, ProviderObjectVersion};
use lanyard_vocabulary::{Hop, OutcomeCode};
use serde::{Deserialize, Serialize};

use crate::publish_request::PublishRequest;
use crate::rotation::PollRecord;

/// The state of a mounted volume that survives the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeMarker {
    /// The certified generation.
    pub(crate) generation: String,
    pub(crate) volume_id: String,
    pub(crate) pod: VolumePod,
    pub(crate) class_name: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) group: Option<u32>,
    pub(crate) objects: Vec<MountedObject>,
    /// When the content changed last.
    pub(crate) content_changed: Timestamp,
    /// The last successful poll; `None` before the first.
    pub(crate) poll_record: Option<PollRecord>,
    pub(crate) last_error: Option<VolumeLastError>,
    pub(crate) stale_since: Option<Timestamp>,
}

/// An object in a mounted volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedObject {
    /// The object and its version.
    pub version: ProviderObjectVersion,
    /// The timestamps of the object, as far as they are known.
    pub timestamps: ObjectTimestamps,
}

/// The current error of a mounted volume, its start and its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeLastError {
    /// The stable outcome code.
    pub code: OutcomeCode,
    /// When the error started.
    pub since: Timestamp,
    /// The outcome code of the cause, if `code` describes the reaction to it.
    pub cause: Option<OutcomeCode>,
    /// What failed and why when the error started; contains no secrets. Empty if an earlier release
    /// did not record it.
    pub message: String,
}

impl VolumeLastError {
    /// An error without a separate cause.
    pub(crate) fn new(code: OutcomeCode, since: Timestamp, message: &str) -> Self {
        // The message goes into an annotation and into the marker, and both must stay small.
        let message = message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned();
        Self { code, since, cause: None, message }
    }

    /// The error of a volume with cached content, because its source could not be read.
    pub(crate) fn served_stale(since: Timestamp, cause: OutcomeCode, message: &str) -> Self {
        Self { cause: Some(cause), ..Self::new(OutcomeCode::ServedStale, since, message) }
    }

    /// The hop that failed.
    pub(crate) const fn hop(&self) -> Hop {
        match self.cause {
            Some(cause) => cause.hop(),
            None => self.code.hop(),
        }
    }
}

const MAX_MESSAGE_BYTES: usize = 1024;

impl VolumeMarker {
    /// Whether the marker describes the requested volume.
    pub(crate) fn matches_request(&self, request: &PublishRequest) -> bool {
        self.volume_id == request.volume_id
            && self.pod.uid == request.pod.uid
            && self.class_name == request.class_name
            && self.attributes == request.attributes
            && self.group == request.group
    }

    pub(crate) fn timestamps_by_object(&self) -> BTreeMap<String, ObjectTimestamps> {
        let stamps = |object: &MountedObject| (object.version.id.clone(), object.timestamps);
        self.objects.iter().map(stamps).collect()
    }

    pub(crate) fn versions(&self) -> Vec<ProviderObjectVersion> {
        self.objects.iter().map(|object| object.version.clone()).collect()
    }

    /// Parses a marker that `driver` wrote.
    pub(crate) fn parse(text: &[u8], driver: &str) -> Result<Self, VolumeMarkerError> {
        let document: MarkerDocument = serde_json::from_slice(text)?;
        if document.format != FORMAT_VERSION {
            return Err(VolumeMarkerError::Format { format: document.format });
        }
        if document.driver != driver {
            return Err(VolumeMarkerError::Driver { driver: document.driver });
        }
        Ok(document.into())
    }

    /// The JSON that [`VolumeMarker::parse`] reads.
    pub(crate) fn to_json(&self, driver: &str) -> Result<Vec<u8>, VolumeMarkerError> {
        Ok(serde_json::to_vec(&MarkerDocument::of(self, driver))?)
    }
}

/// The marker of a volume cannot be parsed, or another driver or a later version wrote it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeMarkerError {
    #[error("the marker is not valid JSON")]
    Json(#[from] serde_json::Error),
    #[error("the marker has format {format}, which this version does not support")]
    Format { format: u32 },
    #[error("the marker was written by the driver `{driver}`")]
    Driver { driver: String },
}

const FORMAT_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarkerDocument {
    format: u32,
    driver: String,
    generation: String,
    volume_id: String,
    pod: MarkerPod,
    secret_provider_class: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(default)]
    objects: Vec<MarkerObject>,
    changed: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<PollRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stale_since: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarkerPod {
    namespace: String,
    name: String,
    uid: String,
    service_account: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarkerObject {
    id: String,
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_after: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renew_after: Option<Timestamp>,
    #[serde(default)]
    credential: bool,
}

impl MarkerDocument {
    fn of(marker: &VolumeMarker, driver: &str) -> Self {
        let VolumePod { namespace, name, uid, service_account } = marker.pod.clone();
        let last_error = marker.last_error.as_ref();
        let name_of = |code: OutcomeCode| code.name().to_owned();
        Self {
            format: FORMAT_VERSION,
            driver: driver.to_owned(),
            generation: marker.generation.clone(),
            volume_id: marker.volume_id.clone(),
            pod: MarkerPod { namespace, name, uid, service_account },
            secret_provider_class: marker.class_name.clone(),
            attributes: marker.attributes.clone(),
            group: marker.group,
            objects: marker.objects.iter().map(MarkerObject::of).collect(),
            changed: marker.content_changed,
            check: marker.poll_record.clone(),
            outcome: last_error.map(|last_error| name_of(last_error.code)),
            since: last_error.map(|last_error| last_error.since),
            cause: last_error.and_then(|last_error| last_error.cause).map(name_of),
            message: last_error.map(|last_error| last_error.message.clone()).unwrap_or_default(),
            stale_since: marker.stale_since,
        }
    }
}

impl From<MarkerDocument> for VolumeMarker {
    fn from(document: MarkerDocument) -> Self {
        let MarkerPod { namespace, name, uid, service_account } = document.pod;
        // A later release may write codes that this one does not know. The next poll finds the
        // error again.
        let code_of = |name: Option<String>| {
            let name = name?;
            OutcomeCode::ALL.iter().copied().find(|code| code.name() == name)
        };
        let (cause, message) = (code_of(document.cause), document.message);
        let last_error = code_of(document.outcome).zip(document.since);
        let last_error =
            last_error.map(|(code, since)| VolumeLastError { code, since, cause, message });
        Self {
            generation: document.generation,
            volume_id: document.volume_id,
            pod: VolumePod { namespace, name, uid, service_account },
            class_name: document.secret_provider_class,
            attributes: document.attributes,
            group: document.group,
            objects: document.objects.into_iter().map(MountedObject::from).collect(),
            content_changed: document.changed,
            poll_record: document.check,
            last_error,
            stale_since: document.stale_since,
        }
    }
}

impl MarkerObject {
    fn of(object: &MountedObject) -> Self {
        let ObjectTimestamps { created, not_before, not_after, renew_after, is_credential } =
            object.timestamps;
        let ProviderObjectVersion { id, version } = object.version.clone();
        Self { id, version, created, not_before, not_after, renew_after, credential: is_credential }
    }
}

impl From<MarkerObject> for MountedObject {
    fn from(document: MarkerObject) -> Self {
        let MarkerObject { id, version, created, not_before, not_after, renew_after, credential } =
            document;
        let stamps = ObjectTimestamps {
            created,
            not_before,
            not_after,
            renew_after,
            is_credential: credential,
        };
        Self { version: ProviderObjectVersion { id, version }, timestamps: stamps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "secrets-store.csi.k8s.io";

    fn marker() -> VolumeMarker {
        let at = |second| Timestamp::from_second(second).unwrap();
        let stamps = ObjectTimestamps {
            created: Some(at(1)),
            not_before: Some(at(2)),
            not_after: None,
            renew_after: Some(at(3)),
            is_credential: true,
        };
        let check = serde_json::from_str(r#"{"checked": "2026-11-21T12:00:00Z"}"#).unwrap();
        let version = ProviderObjectVersion { id: "secret/a".to_owned(), version: "v1".to_owned() };
        VolumeMarker {
            generation: "..2026_11_21_12_00_00.1".to_owned(),
            volume_id: "csi-1".to_owned(),
            pod: VolumePod {
                namespace: "ns".to_owned(),
                name: "pod".to_owned(),
                uid: "uid".to_owned(),
                service_account: "sa".to_owned(),
            },
            class_name: "class".to_owned(),
            attributes: BTreeMap::from([("secretProviderClass".to_owned(), "class".to_owned())]),
            group: Some(2000),
            objects: vec![MountedObject { version, timestamps: stamps }],
            content_changed: at(10),
            poll_record: Some(check),
            last_error: Some(VolumeLastError::served_stale(
                at(15),
                OutcomeCode::VaultThrottled,
                "slowly",
            )),
            stale_since: None,
        }
    }

    #[test]
    fn a_marker_is_read_back_as_it_was_written() {
        let text = marker().to_json(DRIVER).unwrap();
        assert_eq!(VolumeMarker::parse(&text, DRIVER).unwrap(), marker());
        let bare = VolumeMarker { group: None, objects: Vec::new(), last_error: None, ..marker() };
        assert_eq!(VolumeMarker::parse(&bare.to_json(DRIVER).unwrap(), DRIVER).unwrap(), bare);
    }

    #[test]
    fn marker_of_another_driver_or_later_release_is_refused() {
        let text = marker().to_json("other").unwrap();
        assert!(matches!(
            VolumeMarker::parse(&text, DRIVER),
            Err(VolumeMarkerError::Driver { .. })
        ));
        let text = String::from_utf8(marker().to_json(DRIVER).unwrap()).unwrap();
        let later = text.replace("\"format\":1", "\"format\":2");
        assert!(matches!(
            VolumeMarker::parse(later.as_bytes(), DRIVER),
            Err(VolumeMarkerError::Format { format: 2 })
        ));
        for torn in [&text[..text.len() / 2], "", "{}", "[]", "null"] {
            assert!(matches!(
                VolumeMarker::parse(torn.as_bytes(), DRIVER),
                Err(VolumeMarkerError::Json(_))
            ));
        }
    }

    #[test]
    fn unknown_outcome_codes_and_fields_in_a_marker_are_ignored() {
        let text = String::from_utf8(marker().to_json(DRIVER).unwrap()).unwrap();
        let other = text.replace("KeyVault", "x").replace("ServedStale", "OfTomorrow");
        let other = other.replacen('{', "{\"more\":true,", 1);
        assert_eq!(VolumeMarker::parse(other.as_bytes(), DRIVER).unwrap().last_error, None);
    }
}
