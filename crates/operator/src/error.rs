//! The errors of a reconciliation, and when to retry.

use std::borrow::Cow;

use lanyard_clock::{ErrorHint, RetryClass};
use lanyard_kubernetes::ApiError;

use crate::queue::Requeue;

/// A reconciliation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Some API calls failed; all independent ones were made.
    #[error("{}", join_errors(.0))]
    Calls(Vec<ApiError>),
    /// The lease of the shard ended; another replica continues.
    #[error("the lease ended; another replica continues")]
    NotLeader,
    /// The reconciliation panicked. Other clusters are not affected.
    #[error("the reconciliation of the cluster panicked")]
    Panicked,
}

/// A write under a lease failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FencedWriteError {
    /// The call failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The lease has no time left for a write.
    #[error("the lease ended")]
    NotLeader,
}

impl From<FencedWriteError> for ReconcileError {
    fn from(error: FencedWriteError) -> Self {
        match error {
            FencedWriteError::Api(error) => Self::Calls(vec![error]),
            FencedWriteError::NotLeader => Self::NotLeader,
        }
    }
}

impl From<ApiError> for ReconcileError {
    fn from(error: ApiError) -> Self {
        Self::Calls(vec![error])
    }
}

impl ReconcileError {
    /// When to reconcile again.
    pub(crate) fn requeue(&self) -> Requeue {
        match self {
            Self::Calls(errors) => {
                let classes = || errors.iter().map(ApiError::retry_class);
                // The longest requested delay applies, whatever else failed.
                match classes().filter_map(RetryClass::requested_delay).max() {
                    Some(delay) => Requeue::RetryAfter(delay),
                    None if classes().all(RetryClass::is_permanent) => Requeue::RetrySlowly,
                    None => Requeue::RetrySoon,
                }
            }
            Self::NotLeader => Requeue::OnChange,
            Self::Panicked => Requeue::RetrySlowly,
        }
    }

    /// The `result` label of the error in metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Calls(errors) => errors.first().map_or("api", error_category),
            Self::NotLeader => "not-leader",
            Self::Panicked => "panicked",
        }
    }
}

impl ErrorHint for ReconcileError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Calls(errors) => return errors.first()?.hint(),
            Self::NotLeader => "no action is needed",
            Self::Panicked => "report this defect with the preceding log line",
        }))
    }
}

/// The `result` label of one call's error in metrics.
pub(crate) const fn error_category(error: &ApiError) -> &'static str {
    match error {
        ApiError::Conflict { .. } => "conflict",
        ApiError::NotServed { .. } => "not-served",
        ApiError::NamespaceTerminating { .. } => "namespace-ends",
        ApiError::Unreached { .. } | ApiError::TimedOut { .. } => "unreached",
        ApiError::Refused { status: 401 | 403, .. } => "forbidden",
        ApiError::Refused { status: 409, .. } => "changed",
        ApiError::Refused { status: 429, .. } => "throttled",
        ApiError::Refused { status: 400 | 422, .. } => "invalid",
        ApiError::Refused { status: 500..=599, .. } => "server",
        _ => "api",
    }
}

fn join_errors(errors: &[ApiError]) -> String {
    let listed: Vec<_> = errors.iter().take(MAX_LISTED_ERRORS).map(ToString::to_string).collect();
    let more = errors.len().saturating_sub(MAX_LISTED_ERRORS);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{more}", listed.join("; "))
}

const MAX_LISTED_ERRORS: usize = 5;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused_error(status: u16, seconds: u64) -> ApiError {
        ApiError::Refused {
            action: "apply x".to_owned(),
            status,
            reason: String::new(),
            message: "no".to_owned(),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
        }
    }

    #[test]
    fn retry_class_decides_requeue() {
        let conflict = ApiError::Conflict { action: "apply x".to_owned(), conflicts: Vec::new() };
        let cases = [
            (refused_error(503, 0), Requeue::RetrySoon),
            (refused_error(409, 0), Requeue::RetrySoon),
            (refused_error(404, 0), Requeue::RetrySoon),
            (refused_error(429, 7), Requeue::RetryAfter(Duration::from_secs(7))),
            (refused_error(403, 0), Requeue::RetrySlowly),
            (refused_error(422, 0), Requeue::RetrySlowly),
            (conflict, Requeue::RetrySlowly),
        ];
        for (error, requeue) in cases {
            assert_eq!(ReconcileError::from(error.clone()).requeue(), requeue, "{error}");
        }
        assert_eq!(ReconcileError::NotLeader.requeue(), Requeue::OnChange);
    }

    #[test]
    fn transient_error_decides_and_retry_after_is_kept() {
        let both = ReconcileError::Calls(vec![refused_error(403, 0), refused_error(503, 0)]);
        assert_eq!(both.requeue(), Requeue::RetrySoon);
        let asked = ReconcileError::Calls(vec![refused_error(503, 0), refused_error(429, 9)]);
        assert_eq!(asked.requeue(), Requeue::RetryAfter(Duration::from_secs(9)));
    }

    #[test]
    fn only_first_errors_are_listed() {
        let many = ReconcileError::Calls(vec![refused_error(403, 0); 8]);
        assert!(many.to_string().ends_with("; and 3 more"), "{many}");
        assert!(many.hint().unwrap().contains("ClusterRole"));
    }
}
