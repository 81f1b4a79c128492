//! One call to the Kubernetes API: its timeout, its retries, its errors.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use futures::future::{Either, select};
use kube::Client;
use lanyard_clock::{Backoff, ErrorHint, RetryClass, SharedClock};
use lanyard_vocabulary::format_error_chain;

use crate::UserAgent;
use crate::access::{ApiAccess, KubectlAccess, KubectlContext};
use crate::access_error::AccessError;
use crate::connections::{ApiConnections, WatchConnection};

/// A client for the Kubernetes API. Clones share the connections.
///
/// The client has no rate limit of its own: it relies on the API server's priority and fairness and
/// honours `Retry-After`.
#[derive(Clone)]
pub struct KubernetesApi {
    connections: ApiConnections,
    clock: SharedClock,
}

impl KubernetesApi {
    /// Builds a client with these credentials and this user agent. Sends no request.
    ///
    /// # Errors
    ///
    /// The settings are invalid, for example an unreadable CA certificate.
    pub async fn connect(
        access: &ApiAccess,
        user_agent: UserAgent,
        clock: SharedClock,
    ) -> Result<Self, AccessError> {
        let connections = access.connections(user_agent).await?;
        Ok(Self { connections, clock })
    }

    /// Builds a client from the user's kubeconfig files, as `kubectl` does, and returns it with the context.
    /// Sends no request.
    ///
    /// # Errors
    ///
    /// The kubeconfig files are missing or invalid.
    pub async fn connect_as_kubectl(
        access: &KubectlAccess,
        user_agent: UserAgent,
        clock: SharedClock,
    ) -> Result<(Self, KubectlContext), AccessError> {
        let (connections, context) = access.connections(user_agent).await?;
        Ok((Self { connections, clock }, context))
    }

    /// Wraps an existing client, whose own retries, timeouts and rate limits should be off.
    pub fn from_client(client: Client, clock: SharedClock) -> Self {
        Self { connections: ApiConnections::with_client(client), clock }
    }

    /// The client for short calls; for watches, see [`KubernetesApi::connection_to_watch`].
    pub const fn client(&self) -> &Client {
        self.connections.for_calls()
    }

    /// The connection for a watch; `subject` is the watched resource and selects one of the connections.
    pub fn connection_to_watch(&self, subject: &str) -> &WatchConnection {
        self.connections.for_watch(subject)
    }

    /// The clock that measures timeouts and delays.
    pub const fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// Makes a call and returns `None` if the object does not exist. `action` describes the call in errors,
    /// for example `read pod x`.
    ///
    /// # Errors
    ///
    /// The error of the last attempt.
    pub async fn call_optional<T, F, Fut>(
        &self,
        policy: ApiRetryPolicy,
        action: impl fmt::Display,
        read: F,
    ) -> Result<Option<T>, ApiError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        match self.call(policy, action, read).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a call and repeats it after transient errors. `action` describes the call in errors, for
    /// example `read pod x`.
    ///
    /// # Errors
    ///
    /// The error of the last attempt.
    pub async fn call<T, F, Fut>(
        &self,
        policy: ApiRetryPolicy,
        action: impl fmt::Display,
        make: F,
    ) -> Result<T, ApiError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        let mut failures = 0;
        loop {
            let error = match self.with_timeout(policy.attempt_timeout, make()).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => ApiError::of(&error, &action),
                None => {
                    let action = action.to_string();
                    ApiError::TimedOut { action, deadline: policy.attempt_timeout }
                }
            };
            failures += 1;
            let class = error.retry_class();
            let requested = class.requested_delay();
            // A longer delay is left to the caller, which reads it from the error.
            let is_long = requested.is_some_and(|requested| requested > MAX_RETRY_DELAY);
            if failures >= policy.attempts || !class.is_temporary() || is_long {
                return Err(error);
            }
            let delay = BACKOFF.delay_with_jitter(failures, fastrand::f64());
            self.clock.sleep(requested.unwrap_or(delay)).await;
        }
    }

    /// Awaits the future for at most `deadline`; `None` after that.
    pub async fn with_timeout<T>(
        &self,
        deadline: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        match select(std::pin::pin!(future), self.clock.sleep(deadline)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(((), _)) => None,
        }
    }
}

lanyard_vocabulary::debug_fields!(KubernetesApi);

/// The timeout and the number of attempts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRetryPolicy {
    /// The timeout of one attempt.
    pub attempt_timeout: Duration,
    /// The number of attempts, the first one included.
    pub attempts: u32,
}

impl ApiRetryPolicy {
    /// For a caller that cannot continue without the answer.
    pub const STANDARD: Self = Self { attempt_timeout: Duration::from_secs(10), attempts: 3 };
    /// For a caller that retries by itself.
    pub const SINGLE_ATTEMPT: Self = Self { attempt_timeout: Duration::from_secs(10), attempts: 1 };
    /// For a caller that has a fallback.
    pub const SHORT: Self = Self { attempt_timeout: Duration::from_secs(2), attempts: 1 };
}

/// A call to the Kubernetes API failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The API server returned an error status.
    #[error("could not {action}: {message} (HTTP {status}{})", reason_suffix(reason))]
    Refused {
        /// The attempted action.
        action: String,
        /// The HTTP status.
        status: u16,
        /// The reason of the status, such as `Forbidden`.
        reason: String,
        /// The message of the status.
        message: String,
        /// The delay that the API server asked for.
        retry_after: Option<Duration>,
    },
    /// Server-side apply conflicts with other field managers.
    #[error("could not {action}: {}", describe_conflicts(conflicts))]
    Conflict {
        /// The attempted action.
        action: String,
        /// The conflicting fields with their managers.
        conflicts: Vec<FieldConflict>,
    },
    /// The API server does not serve this resource: the CRD is not installed.
    #[error("could not {action}: the API server does not serve this kind: {message} (HTTP 404)")]
    NotServed {
        /// The attempted action.
        action: String,
        /// The message of the status.
        message: String,
    },
    /// The namespace is being deleted and accepts no new objects.
    #[error("could not {action}: {message}")]
    NamespaceTerminating {
        /// The attempted action.
        action: String,
        /// The message of the status.
        message: String,
    },
    /// The connection to the API server could not be made, or broke.
    #[error("could not {action}: {problem}")]
    Unreached {
        /// The attempted action.
        action: String,
        /// The error of the client, causes included.
        problem: String,
    },
    /// The response could not be parsed.
    #[error("could not {action}: the response could not be parsed: {problem}")]
    Unreadable {
        /// The attempted action.
        action: String,
        /// The parse error, without content of the response.
        problem: String,
    },
    /// The API server did not answer in time.
    #[error("could not {action}: no response within {} s", deadline.as_secs_f32())]
    TimedOut {
        /// The attempted action.
        action: String,
        /// The timeout that expired.
        deadline: Duration,
    },
}

/// A field that another field manager owns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldConflict {
    /// The field manager, as the API server writes it in `managedFields`.
    pub manager: String,
    /// The field, as the API server writes it: `.spec.replicas`.
    pub field: String,
}

impl ApiError {
    /// Whether repeating the call can succeed.
    pub const fn retry_class(&self) -> RetryClass {
        match self {
            Self::Refused { status, retry_after, .. } => match status {
                429 => RetryClass::Throttled { after: *retry_after },
                408 | 500..=599 => RetryClass::Transient.with_requested_delay(*retry_after),
                // The object, its namespace or the version of a list has changed or is gone.
                404 | 409 | 410 => RetryClass::PreconditionFailed,
                401 | 403 => RetryClass::Denied,
                _ => RetryClass::Invalid,
            },
            Self::NamespaceTerminating { .. } => RetryClass::Busy,
            Self::Unreached { .. } | Self::TimedOut { .. } => RetryClass::Transient,
            Self::Conflict { .. } | Self::NotServed { .. } | Self::Unreadable { .. } => {
                RetryClass::Denied
            }
        }
    }

    /// The HTTP status of a refusal that lasts until an administrator acts: the resource is not served or
    /// access is denied. `None` for all other errors.
    pub const fn refusal_status(&self) -> Option<u16> {
        match self {
            Self::NotServed { .. } => Some(404),
            Self::Refused { status: status @ (401 | 403 | 404 | 405), .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the object does not exist.
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether the API server no longer has the requested resource version (HTTP 410).
    pub const fn is_expired(&self) -> bool {
        matches!(self, Self::Refused { status: 410, .. })
    }

    /// Converts an error of the client; `action` describes the failed call.
    pub fn of(error: &kube::Error, action: impl fmt::Display) -> Self {
        let action = action.to_string();
        match error {
            kube::Error::Api(status) => Self::of_status(status, action),
            kube::Error::SerdeError(source) => {
                // The category and the line, never the text: a response may contain secrets.
                let problem = format!("{:?}, line {}", source.classify(), source.line());
                Self::Unreadable { action, problem }
            }
            other => Self::Unreached { action, problem: format_error_chain(other) },
        }
    }

    /// Converts a `Status` object that the API server sent; `action` describes the failed call.
    pub fn of_status(status: &kube::core::Status, action: String) -> Self {
        // A server that serves the resource names the missing object in a 404.
        let names_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
        if status.code == 404 && !names_object {
            return Self::NotServed { action, message: status.message.clone() };
        }
        let conflicts = field_conflicts(status);
        if !conflicts.is_empty() {
            return Self::Conflict { action, conflicts };
        }
        if has_cause(status, "NamespaceTerminating") {
            return Self::NamespaceTerminating { action, message: status.message.clone() };
        }
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self::Refused {
            action,
            status: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
        }
    }
}

impl ErrorHint for ApiError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Refused { status: 401, .. } => {
                "check that this cluster issued the token of this program's ServiceAccount"
            }
            Self::Refused { status: 403, .. } => {
                "check the ClusterRole of this program's ServiceAccount, which the chart creates"
            }
            Self::Refused { status: 404, .. } => "check that the object exists",
            Self::NotServed { .. } => "install the CRDs of the chart",
            Self::Conflict { .. } => {
                "let only one field manager own these fields: stop the other manager, or remove the \
                 fields from its configuration"
            }
            Self::NamespaceTerminating { .. } => {
                "wait until the namespace is gone; if it remains, its status names the reason"
            }
            Self::Refused { .. } => "check the message and the health of the API server",
            Self::Unreached { .. } | Self::TimedOut { .. } => {
                "check the address of the API server and the network path to it"
            }
            Self::Unreadable { .. } => "check that the installed CRDs are those of the chart",
        }))
    }
}

fn has_cause(status: &kube::core::Status, reason: &str) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == reason))
}

/// The field conflicts in the causes of a server-side apply status.
fn field_conflicts(status: &kube::core::Status) -> Vec<FieldConflict> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice());
    let mut conflicts: Vec<_> = causes
        .unwrap_or_default()
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| {
            // The message reads: conflict with "kubectl-edit" using apps/v1
            let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned();
            FieldConflict { manager, field: cause.field.clone() }
        })
        .collect();
    conflicts.sort_unstable();
    conflicts.dedup();
    conflicts
}

/// Lists the fields by manager: `` field manager `x` holds .spec.a, .spec.b ``.
fn describe_conflicts(conflicts: &[FieldConflict]) -> String {
    let managers = conflicts.chunk_by(|one, other| one.manager == other.manager);
    let descriptions = managers.map(|of_one| {
        let fields: Vec<_> = of_one.iter().map(|conflict| conflict.field.as_str()).collect();
        let manager = of_one.first().map_or("", |conflict| &conflict.manager);
        format!("field manager `{manager}` holds {}", fields.join(", "))
    });
    descriptions.collect::<Vec<_>>().join("; ")
}

fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(", {reason}") }
}

const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), MAX_RETRY_DELAY);

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn status_error(code: u16, retry_after_seconds: u32) -> ApiError {
        let details = serde_json::json!({"retryAfterSeconds": retry_after_seconds});
        let status = Status {
            code,
            reason: "Forbidden".to_owned(),
            message: "no".to_owned(),
            details: serde_json::from_value(details).unwrap(),
            ..Status::default()
        };
        ApiError::of(&kube::Error::Api(Box::new(status)), "read x")
    }

    #[test]
    fn error_shows_action_and_server_message() {
        let error = status_error(403, 0);
        assert_eq!(error.to_string(), "could not read x: no (HTTP 403, Forbidden)");
        assert!(error.hint().unwrap().contains("ClusterRole"));
    }

    #[test]
    fn unserved_kind_is_not_a_missing_object() {
        let status = |details: serde_json::Value| Status {
            code: 404,
            message: "404 page not found".to_owned(),
            details: serde_json::from_value(details).unwrap(),
            ..Status::default()
        };
        let of = |status: Status| ApiError::of(&kube::Error::Api(Box::new(status)), "read x");
        for details in [serde_json::Value::Null, serde_json::json!({})] {
            let error = of(status(details));
            assert!(
                matches!(error, ApiError::NotServed { .. }) && !error.is_not_found(),
                "{error}"
            );
            assert!(
                error.hint().unwrap().contains("CRDs") && error.retry_class() == RetryClass::Denied
            );
        }
        let details = serde_json::json!({"name": "x", "kind": "secretproviderclasses"});
        assert!(of(status(details)).is_not_found());
    }

    #[test]
    fn a_conflict_names_the_other_managers_and_their_fields() {
        let cause = |manager: &str, field: &str| {
            serde_json::json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with \"{manager}\" using apps/v1"),
                "field": field,
            })
        };
        let details = serde_json::json!({"name": "x", "causes": [
            cause("kubectl", ".spec.replicas"),
            cause("hypershift", ".metadata.labels.a"),
            cause("kubectl", ".spec.paused"),
        ]});
        let status = Status {
            code: 409,
            reason: "Conflict".to_owned(),
            details: serde_json::from_value(details).unwrap(),
            ..Status::default()
        };
        let error = ApiError::of(&kube::Error::Api(Box::new(status)), "apply Deployment n/x");
        assert_eq!(
            error.to_string(),
            "could not apply Deployment n/x: field manager `hypershift` holds .metadata.labels.a; \
             field manager `kubectl` holds .spec.paused, .spec.replicas"
        );
        assert!(
            error.retry_class() == RetryClass::Denied && error.hint().unwrap().contains("manager")
        );
    }

    #[test]
    fn terminating_namespace_is_not_missing_permission() {
        let details = serde_json::json!({"name": "x", "kind": "secrets", "causes": [{
            "reason": "NamespaceTerminating",
            "message": "namespace clusters-harbour is being terminated",
            "field": "metadata.namespace",
        }]});
        let status = Status {
            code: 403,
            reason: "Forbidden".to_owned(),
            message: "secrets \"x\" is forbidden: unable to create new content in namespace \
                clusters-harbour because it is being terminated"
                .to_owned(),
            details: serde_json::from_value(details).unwrap(),
            ..Status::default()
        };
        let error = ApiError::of(&kube::Error::Api(Box::new(status)), "apply Secret n/x");
        assert!(
            error.retry_class() == RetryClass::Busy && error.hint().unwrap().contains("gone"),
            "{error}"
        );
    }

    #[test]
    fn only_transient_statuses_are_retried() {
        let transient = [408, 429, 500, 502, 503, 504];
        for code in [400, 401, 403, 404, 409, 410, 422].into_iter().chain(transient) {
            let class = status_error(code, 0).retry_class();
            assert_eq!(class.is_temporary(), transient.contains(&code), "{code}");
        }
        for code in [429, 503] {
            let class = status_error(code, 7).retry_class();
            assert_eq!(class.requested_delay(), Some(Duration::from_secs(7)), "{code}");
        }
        assert_eq!(status_error(429, 0).retry_class().requested_delay(), None);
    }

    #[test]
    fn unreadable_response_is_not_quoted_or_retried() {
        let source = serde_json::from_str::<u8>("\"planted-secret\"").unwrap_err();
        let error = ApiError::of(&kube::Error::SerdeError(source), "read x");
        assert!(!error.to_string().contains("planted"), "{error}");
        assert_eq!(error.retry_class(), RetryClass::Denied);
    }
}
