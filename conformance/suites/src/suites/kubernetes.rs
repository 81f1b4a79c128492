//! The suite `kubernetes`: the use of the Kubernetes API by the node plugin and by the effects of `lanyard fleet`, with a
//! real API server and Helm.

mod chart_permissions;
mod class_watch;
mod cluster_effects;
mod events;
mod minimal_permissions;
mod pod_status;
mod secret_sync;
mod trial_fixture;

use std::path::PathBuf;
use std::sync::Arc;

use lanyard_cluster::SharedControlPlane;
use libtest_mimic::{Failed, Trial};
use tokio::runtime::Runtime;

pub(crate) use self::chart_permissions::{ChartPermissions, ChartPermissionsError};
use self::trial_fixture::KubernetesTrialFixture;

/// The fixture of the suite `kubernetes`. The node plugin's CRDs are installed.
#[derive(Clone)]
pub(crate) struct KubernetesSuiteFixture {
    pub(crate) plane: SharedControlPlane,
    pub(crate) runtime: Arc<Runtime>,
    /// The permissions that the chart grants to the node plugin.
    pub(crate) permissions: Arc<ChartPermissions>,
    /// The program `helm`.
    pub(crate) helm: PathBuf,
}

/// The user with the permissions of the node plugin.
pub(crate) const NODE_PLUGIN_USER: &str = "node-plugin";

pub(crate) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    let mut trials = Vec::new();
    for group in [
        class_watch::trials(suite),
        pod_status::trials(suite),
        events::trials(suite),
        secret_sync::trials(suite),
        minimal_permissions::trials(suite),
        cluster_effects::trials(suite),
    ] {
        trials.extend(group);
    }
    trials
}

/// A trial in a new namespace.
fn trial<F>(suite: &KubernetesSuiteFixture, name: &str, run: F) -> Trial
where
    F: AsyncFnOnce(KubernetesTrialFixture) -> Result<(), Failed> + Send + 'static,
{
    let suite = suite.clone();
    Trial::test(name, move || {
        suite.runtime.block_on(async {
            let fixture = KubernetesTrialFixture::create(&suite).await?;
            run(fixture).await
        })
    })
}
