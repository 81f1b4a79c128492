//! The cases, by subject. A new subject is a module with a function `trials`, and a row below.

mod agreement;
pub(crate) mod bench;
mod canary;
pub(crate) mod chart;
mod controller;
mod preservation;
mod schema;
pub(crate) mod world;

use std::sync::Arc;

use kube::Client;
use lanyard_cluster::SharedControlPlane;
use lanyard_desired::cases::SchemaCase;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use tokio::runtime::Runtime;

use self::bench::Ground;
use self::chart::Chart;
pub(crate) use self::controller::grant;
use self::world::World;

/// The user as whom the operator signs in: it has the rights of its chart.
pub(crate) const OPERATOR: &str = "lanyard-operator";

/// What the suite runs on. The kinds are served already.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) plane: SharedControlPlane,
    pub(crate) runtime: Arc<Runtime>,
    /// The administrator.
    pub(crate) client: Client,
    /// The accepted and rejected HostedClusters.
    pub(crate) cases: Arc<Vec<SchemaCase>>,
    /// A complete HostedCluster.
    pub(crate) example: Arc<Value>,
    /// What the operator's chart renders.
    pub(crate) chart: Arc<Chart>,
    /// What is measured on, and other control planes are made from.
    pub(crate) ground: Ground,
}

/// Every case of every subject.
pub(crate) fn trials(stage: &Stage) -> Vec<Trial> {
    let subjects: &[fn(&Stage) -> Vec<Trial>] = &[
        schema::trials,
        agreement::trials,
        preservation::trials,
        canary::trials,
        // Cases of it take the API server away.
        controller::trials,
    ];
    let trials = subjects.iter().flat_map(|trials| trials(stage));
    trials.chain([bench::smoke(stage.ground.clone())]).collect()
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
