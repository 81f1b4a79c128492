//! The state of a watched kind.

use std::time::Duration;

use lanyard_kubernetes::ApiError;

use crate::watched_kinds::WatchedKind;

/// The state of a watched kind.
#[derive(Debug, Clone, Default)]
pub(crate) enum KindState {
    /// Not listed yet.
    #[default]
    Unlisted,
    /// Listed and watched.
    Listed,
    /// Listed once and refused now: the cached objects stay and may be outdated.
    Stale(ApiError),
    /// Not served, not allowed, or not listable for a long time.
    Unusable(ApiError),
}

/// Whether the operator continues without a kind that was not listed yet.
///
/// A refusal lasts until an administrator acts. Any other failure may pass by itself, so the operator
/// waits, unless other kinds were listed meanwhile (`failing_for`): the conversion webhook of another
/// operator may be unavailable for days.
pub(super) fn is_unusable(kind: WatchedKind, error: &ApiError, failing_for: Duration) -> bool {
    error.refusal_status().is_some() || (!kind.is_required() && failing_for >= LIST_FAILURE_TIMEOUT)
}

/// How long a list may fail while other kinds can be listed.
const LIST_FAILURE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use lanyard_desired::OwnedKind;

    use super::*;

    fn refused_error(status: u16) -> ApiError {
        ApiError::Refused {
            action: "list x".to_owned(),
            status,
            reason: String::new(),
            message: "no".to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn failing_list_blocks_only_required_kinds() {
        let optional = WatchedKind::Owned(OwnedKind::AzureClusterIdentity);
        let long = LIST_FAILURE_TIMEOUT;
        let short = LIST_FAILURE_TIMEOUT.saturating_sub(Duration::from_millis(1));
        let none = Duration::ZERO;
        let cases = [
            // Refusals count immediately for all kinds.
            (optional, 403, none, true),
            (WatchedKind::HostedClusters, 404, none, true),
            // An unavailable webhook.
            (optional, 500, none, false),
            (optional, 500, short, false),
            (optional, 500, long, true),
            (WatchedKind::PodStatuses, 500, long, true),
            // Required kinds.
            (WatchedKind::HostedClusters, 500, long, false),
            (WatchedKind::Identities, 500, long, false),
        ];
        for (kind, status, failing_for, expected) in cases {
            let given_up = is_unusable(kind, &refused_error(status), failing_for);
            assert_eq!(given_up, expected, "{kind:?} {status} {failing_for:?}");
        }
    }
}
