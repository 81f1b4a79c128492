//! The cases, by subject. A new subject is a module with a function `trials`, and a row below.

pub(crate) mod bench;
mod canary_permissions;
mod controller;
mod preservation;
pub(crate) mod rendered_chart;
mod schema_cases;
pub(crate) mod trial_fixture;
mod validation_agreement;

use std::sync::Arc;

use kube::Client;
use lanyard_cluster::SharedControlPlane;
use lanyard_desired::schema_cases::SchemaCase;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use tokio::runtime::Runtime;

use self::bench::ControlPlaneInputs;
pub(crate) use self::controller::grant_role_permissions;
use self::rendered_chart::RenderedOperatorChart;
use self::trial_fixture::OperatorTrialFixture;

/// The user as whom the operator signs in: it has the rights of its chart.
pub(crate) const OPERATOR_USER: &str = "lanyard-operator";

/// What the suite runs on. The kinds are served already.
#[derive(Clone)]
pub(crate) struct OperatorSuiteFixture {
    pub(crate) plane: SharedControlPlane,
    pub(crate) runtime: Arc<Runtime>,
    /// The administrator.
    pub(crate) client: Client,
    /// The accepted and rejected HostedClusters.
    pub(crate) cases: Arc<Vec<SchemaCase>>,
    /// A complete HostedCluster.
    pub(crate) example: Arc<Value>,
    /// What the operator's chart renders.
    pub(crate) rendered_chart: Arc<RenderedOperatorChart>,
    /// What is measured on, and other control planes are made from.
    pub(crate) control_plane_inputs: ControlPlaneInputs,
}

/// Every case of every subject.
pub(crate) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    let subjects: &[fn(&OperatorSuiteFixture) -> Vec<Trial>] = &[
        schema_cases::trials,
        validation_agreement::trials,
        preservation::trials,
        canary_permissions::trials,
        // Cases of it take the API server away.
        controller::trials,
    ];
    let trials = subjects.iter().flat_map(|trials| trials(stage));
    trials.chain([bench::smoke_trial(stage.control_plane_inputs.clone())]).collect()
}

/// A trial in a namespace of its own.
fn trial<F>(stage: &OperatorSuiteFixture, name: &str, run: F) -> Trial
where
    F: AsyncFnOnce(OperatorTrialFixture) -> Result<(), Failed> + Send + 'static,
{
    let stage = stage.clone();
    Trial::test(name, move || {
        stage.runtime.block_on(async {
            let world = OperatorTrialFixture::create(&stage).await?;
            run(world).await
        })
    })
}
