//! What can be wrong with a publish request.

use std::path::PathBuf;

use lanyard_vocabulary::OutcomeCode;

use super::tokens::ParseTokensError;
use crate::volume_attribute::{CLASS, POD_NAME};

/// A request of the kubelet that cannot be served, with everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request is refused: {}", join_problems(problems))]
pub struct InvalidPublishRequest {
    /// Everything that is wrong.
    pub problems: Vec<PublishRequestProblem>,
}

impl InvalidPublishRequest {
    /// The stable code.
    pub const fn code(&self) -> OutcomeCode {
        OutcomeCode::InvalidRequest
    }

    /// What to do next: that of the first problem.
    pub fn hint(&self) -> &'static str {
        self.problems.first().map_or_else(|| self.code().hint(), PublishRequestProblem::hint)
    }
}

/// One thing that is wrong with a request. Each names its field; none shows a value that may be
/// secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishRequestProblem {
    /// A field that has to be there is not.
    #[error("`{field}` is missing")]
    MissingField {
        /// The field.
        field: &'static str,
    },
    /// The id cannot be one.
    #[error("`volume_id` is longer than 128 bytes or has characters that an id does not have")]
    InvalidVolumeId,
    /// The volume is to be a block device.
    #[error("`volume_capability` wants a block device, and the volume holds files")]
    BlockDevice,
    /// The group is not one.
    #[error("`volume_capability.mount.volume_mount_group` is `{text}`, not a decimal group id")]
    InvalidGroup {
        /// What came, shortened.
        text: String,
    },
    /// The volume may be written to.
    #[error("`readonly` is not true")]
    NotReadOnly,
    /// An attribute that has to be there is not.
    #[error("`volume_context` has no `{key}`")]
    MissingAttribute {
        /// Its key.
        key: &'static str,
    },
    /// An attribute is no name of an object.
    #[error("`volume_context` gives `{key}` a value that is no name of a Kubernetes object")]
    InvalidObjectName {
        /// Its key.
        key: &'static str,
    },
    /// The tokens cannot be read.
    #[error("`{field}` has ServiceAccount tokens that cannot be read: {problem}")]
    InvalidTokens {
        /// The field.
        field: &'static str,
        /// Why not.
        problem: ParseTokensError,
    },
    /// The target is not an absolute path in its shortest form.
    #[error("`target_path` is not an absolute path without `.`, `..`, `//` and a trailing `/`")]
    TargetNotNormalized,
    /// The target is not the kubelet's.
    #[error("`target_path` does not lie below the kubelet's directory {}", kubelet_dir.display())]
    TargetOutsideKubelet {
        /// The kubelet's directory.
        kubelet_dir: PathBuf,
    },
    /// The target is another pod's.
    #[error("`target_path` lies in the directory of another pod than the one that is named")]
    TargetOfAnotherPod,
}

impl PublishRequestProblem {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
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
            Self::InvalidTokens { .. } => "see `tokenRequests` of the CSIDriver object",
            _ => OutcomeCode::InvalidRequest.hint(),
        }
    }
}

fn join_problems(problems: &[PublishRequestProblem]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
