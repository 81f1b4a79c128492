//! The errors of a reconciliation, and when to retry.

use std::borrow::Cow;
use std::time::Duration;

use lanyard_clock::ErrorHint;
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

/// How an error is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReconcileRetryClass {
    /// An administrator must act first.
    Denied,
    /// The API server asked for this delay.
    ThrottledFor(Duration),
    /// The error may pass by itself.
    Transient,
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
            Self::Calls(errors) => match errors.iter().map(retry_class).max() {
                Some(ReconcileRetryClass::ThrottledFor(pause)) => Requeue::RetryAfter(pause),
                Some(ReconcileRetryClass::Denied) => Requeue::RetrySlowly,
                Some(ReconcileRetryClass::Transient) | None => {
                    // The longest requested delay applies, whatever else failed.
                    let asked = errors.iter().filter_map(ApiError::retry_after).max();
                    asked.map_or(Requeue::RetrySoon, Requeue::RetryAfter)
                }
            },
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

/// How an error of one call is retried.
pub(crate) fn retry_class(error: &ApiError) -> ReconcileRetryClass {
    match error {
        error if error.is_transient() => error
            .retry_after()
            .map_or(ReconcileRetryClass::Transient, ReconcileRetryClass::ThrottledFor),
        // The object changed during the reconciliation, or its namespace does not exist yet.
        ApiError::Refused { status: 404 | 409, .. } => ReconcileRetryClass::Transient,
        _ => ReconcileRetryClass::Denied,
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
