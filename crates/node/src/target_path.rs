//! Checks target paths by their text alone.
//!
//! Symbolic links in the path are detected when the directory is opened.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The reason why a path is not a valid target path of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetPathError {
    /// It is not absolute or not normalized.
    NotNormalized,
    /// It is not below the kubelet's directory.
    OutsideKubeletDir,
}

/// The part of `target` below `kubelet_dir`: at least one component, without `.` and `..`.
pub(crate) fn parse_target_below<'a>(
    kubelet_dir: &Path,
    target: &'a Path,
) -> Result<&'a Path, TargetPathError> {
    if !is_normalized(target) {
        return Err(TargetPathError::NotNormalized);
    }
    let below = target.strip_prefix(kubelet_dir).ok();
    below.filter(|it| !it.as_os_str().is_empty()).ok_or(TargetPathError::OutsideKubeletDir)
}

/// Whether a path is absolute and normalized, so that it has only one spelling.
fn is_normalized(path: &Path) -> bool {
    let text = path.as_os_str().as_bytes();
    let Some(rest) = text.strip_prefix(b"/") else { return false };
    let whole = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    text.len() <= MAX_TARGET_BYTES && !text.contains(&0) && rest.split(|it| *it == b'/').all(whole)
}

/// `PATH_MAX` of Linux, in bytes. CSI requires drivers to accept at least this length.
const MAX_TARGET_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clean_path_below_the_directory_of_the_kubelet_is_a_target() {
        let long = format!("/var/lib/kubelet/{}", "x".repeat(MAX_TARGET_BYTES));
        let mount = "pods/a/volumes/kubernetes.io~csi/v/mount";
        let cases = [
            ("/var/lib/kubelet/pods/a/volumes/kubernetes.io~csi/v/mount", Ok(Path::new(mount))),
            ("/var/lib/kubelet", Err(TargetPathError::OutsideKubeletDir)),
            ("/var/lib/kubelets/pods", Err(TargetPathError::OutsideKubeletDir)),
            ("/etc/kubernetes", Err(TargetPathError::OutsideKubeletDir)),
            ("/var/lib/kubelet/", Err(TargetPathError::NotNormalized)),
            ("/var/lib/kubelet/pods/../../../etc", Err(TargetPathError::NotNormalized)),
            ("/var/lib/kubelet/./pods", Err(TargetPathError::NotNormalized)),
            ("/var/lib/kubelet//pods", Err(TargetPathError::NotNormalized)),
            ("/var/lib/kubelet/pods/", Err(TargetPathError::NotNormalized)),
            ("/var/lib/kubelet/pods/a\0b", Err(TargetPathError::NotNormalized)),
            (&long, Err(TargetPathError::NotNormalized)),
            ("pods/a", Err(TargetPathError::NotNormalized)),
            ("", Err(TargetPathError::NotNormalized)),
        ];
        for (target, expected) in cases {
            let parsed = parse_target_below(Path::new("/var/lib/kubelet"), Path::new(target));
            assert_eq!(parsed, expected, "{target}");
        }
    }
}
