//! The reported credential of one pod.

use jiff::Timestamp;
use lanyard_api::ObjectStatusReport;
use lanyard_api::canary_report::LoadedCredential;

/// The credential of one pod: the mounted version, and the timestamps of the loaded credential or
/// else of the mounted one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReportedCredential {
    pub(super) version: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) not_before: Option<Timestamp>,
    pub(super) not_after: Option<Timestamp>,
    pub(super) renew_after: Option<Timestamp>,
    pub(super) cannot_renew_after: Option<Timestamp>,
}

impl ReportedCredential {
    /// Converts a loaded credential.
    pub(super) fn from_loaded(loaded: &LoadedCredential) -> Self {
        let LoadedCredential {
            client_id,
            not_before,
            not_after,
            renew_after,
            cannot_renew_after,
            ..
        } = loaded.clone();
        let client_id = Some(client_id).filter(|id| !id.is_empty());
        Self { version: None, client_id, not_before, not_after, renew_after, cannot_renew_after }
    }

    /// Converts a mounted object, without its version.
    pub(super) fn from_mounted(object: ObjectStatusReport) -> Self {
        let ObjectStatusReport { not_before, not_after, renew_after, .. } = object;
        Self { not_before, not_after, renew_after, ..Self::default() }
    }

    /// Sort key by age, oldest first. A credential with known timestamps precedes one without, so
    /// that a missing report hides no expiry. Different credentials never compare equal.
    pub(super) fn age_order(&self) -> impl Ord + '_ {
        let Self { version, client_id, not_before, not_after, renew_after, cannot_renew_after } =
            self;
        (
            (not_after.is_none(), not_before.is_none(), not_before, not_after),
            (renew_after.is_none(), renew_after, cannot_renew_after.is_none(), cannot_renew_after),
            (version.is_none(), version, client_id.is_none(), client_id),
        )
    }
}
