//! Keeps older credentials from replacing newer mounted ones.
//!
//! After a restore of the vault from a backup, or when a pipeline writes an old file, the vault
//! returns a credential that is older than the mounted one. Consumers would ignore it
//! (msi-dataplane v0.4.3 only accepts a newer `not_before`), or accept it and stop working. So the
//! node plugin rejects it: the volume keeps its version of that object. A deliberate rollback of a
//! bad certificate is requested with
//! [`RotationPolicy::ACCEPT_OLDER`](lanyard_provider::RotationPolicy::ACCEPT_OLDER).
//!
//! Each object is checked alone, and the others of the volume are updated. An object is one unit (a
//! certificate and its key are in one object); a volume is not, because objects of a vault are not
//! written together. Otherwise one object could stop the renewal of all others in its volume.
//!
//! Other secrets are never rejected: without a `not_before` there is no order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use lanyard_clock::ErrorHint;
use lanyard_credential::document::CredentialDocument;
use lanyard_keyvault::SharedSecretBytes;
use lanyard_provider::{
    ObjectTimestamps, OlderVersion, ProviderError, ProviderObjectVersion, ProviderResponse,
};
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::{FilePath, VolumeDiskError};

/// A credential of the provider that is older than the mounted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderCredential {
    /// The object id.
    pub id: String,
    pub mounted_version: String,
    /// The `not_before` of the mounted version.
    pub mounted_not_before: Timestamp,
    /// The version that the provider returned.
    pub offered_version: String,
    /// The `not_before` of the returned version.
    pub offered_not_before: Timestamp,
}

impl OlderCredential {
    /// The value that accepts this credential in the annotation.
    pub fn older_version(&self) -> OlderVersion {
        OlderVersion { id: self.id.clone(), version: self.offered_version.clone() }
    }

    /// The error for events and logs.
    pub fn to_error(&self) -> ProviderError {
        ProviderError::new(OutcomeCode::CredentialOlder, self.to_string())
            .with_hint(self.hint().unwrap_or_default())
    }
}

impl ErrorHint for OlderCredential {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Owned(format!(
            "restore the newer credential in the vault; if the rollback is intended, annotate \
             the class with `{}: \"{}\"`",
            lanyard_provider::RotationPolicy::ACCEPT_OLDER,
            self.older_version(),
        )))
    }
}

impl fmt::Display for OlderCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "version {} of {} has `not_before` {}, and the mounted version {} has {}: the volume \
             keeps the mounted version",
            self.offered_version,
            self.id,
            self.offered_not_before,
            self.mounted_version,
            self.mounted_not_before,
        )
    }
}

/// The older credentials in a provider's response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OlderCredentialCheck {
    /// Older credentials that must not replace the mounted ones.
    pub refused: Vec<OlderCredential>,
    /// Older credentials that the class accepts. Each gets an audit event.
    pub accepted: Vec<OlderCredential>,
}

/// Finds the credentials of a response that are older than the mounted ones. `accepts` returns
/// whether the class accepts an older version:
/// [`PollHistory::may_accept_older`](crate::rotation::PollHistory::may_accept_older).
pub fn find_older_credentials(
    mounted: &[ProviderObjectVersion],
    mounted_stamps: &BTreeMap<String, ObjectTimestamps>,
    response: &ProviderResponse,
    accepts: impl Fn(&OlderVersion) -> bool,
) -> OlderCredentialCheck {
    let mut check = OlderCredentialCheck::default();
    for offered in &response.versions {
        let Some(mounted) = mounted.iter().find(|it| it.id == offered.id) else { continue };
        let not_before = |timestamps: Option<&ObjectTimestamps>| {
            timestamps.filter(|it| it.is_credential).and_then(|timestamps| timestamps.not_before)
        };
        let times = not_before(mounted_stamps.get(&mounted.id))
            .zip(not_before(response.timestamps.get(&offered.id)));
        let Some((mounted_not_before, offered_not_before)) = times else { continue };
        if offered_not_before >= mounted_not_before {
            continue;
        }
        let older = OlderCredential {
            id: offered.id.clone(),
            mounted_version: mounted.version.clone(),
            mounted_not_before,
            offered_version: offered.version.clone(),
            offered_not_before,
        };
        if accepts(&older.older_version()) {
            check.accepted.push(older);
        } else {
            check.refused.push(older);
        }
    }
    check
}

/// Reads the mounted credentials of a volume without object records, which another driver wrote.
/// The credential documents contain their `not_before`; their vault version is unknown. `load`
/// reads a mounted file.
pub fn read_mounted_credentials(
    response: &ProviderResponse,
    load: impl Fn(&FilePath) -> Result<Option<SharedSecretBytes>, VolumeDiskError>,
) -> (Vec<ProviderObjectVersion>, BTreeMap<String, ObjectTimestamps>) {
    let (mut versions, mut found) = (Vec::new(), BTreeMap::new());
    for file in &response.files {
        let Some(id) = file.object.clone().filter(|id| !found.contains_key(id)) else { continue };
        if response.timestamps.get(&id).is_none_or(|timestamps| !timestamps.is_credential) {
            continue;
        }
        // A file that cannot be parsed is useless to consumers and need not be kept.
        let Ok(Some(content)) = load(&file.path) else { continue };
        let Ok(document) = CredentialDocument::parse(content.expose()) else { continue };
        let timestamps = document.timestamps();
        let timestamps = ObjectTimestamps {
            created: None,
            not_before: Some(timestamps.not_before),
            not_after: timestamps.not_after,
            renew_after: timestamps.renew_after,
            is_credential: true,
        };
        versions
            .push(ProviderObjectVersion { id: id.clone(), version: UNKNOWN_VERSION.to_owned() });
        found.insert(id, timestamps);
    }
    (versions, found)
}

/// The version of objects that another driver mounted.
const UNKNOWN_VERSION: &str = "unknown";

/// Replaces the rejected objects of a response with the mounted ones, so that the rest can be
/// published. `load` reads a mounted file.
///
/// # Errors
///
/// Fails if the files of an object are unknown, or the object is mounted under other paths than in
/// the response. Then the response must not be published.
pub fn restore_mounted_objects(
    response: &mut ProviderResponse,
    refused: &[OlderCredential],
    mounted_stamps: &BTreeMap<String, ObjectTimestamps>,
    load: impl Fn(&FilePath) -> Result<Option<SharedSecretBytes>, VolumeDiskError>,
) -> Result<(), RestoreMountedError> {
    for older in refused {
        let is_same_object = |object: Option<&str>| object == Some(older.id.as_str());
        if !response.files.iter().any(|file| is_same_object(file.object.as_deref())) {
            return Err(RestoreMountedError::UnknownFiles { id: older.id.clone() });
        }
        for file in response.files.iter_mut().filter(|file| is_same_object(file.object.as_deref()))
        {
            let (path, id) = (file.path.clone(), older.id.clone());
            file.content = load(&path)
                .map_err(|source| RestoreMountedError::Disk { id: id.clone(), source })?
                .ok_or(RestoreMountedError::PathChanged { id, path })?;
        }
        for version in response.versions.iter_mut().filter(|version| version.id == older.id) {
            version.version.clone_from(&older.mounted_version);
        }
        if let Some(timestamps) = mounted_stamps.get(&older.id) {
            response.timestamps.insert(older.id.clone(), *timestamps);
        }
    }
    Ok(())
}

/// The mounted files of a rejected object could not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreMountedError {
    /// The provider did not report which file belongs to which object.
    #[error("the provider did not report the files of {id}")]
    UnknownFiles {
        /// The object id.
        id: String,
    },
    /// The object is mounted, but not at this path.
    #[error("{id} has no file `{path}` in the mounted volume")]
    PathChanged {
        /// The object id.
        id: String,
        /// The path in the response.
        path: FilePath,
    },
    /// A mounted file could not be read.
    #[error("could not read the mounted files of {id}")]
    Disk {
        /// The object id.
        id: String,
        /// The disk error.
        #[source]
        source: VolumeDiskError,
    },
}

#[cfg(test)]
mod tests;
