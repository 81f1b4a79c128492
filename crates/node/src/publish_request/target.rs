//! Validation of target paths.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use super::error::PublishRequestProblem;
use crate::target_path::{TargetPathError, parse_target_below};

/// Returns the problem of a target path, judged by its text alone.
///
/// The kubelet's target paths have the form `<kubelet>/pods/<uid>/volumes/kubernetes.io~csi/<volume>/mount`.
/// A path below `pods` must be in the directory of the pod named in the request: a forged request must not
/// reach into another pod (compare CVE-2020-8568).
pub(super) fn target_problem(
    target: &Path,
    kubelet_dir: &Path,
    pod_uid: Option<&str>,
) -> Option<PublishRequestProblem> {
    if target.as_os_str().is_empty() {
        return Some(PublishRequestProblem::MissingField { field: "target_path" });
    }
    let below = match parse_target_below(kubelet_dir, target) {
        Ok(below) => below,
        Err(TargetPathError::NotNormalized) => {
            return Some(PublishRequestProblem::TargetNotNormalized);
        }
        Err(TargetPathError::OutsideKubeletDir) => {
            return Some(PublishRequestProblem::TargetOutsideKubelet {
                kubelet_dir: kubelet_dir.to_owned(),
            });
        }
    };
    let of_another = below.strip_prefix("pods").is_ok_and(|in_pods| {
        let directory = in_pods.components().next().map(Component::as_os_str);
        pod_uid.is_some_and(|uid| directory.is_some_and(|it| it.as_bytes() != uid.as_bytes()))
    });
    of_another.then_some(PublishRequestProblem::TargetOfAnotherPod)
}
