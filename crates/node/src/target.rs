//! Which paths are targets of this node's kubelet, by their text alone.
//!
//! Whether a link stands on the way is seen when the directory is opened.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a path is no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// It is not absolute and in its shortest form.
    Form,
    /// It does not lie below the directory of the kubelet.
    Outside,
}

/// The part of `target` that lies below `kubelet_dir`: at least one component, all of them plain.
pub(crate) fn parse_below<'a>(kubelet_dir: &Path, target: &'a Path) -> Result<&'a Path, Misplaced> {
    if !is_clean(target) {
        return Err(Misplaced::Form);
    }
    let below = target.strip_prefix(kubelet_dir).ok();
    below.filter(|it| !it.as_os_str().is_empty()).ok_or(Misplaced::Outside)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clean_path_below_the_directory_of_the_kubelet_is_a_target() {
        let long = format!("/var/lib/kubelet/{}", "x".repeat(MAX_TARGET));
        let mount = "pods/a/volumes/kubernetes.io~csi/v/mount";
        let cases = [
            ("/var/lib/kubelet/pods/a/volumes/kubernetes.io~csi/v/mount", Ok(Path::new(mount))),
            ("/var/lib/kubelet", Err(Misplaced::Outside)),
            ("/var/lib/kubelets/pods", Err(Misplaced::Outside)),
            ("/etc/kubernetes", Err(Misplaced::Outside)),
            ("/var/lib/kubelet/", Err(Misplaced::Form)),
            ("/var/lib/kubelet/pods/../../../etc", Err(Misplaced::Form)),
            ("/var/lib/kubelet/./pods", Err(Misplaced::Form)),
            ("/var/lib/kubelet//pods", Err(Misplaced::Form)),
            ("/var/lib/kubelet/pods/", Err(Misplaced::Form)),
            ("/var/lib/kubelet/pods/a\0b", Err(Misplaced::Form)),
            (&long, Err(Misplaced::Form)),
            ("pods/a", Err(Misplaced::Form)),
            ("", Err(Misplaced::Form)),
        ];
        for (target, expected) in cases {
            let parsed = parse_below(Path::new("/var/lib/kubelet"), Path::new(target));
            assert_eq!(parsed, expected, "{target}");
        }
    }
}
