//! Why a look at a cluster did not come to its end, and when to look again.

use std::time::Duration;

use lanyard_kubernetes::ApiError;

use crate::queue::Again;

/// Why a look at a cluster did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Calls failed; all others were made.
    #[error("{}", listed(.0))]
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
pub(crate) enum WriteError {
    /// The call failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is no time left on the lease.
    #[error("the lease ended")]
    NotLeader,
}

/// How a look may come to a better end: the class of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RetryClass {
    /// Somebody has to do something first.
    Denied,
    /// The API asked to be left alone for so long.
    ThrottledFor(Duration),
    /// It may pass by itself.
    Transient,
}

impl From<WriteError> for ReconcileError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Api(error) => Self::Calls(vec![error]),
            WriteError::NotLeader => Self::NotLeader,
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
    pub(crate) fn again(&self) -> Again {
        match self {
            Self::Calls(errors) => match errors.iter().map(class_of).max() {
                Some(RetryClass::ThrottledFor(pause)) => Again::AfterAsked(pause),
                Some(RetryClass::Denied) => Again::Slowly,
                Some(RetryClass::Transient) | None => {
                    // What the API asked for is obeyed, whatever else failed.
                    let asked = errors.iter().filter_map(ApiError::retry_after).max();
                    asked.map_or(Again::Soon, Again::AfterAsked)
                }
            },
            Self::NotLeader => Again::OnChange,
            Self::Panicked => Again::Slowly,
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
            Self::Calls(errors) => errors.first().map_or("api", category_of),
            Self::NotLeader => "not-leader",
            Self::Panicked => "panicked",
        }
    }
}

/// The class of an error of one call.
pub(crate) fn class_of(error: &ApiError) -> RetryClass {
    match error {
        error if error.is_transient() => {
            error.retry_after().map_or(RetryClass::Transient, RetryClass::ThrottledFor)
        }
        // It changed while we looked: the next look sees it. Or its namespace is not there yet.
        ApiError::Refused { status: 404 | 409, .. } => RetryClass::Transient,
        _ => RetryClass::Denied,
    }
}

/// A word for an error of one call.
pub(crate) const fn category_of(error: &ApiError) -> &'static str {
    match error {
        ApiError::Conflict { .. } => "conflict",
        ApiError::NotServed { .. } => "not-served",
        ApiError::NamespaceEnds { .. } => "namespace-ends",
        ApiError::Unreached { .. } | ApiError::TimedOut { .. } => "unreached",
        ApiError::Refused { status: 401 | 403, .. } => "forbidden",
        ApiError::Refused { status: 409, .. } => "changed",
        ApiError::Refused { status: 429, .. } => "throttled",
        ApiError::Refused { status: 400 | 422, .. } => "invalid",
        ApiError::Refused { status: 500..=599, .. } => "server",
        _ => "api",
    }
}

fn listed(errors: &[ApiError]) -> String {
    let told: Vec<_> = errors.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    let more = errors.len().saturating_sub(MOST_TOLD);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{more}", told.join("; "))
}

const MOST_TOLD: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, seconds: u64) -> ApiError {
        ApiError::Refused {
            action: "apply x".to_owned(),
            status,
            reason: String::new(),
            message: "no".to_owned(),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
        }
    }

    #[test]
    fn the_class_of_an_error_decides_when_to_look_again() {
        let conflict = ApiError::Conflict { action: "apply x".to_owned(), conflicts: Vec::new() };
        let cases = [
            (refused(503, 0), Again::Soon),
            (refused(409, 0), Again::Soon),
            (refused(404, 0), Again::Soon),
            (refused(429, 7), Again::AfterAsked(Duration::from_secs(7))),
            (refused(403, 0), Again::Slowly),
            (refused(422, 0), Again::Slowly),
            (conflict, Again::Slowly),
        ];
        for (error, again) in cases {
            assert_eq!(ReconcileError::from(error.clone()).again(), again, "{error}");
        }
        assert_eq!(ReconcileError::NotLeader.again(), Again::OnChange);
    }

    #[test]
    fn of_several_what_may_pass_soonest_decides_and_what_was_asked_is_obeyed() {
        let both = ReconcileError::Calls(vec![refused(403, 0), refused(503, 0)]);
        assert_eq!(both.again(), Again::Soon);
        let asked = ReconcileError::Calls(vec![refused(503, 0), refused(429, 9)]);
        assert_eq!(asked.again(), Again::AfterAsked(Duration::from_secs(9)));
    }

    #[test]
    fn many_errors_are_told_briefly() {
        let many = ReconcileError::Calls(vec![refused(403, 0); 8]);
        assert!(many.to_string().ends_with("; and 3 more"), "{many}");
        assert!(many.hint().contains("ClusterRole"));
    }
}
