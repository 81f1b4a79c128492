//! What the kubelet is told when a volume could not be published.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lanyard_keyvault::{Pod, RetryClass};
use lanyard_vocabulary::{Healing, OutcomeCode, causes};
use tonic::Code;

use super::decide::Obstacle;
use crate::classes::ClassError;
use crate::error::PublishError;
use crate::provider::Refusal;

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
    /// For how long nobody asks the source, where it was not asked for this: see [`Refusal`].
    pub turned_away: Option<Duration>,
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
        if self.code.healing() == Healing::Never || self.retry == RetryClass::Invalid {
            text.push_str("; it will not heal by itself, though the kubelet asks again");
        }
        text
    }

    /// The same as the status of a call.
    pub fn status(&self) -> tonic::Status {
        tonic::Status::new(self.grpc, self.status_message())
    }

    /// Says for whom it was.
    pub(super) fn of_pod(mut self, pod: &Pod, class: &str) -> Self {
        self.message = format!(
            "could not publish the volume of pod {pod} from SecretProviderClass {}/{class}: {}",
            pod.namespace, self.message
        );
        self
    }

    /// The same where something stays mounted: the kubelet must not forget the volume.
    pub(crate) fn not_final(self) -> Self {
        if self.is_final() { self.told_as(Code::Unavailable) } else { self }
    }

    /// Whether the kubelet forgets the volume and never unpublishes it (Kubernetes 1.36,
    /// `pkg/volume/csi/csi_client.go`).
    pub(super) fn is_final(&self) -> bool {
        !NOT_FINAL.contains(&self.grpc)
    }

    /// Whether nothing is wrong but that the volume was wanted away while it was being made.
    pub(crate) fn is_departure(&self) -> bool {
        self.grpc == Code::Aborted
    }

    /// The same, told to the kubelet with another code.
    pub(super) fn told_as(mut self, grpc: Code) -> Self {
        self.grpc = grpc;
        self
    }

    /// The same with a better hint.
    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(super) fn new(code: OutcomeCode, message: impl Into<String>) -> Self {
        Refusal::new(code, message).into()
    }

    /// One of the node's own making: the code says where, the error what.
    pub(super) fn of_volume(code: OutcomeCode, error: &PublishError) -> Self {
        let failure = match error {
            // The class asks for files that cannot lie beside one another.
            PublishError::Payload { .. } => {
                Self::new(OutcomeCode::SecretProviderClassInvalid, causes(error))
            }
            PublishError::NoRoom { source, .. } => {
                let failure = Self::new(OutcomeCode::VolumeMemoryExhausted, causes(error));
                let retry = if source.is_hopeless { RetryClass::Invalid } else { failure.retry };
                Self { retry, ..failure }
            }
            _ if error.is_transient() => Self::new(code, causes(error)).told_as(Code::Unavailable),
            _ => Self::new(code, causes(error)).told_as(Code::Internal),
        };
        match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }

    pub(super) fn of_obstacle(obstacle: Obstacle, place: &std::path::Path) -> Self {
        let what = match obstacle {
            Obstacle::Link => "a symbolic link stands in its place or on the way to it",
            Obstacle::File => "a file stands in its place",
            Obstacle::Elsewhere => "a file system that is not in memory is mounted in its place",
        };
        let message = format!("{what}: {}", place.display());
        let failure = Self::new(OutcomeCode::FailedToEnsureMountPoint, message);
        Self { retry: RetryClass::Invalid, ..failure }.told_as(Code::FailedPrecondition).with_hint(
            "look at it on the node, and remove it if nobody needs it: the kubelet's \
                 directory belongs to the kubelet alone",
        )
    }
}

impl From<Refusal> for PublishFailure {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, hint, retry, turned_away } = refusal;
        let grpc = grpc_code(code, retry);
        Self { code, message, hint, grpc, retry, turned_away, provider: None }
    }
}

impl From<ClassError> for PublishFailure {
    fn from(error: ClassError) -> Self {
        Self::new(error.code(), causes(&error)).with_hint(error.hint())
    }
}

/// The codes after which the kubelet keeps the directory of the volume.
const NOT_FINAL: [Code; 5] = [
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
    fn what_does_not_heal_is_final_for_the_kubelet_and_says_so() {
        for code in OutcomeCode::ALL.iter().copied() {
            let failure = PublishFailure::new(code, "could not");
            let never = code.healing() == Healing::Never;
            if never {
                assert!(!NOT_FINAL.contains(&failure.grpc), "{code}: {:?}", failure.grpc);
                assert_ne!(failure.grpc, Code::Internal, "{code}");
            }
            let text = failure.status_message();
            assert_eq!(text.contains("will not heal"), never, "{text}");
            assert!(text.contains(code.name()) && text.contains(code.hint()), "{text}");
        }
    }

    #[test]
    fn what_somebody_has_to_change_says_so_whatever_its_code_is() {
        use crate::payload::PayloadProblem;
        let problems: Vec<PayloadProblem> = Vec::new();
        let payload = PublishError::Payload { dir: "/v".into(), problems };
        let obstacle = PublishFailure::of_obstacle(Obstacle::File, "/v".as_ref());
        for (failure, grpc) in [
            (
                PublishFailure::of_volume(OutcomeCode::FileWriteError, &payload),
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
    fn what_passes_is_unavailable_whoever_says_it() {
        use OutcomeCode::{ProviderError, TokenUnavailable, VaultThrottled, VaultUnavailable};
        for code in [TokenUnavailable, VaultThrottled, VaultUnavailable, ProviderError] {
            assert_eq!(PublishFailure::new(code, "").grpc, Code::Unavailable, "{code}");
        }
        let refusal = |retry| Refusal { retry, ..Refusal::new(ProviderError, "no") };
        for (retry, code) in [
            (RetryClass::Invalid, Code::FailedPrecondition),
            (RetryClass::Denied, Code::PermissionDenied),
            (RetryClass::Transient, Code::Unavailable),
            (RetryClass::Throttled { after: None }, Code::Unavailable),
        ] {
            assert_eq!(PublishFailure::from(refusal(retry)).grpc, code, "{retry:?}");
        }
    }

    #[test]
    fn what_stays_mounted_is_never_final() {
        let failure = PublishFailure::new(OutcomeCode::ObjectNotFound, "no");
        assert_eq!(failure.grpc, Code::NotFound);
        assert!(NOT_FINAL.contains(&failure.not_final().grpc));
    }
}
