//! The node's side of the Kubernetes API, judged by a real API server.

mod chart_permissions;
mod class_watch;
mod events;
mod minimal_permissions;
mod pod_status;
mod secret_sync;
mod trial_fixture;

use std::sync::Arc;

use lanyard_cluster::SharedControlPlane;
use libtest_mimic::{Failed, Trial};
use tokio::runtime::Runtime;

pub(crate) use self::chart_permissions::{ChartPermissions, ChartPermissionsError};
use self::trial_fixture::KubernetesTrialFixture;

/// What the suite runs on. The kinds of the node plugin are served already.
#[derive(Clone)]
pub(crate) struct KubernetesSuiteFixture {
    pub(crate) plane: SharedControlPlane,
    pub(crate) runtime: Arc<Runtime>,
    /// What the chart lets the node plugin do.
    pub(crate) permissions: Arc<ChartPermissions>,
}

/// The user with the rights of the node plugin.
pub(crate) const NODE_PLUGIN_USER: &str = "node-plugin";

pub(crate) fn trials(stage: &KubernetesSuiteFixture) -> Vec<Trial> {
    let mut trials = Vec::new();
    for group in [
        class_watch::trials(stage),
        pod_status::trials(stage),
        events::trials(stage),
        secret_sync::trials(stage),
        minimal_permissions::trials(stage),
    ] {
        trials.extend(group);
    }
    trials
}

/// A trial in a namespace of its own.
fn trial<F>(stage: &KubernetesSuiteFixture, name: &str, run: F) -> Trial
where
    F: AsyncFnOnce(KubernetesTrialFixture) -> Result<(), Failed> + Send + 'static,
{
    let stage = stage.clone();
    Trial::test(name, move || {
        stage.runtime.block_on(async {
            let world = KubernetesTrialFixture::create(&stage).await?;
            run(world).await
        })
    })
}
