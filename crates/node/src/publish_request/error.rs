//! Errors of publish and unpublish requests.

use std::borrow::Cow;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;
use lanyard_vocabulary::OutcomeCode;

use super::tokens::ParseTokensError;
use crate::volume_attribute::{CLASS, POD_NAME};

/// An invalid request of the kubelet, with all its problems.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid request: {}", join_problems(problems))]
pub struct InvalidPublishRequest {
    /// Every problem of the request.
    pub problems: Vec<PublishRequestProblem>,
}

impl InvalidPublishRequest {
    /// The stable outcome code.
    pub const fn code(&self) -> OutcomeCode {
        OutcomeCode::InvalidRequest
    }
}

impl ErrorHint for InvalidPublishRequest {
    fn hint(&self) -> Option<Cow<'static, str>> {
        self.problems
            .first()
            .map_or_else(|| Some(self.code().hint().into()), PublishRequestProblem::hint)
    }
}

/// One problem of a request. Each names its field; none shows a value that may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishRequestProblem {
    /// A required field is missing.
    #[error("`{field}` is missing")]
    MissingField {
        /// The name of the field.
        field: &'static str,
    },
    /// The volume id is too long or has invalid characters.
    #[error("`volume_id` is longer than 128 bytes or has characters that an id does not have")]
    InvalidVolumeId,
    /// The request asks for a block device.
    #[error("`volume_capability` requests a block device, but the volume holds files")]
    BlockDevice,
    /// The `fsGroup` is not a group id.
    #[error("`volume_capability.mount.volume_mount_group` is `{text}`, not a decimal group id")]
    InvalidGroup {
        /// The received text, shortened.
        text: String,
    },
    /// The request does not set `readonly`.
    #[error("`readonly` is not true")]
    NotReadOnly,
    /// A required attribute is missing.
    #[error("`volume_context` has no `{key}`")]
    MissingAttribute {
        /// The key of the attribute.
        key: &'static str,
    },
    /// The value of an attribute is not a valid Kubernetes object name.
    #[error("`volume_context` gives `{key}` a value that is not a valid Kubernetes object name")]
    InvalidObjectName {
        /// The key of the attribute.
        key: &'static str,
    },
    /// The ServiceAccount tokens cannot be parsed.
    #[error("`{field}` has ServiceAccount tokens that cannot be read: {problem}")]
    InvalidTokens {
        /// The name of the field.
        field: &'static str,
        /// The parse error.
        problem: ParseTokensError,
    },
    /// The target path is not absolute or not normalized.
    #[error("`target_path` is not an absolute path without `.`, `..`, `//` and a trailing `/`")]
    TargetNotNormalized,
    /// The target path is outside the kubelet's directory.
    #[error("`target_path` does not lie below the kubelet's directory {}", kubelet_dir.display())]
    TargetOutsideKubelet {
        /// The kubelet's directory.
        kubelet_dir: PathBuf,
    },
    /// The target path is in the directory of another pod.
    #[error("`target_path` lies in the directory of another pod than the one in `volume_context`")]
    TargetOfAnotherPod,
}

impl ErrorHint for PublishRequestProblem {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NotReadOnly => "set `readOnly: true` in the pod's volume",
            Self::MissingAttribute { key } if *key == CLASS => {
                "set `volumeAttributes.secretProviderClass` in the pod's volume"
            }
            Self::MissingAttribute { key } if *key == POD_NAME => {
                "set `podInfoOnMount: true` in the CSIDriver object"
            }
            Self::InvalidObjectName { key } if *key == CLASS => {
                "correct `volumeAttributes.secretProviderClass` in the pod's volume"
            }
            Self::BlockDevice => "use the volume under `volumeMounts`, not under `volumeDevices`",
            Self::TargetOutsideKubelet { .. } => {
                "start the node plugin with the kubelet's `--root-dir` as its `--kubelet-dir`"
            }
            Self::InvalidTokens { .. } => "check `tokenRequests` of the CSIDriver object",
            _ => OutcomeCode::InvalidRequest.hint(),
        }))
    }
}

fn join_problems(problems: &[PublishRequestProblem]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
