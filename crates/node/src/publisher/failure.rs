//! What the kubelet is told when a volume could not be published.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lanyard_keyvault::{RetryClass, VolumePod};
use lanyard_vocabulary::{OutcomeCode, RecoveryMode, format_error_chain};
use tonic::Code;

use super::publish_plan::TargetObstacle;
use crate::classes::ClassError;
use crate::error::PublishError;
use crate::provider::ProviderError;

/// A volume could not be published, or not be taken away.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct PublishFailure {
    /// The stable code.
    pub code: OutcomeCode,
    /// What was tried and what came back, causes included; no secrets.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// What the kubelet makes of it. It keeps the directory of a volume that failed with
    /// `UNAVAILABLE` and will ask to unpublish it; it removes that of any other at once and never
    /// asks. It asks again in either case.
    pub grpc: Code,
    /// Whether and when the same may succeed.
    pub retry: RetryClass,
    /// For how long nobody asks the source, where it was not asked for this: see [`ProviderError`].
    pub suppressed_for: Option<Duration>,
    /// The provider that the class names, as it is written there; nothing where no class was found.
    pub provider: Option<Arc<str>>,
}

impl PublishFailure {
    /// What a person reads in the pod's events: what was tried, what came back, what to do next,
    /// and whether waiting helps.
    pub fn status_message(&self) -> String {
        let mut text = format!("{}: {}", self.code, self.message);
        if !self.hint.is_empty() {
            // Writing into a string does not fail.
            let _infallible = write!(text, "; hint: {}", self.hint);
        }
        if self.code.recovery_mode() == RecoveryMode::Never || self.retry == RetryClass::Invalid {
            text.push_str("; it will not heal by itself, though the kubelet asks again");
        }
        text
    }

    /// The same as the status of a call.
    pub fn status(&self) -> tonic::Status {
        tonic::Status::new(self.grpc, self.status_message())
    }

    /// Says for whom it was.
    pub(super) fn with_pod_context(mut self, pod: &VolumePod, class: &str) -> Self {
        self.message = format!(
            "could not publish the volume of pod {pod} from SecretProviderClass {}/{class}: {}",
            pod.namespace, self.message
        );
        self
    }

    /// The same where something stays mounted: the kubelet must not forget the volume.
    pub(crate) fn into_non_final(self) -> Self {
        if self.is_final() { self.with_grpc_code(Code::Unavailable) } else { self }
    }

    /// Whether the kubelet forgets the volume and never unpublishes it (Kubernetes 1.36,
    /// `pkg/volume/csi/csi_client.go`).
    pub(super) fn is_final(&self) -> bool {
        !NON_FINAL_CODES.contains(&self.grpc)
    }

    /// Whether nothing is wrong but that the volume was wanted away while it was being made.
    pub(crate) fn is_aborted_by_unpublish(&self) -> bool {
        self.grpc == Code::Aborted
    }

    /// The same, told to the kubelet with another code.
    pub(super) fn with_grpc_code(mut self, grpc: Code) -> Self {
        self.grpc = grpc;
        self
    }

    /// The same with a better hint.
    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(super) fn new(code: OutcomeCode, message: impl Into<String>) -> Self {
        ProviderError::new(code, message).into()
    }

    /// One of the node's own making: the code says where, the error what.
    pub(super) fn from_publish_error(code: OutcomeCode, error: &PublishError) -> Self {
        let failure = match error {
            // The class asks for files that cannot lie beside one another.
            PublishError::InvalidPayload { .. } => {
                Self::new(OutcomeCode::SecretProviderClassInvalid, format_error_chain(error))
            }
            PublishError::MemoryLimitExceeded { source, .. } => {
                let failure =
                    Self::new(OutcomeCode::VolumeMemoryExhausted, format_error_chain(error));
                let retry = if source.can_never_fit { RetryClass::Invalid } else { failure.retry };
                Self { retry, ..failure }
            }
            _ if error.is_transient() => {
                Self::new(code, format_error_chain(error)).with_grpc_code(Code::Unavailable)
            }
            _ => Self::new(code, format_error_chain(error)).with_grpc_code(Code::Internal),
        };
        match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }

    pub(super) fn from_obstacle(obstacle: TargetObstacle, place: &std::path::Path) -> Self {
        let what = match obstacle {
            TargetObstacle::Symlink => "a symbolic link stands in its place or on the way to it",
            TargetObstacle::File => "a file stands in its place",
            TargetObstacle::NotTmpfs => {
                "a file system that is not in memory is mounted in its place"
            }
        };
        let message = format!("{what}: {}", place.display());
        let failure = Self::new(OutcomeCode::FailedToEnsureMountPoint, message);
        Self { retry: RetryClass::Invalid, ..failure }
            .with_grpc_code(Code::FailedPrecondition)
            .with_hint(
                "look at it on the node, and remove it if nobody needs it: the kubelet's \
                 directory belongs to the kubelet alone",
            )
    }
}

impl From<ProviderError> for PublishFailure {
    fn from(refusal: ProviderError) -> Self {
        let ProviderError { code, message, hint, retry, suppressed_for: turned_away } = refusal;
        let grpc = grpc_code(code, retry);
        Self { code, message, hint, grpc, retry, suppressed_for: turned_away, provider: None }
    }
}

impl From<ClassError> for PublishFailure {
    fn from(error: ClassError) -> Self {
        Self::new(error.code(), format_error_chain(&error)).with_hint(error.hint())
    }
}

/// The codes after which the kubelet keeps the directory of the volume.
const NON_FINAL_CODES: [Code; 5] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::Unavailable,
    Code::ResourceExhausted,
    Code::Aborted,
];

/// What the kubelet is told. Who has to change something is told so; what may pass is
/// `UNAVAILABLE`, so that the kubelet keeps the volume in mind; `INTERNAL` is trouble of this node.
const fn grpc_code(code: OutcomeCode, retry: RetryClass) -> Code {
    use OutcomeCode as Outcome;
    match code {
        Outcome::SecretProviderClassNotFound | Outcome::ObjectNotFound => Code::NotFound,
        Outcome::SecretProviderClassInvalid
        | Outcome::InvalidRequest
        | Outcome::InvalidProvider => Code::InvalidArgument,
        Outcome::PolicyDenied | Outcome::IdentityRefused | Outcome::VaultForbidden => {
            Code::PermissionDenied
        }
        Outcome::TokenNotFound
        | Outcome::CredentialsNotFound
        | Outcome::IdentityNotAssigned
        | Outcome::ObjectDisabled
        | Outcome::VaultUntrusted
        | Outcome::DecodeFailed
        | Outcome::CredentialOlder => Code::FailedPrecondition,
        Outcome::FailedToEnsureMountPoint | Outcome::FailedToMount | Outcome::FileWriteError => {
            Code::Internal
        }
        // As on the kubelet's side of gRPC: not final, and a pod that goes may make room.
        Outcome::VolumeMemoryExhausted => Code::ResourceExhausted,
        // What another provider says about itself is all that is known about it.
        Outcome::ProviderError => match retry {
            RetryClass::Invalid => Code::FailedPrecondition,
            RetryClass::Denied => Code::PermissionDenied,
            _ => Code::Unavailable,
        },
        _ => Code::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_never_heal_are_final_for_the_kubelet_and_say_so() {
        for code in OutcomeCode::ALL.iter().copied() {
            let failure = PublishFailure::new(code, "could not");
            let never = code.recovery_mode() == RecoveryMode::Never;
            if never {
                assert!(!NON_FINAL_CODES.contains(&failure.grpc), "{code}: {:?}", failure.grpc);
                assert_ne!(failure.grpc, Code::Internal, "{code}");
            }
            let text = failure.status_message();
            assert_eq!(text.contains("will not heal"), never, "{text}");
            assert!(text.contains(code.name()) && text.contains(code.hint()), "{text}");
        }
    }

    #[test]
    fn failures_that_need_a_change_say_so_for_every_code() {
        use crate::payload::PayloadProblem;
        let problems: Vec<PayloadProblem> = Vec::new();
        let payload = PublishError::InvalidPayload { dir: "/v".into(), problems };
        let obstacle = PublishFailure::from_obstacle(TargetObstacle::File, "/v".as_ref());
        for (failure, grpc) in [
            (
                PublishFailure::from_publish_error(OutcomeCode::FileWriteError, &payload),
                Code::InvalidArgument,
            ),
            (obstacle, Code::FailedPrecondition),
        ] {
            assert_eq!((failure.grpc, failure.retry), (grpc, RetryClass::Invalid), "{failure}");
            let text = failure.status_message();
            assert!(text.contains("it will not heal by itself"), "{text}");
        }
    }

    #[test]
    fn transient_failures_map_to_unavailable() {
        use OutcomeCode::{ProviderError, TokenUnavailable, VaultThrottled, VaultUnavailable};
        for code in [TokenUnavailable, VaultThrottled, VaultUnavailable, ProviderError] {
            assert_eq!(PublishFailure::new(code, "").grpc, Code::Unavailable, "{code}");
        }
        let error = |retry| crate::provider::ProviderError {
            retry,
            ..crate::provider::ProviderError::new(ProviderError, "no")
        };
        for (retry, code) in [
            (RetryClass::Invalid, Code::FailedPrecondition),
            (RetryClass::Denied, Code::PermissionDenied),
            (RetryClass::Transient, Code::Unavailable),
            (RetryClass::Throttled { after: None }, Code::Unavailable),
        ] {
            assert_eq!(PublishFailure::from(error(retry)).grpc, code, "{retry:?}");
        }
    }

    #[test]
    fn failure_of_a_mounted_volume_is_never_final() {
        let failure = PublishFailure::new(OutcomeCode::ObjectNotFound, "no");
        assert_eq!(failure.grpc, Code::NotFound);
        assert!(NON_FINAL_CODES.contains(&failure.into_non_final().grpc));
    }
}
