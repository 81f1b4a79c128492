//! Paths of a cluster, all below one directory.

use std::path::{Path, PathBuf};

use crate::component::ClusterComponent;

/// The paths of a cluster, and the names that are derived from its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterLayout {
    root: PathBuf,
}

impl ClusterLayout {
    /// The longest supported directory, in bytes. A socket path has at most 107 bytes (unix(7)); the longest
    /// one below the directory is the registration socket of a driver with a name as long as
    /// `secrets-store.csi.k8s.io`.
    pub const MAX_DIRECTORY_LENGTH: usize =
        107 - "/kubelet/plugins_registry/secrets-store.csi.k8s.io-reg.sock".len();

    /// The layout below a directory, which must be absolute and without symbolic links.
    pub const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The directory of the cluster.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The kubelet's directory (`--root-dir`): `plugins_registry/`, `plugins/` and `pods/` are
    /// below it.
    pub fn kubelet_directory(&self) -> PathBuf {
        self.root.join("kubelet")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// containerd's socket.
    pub fn containerd_socket(&self) -> PathBuf {
        self.containerd_directory().join("containerd.sock")
    }

    /// The log of a component.
    pub fn log_file(&self, component: ClusterComponent) -> PathBuf {
        self.log_directory().join(component.name()).with_extension("log")
    }

    /// The directory of every log; those of pods are below `pods/`.
    pub fn log_directory(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The id of the cluster, which names its pod network, the only part outside the directory. It is a hash
    /// of the directory, so it is known without any record.
    pub fn cluster_id(&self) -> String {
        // FNV-1a is enough for a short name without an adversary.
        let hash = self
            .root
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        format!("lanyard-{hash:016x}")
    }

    /// The environment variable that marks every process of the cluster.
    pub(crate) fn process_marker(&self) -> (&'static str, &Path) {
        (MARKER_VARIABLE, &self.root)
    }

    pub(crate) fn plan_file(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    /// The file that is locked while the cluster changes. Its content proves that the directory belongs to a
    /// cluster: everything else in the directory is removed with the cluster.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.root.join("lanyard-cluster.lock")
    }

    pub(crate) fn process_record_file(&self, component: ClusterComponent) -> PathBuf {
        self.root.join("processes").join(component.name()).with_extension("json")
    }

    pub(crate) fn certificate_directory(&self) -> PathBuf {
        self.root.join("identities")
    }

    pub(crate) fn certificate_file(&self, file: &str) -> PathBuf {
        self.certificate_directory().join(file)
    }

    pub(crate) fn configuration_file(&self, file: &str) -> PathBuf {
        self.configuration_directory().join(file)
    }

    pub(crate) fn configuration_directory(&self) -> PathBuf {
        self.root.join("configuration")
    }

    pub(crate) fn etcd_directory(&self) -> PathBuf {
        self.root.join("etcd")
    }

    pub(crate) fn containerd_directory(&self) -> PathBuf {
        self.root.join("containerd")
    }

    pub(crate) fn containerd_state_directory(&self) -> PathBuf {
        self.containerd_directory().join("state")
    }

    pub(crate) fn containerd_root_directory(&self) -> PathBuf {
        self.containerd_directory().join("root")
    }

    /// Directories that must exist before the first component starts.
    pub(crate) fn required_directories(&self) -> Vec<PathBuf> {
        vec![
            self.log_directory(),
            self.log_directory().join("pods"),
            self.root.join("processes"),
            self.certificate_directory(),
            self.configuration_file("cni"),
            self.etcd_directory(),
            self.containerd_root_directory(),
            self.containerd_state_directory(),
            self.kubelet_directory(),
        ]
    }
}

const MARKER_VARIABLE: &str = "LANYARD_CLUSTER";

/// The content of the lock file.
pub(crate) const LOCK_CONTENT: &[u8] =
    b"This directory is a test cluster of lanyard and goes with it.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_fit_below_the_longest_directory() {
        let root = format!("/{}", "x".repeat(ClusterLayout::MAX_DIRECTORY_LENGTH - 1));
        let layout = ClusterLayout::new(root.into());
        let registration = layout
            .kubelet_directory()
            .join("plugins_registry")
            .join("secrets-store.csi.k8s.io-reg.sock");
        assert_eq!(registration.as_os_str().len(), 107);
        assert!(layout.containerd_socket().as_os_str().len() <= 107);
    }

    #[test]
    fn two_directories_have_two_ids() {
        let id = |root: &str| ClusterLayout::new(root.into()).cluster_id();
        assert_ne!(id("/a"), id("/b"));
        assert_eq!(id("/a"), id("/a"));
    }
}
