//! What the program is told, and what it makes ready before the first case.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use lanyard_cluster::{ControlPlane, ControlPlaneError, ControlPlaneOptions, SharedControlPlane};
use lanyard_desired::cases::{CasesError, SchemaCase, parse_cases};
use serde_json::Value;
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::bench::Ground;
use crate::suite::Stage;
use crate::suite::chart::Chart;
use crate::suite::world::{WorldError, client, install};

/// The user as whom the operator signs in: it has the rights of its chart.
pub(crate) const OPERATOR: &str = "lanyard-operator";

/// Judge the operator and its kinds.
#[derive(Debug, Parser)]
#[command(name = "lanyard-conformance-operator")]
pub(crate) struct Arguments {
    /// Run only the cases whose names contain this
    pub(crate) filter: Option<String>,
    /// The program etcd
    #[arg(long)]
    etcd: PathBuf,
    /// The program kube-apiserver
    #[arg(long)]
    kube_apiserver: PathBuf,
    /// The directory of the custom resource definitions
    #[arg(long, value_name = "DIR")]
    definitions: PathBuf,
    /// The file of accepted and rejected HostedClusters
    #[arg(long, value_name = "FILE")]
    cases: PathBuf,
    /// The directory of what the chart renders
    #[arg(long, value_name = "DIR")]
    rendered: PathBuf,
    /// The example of a HostedCluster
    #[arg(long, value_name = "FILE")]
    hosted_cluster: PathBuf,
    /// The program lanyard
    #[arg(long)]
    lanyard: PathBuf,
    /// Measure instead of judging, and write the numbers there
    #[arg(long, value_name = "FILE")]
    pub(crate) measurements: Option<PathBuf>,
    /// How many HostedClusters are measured
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    pub(crate) clusters: usize,
}

/// The suite cannot run.
#[derive(Debug, Error)]
pub(crate) enum SetupError {
    #[error("could not read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not YAML that can be read", path.display())]
    Yaml {
        path: PathBuf,
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    #[error("the cases are not usable")]
    Cases(#[from] CasesError),
    #[error("the runtime could not be started")]
    Runtime(#[source] std::io::Error),
    #[error("there is no API server")]
    ControlPlane(#[from] ControlPlaneError),
    #[error("the definitions could not be installed")]
    Install(#[from] WorldError),
}

/// What is needed for measuring.
pub(crate) fn ground(arguments: &Arguments) -> Result<Ground, SetupError> {
    Ok(Ground {
        programs: programs(arguments),
        definitions: Arc::new(load_definitions(&arguments.definitions)?),
        example: Arc::new(load_yaml(&arguments.hosted_cluster)?),
        lanyard: arguments.lanyard.clone(),
    })
}

fn programs(arguments: &Arguments) -> ControlPlaneOptions {
    ControlPlaneOptions::new(arguments.etcd.clone(), arguments.kube_apiserver.clone())
}

/// Starts the control plane and installs the definitions in it.
pub(crate) fn prepare(arguments: &Arguments) -> Result<Stage, SetupError> {
    let cases = load_cases(&arguments.cases)?;
    let ground = ground(arguments)?;
    let chart = Arc::new(Chart {
        all: load_objects(&arguments.rendered.join("defaults.golden.yaml"))?,
        identity_only: load_objects(&arguments.rendered.join("beside-hypershift.golden.yaml"))?,
        everything: load_objects(&arguments.rendered.join("everything.golden.yaml"))?,
    });
    let runtime = Arc::new(Runtime::new().map_err(SetupError::Runtime)?);
    let (plane, client) = runtime.block_on(start(&ground, &[]))?;
    let (cases, example) = (Arc::new(cases), Arc::clone(&ground.example));
    Ok(Stage { plane, runtime, client, cases, example, chart, ground })
}

/// A control plane that serves our kinds, with these flags of the API server, and the
/// administrator's client.
pub(crate) async fn start(
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

fn load_definitions(directory: &Path) -> Result<Vec<CustomResourceDefinition>, SetupError> {
    let failed = |source| SetupError::Read { path: directory.to_path_buf(), source };
    let entries = fs::read_dir(directory).map_err(failed)?;
    entries.map(|entry| load_yaml(&entry.map_err(failed)?.path())).collect()
}

/// The objects that Helm rendered.
fn load_objects(path: &Path) -> Result<Vec<Value>, SetupError> {
    let unreadable =
        |source| SetupError::Yaml { path: path.to_path_buf(), source: Box::new(source) };
    serde_saphyr::from_multiple(&load_text(path)?).map_err(unreadable)
}

fn load_yaml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, SetupError> {
    serde_saphyr::from_str(&load_text(path)?)
        .map_err(|source| SetupError::Yaml { path: path.to_path_buf(), source: Box::new(source) })
}

fn load_text(path: &Path) -> Result<String, SetupError> {
    fs::read_to_string(path).map_err(|source| SetupError::Read { path: path.to_path_buf(), source })
}
