//! Where a volume may be mounted.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use super::problem::OrderProblem;

/// What is wrong with a target, by its text alone; whether a link stands on the way is seen when
/// the directory is opened.
///
/// The kubelet's targets are `<kubelet>/pods/<uid>/volumes/kubernetes.io~csi/<volume>/mount`. One
/// that lies below `pods` has to be in the directory of the pod that is named: a forged request
/// must not reach into another pod (compare CVE-2020-8568).
pub(super) fn target_problem(
    target: &Path,
    kubelet_dir: &Path,
    pod_uid: Option<&str>,
) -> Option<OrderProblem> {
    if target.as_os_str().is_empty() {
        return Some(OrderProblem::Missing { field: "target_path" });
    }
    if !is_clean(target) {
        return Some(OrderProblem::TargetForm);
    }
    let below = target.strip_prefix(kubelet_dir).ok().filter(|it| !it.as_os_str().is_empty());
    let Some(below) = below else {
        return Some(OrderProblem::TargetOutside { kubelet_dir: kubelet_dir.to_owned() });
    };
    let of_another = below.strip_prefix("pods").is_ok_and(|in_pods| {
        let directory = in_pods.components().next().map(Component::as_os_str);
        pod_uid.is_some_and(|uid| directory.is_some_and(|it| it.as_bytes() != uid.as_bytes()))
    });
    of_another.then_some(OrderProblem::TargetOfAnother)
}

/// Whether a path is absolute and in its shortest form, so that it has one spelling only.
fn is_clean(path: &Path) -> bool {
    let text = path.as_os_str().as_bytes();
    let Some(rest) = text.strip_prefix(b"/") else { return false };
    let whole = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    text.len() <= MAX_TARGET && !text.contains(&0) && rest.split(|it| *it == b'/').all(whole)
}

/// `PATH_MAX` of Linux, in bytes; CSI allows a driver no less.
const MAX_TARGET: usize = 4096;
