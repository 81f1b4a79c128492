//! The failure of a publish or unpublish and its gRPC status for the kubelet.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{ErrorHint as _, RetryClass};
use lanyard_keyvault::VolumePod;
use lanyard_provider::{ClassError, ProviderError};
use lanyard_vocabulary::{OutcomeCode, RecoveryMode, format_error_chain};
use lanyard_volume::PublishError;
use tonic::Code;

use super::publish_plan::TargetObstacle;

/// A volume could not be published or unpublished.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct PublishFailure {
    /// The stable outcome code.
    pub code: OutcomeCode,
    /// What failed and why, with the error chain; contains no secrets.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// The gRPC code for the kubelet. The kubelet keeps the directory of a volume that failed with
    /// a non-final code such as `UNAVAILABLE` and unpublishes it later; after any other code it
    /// removes the directory at once and never unpublishes. It retries in either case.
    pub grpc: Code,
    /// Whether and when a retry may succeed.
    pub retry: RetryClass,
    /// How long the provider suppresses requests for this source, if it answered without a request:
    /// see [`ProviderError`].
    pub suppressed_for: Option<Duration>,
    /// `spec.provider` of the SecretProviderClass, as written there; `None` if the SecretProviderClass was not
    /// found.
    pub provider: Option<Arc<str>>,
}

impl PublishFailure {
    /// The message for the pod's events: what failed, why, what to do next, and whether waiting
    /// helps.
    pub fn status_message(&self) -> String {
        let mut text = format!("{}: {}", self.code, self.message);
        if !self.hint.is_empty() {
            // Writing into a string never fails.
            let _infallible = write!(text, "; hint: {}", self.hint);
        }
        if self.code.recovery_mode() == RecoveryMode::Never || self.retry == RetryClass::Invalid {
            text.push_str("; it does not recover by itself: fix the cause; the kubelet retries");
        }
        text
    }

    /// The gRPC status of this failure.
    pub fn status(&self) -> tonic::Status {
        tonic::Status::new(self.grpc, self.status_message())
    }

    /// Adds the pod and its class to the message.
    pub(super) fn with_pod_context(mut self, pod: &VolumePod, class: &str) -> Self {
        self.message = format!(
            "could not publish the volume of pod {pod} from SecretProviderClass {}/{class}: {}",
            pod.namespace, self.message
        );
        self
    }

    /// Replaces a final gRPC code with `UNAVAILABLE`, for a volume that stays mounted: the kubelet
    /// must not forget it.
    pub(crate) fn into_non_final(self) -> Self {
        if self.is_final() { self.with_grpc_code(Code::Unavailable) } else { self }
    }

    /// Whether the kubelet forgets the volume and never unpublishes it after this code (Kubernetes
    /// 1.36, `pkg/volume/csi/csi_client.go`).
    pub(super) fn is_final(&self) -> bool {
        !NON_FINAL_CODES.contains(&self.grpc)
    }

    /// Whether an unpublish of the same volume cancelled the publish; no other error occurred.
    pub(crate) fn is_aborted_by_unpublish(&self) -> bool {
        self.grpc == Code::Aborted
    }

    pub(super) fn with_grpc_code(mut self, grpc: Code) -> Self {
        self.grpc = grpc;
        self
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(super) fn new(code: OutcomeCode, message: impl Into<String>) -> Self {
        ProviderError::new(code, message).into()
    }

    /// Converts an error of the volume or the mount; `code` names the step that failed.
    pub(super) fn from_publish_error(code: OutcomeCode, error: &PublishError) -> Self {
        let failure = match error {
            // The class asks for file paths that conflict with one another.
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

    pub(super) fn from_obstacle(obstacle: TargetObstacle, target: &std::path::Path) -> Self {
        let problem = match obstacle {
            TargetObstacle::Symlink => "the target path contains a symbolic link",
            TargetObstacle::File => "the target is a file",
            TargetObstacle::NotTmpfs => "a file system other than tmpfs is mounted on the target",
        };
        let message = format!("{problem}: {}", target.display());
        let failure = Self::new(OutcomeCode::FailedToEnsureMountPoint, message);
        Self { retry: RetryClass::Invalid, ..failure }
            .with_grpc_code(Code::FailedPrecondition)
            .with_hint(
                "inspect it on the node, and remove it if it is unused: only the kubelet may \
                 write to its directory",
            )
    }
}

impl From<ProviderError> for PublishFailure {
    fn from(error: ProviderError) -> Self {
        let ProviderError { code, message, hint, retry, suppressed_for } = error;
        let grpc = grpc_code(code, retry);
        Self { code, message, hint, grpc, retry, suppressed_for, provider: None }
    }
}

impl From<ClassError> for PublishFailure {
    fn from(error: ClassError) -> Self {
        Self::new(error.code(), format_error_chain(&error))
            .with_hint(error.hint().unwrap_or_default())
    }
}

/// The gRPC codes after which the kubelet keeps the directory of the volume.
const NON_FINAL_CODES: [Code; 5] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::Unavailable,
    Code::ResourceExhausted,
    Code::Aborted,
];

/// The gRPC code of an outcome. Outcomes that need a change of configuration get a final code,
/// transient ones `UNAVAILABLE` so that the kubelet keeps the volume, and failures of this node
/// `INTERNAL`.
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
        // The kubelet's gRPC client uses this code as well. It is not final: another pod that ends
        // may free memory.
        Outcome::VolumeMemoryExhausted => Code::ResourceExhausted,
        // The retry class of another provider's error is all the information there is.
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
            assert_eq!(text.contains("does not recover"), never, "{text}");
            assert!(text.contains(code.name()) && text.contains(code.hint()), "{text}");
        }
    }

    #[test]
    fn failures_that_need_a_change_say_so_for_every_code() {
        use lanyard_volume::PayloadProblem;
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
            assert!(text.contains("it does not recover by itself"), "{text}");
        }
    }

    #[test]
    fn transient_failures_map_to_unavailable() {
        use OutcomeCode::{ProviderError, TokenUnavailable, VaultThrottled, VaultUnavailable};
        for code in [TokenUnavailable, VaultThrottled, VaultUnavailable, ProviderError] {
            assert_eq!(PublishFailure::new(code, "").grpc, Code::Unavailable, "{code}");
        }
        let error = |retry| lanyard_provider::ProviderError {
            retry,
            ..lanyard_provider::ProviderError::new(ProviderError, "no")
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
