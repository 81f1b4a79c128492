//! Preparation of the suite `operator`: the operator and its kinds on a real API server.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use kube::Client;
use lanyard_cluster::{ControlPlane, SharedControlPlane};
use lanyard_desired::schema_cases::{SchemaCase, parse_cases};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{
    PreparedSuite, SuiteArgs, SuiteSetupError, control_plane_options, load_definitions, load_text,
    load_yaml,
};
use crate::api_server::{ApiServerError, install_definitions, user_client};
use crate::suites::operator::bench::{self, ControlPlaneInputs, OperatorBenchmarkScale};
use crate::suites::operator::rendered_chart::RenderedOperatorChart;
use crate::suites::operator::{self, OPERATOR_USER, OperatorSuiteFixture};

/// Starts the control plane, installs the CRDs, and returns the trials.
pub(super) fn prepare_operator_suite(
    arguments: &SuiteArgs,
    runtime: &Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    let cases = Arc::new(load_cases(&arguments.repository.join(CASES_FILE))?);
    let inputs = control_plane_inputs(arguments)?;
    let rendered = arguments.repository.join(RENDERED_CHART_DIRECTORY);
    let chart = Arc::new(RenderedOperatorChart {
        all: load_objects(&rendered.join("defaults.golden.yaml"))?,
        identity_only: load_objects(&rendered.join("with-hypershift.golden.yaml"))?,
        all_features: load_objects(&rendered.join("everything.golden.yaml"))?,
    });
    let (plane, client) = runtime.block_on(async {
        let (plane, client) = start_control_plane(&inputs, &[]).await?;
        chart.create_admission_policies(&client).await.map_err(ApiServerError::Refused)?;
        Ok::<_, SuiteSetupError>((plane, client))
    })?;
    let (runtime, example) = (Arc::clone(runtime), Arc::clone(&inputs.example));
    let keep_alive: Arc<dyn Any> = Arc::<ControlPlane>::clone(&plane);
    let fixture = OperatorSuiteFixture {
        plane,
        runtime,
        client,
        cases,
        example,
        rendered_chart: chart,
        control_plane_inputs: inputs,
    };
    Ok(PreparedSuite { trials: operator::trials(&fixture), keep_alive, request_log: None })
}

/// The trial that benchmarks the operator.
pub(super) fn prepare_measurements(
    arguments: &SuiteArgs,
) -> Result<PreparedSuite, SuiteSetupError> {
    let scale = OperatorBenchmarkScale::for_clusters(arguments.clusters);
    let trials =
        bench::trials(control_plane_inputs(arguments)?, scale, arguments.measurements.clone());
    Ok(PreparedSuite { trials, keep_alive: Arc::new(()), request_log: None })
}

fn control_plane_inputs(arguments: &SuiteArgs) -> Result<ControlPlaneInputs, SuiteSetupError> {
    Ok(ControlPlaneInputs {
        control_plane_options: control_plane_options(arguments)?,
        definitions: Arc::new(load_definitions(&arguments.repository.join(DEFINITION_DIRECTORY))?),
        example: Arc::new(load_yaml(&arguments.hosted_cluster)?),
        lanyard_program: arguments.lanyard.clone(),
    })
}

/// Starts a control plane with the given flags of the API server, which serves the operator's kinds. Returns
/// it with the administrator's client.
pub(crate) async fn start_control_plane(
    inputs: &ControlPlaneInputs,
    flags: &[(&str, &str)],
) -> Result<(SharedControlPlane, Client), SuiteSetupError> {
    let options = inputs.control_plane_options.clone().with_user(OPERATOR_USER);
    let options =
        flags.iter().fold(options, |options, (name, value)| options.with_flag(name, value));
    let plane = Arc::new(ControlPlane::start(options).await?);
    let client = user_client(&plane, ControlPlane::ADMINISTRATOR).await?;
    install_definitions(&client, &inputs.definitions).await?;
    Ok((plane, client))
}

fn load_cases(path: &Path) -> Result<Vec<SchemaCase>, SuiteSetupError> {
    Ok(parse_cases(&load_text(path)?)?)
}

/// Loads objects that Helm rendered.
fn load_objects(path: &Path) -> Result<Vec<Value>, SuiteSetupError> {
    let unreadable =
        |source| SuiteSetupError::Yaml { path: path.to_path_buf(), source: Box::new(source) };
    serde_saphyr::from_multiple(&load_text(path)?).map_err(unreadable)
}

/// The directory of the operator chart's CRDs, in the repository.
const DEFINITION_DIRECTORY: &str = "charts/lanyard-operator/files/crds";
/// The directory of the operator chart's golden files, in the repository.
const RENDERED_CHART_DIRECTORY: &str = "conformance/kubernetes/operator-chart";
/// The file with accepted and rejected HostedClusters, in the repository.
const CASES_FILE: &str = "conformance/cases/hosted_cluster.yaml";
