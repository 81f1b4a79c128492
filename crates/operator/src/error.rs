//! Why a look at a cluster did not come to its end, and when to look again.

use std::time::Duration;

use lanyard_kubernetes::ApiError;

use crate::queue::Requeue;

/// Why a look at a cluster did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Calls failed; all others were made.
    #[error("{}", join_errors(.0))]
    Calls(Vec<ApiError>),
    /// Another replica leads the shard of the cluster now: it goes on.
    #[error("the lease ended, and another replica goes on")]
    NotLeader,
    /// The look ended in a defect of ours. Others go on.
    #[error("the look at the cluster panicked")]
    Panicked,
}

/// Why something was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FencedWriteError {
    /// The call failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is no time left on the lease.
    #[error("the lease ended")]
    NotLeader,
}

/// How a look may come to a better end: the class of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReconcileRetryClass {
    /// Somebody has to do something first.
    Denied,
    /// The API asked to be left alone for so long.
    ThrottledFor(Duration),
    /// It may pass by itself.
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
    /// When to look again.
    pub(crate) fn requeue(&self) -> Requeue {
        match self {
            Self::Calls(errors) => match errors.iter().map(retry_class).max() {
                Some(ReconcileRetryClass::ThrottledFor(pause)) => Requeue::RetryAfter(pause),
                Some(ReconcileRetryClass::Denied) => Requeue::RetrySlowly,
                Some(ReconcileRetryClass::Transient) | None => {
                    // What the API asked for is obeyed, whatever else failed.
                    let asked = errors.iter().filter_map(ApiError::retry_after).max();
                    asked.map_or(Requeue::RetrySoon, Requeue::RetryAfter)
                }
            },
            Self::NotLeader => Requeue::OnChange,
            Self::Panicked => Requeue::RetrySlowly,
        }
    }

    /// What to do next.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Calls(errors) => errors.first().map_or("", ApiError::hint),
            Self::NotLeader => "nothing is to be done",
            Self::Panicked => "report this defect, with the line of the log before this one",
        }
    }

    /// A word for metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Calls(errors) => errors.first().map_or("api", error_category),
            Self::NotLeader => "not-leader",
            Self::Panicked => "panicked",
        }
    }
}

/// The class of an error of one call.
pub(crate) fn retry_class(error: &ApiError) -> ReconcileRetryClass {
    match error {
        error if error.is_transient() => error
            .retry_after()
            .map_or(ReconcileRetryClass::Transient, ReconcileRetryClass::ThrottledFor),
        // It changed while we looked: the next look sees it. Or its namespace is not there yet.
        ApiError::Refused { status: 404 | 409, .. } => ReconcileRetryClass::Transient,
        _ => ReconcileRetryClass::Denied,
    }
}

/// A word for an error of one call.
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
    let told: Vec<_> = errors.iter().take(MAX_LISTED_ERRORS).map(ToString::to_string).collect();
    let more = errors.len().saturating_sub(MAX_LISTED_ERRORS);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{more}", told.join("; "))
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
        for (error, again) in cases {
            assert_eq!(ReconcileError::from(error.clone()).requeue(), again, "{error}");
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
        assert!(many.hint().contains("ClusterRole"));
    }
}
