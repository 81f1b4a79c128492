//! Whether a kind can be relied on.

use std::time::Duration;

use lanyard_kubernetes::ApiError;

use crate::watched_kinds::WatchedKind;

/// Whether a kind can be relied on.
#[derive(Debug, Clone, Default)]
pub(crate) enum KindState {
    /// It is not listed yet.
    #[default]
    Unlisted,
    /// It was listed, and is followed.
    Listed,
    /// It was listed, and is refused by now: what is known of it stays, and grows old.
    Stale(ApiError),
    /// It is not served, or not to us; or nobody could list it for long.
    Unusable(ApiError),
}

/// Whether everything else goes on without a kind that was not listed yet.
///
/// What is refused stays refused until somebody does something. Any other failure may pass by
/// itself, and is waited for; but not for ever where other kinds are listed meanwhile
/// (`failing_for`): the webhook that converts objects of another operator may be away for days.
pub(super) fn is_unusable(kind: WatchedKind, error: &ApiError, failing_for: Duration) -> bool {
    error.refusal_status().is_some() || (!kind.is_required() && failing_for >= LIST_FAILURE_TIMEOUT)
}

/// How long a list may fail while others do not.
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
            // Refused: at once, whatever it is.
            (optional, 403, none, true),
            (WatchedKind::HostedClusters, 404, none, true),
            // A webhook that is away.
            (optional, 500, none, false),
            (optional, 500, short, false),
            (optional, 500, long, true),
            (WatchedKind::PodStatuses, 500, long, true),
            // Nothing can be done without these.
            (WatchedKind::HostedClusters, 500, long, false),
            (WatchedKind::Identities, 500, long, false),
        ];
        for (kind, status, failing_for, expected) in cases {
            let given_up = is_unusable(kind, &refused_error(status), failing_for);
            assert_eq!(given_up, expected, "{kind:?} {status} {failing_for:?}");
        }
    }
}
