//! One call to the Kubernetes API: its deadline, its retries, its errors.

use std::fmt;
use std::time::Duration;

use futures::future::{Either, select};
use kube::Client;
use lanyard_clock::SharedClock;
use lanyard_vocabulary::format_error_chain;

use crate::UserAgent;
use crate::access::{AccessError, ApiAccess, KubectlAccess};
use crate::connections::{ApiConnections, WatchConnection};

/// The Kubernetes API. Clones share the connections.
///
/// There is no client-side limit of the request rate: the API server's own priority and fairness
/// says when to wait, and that is obeyed.
#[derive(Clone)]
pub struct KubernetesApi {
    connections: ApiConnections,
    clock: SharedClock,
}

impl KubernetesApi {
    /// The API that is reached like this, by whoever calls itself that. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// Where the settings make no client.
    pub async fn connect(
        access: &ApiAccess,
        user_agent: UserAgent,
        clock: SharedClock,
    ) -> Result<Self, AccessError> {
        let connections = access.connections(user_agent).await?;
        Ok(Self { connections, clock })
    }

    /// The API as a person reaches it, and the namespace of the context. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// Where the files make no client.
    pub async fn connect_as_kubectl(
        access: &KubectlAccess,
        user_agent: UserAgent,
        clock: SharedClock,
    ) -> Result<(Self, String), AccessError> {
        let (connections, namespace) = access.connections(user_agent).await?;
        Ok((Self { connections, clock }, namespace))
    }

    /// The API behind a client. Its own retries, timeouts and rate limits should be off.
    pub fn from_client(client: Client, clock: SharedClock) -> Self {
        Self { connections: ApiConnections::with_client(client), clock }
    }

    /// The client for whatever is over soon.
    pub const fn client(&self) -> &Client {
        self.connections.for_calls()
    }

    /// The connection of a watch; `subject` is what is watched.
    pub fn connection_to_watch(&self, subject: &str) -> &WatchConnection {
        self.connections.for_watch(subject)
    }

    /// The clock of deadlines and pauses.
    pub const fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// Reads an object that may not be there; `action` is what is tried, as in `read pod x`.
    ///
    /// # Errors
    ///
    /// What came back last.
    pub async fn call_optional<T, F, Fut>(
        &self,
        patience: ApiRetryPolicy,
        action: impl fmt::Display,
        read: F,
    ) -> Result<Option<T>, ApiError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        match self.call(patience, action, read).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a call, again where another try may help; `action` is what is tried, as in `read x`.
    ///
    /// # Errors
    ///
    /// What came back last.
    pub async fn call<T, F, Fut>(
        &self,
        patience: ApiRetryPolicy,
        action: impl fmt::Display,
        make: F,
    ) -> Result<T, ApiError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        let mut failures = 0;
        loop {
            let error = match self.with_timeout(patience.attempt_timeout, make()).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => ApiError::of(&error, &action),
                None => {
                    let action = action.to_string();
                    ApiError::TimedOut { action, deadline: patience.attempt_timeout }
                }
            };
            failures += 1;
            let asked = error.retry_after();
            // Nobody waits here for so long: the error says until when, and whoever asked comes then.
            let is_long = asked.is_some_and(|asked| asked > MAX_RETRY_DELAY);
            if failures >= patience.attempts || !error.is_transient() || is_long {
                return Err(error);
            }
            let pause = backoff(failures, MIN_RETRY_DELAY, MAX_RETRY_DELAY, fastrand::f64());
            let pause = asked.unwrap_or(pause);
            self.clock.sleep(pause).await;
        }
    }

    /// What a future comes to, if it does in time.
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

impl fmt::Debug for KubernetesApi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KubernetesApi").finish_non_exhaustive()
    }
}

/// How long a caller waits for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRetryPolicy {
    /// How long one try may take.
    pub attempt_timeout: Duration,
    /// How many tries there are.
    pub attempts: u32,
}

impl ApiRetryPolicy {
    /// Where nothing can go on without the answer.
    pub const STANDARD: Self = Self { attempt_timeout: Duration::from_secs(10), attempts: 3 };
    /// Where somebody tries again anyway.
    pub const SINGLE_ATTEMPT: Self = Self { attempt_timeout: Duration::from_secs(10), attempts: 1 };
    /// Where something good enough is at hand.
    pub const SHORT: Self = Self { attempt_timeout: Duration::from_secs(2), attempts: 1 };
}

/// The pause after so many failures: from `first` on, each time twice as long, `longest` at most,
/// of which `chance` (0 to 1) takes up to a half away, so that those that failed together do not
/// come back together.
pub fn backoff(failures: u32, first: Duration, longest: Duration, chance: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let pause = first.saturating_mul(1 << doublings).min(longest);
    pause.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
}

/// A call to the Kubernetes API failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The API said no.
    #[error("could not {action}: {message} (HTTP {status}{})", reason_suffix(reason))]
    Refused {
        /// What was tried.
        action: String,
        /// The HTTP status.
        status: u16,
        /// The API's word for it, such as `Forbidden`.
        reason: String,
        /// What it said.
        message: String,
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// Fields of the object belong to others, who want them otherwise.
    #[error("could not {action}: {}", describe_conflicts(conflicts))]
    Conflict {
        /// What was tried.
        action: String,
        /// Which fields, and whose.
        conflicts: Vec<FieldConflict>,
    },
    /// The API knows no objects of that kind, whatever their names.
    #[error("could not {action}: the API serves no such kind: {message} (HTTP 404)")]
    NotServed {
        /// What was tried.
        action: String,
        /// What it said.
        message: String,
    },
    /// The namespace is being deleted, and takes nothing new.
    #[error("could not {action}: {message}")]
    NamespaceTerminating {
        /// What was tried.
        action: String,
        /// What it said.
        message: String,
    },
    /// The API was not reached, or the connection broke.
    #[error("could not {action}: {problem}")]
    Unreached {
        /// What was tried.
        action: String,
        /// What came back, causes included.
        problem: String,
    },
    /// The answer is not one that can be read.
    #[error("could not {action}: the answer cannot be read: {problem}")]
    Unreadable {
        /// What was tried.
        action: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The API did not answer in time.
    #[error("could not {action}: no answer in {} s", deadline.as_secs_f32())]
    TimedOut {
        /// What was tried.
        action: String,
        /// How long was waited.
        deadline: Duration,
    },
}

/// A field that belongs to another manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldConflict {
    /// The manager, as the API server keeps it in `managedFields`.
    pub manager: String,
    /// The field, as the API server writes it: `.spec.replicas`.
    pub field: String,
}

impl ApiError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Refused { status: 401, .. } => {
                "see that the token of this program's ServiceAccount is one of this cluster"
            }
            Self::Refused { status: 403, .. } => {
                "see the ClusterRole of this program's ServiceAccount; the chart makes it"
            }
            Self::Refused { status: 404, .. } => "see that the object is there",
            Self::NotServed { .. } => "install the CRDs; the chart has them",
            Self::Conflict { .. } => {
                "let one of the two write these fields: stop the other manager, or take what it set \
                 off its configuration"
            }
            Self::NamespaceTerminating { .. } => {
                "wait until the namespace is gone; if it stays, see its status for what holds it"
            }
            Self::Refused { .. } => "see the message, and the health of the Kubernetes API",
            Self::Unreached { .. } | Self::TimedOut { .. } => {
                "see the address of the API server and the way to it"
            }
            Self::Unreadable { .. } => "see that the CRDs are those of the chart",
        }
    }

    /// Whether the same call may succeed later with nothing changed.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::NamespaceTerminating { .. } | Self::Unreached { .. } | Self::TimedOut { .. } => {
                true
            }
            Self::Conflict { .. } | Self::NotServed { .. } | Self::Unreadable { .. } => false,
        }
    }

    /// The status with which the API refuses until somebody does something: nobody serves that, or
    /// not to us. Nothing for what may pass by itself.
    pub const fn refusal_status(&self) -> Option<u16> {
        match self {
            Self::NotServed { .. } => Some(404),
            Self::Refused { status: status @ (401 | 403 | 404 | 405), .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether there is no such object.
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether the version to go on from is too old to be known.
    pub const fn is_expired(&self) -> bool {
        matches!(self, Self::Refused { status: 410, .. })
    }

    /// How long the API asked to be left alone.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What a client's error says about an action.
    pub fn of(error: &kube::Error, action: impl fmt::Display) -> Self {
        let action = action.to_string();
        match error {
            kube::Error::Api(status) => Self::of_status(status, action),
            kube::Error::SerdeError(source) => {
                // Where and what kind, never the text itself.
                let problem = format!("{:?}, line {}", source.classify(), source.line());
                Self::Unreadable { action, problem }
            }
            other => Self::Unreached { action, problem: format_error_chain(other) },
        }
    }

    /// What a status that the API sent says about an action.
    pub fn of_status(status: &kube::core::Status, action: String) -> Self {
        // Only who knows the kind can say that an object of it is missing, and names it then.
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

fn has_cause(status: &kube::core::Status, reason: &str) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == reason))
}

/// The causes of a status that says that server-side apply met other managers.
fn field_conflicts(status: &kube::core::Status) -> Vec<FieldConflict> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice());
    let mut conflicts: Vec<_> = causes
        .unwrap_or_default()
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| {
            // conflict with "kubectl-edit" using apps/v1
            let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned();
            FieldConflict { manager, field: cause.field.clone() }
        })
        .collect();
    conflicts.sort_unstable();
    conflicts.dedup();
    conflicts
}

/// `.spec.a and .spec.b belong to x`, for each manager.
fn describe_conflicts(conflicts: &[FieldConflict]) -> String {
    let managers = conflicts.chunk_by(|one, other| one.manager == other.manager);
    let told = managers.map(|of_one| {
        let fields: Vec<_> = of_one.iter().map(|conflict| conflict.field.as_str()).collect();
        let manager = of_one.first().map_or("", |conflict| &conflict.manager);
        format!("field manager `{manager}` holds {}", fields.join(", "))
    });
    told.collect::<Vec<_>>().join("; ")
}

fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(", {reason}") }
}

const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

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
        assert!(error.hint().contains("ClusterRole"));
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
            assert!(error.hint().contains("CRDs") && !error.is_transient());
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
        assert!(!error.is_transient() && error.hint().contains("manager"));
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
        assert!(error.is_transient() && error.hint().contains("gone"), "{error}");
    }

    #[test]
    fn only_transient_statuses_are_retried() {
        let transient = [408, 429, 500, 502, 503, 504];
        for code in [400, 401, 403, 404, 409, 410, 422].into_iter().chain(transient) {
            assert_eq!(status_error(code, 0).is_transient(), transient.contains(&code), "{code}");
        }
        assert_eq!(status_error(429, 7).retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(status_error(429, 0).retry_after(), None);
    }

    #[test]
    fn unreadable_response_is_not_quoted_or_retried() {
        let source = serde_json::from_str::<u8>("\"planted-secret\"").unwrap_err();
        let error = ApiError::of(&kube::Error::SerdeError(source), "read x");
        assert!(!error.to_string().contains("planted"), "{error}");
        assert!(!error.is_transient());
    }

    #[test]
    fn backoff_grows_to_limit_and_jitter_shortens() {
        let (first, longest) = (Duration::from_millis(200), Duration::from_secs(5));
        let pause = |failures, chance| backoff(failures, first, longest, chance).as_millis();
        assert_eq!([1, 2, 3, 4].map(|n| pause(n, 0.0)), [200, 400, 800, 1600]);
        assert_eq!([6, 40, u32::MAX].map(|n| pause(n, 0.0)), [5000; 3]);
        assert_eq!(pause(1, 1.0), 100);
    }
}
