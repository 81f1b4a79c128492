//! Collects the programs of a node in one directory, for the cluster and for `KUBEBUILDER_ASSETS`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::cache::{ToolFingerprint, create_symlink, install_atomically};
use super::{debian, go, test_images};
use crate::repository::Repository;
use crate::task_error::TaskError;

/// A version of Kubernetes that the suites run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KubernetesVersion {
    #[value(name = "1.36")]
    V1_36,
    /// The last version whose kubelet passes tokens only in the volume context
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

/// Installs the programs of a node of this version and returns their directory: Kubernetes, etcd, kubectl,
/// containerd and runc, network plugins in `cni/`, and image archives in `images/`.
pub(crate) fn node_programs(
    repository: &Repository,
    version: KubernetesVersion,
) -> Result<PathBuf, TaskError> {
    let newest = go::install(repository, go::find_recipe(KubernetesVersion::V1_36.recipe())?)?.path;
    let kubernetes = go::install(repository, go::find_recipe(version.recipe())?)?.path;
    let etcd = go::install(repository, go::find_recipe("etcd")?)?.path;
    let containers = debian::install_containers(repository)?.path;
    let images = test_images::install(repository)?.path;

    let mut links = vec![("kubectl", newest.join("kubectl")), ("etcd", etcd.join("etcd"))];
    links.extend(KUBERNETES_PROGRAMS.map(|name| (name, kubernetes.join(name))));
    links.extend(CONTAINER_PROGRAMS.map(|name| (name, containers.join(name))));
    links.push(("images", images));
    let pins = ToolFingerprint::new().with(format!("{links:?}").as_bytes()).to_hex();
    let place = repository.tool_directory("node", &format!("{}-{pins}", version.recipe()));
    install_atomically(&place, |half| {
        links.iter().try_for_each(|(name, target)| create_symlink(target, &half.join(name)))
    })?;
    Ok(place)
}
