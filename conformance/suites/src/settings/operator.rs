//! The suite `operator`: the operator and its kinds on a real etcd and kube-apiserver.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use kube::Client;
use lanyard_cluster::{ControlPlane, SharedControlPlane};
use lanyard_desired::cases::{SchemaCase, parse_cases};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{
    Arguments, Prepared, SetupError, control_plane, load_definitions, load_text, load_yaml,
};
use crate::api_server::{client, install};
use crate::suites::operator::bench::{self, Ground, Scale};
use crate::suites::operator::chart::Chart;
use crate::suites::operator::{self, OPERATOR, Stage};

/// Starts the control plane, installs the definitions, and returns the trials of the suite.
pub(super) fn prepare(
    arguments: &Arguments,
    runtime: &Arc<Runtime>,
) -> Result<Prepared, SetupError> {
    let cases = Arc::new(load_cases(&arguments.repository.join(CASES))?);
    let ground = ground(arguments)?;
    let rendered = arguments.repository.join(RENDERED);
    let chart = Arc::new(Chart {
        all: load_objects(&rendered.join("defaults.golden.yaml"))?,
        identity_only: load_objects(&rendered.join("beside-hypershift.golden.yaml"))?,
        everything: load_objects(&rendered.join("everything.golden.yaml"))?,
    });
    let (plane, client) = runtime.block_on(start_control_plane(&ground, &[]))?;
    let (runtime, example) = (Arc::clone(runtime), Arc::clone(&ground.example));
    let kept: Arc<dyn Any> = Arc::<ControlPlane>::clone(&plane);
    let stage = Stage { plane, runtime, client, cases, example, chart, ground };
    Ok(Prepared { trials: operator::trials(&stage), ground: kept })
}

/// The trial that measures the operator.
pub(super) fn prepare_measurements(arguments: &Arguments) -> Result<Prepared, SetupError> {
    let scale = Scale::of(arguments.clusters);
    let trials = bench::trials(ground(arguments)?, scale, arguments.measurements.clone());
    Ok(Prepared { trials, ground: Arc::new(()) })
}

fn ground(arguments: &Arguments) -> Result<Ground, SetupError> {
    Ok(Ground {
        programs: control_plane(arguments)?,
        definitions: Arc::new(load_definitions(&arguments.repository.join(DEFINITIONS))?),
        example: Arc::new(load_yaml(&arguments.hosted_cluster)?),
        lanyard: arguments.lanyard.clone(),
    })
}

/// Starts a control plane that serves our kinds, with these flags of the API server, and returns it
/// with the administrator's client.
pub(crate) async fn start_control_plane(
    ground: &Ground,
    flags: &[(&str, &str)],
) -> Result<(SharedControlPlane, Client), SetupError> {
    let options = ground.programs.clone().user(OPERATOR);
    let options = flags.iter().fold(options, |options, (name, value)| options.flag(name, value));
    let plane = Arc::new(ControlPlane::start(options).await?);
    let client = client(&plane, ControlPlane::ADMINISTRATOR).await?;
    install(&client, &ground.definitions).await?;
    Ok((plane, client))
}

fn load_cases(path: &Path) -> Result<Vec<SchemaCase>, SetupError> {
    Ok(parse_cases(&load_text(path)?)?)
}

/// The objects that Helm rendered.
fn load_objects(path: &Path) -> Result<Vec<Value>, SetupError> {
    let unreadable =
        |source| SetupError::Yaml { path: path.to_path_buf(), source: Box::new(source) };
    serde_saphyr::from_multiple(&load_text(path)?).map_err(unreadable)
}

/// The custom resource definitions, in the repository.
const DEFINITIONS: &str = "charts/lanyard-operator/files/crds";
/// What the chart renders, in the repository.
const RENDERED: &str = "conformance/kubernetes/operator-chart";
/// The accepted and rejected HostedClusters, in the repository.
const CASES: &str = "conformance/cases/hosted_cluster.yaml";
