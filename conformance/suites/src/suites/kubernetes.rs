//! The node's side of the Kubernetes API, judged by a real API server.

mod classes;
mod events;
mod least;
mod reports;
mod rights;
mod sync;
mod world;

use std::sync::Arc;

use lanyard_cluster::SharedControlPlane;
use libtest_mimic::{Failed, Trial};
use tokio::runtime::Runtime;

pub(crate) use self::rights::{ChartRights, ChartRightsError};
use self::world::World;

/// What the suite runs on. The kinds of the node plugin are served already.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) plane: SharedControlPlane,
    pub(crate) runtime: Arc<Runtime>,
    /// What the chart lets the node plugin do.
    pub(crate) rights: Arc<ChartRights>,
}

/// The user with the rights of the node plugin.
pub(crate) const NODE: &str = "node-plugin";

pub(crate) fn trials(stage: &Stage) -> Vec<Trial> {
    let mut trials = Vec::new();
    for group in [
        classes::trials(stage),
        reports::trials(stage),
        events::trials(stage),
        sync::trials(stage),
        least::trials(stage),
    ] {
        trials.extend(group);
    }
    trials
}

/// A trial in a namespace of its own.
fn trial<F>(stage: &Stage, name: &str, run: F) -> Trial
where
    F: AsyncFnOnce(World) -> Result<(), Failed> + Send + 'static,
{
    let stage = stage.clone();
    Trial::test(name, move || {
        stage.runtime.block_on(async {
            let world = World::make(&stage).await?;
            run(world).await
        })
    })
}
