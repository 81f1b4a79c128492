//! From arguments and environment to the trials of a suite.

mod kubernetes;
mod on_api_server;
mod on_kubernetes;
mod operator;

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use lanyard_api::{HostedCluster, ParameterProblems, ReadHostedClusterError};
use lanyard_cluster::{ClusterError, ControlPlaneError, ControlPlaneOptions, NoPorts};
use lanyard_desired::cases::CasesError;
use lanyard_desired::{
    Names, ValidateError, ValidatedHostedCluster, desired, desired_proofs, validate,
};
use lanyard_vocabulary::Component;
use libtest_mimic::Trial;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::api_server::ApiServerError;
use crate::compare::Accepted;
use crate::ground::{Ground, GroundError, Local, Place};
use crate::kubectl::KubectlError;
use crate::live::{Live, LiveError};
use crate::program::Program;
use crate::site::SiteError;
use crate::suites::csi::SanityError;
use crate::suites::kubernetes::ChartRightsError;
use crate::suites::{go, python, requests, rust};
use crate::toolbox::{AbsentTool, NamedTool, Toolbox};

pub(crate) use self::operator::start_control_plane;

/// Judge lanyard by other people's clients.
#[derive(Debug, Parser)]
#[command(name = "lanyard-conformance")]
pub(crate) struct Arguments {
    /// The suite
    suite: Suite,
    /// Run only the cases whose names contain this
    filter: Option<String>,
    /// The lanyard binary, for its local Azure
    #[arg(long)]
    lanyard: PathBuf,
    /// The HostedCluster whose world is made
    #[arg(long, value_name = "FILE")]
    hosted_cluster: PathBuf,
    /// The program of a suite of clients
    #[arg(long)]
    program: Option<PathBuf>,
    /// The script that the program runs, if it is an interpreter
    #[arg(long)]
    script: Option<PathBuf>,
    /// The differences that are meant, for the suite `requests`
    #[arg(long, value_name = "FILE")]
    accepted: Option<PathBuf>,
    /// Run on a real subscription, with credentials from the environment
    #[arg(long)]
    live: bool,
    /// A program of a suite on Kubernetes
    #[arg(long = "tool", value_name = "NAME=PATH")]
    tools: Vec<NamedTool>,
    /// The repository, for the chart and for what is compared with it
    #[arg(long, value_name = "DIR", default_value = ".")]
    repository: PathBuf,
    /// Where numbers go, for the suites that measure
    #[arg(long, value_name = "FILE", default_value = "measurements.json")]
    measurements: PathBuf,
    /// How many HostedClusters are measured, for `measure-operator`
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    clusters: usize,
    /// Write down what is rendered instead of comparing it, for the suite `chart`
    #[arg(long)]
    bless: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    Go,
    Python,
    Rust,
    Requests,
    Kubernetes,
    Operator,
    Chart,
    Csi,
    Interop,
    Node,
    Kms,
    HostedCluster,
    /// Measures for `cargo xtask bench node`
    Measure,
    /// Measures for `cargo xtask bench operator`
    MeasureOperator,
}

/// What a suite runs on.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Clients(Clients),
    ApiServer(on_api_server::Suite),
    Kubernetes(on_kubernetes::Suite),
}

/// The suites of clients that sign in.
#[derive(Debug, Clone, Copy)]
enum Clients {
    Go,
    Python,
    Rust,
    Requests,
}

impl Suite {
    const fn kind(self) -> Kind {
        match self {
            Self::Go => Kind::Clients(Clients::Go),
            Self::Python => Kind::Clients(Clients::Python),
            Self::Rust => Kind::Clients(Clients::Rust),
            Self::Requests => Kind::Clients(Clients::Requests),
            Self::Chart => Kind::Kubernetes(on_kubernetes::Suite::Chart),
            Self::Csi => Kind::Kubernetes(on_kubernetes::Suite::Csi),
            Self::Interop => Kind::Kubernetes(on_kubernetes::Suite::Interop),
            Self::Node => Kind::Kubernetes(on_kubernetes::Suite::Node),
            Self::Kms => Kind::ApiServer(on_api_server::Suite::Kms),
            Self::Kubernetes => Kind::ApiServer(on_api_server::Suite::Kubernetes),
            Self::Operator => Kind::ApiServer(on_api_server::Suite::Operator),
            Self::MeasureOperator => Kind::ApiServer(on_api_server::Suite::MeasureOperator),
            Self::HostedCluster => Kind::Kubernetes(on_kubernetes::Suite::HostedCluster),
            Self::Measure => Kind::Kubernetes(on_kubernetes::Suite::Measure),
        }
    }
}

/// The suite cannot run.
#[derive(Debug, Error)]
pub(crate) enum SetupError {
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("the ground of the suite could not be prepared")]
    Ground(#[from] GroundError),
    #[error("the site of the suite could not be prepared")]
    Site(#[from] SiteError),
    #[error(transparent)]
    Tool(#[from] AbsentTool),
    #[error("an image could not be loaded")]
    Image(#[source] ClusterError),
    #[error("the node does not say what the image in {} is called: {said}", archive.display())]
    UnnamedImage { archive: PathBuf, said: String },
    #[error("csi-sanity could not be run")]
    Sanity(#[from] SanityError),
    #[error("the objects of the suite could not be written")]
    Objects(#[source] KubectlError),
    #[error("the control plane could not be started")]
    ControlPlane(#[from] ControlPlaneError),
    #[error("the custom resource definitions could not be installed")]
    Install(#[from] ApiServerError),
    #[error("the rules of the chart's ClusterRoles could not be read")]
    Rights(#[from] ChartRightsError),
    #[error("the cases are not usable")]
    Cases(#[from] CasesError),
    #[error("{} is not YAML that can be read", path.display())]
    Yaml {
        path: PathBuf,
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    #[error("the commands of the tutorial could not be prepared: {said}")]
    Tutorial { said: String },
    #[error(transparent)]
    Ports(#[from] NoPorts),
    #[error("the suite needs `--program`")]
    NoProgram,
    #[error("the suite needs a cluster, which a subscription alone does not have")]
    NotLive,
    #[error("the runtime could not be started")]
    Runtime(#[source] std::io::Error),
    #[error("could not read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not a list of differences", path.display())]
    Accepted {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the HostedCluster cannot be read")]
    HostedCluster(#[source] ReadHostedClusterError),
    #[error("the HostedCluster is not valid")]
    Invalid(#[source] ValidateError),
    #[error("a rendered SecretProviderClass is not valid")]
    Class(#[source] ParameterProblems),
    #[error("the HostedCluster runs no component")]
    NoComponent,
    #[error("the HostedCluster encrypts its Secrets with no key")]
    NoKey,
    #[error("the identities of the suite could not be prepared: {said}")]
    Identities { said: String },
}

impl SetupError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Live(_) => Some(LiveError::hint()),
            Self::Ground(_) => Some("try `lanyard azure serve` by hand".to_owned()),
            Self::Site(error) => error.hint().map(str::to_owned),
            _ => None,
        }
    }
}

impl Arguments {
    /// How the trials run: clients that run once side by side, the others one by one.
    pub(crate) fn runner(&self) -> libtest_mimic::Arguments {
        let threads = match self.suite {
            Suite::Python | Suite::Rust => 2,
            _ => 1,
        };
        libtest_mimic::Arguments {
            filter: self.filter.clone(),
            test_threads: Some(threads),
            ..libtest_mimic::Arguments::default()
        }
    }
}

/// A suite that is ready to run.
pub(crate) struct Prepared {
    pub(crate) trials: Vec<Trial>,
    /// The local Azure and the cluster end with this, so it has to outlive the trials.
    pub(crate) ground: Arc<dyn Any>,
}

/// The trials of the suite, on a ground that is ready.
pub(crate) fn prepare(
    arguments: &Arguments,
    environment: BTreeMap<String, String>,
) -> Result<Prepared, SetupError> {
    let runtime = Arc::new(Runtime::new().map_err(SetupError::Runtime)?);
    match arguments.suite.kind() {
        Kind::Clients(suite) => prepare_clients(suite, arguments, environment, runtime),
        Kind::ApiServer(_) | Kind::Kubernetes(_) if arguments.live => Err(SetupError::NotLive),
        Kind::ApiServer(suite) => on_api_server::prepare(suite, arguments, &runtime),
        Kind::Kubernetes(suite) => on_kubernetes::prepare(suite, arguments, &runtime),
    }
}

fn prepare_clients(
    suite: Clients,
    arguments: &Arguments,
    environment: BTreeMap<String, String>,
    runtime: Arc<Runtime>,
) -> Result<Prepared, SetupError> {
    let path = arguments.program.clone().ok_or(SetupError::NoProgram)?;
    let (text, cluster) = load_cluster(&arguments.hosted_cluster)?;
    let ground = Arc::new(if arguments.live {
        Ground::Live(Live::parse(environment)?)
    } else {
        let place = place_of(&cluster)?;
        Ground::Local(Box::new(Local::start(&arguments.lanyard, &text, place, &runtime)?))
    });
    let program = Program::new(path, arguments.script.clone(), ground.environment());
    let kept: Arc<dyn Any> = Arc::<Ground>::clone(&ground);
    let trials = match suite {
        Clients::Python => python::trials(&ground, &program),
        Clients::Rust => rust::trials(&ground, &program),
        Clients::Go => {
            go::trials(go::Stage { ground, program, runtime, subjects: subjects_of(&cluster)? })
        }
        Clients::Requests => {
            let accepted = arguments.accepted.as_deref().map_or(Ok(Vec::new()), load_accepted)?;
            requests::trials(requests::Stage { ground, program, runtime, accepted })
        }
    };
    Ok(Prepared { trials, ground: kept })
}

fn load_cluster(path: &Path) -> Result<(String, ValidatedHostedCluster), SetupError> {
    let text = load_text(path)?;
    let cluster = parse_cluster(&text)?;
    Ok((text, cluster))
}

fn parse_cluster(text: &str) -> Result<ValidatedHostedCluster, SetupError> {
    let wire = HostedCluster::parse_yaml(text).map_err(SetupError::HostedCluster)?;
    Ok(validate(&wire).map_err(SetupError::Invalid)?.hosted_cluster)
}

fn load_text(path: &Path) -> Result<String, SetupError> {
    fs::read_to_string(path).map_err(|source| SetupError::Read { path: path.to_path_buf(), source })
}

fn load_yaml<T: DeserializeOwned>(path: &Path) -> Result<T, SetupError> {
    serde_saphyr::from_str(&load_text(path)?)
        .map_err(|source| SetupError::Yaml { path: path.to_path_buf(), source: Box::new(source) })
}

/// The custom resource definitions in a directory.
fn load_definitions(directory: &Path) -> Result<Vec<CustomResourceDefinition>, SetupError> {
    let failed = |source| SetupError::Read { path: directory.to_path_buf(), source };
    let entries = fs::read_dir(directory).map_err(failed)?;
    entries.map(|entry| load_yaml(&entry.map_err(failed)?.path())).collect()
}

/// etcd and kube-apiserver, from the tool `node`.
fn control_plane(arguments: &Arguments) -> Result<ControlPlaneOptions, SetupError> {
    let tools = Toolbox::new(&arguments.tools);
    let node = tools.path("node")?;
    Ok(ControlPlaneOptions::new(node.join("etcd"), node.join("kube-apiserver")))
}

fn load_accepted(path: &Path) -> Result<Vec<Accepted>, SetupError> {
    let text =
        fs::read(path).map_err(|source| SetupError::Read { path: path.to_path_buf(), source })?;
    serde_json::from_slice(&text)
        .map_err(|source| SetupError::Accepted { path: path.to_path_buf(), source })
}

fn place_of(cluster: &ValidatedHostedCluster) -> Result<Place, SetupError> {
    let (component, identity) = cluster.components().next().ok_or(SetupError::NoComponent)?;
    let suffix = cluster.azure.cloud.endpoints().map_or("vault.azure.net", |it| it.vault_suffix);
    Ok(Place {
        subscription: cluster.azure.subscription.to_string(),
        resource_group: cluster.azure.resource_group.clone(),
        other_group: cluster.azure.vnet.resource_group().map(str::to_owned).unwrap_or_default(),
        vault_host: format!("{}.{suffix}", cluster.vault.name).to_ascii_lowercase(),
        vault_tenant: cluster.vault.tenant.0.to_string(),
        component: component.name().to_owned(),
        component_secret: identity.secret_name.to_string(),
    })
}

/// What each component gets, by the same pure functions as everywhere.
fn subjects_of(
    cluster: &ValidatedHostedCluster,
) -> Result<BTreeMap<Component, go::Subject>, SetupError> {
    let mut proofs = desired_proofs(cluster);
    let classes = desired(cluster, &Names::default()).secret_provider_classes;
    cluster
        .components()
        .zip(classes)
        .map(|((component, _), class)| {
            let parameters = class.parse_parameters().map_err(SetupError::Class)?;
            Ok((component, go::Subject { parameters, proofs: proofs.remove(&component) }))
        })
        .collect()
}
