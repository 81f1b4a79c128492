//! The programs of one node side by side in one directory, as the cluster takes them. It is also
//! a directory for `KUBEBUILDER_ASSETS`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::cache::{ToolFingerprint, create_symlink, install_atomically};
use super::{debian, go, test_images};
use crate::repository::Repository;
use crate::task_error::TaskError;

/// A version of Kubernetes that we are tried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KubernetesVersion {
    #[value(name = "1.36")]
    V1_36,
    /// The last one whose kubelet passes tokens in the volume context alone
    #[value(name = "1.34")]
    V1_34,
}

impl KubernetesVersion {
    const fn recipe(self) -> &'static str {
        match self {
            Self::V1_36 => "kubernetes-1.36",
            Self::V1_34 => "kubernetes-1.34",
        }
    }
}

const KUBERNETES_PROGRAMS: [&str; 4] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"];
const CONTAINER_PROGRAMS: [&str; 5] =
    ["containerd", "containerd-shim-runc-v2", "ctr", "runc", "cni"];

/// Installs what a node of this version needs and returns the directory of its programs:
/// Kubernetes, etcd, kubectl, containerd and runc, `cni/` with network plugins, `images/` with
/// the archives of images.
pub(crate) fn node_programs(
    house: &Repository,
    version: KubernetesVersion,
) -> Result<PathBuf, TaskError> {
    let newest = go::install(house, go::find_recipe(KubernetesVersion::V1_36.recipe())?)?.path;
    let kubernetes = go::install(house, go::find_recipe(version.recipe())?)?.path;
    let etcd = go::install(house, go::find_recipe("etcd")?)?.path;
    let containers = debian::install_containers(house)?.path;
    let images = test_images::install(house)?.path;

    let mut links = vec![("kubectl", newest.join("kubectl")), ("etcd", etcd.join("etcd"))];
    links.extend(KUBERNETES_PROGRAMS.map(|name| (name, kubernetes.join(name))));
    links.extend(CONTAINER_PROGRAMS.map(|name| (name, containers.join(name))));
    links.push(("images", images));
    let pins = ToolFingerprint::new().with(format!("{links:?}").as_bytes()).to_hex();
    let place = house.tool_directory("node", &format!("{}-{pins}", version.recipe()));
    install_atomically(&place, |half| {
        links.iter().try_for_each(|(name, target)| create_symlink(target, &half.join(name)))
    })?;
    Ok(place)
}
