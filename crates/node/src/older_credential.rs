//! Credentials do not go back in time.
//!
//! A vault that is restored from a backup, or a pipeline that writes an old file, gives a
//! credential that is older than the mounted one. Consumers would not take it (msi-dataplane
//! v0.4.3 takes a newer `not_before` only), or would and stop working, so it is refused: the volume
//! keeps the version that it has of that object. Rolling back a bad certificate on purpose is
//! said by [`RotationPolicy::ACCEPT_OLDER`](crate::rotation::RotationPolicy::ACCEPT_OLDER).
//!
//! Each object is judged alone, and the others of the volume are taken: an object is one unit (a
//! certificate and its key lie in one), a volume is not, since nobody writes several objects of a
//! vault at once. A volume that kept all of them back for the sake of one would let that one stop
//! the renewal of every other.
//!
//! Other secrets are never refused by what they hold: without a `not_before` inside there is no
//! older and newer.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use lanyard_credential::document::CredentialDocument;
use lanyard_keyvault::SharedSecretBytes;
use lanyard_vocabulary::OutcomeCode;

use crate::directory::VolumeDiskError;
use crate::file_path::FilePath;
use crate::provider::{ObjectTimestamps, ProviderError, ProviderObjectVersion, ProviderResponse};
use crate::rotation::OlderVersion;

/// A credential that the provider gave, and that is older than the mounted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderCredential {
    /// The object.
    pub id: String,
    /// The version that is mounted.
    pub mounted_version: String,
    /// From when on that is valid.
    pub mounted_not_before: Timestamp,
    /// The version that the provider gave.
    pub offered_version: String,
    /// From when on that is valid.
    pub offered_not_before: Timestamp,
}

impl OlderCredential {
    /// How the annotation that accepts it names it.
    pub fn older_version(&self) -> OlderVersion {
        OlderVersion { id: self.id.clone(), version: self.offered_version.clone() }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        format!(
            "put the newer credential back into the vault; if the roll-back is meant, annotate \
             the class with `{}: \"{}\"`",
            crate::rotation::RotationPolicy::ACCEPT_OLDER,
            self.older_version(),
        )
    }

    /// The refusal, for events and logs.
    pub fn to_error(&self) -> ProviderError {
        ProviderError::new(OutcomeCode::CredentialOlder, self.to_string()).with_hint(self.hint())
    }
}

impl fmt::Display for OlderCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "version {} of {} is valid from {} on, and the mounted version {} from {} on: the \
             mounted one is kept",
            self.offered_version,
            self.id,
            self.offered_not_before,
            self.mounted_version,
            self.mounted_not_before,
        )
    }
}

/// The objects of a filling, judged beside those that are mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OlderCredentialCheck {
    /// Older credentials that must not replace what is mounted.
    pub refused: Vec<OlderCredential>,
    /// Older credentials that the class accepts: a line of the audit log each.
    pub accepted: Vec<OlderCredential>,
}

/// Judges what a provider gave beside what is mounted. `accepts` says which older versions the
/// class lets through: [`PollHistory::may_accept_older`](crate::rotation::PollHistory::may_accept_older).
pub fn find_older_credentials(
    mounted: &[ProviderObjectVersion],
    mounted_stamps: &BTreeMap<String, ObjectTimestamps>,
    filling: &ProviderResponse,
    accepts: impl Fn(&OlderVersion) -> bool,
) -> OlderCredentialCheck {
    let mut judgement = OlderCredentialCheck::default();
    for offered in &filling.versions {
        let Some(mounted) = mounted.iter().find(|it| it.id == offered.id) else { continue };
        let not_before = |stamps: Option<&ObjectTimestamps>| {
            stamps.filter(|it| it.is_credential).and_then(|stamps| stamps.not_before)
        };
        let times = not_before(mounted_stamps.get(&mounted.id))
            .zip(not_before(filling.timestamps.get(&offered.id)));
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
            judgement.accepted.push(older);
        } else {
            judgement.refused.push(older);
        }
    }
    judgement
}

/// What is mounted of the credentials of a filling where nobody noted it: in a volume that another
/// driver filled. They tell themselves from when on they are valid; which version of the vault
/// they are, nobody knows. `load` reads a mounted file.
pub fn read_mounted_credentials(
    filling: &ProviderResponse,
    load: impl Fn(&FilePath) -> Result<Option<SharedSecretBytes>, VolumeDiskError>,
) -> (Vec<ProviderObjectVersion>, BTreeMap<String, ObjectTimestamps>) {
    let (mut versions, mut found) = (Vec::new(), BTreeMap::new());
    for file in &filling.files {
        let Some(id) = file.object.clone().filter(|id| !found.contains_key(id)) else { continue };
        if filling.timestamps.get(&id).is_none_or(|stamps| !stamps.is_credential) {
            continue;
        }
        // What cannot be read serves no consumer, and is nothing to be kept.
        let Ok(Some(content)) = load(&file.path) else { continue };
        let Ok(document) = CredentialDocument::parse(content.expose()) else { continue };
        let stamps = document.timestamps();
        let stamps = ObjectTimestamps {
            created: None,
            not_before: Some(stamps.not_before),
            not_after: stamps.not_after,
            renew_after: stamps.renew_after,
            is_credential: true,
        };
        versions
            .push(ProviderObjectVersion { id: id.clone(), version: UNKNOWN_VERSION.to_owned() });
        found.insert(id, stamps);
    }
    (versions, found)
}

/// The version of what another driver mounted.
const UNKNOWN_VERSION: &str = "unknown";

/// Puts what is mounted of the refused objects in the place of what the provider gave, so that
/// the rest of the filling can be published. `load` reads a mounted file.
///
/// # Errors
///
/// Where an object cannot be told from the others, or is mounted under other paths than the
/// provider gave now: then nothing of the filling may be published.
pub fn restore_mounted_objects(
    filling: &mut ProviderResponse,
    refused: &[OlderCredential],
    mounted_stamps: &BTreeMap<String, ObjectTimestamps>,
    load: impl Fn(&FilePath) -> Result<Option<SharedSecretBytes>, VolumeDiskError>,
) -> Result<(), RestoreMountedError> {
    for older in refused {
        let is_of_it = |object: Option<&str>| object == Some(older.id.as_str());
        if !filling.files.iter().any(|file| is_of_it(file.object.as_deref())) {
            return Err(RestoreMountedError::UnknownFiles { id: older.id.clone() });
        }
        for file in filling.files.iter_mut().filter(|file| is_of_it(file.object.as_deref())) {
            let (path, id) = (file.path.clone(), older.id.clone());
            file.content = load(&path)
                .map_err(|source| RestoreMountedError::Disk { id: id.clone(), source })?
                .ok_or(RestoreMountedError::PathChanged { id, path })?;
        }
        for version in filling.versions.iter_mut().filter(|version| version.id == older.id) {
            version.version.clone_from(&older.mounted_version);
        }
        if let Some(stamps) = mounted_stamps.get(&older.id) {
            filling.timestamps.insert(older.id.clone(), *stamps);
        }
    }
    Ok(())
}

/// What is mounted of an object could not be kept beside the newer version of others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreMountedError {
    /// The provider does not say which file is made of which object.
    #[error("the provider does not say which files are made of {id}")]
    UnknownFiles {
        /// The object.
        id: String,
    },
    /// The object is mounted, but not at this path.
    #[error("{id} has no file {path} in the volume yet")]
    PathChanged {
        /// The object.
        id: String,
        /// Where the provider wants it.
        path: FilePath,
    },
    /// A mounted file could not be read.
    #[error("could not read what is mounted of {id}")]
    Disk {
        /// The object.
        id: String,
        /// What came back.
        #[source]
        source: VolumeDiskError,
    },
}

#[cfg(test)]
mod tests;
