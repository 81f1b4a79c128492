//! The suite `operator`. A new subject is a module with a function `trials`, and an entry in the list below.

pub(crate) mod bench;
mod canary_permissions;
mod cluster_commands;
mod controller;
mod operator_account;
mod preservation;
pub(crate) mod rendered_chart;
mod schema_cases;
mod server_and_local_validation;
pub(crate) mod trial_fixture;

use std::sync::Arc;

use kube::Client;
use lanyard_cluster::SharedControlPlane;
use lanyard_desired::schema_cases::SchemaCase;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use tokio::runtime::Runtime;

use self::bench::ControlPlaneInputs;
pub(crate) use self::operator_account::OPERATOR_USER;
use self::rendered_chart::RenderedOperatorChart;
use self::trial_fixture::OperatorTrialFixture;

/// The fixture of the suite `operator`. The CRDs are installed.
#[derive(Clone)]
pub(crate) struct OperatorSuiteFixture {
    pub(crate) plane: SharedControlPlane,
    pub(crate) runtime: Arc<Runtime>,
    /// The client of the administrator.
    pub(crate) client: Client,
    /// The accepted and rejected HostedClusters.
    pub(crate) cases: Arc<Vec<SchemaCase>>,
    /// A complete HostedCluster.
    pub(crate) example: Arc<Value>,
    /// The objects that the operator's chart renders.
    pub(crate) rendered_chart: Arc<RenderedOperatorChart>,
    /// The inputs for further control planes and for the benchmark.
    pub(crate) control_plane_inputs: ControlPlaneInputs,
}

/// The trials of every subject.
pub(crate) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let subjects: &[fn(&OperatorSuiteFixture) -> Vec<Trial>] = &[
        schema_cases::trials,
        server_and_local_validation::trials,
        preservation::trials,
        canary_permissions::trials,
        cluster_commands::trials,
        // Some of these trials stop the API server.
        controller::trials,
    ];
    let trials = subjects.iter().flat_map(|trials| trials(suite));
    trials.chain([bench::smoke_trial(suite.control_plane_inputs.clone())]).collect()
}

/// A trial in a new namespace.
fn trial<F>(suite: &OperatorSuiteFixture, name: &str, run: F) -> Trial
where
    F: AsyncFnOnce(OperatorTrialFixture) -> Result<(), Failed> + Send + 'static,
{
    let suite = suite.clone();
    Trial::test(name, move || {
        suite.runtime.block_on(async {
            let fixture = OperatorTrialFixture::create(&suite).await?;
            run(fixture).await
        })
    })
}
