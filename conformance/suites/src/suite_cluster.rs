//! A real cluster for one suite.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lanyard_clock::{ErrorHint, SystemClock};
use lanyard_cluster::{ClusterError, LocalCluster, Options};
use tempfile::TempDir;
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::kubectl::Kubectl;

/// The cluster could not be started.
#[derive(Debug, Error)]
pub(crate) enum SuiteClusterError {
    #[error("the cluster could not be started")]
    Cluster(#[from] ClusterError),
    #[error("the directory of the suite could not be created")]
    Directory(#[source] std::io::Error),
}

impl ErrorHint for SuiteClusterError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Cluster(error) => error.hint(),
            Self::Directory(_) => None,
        }
    }
}

/// A cluster, and a directory for the files of a suite. Dropping it removes both.
#[derive(Debug)]
pub(crate) struct SuiteCluster {
    pub(crate) kubectl: Kubectl,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) cluster: LocalCluster,
    directory: TempDir,
}

impl SuiteCluster {
    /// Starts a cluster with the programs in `node`. The kubelet syncs its volumes every ten seconds, which
    /// shortens the trials.
    pub(crate) fn start(node: &Path, runtime: &Arc<Runtime>) -> Result<Self, SuiteClusterError> {
        // The prefix is short, because the length of socket paths is limited.
        let directory = TempDir::with_prefix("ly-").map_err(SuiteClusterError::Directory)?;
        let options = Options {
            sync_frequency: Some("10s".to_owned()),
            ..Options::new(directory.path().join("c"), node.to_path_buf())
        };
        let cluster = match runtime.block_on(LocalCluster::up(options, SystemClock::shared())) {
            Ok(cluster) => cluster,
            Err(error) => {
                let place = directory.path().join("c");
                // The cleanup's own error is dropped, because the first error names the cause.
                drop(runtime.block_on(LocalCluster::down(&place, SystemClock::shared())));
                return Err(error.into());
            }
        };
        let kubectl = Kubectl::new(&node.join("kubectl"), &cluster.kubeconfig());
        Ok(Self { kubectl, runtime: Arc::clone(runtime), cluster, directory })
    }

    /// The directory for the files of the suite.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn cluster_directory(&self) -> PathBuf {
        self.directory.path().join("c")
    }
}

impl Drop for SuiteCluster {
    fn drop(&mut self) {
        let place = self.cluster_directory();
        let down = LocalCluster::down(&place, SystemClock::shared());
        if let Err(error) = self.runtime.block_on(down) {
            crate::print_error(&SuiteClusterError::from(error).into());
        }
    }
}
