//! The note of the publisher beside the files of a volume: `..lanyard/marker`.
//!
//! It certifies one generation: that it was written whole, for whom, and what it holds. A volume
//! whose `..data` shows another generation was left in the middle of something. It also lets a new
//! process go on where the last one ended. It holds neither tokens nor secrets, and pods that do not
//! run as root cannot read it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_keyvault::Pod;
use lanyard_vocabulary::{Hop, OutcomeCode};
use serde::{Deserialize, Serialize};

use crate::order::MountOrder;
use crate::provider::{ObjectVersion, Stamps};
use crate::rotation::CheckRecord;

/// What is known about a mounted volume, as it outlives the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The generation that it certifies.
    pub(crate) generation: String,
    pub(crate) volume_id: String,
    pub(crate) pod: Pod,
    pub(crate) class_name: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) group: Option<u32>,
    pub(crate) objects: Vec<MountedObject>,
    /// When the content changed last.
    pub(crate) changed: Timestamp,
    /// The last time that the source was read with success; nothing, where that never was.
    pub(crate) check: Option<CheckRecord>,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) stale_since: Option<Timestamp>,
}

/// An object in a mounted volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedObject {
    /// Which version of which object.
    pub version: ObjectVersion,
    /// What is known about its times.
    pub stamps: Stamps,
}

/// What is wrong with a mounted volume, since when and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The code.
    pub code: OutcomeCode,
    /// Since when.
    pub since: Timestamp,
    /// What it came from, where the code says what was done about it.
    pub cause: Option<OutcomeCode>,
    /// What was tried and what came back when it began; no secrets. Empty where an earlier release
    /// did not note it.
    pub message: String,
}

impl Trouble {
    /// A trouble that came from nothing else.
    pub(crate) fn new(code: OutcomeCode, since: Timestamp, message: &str) -> Self {
        // It stands in an annotation and in a note on the volume, of which neither may grow.
        let message = message[..message.floor_char_boundary(LONGEST_MESSAGE)].to_owned();
        Self { code, since, cause: None, message }
    }

    /// The trouble of a volume that the node's cache filled, because its source could not be read.
    pub(crate) fn served_stale(since: Timestamp, cause: OutcomeCode, message: &str) -> Self {
        Self { cause: Some(cause), ..Self::new(OutcomeCode::ServedStale, since, message) }
    }

    /// The hop that is to blame.
    pub(crate) const fn hop(&self) -> Hop {
        match self.cause {
            Some(cause) => cause.hop(),
            None => self.code.hop(),
        }
    }
}

/// In bytes.
const LONGEST_MESSAGE: usize = 1024;

impl Marker {
    /// Whether the volume that it describes is the one that is ordered.
    pub(crate) fn describes(&self, order: &MountOrder) -> bool {
        self.volume_id == order.volume_id
            && self.pod.uid == order.pod.uid
            && self.class_name == order.class_name
            && self.attributes == order.attributes
            && self.group == order.group
    }

    pub(crate) fn stamps(&self) -> BTreeMap<String, Stamps> {
        let stamps = |object: &MountedObject| (object.version.id.clone(), object.stamps);
        self.objects.iter().map(stamps).collect()
    }

    pub(crate) fn versions(&self) -> Vec<ObjectVersion> {
        self.objects.iter().map(|object| object.version.clone()).collect()
    }

    /// Reads a marker that the driver `driver` wrote.
    pub(crate) fn parse(text: &[u8], driver: &str) -> Result<Self, MarkerError> {
        let wire: Wire = serde_json::from_slice(text)?;
        if wire.format != FORMAT {
            return Err(MarkerError::Format { format: wire.format });
        }
        if wire.driver != driver {
            return Err(MarkerError::Driver { driver: wire.driver });
        }
        Ok(wire.into())
    }

    /// The text that [`Marker::parse`] reads.
    pub(crate) fn to_json(&self, driver: &str) -> Result<Vec<u8>, MarkerError> {
        Ok(serde_json::to_vec(&Wire::of(self, driver))?)
    }
}

/// A marker is not one of ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MarkerError {
    #[error("the marker is not the JSON of one")]
    Json(#[from] serde_json::Error),
    #[error("the marker has format {format}, which is not known here")]
    Format { format: u32 },
    #[error("the marker was written by the driver `{driver}`")]
    Driver { driver: String },
}

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    format: u32,
    driver: String,
    generation: String,
    volume_id: String,
    pod: WirePod,
    secret_provider_class: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(default)]
    objects: Vec<WireObject>,
    changed: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<CheckRecord>,
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
struct WirePod {
    namespace: String,
    name: String,
    uid: String,
    service_account: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireObject {
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

impl Wire {
    fn of(marker: &Marker, driver: &str) -> Self {
        let Pod { namespace, name, uid, service_account } = marker.pod.clone();
        let trouble = marker.trouble.as_ref();
        let name_of = |code: OutcomeCode| code.name().to_owned();
        Self {
            format: FORMAT,
            driver: driver.to_owned(),
            generation: marker.generation.clone(),
            volume_id: marker.volume_id.clone(),
            pod: WirePod { namespace, name, uid, service_account },
            secret_provider_class: marker.class_name.clone(),
            attributes: marker.attributes.clone(),
            group: marker.group,
            objects: marker.objects.iter().map(WireObject::of).collect(),
            changed: marker.changed,
            check: marker.check.clone(),
            outcome: trouble.map(|trouble| name_of(trouble.code)),
            since: trouble.map(|trouble| trouble.since),
            cause: trouble.and_then(|trouble| trouble.cause).map(name_of),
            message: trouble.map(|trouble| trouble.message.clone()).unwrap_or_default(),
            stale_since: marker.stale_since,
        }
    }
}

impl From<Wire> for Marker {
    fn from(wire: Wire) -> Self {
        let WirePod { namespace, name, uid, service_account } = wire.pod;
        // A code of a later release is one that this one does not know; the trouble is found again.
        let code_of = |name: Option<String>| {
            let name = name?;
            OutcomeCode::ALL.iter().copied().find(|code| code.name() == name)
        };
        let (cause, message) = (code_of(wire.cause), wire.message);
        let trouble = code_of(wire.outcome).zip(wire.since);
        let trouble = trouble.map(|(code, since)| Trouble { code, since, cause, message });
        Self {
            generation: wire.generation,
            volume_id: wire.volume_id,
            pod: Pod { namespace, name, uid, service_account },
            class_name: wire.secret_provider_class,
            attributes: wire.attributes,
            group: wire.group,
            objects: wire.objects.into_iter().map(MountedObject::from).collect(),
            changed: wire.changed,
            check: wire.check,
            trouble,
            stale_since: wire.stale_since,
        }
    }
}

impl WireObject {
    fn of(object: &MountedObject) -> Self {
        let Stamps { created, not_before, not_after, renew_after, is_credential } = object.stamps;
        let ObjectVersion { id, version } = object.version.clone();
        Self { id, version, created, not_before, not_after, renew_after, credential: is_credential }
    }
}

impl From<WireObject> for MountedObject {
    fn from(wire: WireObject) -> Self {
        let WireObject { id, version, created, not_before, not_after, renew_after, credential } =
            wire;
        let stamps =
            Stamps { created, not_before, not_after, renew_after, is_credential: credential };
        Self { version: ObjectVersion { id, version }, stamps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "secrets-store.csi.k8s.io";

    fn marker() -> Marker {
        let at = |second| Timestamp::from_second(second).unwrap();
        let stamps = Stamps {
            created: Some(at(1)),
            not_before: Some(at(2)),
            not_after: None,
            renew_after: Some(at(3)),
            is_credential: true,
        };
        let check = serde_json::from_str(r#"{"checked": "2026-11-21T12:00:00Z"}"#).unwrap();
        let version = ObjectVersion { id: "secret/a".to_owned(), version: "v1".to_owned() };
        Marker {
            generation: "..2026_11_21_12_00_00.1".to_owned(),
            volume_id: "csi-1".to_owned(),
            pod: Pod {
                namespace: "ns".to_owned(),
                name: "pod".to_owned(),
                uid: "uid".to_owned(),
                service_account: "sa".to_owned(),
            },
            class_name: "class".to_owned(),
            attributes: BTreeMap::from([("secretProviderClass".to_owned(), "class".to_owned())]),
            group: Some(2000),
            objects: vec![MountedObject { version, stamps }],
            changed: at(10),
            check: Some(check),
            trouble: Some(Trouble::served_stale(at(15), OutcomeCode::VaultThrottled, "slowly")),
            stale_since: None,
        }
    }

    #[test]
    fn a_marker_is_read_back_as_it_was_written() {
        let text = marker().to_json(DRIVER).unwrap();
        assert_eq!(Marker::parse(&text, DRIVER).unwrap(), marker());
        let bare = Marker { group: None, objects: Vec::new(), trouble: None, ..marker() };
        assert_eq!(Marker::parse(&bare.to_json(DRIVER).unwrap(), DRIVER).unwrap(), bare);
    }

    #[test]
    fn what_another_driver_or_a_later_release_wrote_is_refused() {
        let text = marker().to_json("other").unwrap();
        assert!(matches!(Marker::parse(&text, DRIVER), Err(MarkerError::Driver { .. })));
        let text = String::from_utf8(marker().to_json(DRIVER).unwrap()).unwrap();
        let later = text.replace("\"format\":1", "\"format\":2");
        assert!(matches!(
            Marker::parse(later.as_bytes(), DRIVER),
            Err(MarkerError::Format { format: 2 })
        ));
        for torn in [&text[..text.len() / 2], "", "{}", "[]", "null"] {
            assert!(matches!(Marker::parse(torn.as_bytes(), DRIVER), Err(MarkerError::Json(_))));
        }
    }

    #[test]
    fn a_code_that_is_not_known_is_no_trouble_and_fields_that_are_not_known_are_skipped() {
        let text = String::from_utf8(marker().to_json(DRIVER).unwrap()).unwrap();
        let other = text.replace("KeyVault", "x").replace("ServedStale", "OfTomorrow");
        let other = other.replacen('{', "{\"more\":true,", 1);
        assert_eq!(Marker::parse(other.as_bytes(), DRIVER).unwrap().trouble, None);
    }
}
