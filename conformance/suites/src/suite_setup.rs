//! Prepares the trials of a suite from arguments and environment.

mod api_server_suites;
mod azure_benchmark;
mod cluster_suites;
mod kubernetes_suite;
mod operator_suite;
mod page_suite;

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use lanyard_api::{HostedCluster, ParameterProblems, ReadHostedClusterError};
use lanyard_clock::ErrorHint;
use lanyard_cluster::{ClusterError, ControlPlaneError, ControlPlaneOptions, NoFreePorts};
use lanyard_desired::schema_cases::SchemaCasesError;
use lanyard_desired::{
    HostedClusterValidationError, RenderContext, ValidatedHostedCluster, desired_proof_calls,
    desired_state, validate,
};
use lanyard_suite_names::SuiteName;
use lanyard_vocabulary::Component;
use libtest_mimic::Trial;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::runtime::Runtime;

use self::api_server_suites::ApiServerSuite;
use self::cluster_suites::ClusterSuite;
use crate::api_server::ApiServerError;
use crate::azure_target::{AzureTarget, AzureTargetError, HostedClusterNames, LocalAzureTarget};
use crate::client_program::ClientProgram;
use crate::file_error::FileError;
use crate::kubectl::KubectlError;
use crate::live_subscription::{LiveSubscription, LiveSubscriptionError};
use crate::local_azure::LocalAzureError;
use crate::operation_clients::SuiteRequestLog;
use crate::request_differences::AcceptedDifference;
use crate::suite_cluster::SuiteClusterError;
use crate::suites::azcli::{AzureCliError, AzureCliProgram, AzureCliSuite};
use crate::suites::csi::SanityError;
use crate::suites::drills::DrillSuiteError;
use crate::suites::kubernetes::ChartPermissionsError;
use crate::suites::lifecycles::{self, LifecycleFileError};
use crate::suites::page::BrowserError;
use crate::suites::{azcli, drills, go, java_and_js, python, requests, rust};
use crate::toolbox::{MissingTool, NamedTool, Toolbox};

pub(crate) use self::operator_suite::start_control_plane;

/// Run the conformance suites of lanyard.
#[derive(Debug, Parser)]
#[command(name = "lanyard-conformance")]
pub(crate) struct SuiteArgs {
    /// Suite or benchmark to run
    #[arg(value_parser = parse_task)]
    suite: DriverTask,
    /// Run only the cases whose names contain this text
    filter: Option<String>,
    /// Path of the lanyard binary
    #[arg(long)]
    lanyard: PathBuf,
    /// HostedCluster for which the local Azure is seeded
    #[arg(long, value_name = "FILE")]
    hosted_cluster: PathBuf,
    /// Client program of the suites `go`, `python`, `rust`, `java`, `js`, `requests`, `azcli`, `infra` and `drills`
    #[arg(long)]
    program: Option<PathBuf>,
    /// Script that the client program runs, if it is an interpreter
    #[arg(long)]
    script: Option<PathBuf>,
    /// Accepted differences, for the suite `requests`
    #[arg(long, value_name = "FILE")]
    accepted: Option<PathBuf>,
    /// Run on a real subscription, with credentials from environment variables
    #[arg(long)]
    live: bool,
    /// Program of another project that the suite needs; can be repeated
    #[arg(long = "tool", value_name = "NAME=PATH")]
    tools: Vec<NamedTool>,
    /// Root of the repository
    #[arg(long, value_name = "DIR", default_value = ".")]
    repository: PathBuf,
    /// Output file of the suites that measure
    #[arg(long, value_name = "FILE", default_value = "measurements.json")]
    measurements: PathBuf,
    /// Number of HostedClusters, for the suite `measure-operator`
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    clusters: usize,
    /// Largest number of objects of each kind, for the suite `measure-azure`
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    objects: usize,
    /// Update the golden files instead of comparing them, for the suite `chart`
    #[arg(long)]
    update_golden: bool,
    /// Record the operations of the local Azure that the clients of the suite use
    #[arg(long, conflicts_with_all = ["filter", "live"])]
    record_clients: bool,
}

/// What the program runs: a suite or a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriverTask {
    Suite(SuiteName),
    Benchmark(BenchmarkName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchmarkName {
    /// Measurements for `cargo xtask bench node`
    Measure,
    /// Measurements for `cargo xtask bench operator`
    MeasureOperator,
    /// Measurements for `cargo xtask bench azure`
    MeasureAzure,
}

fn parse_task(name: &str) -> Result<DriverTask, String> {
    SuiteName::from_str(name, false)
        .map(DriverTask::Suite)
        .or_else(|_| BenchmarkName::from_str(name, false).map(DriverTask::Benchmark))
}

/// The environment that a suite needs.
#[derive(Debug, Clone, Copy)]
enum SuiteKind {
    Client(ClientSuite),
    Drills,
    Page,
    AzureBenchmark,
    ApiServer(ApiServerSuite),
    Kubernetes(ClusterSuite),
}

impl SuiteKind {
    /// Whether clients of other projects use one local Azure, whose request log the suite reads.
    const fn can_record_clients(self) -> bool {
        match self {
            Self::Client(_) | Self::Drills | Self::ApiServer(ApiServerSuite::Kms) => true,
            Self::Kubernetes(suite) => suite.can_record_clients(),
            Self::Page | Self::AzureBenchmark | Self::ApiServer(_) => false,
        }
    }
}

/// The suites of Azure clients.
#[derive(Debug, Clone, Copy)]
enum ClientSuite {
    Go,
    Python,
    Rust,
    Java,
    Js,
    Requests,
    Azcli,
    Infra,
}

impl DriverTask {
    const fn kind(self) -> SuiteKind {
        match self {
            Self::Suite(suite) => suite_kind(suite),
            Self::Benchmark(BenchmarkName::Measure) => SuiteKind::Kubernetes(ClusterSuite::Measure),
            Self::Benchmark(BenchmarkName::MeasureOperator) => {
                SuiteKind::ApiServer(ApiServerSuite::MeasureOperator)
            }
            Self::Benchmark(BenchmarkName::MeasureAzure) => SuiteKind::AzureBenchmark,
        }
    }
}

const fn suite_kind(suite: SuiteName) -> SuiteKind {
    match suite {
        SuiteName::Go => SuiteKind::Client(ClientSuite::Go),
        SuiteName::Python => SuiteKind::Client(ClientSuite::Python),
        SuiteName::Rust => SuiteKind::Client(ClientSuite::Rust),
        SuiteName::Java => SuiteKind::Client(ClientSuite::Java),
        SuiteName::Js => SuiteKind::Client(ClientSuite::Js),
        SuiteName::Requests => SuiteKind::Client(ClientSuite::Requests),
        SuiteName::Azcli => SuiteKind::Client(ClientSuite::Azcli),
        SuiteName::Infra => SuiteKind::Client(ClientSuite::Infra),
        SuiteName::Drills => SuiteKind::Drills,
        SuiteName::Page => SuiteKind::Page,
        SuiteName::Chart => SuiteKind::Kubernetes(ClusterSuite::Chart),
        SuiteName::Csi => SuiteKind::Kubernetes(ClusterSuite::Csi),
        SuiteName::Interop => SuiteKind::Kubernetes(ClusterSuite::Interop),
        SuiteName::Node => SuiteKind::Kubernetes(ClusterSuite::Node),
        SuiteName::HostedCluster => SuiteKind::Kubernetes(ClusterSuite::HostedCluster),
        SuiteName::Kms => SuiteKind::ApiServer(ApiServerSuite::Kms),
        SuiteName::Kubernetes => SuiteKind::ApiServer(ApiServerSuite::Kubernetes),
        SuiteName::Operator => SuiteKind::ApiServer(ApiServerSuite::Operator),
    }
}

/// The suite cannot be prepared.
#[derive(Debug, Error)]
pub(crate) enum SuiteSetupError {
    #[error(transparent)]
    Live(#[from] LiveSubscriptionError),
    #[error("the Azure environment of the suite could not be prepared")]
    AzureTarget(#[from] AzureTargetError),
    #[error("the cluster of the suite could not be prepared")]
    SuiteCluster(#[from] SuiteClusterError),
    #[error("the lifecycles of the suite could not be prepared")]
    Lifecycles(#[from] LifecycleFileError),
    #[error("the local Azure could not be prepared for the lifecycles")]
    LifecycleRoles(#[source] LocalAzureError),
    #[error("the commands of the Azure CLI could not be prepared")]
    AzureCli(#[from] AzureCliError),
    #[error("the drills could not be prepared")]
    Drills(#[from] DrillSuiteError),
    #[error("the browser of the suite could not be prepared")]
    Browser(#[from] BrowserError),
    #[error(transparent)]
    Tool(#[from] MissingTool),
    #[error("an image could not be loaded")]
    Image(#[source] ClusterError),
    #[error("the output of the import does not name the image in {}: {output}", archive.display())]
    UnnamedImage { archive: PathBuf, output: String },
    #[error("csi-sanity could not be run")]
    CsiSanity(#[from] SanityError),
    #[error("the objects of the suite could not be written")]
    Objects(#[source] KubectlError),
    #[error("the control plane could not be started")]
    ControlPlane(#[from] ControlPlaneError),
    #[error("the custom resource definitions could not be installed")]
    Install(#[from] ApiServerError),
    #[error("the rules of the chart's ClusterRoles could not be read")]
    ChartPermissions(#[from] ChartPermissionsError),
    #[error("the schema cases are invalid")]
    Cases(#[from] SchemaCasesError),
    #[error("{} is not valid YAML", path.display())]
    Yaml {
        path: PathBuf,
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    #[error("the commands of the tutorial could not be prepared: {message}")]
    Tutorial { message: String },
    #[error(transparent)]
    Ports(#[from] NoFreePorts),
    #[error("the suite needs `--program`")]
    NoProgram,
    #[error("the suite starts its own servers and cannot run with `--live`")]
    NotLive,
    #[error("the suite does not record the operations of clients: remove `--record-clients`")]
    NoRequestLog,
    #[error("the runtime could not be started")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is not a list of accepted differences", path.display())]
    AcceptedDifferences {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the HostedCluster cannot be read")]
    HostedCluster(#[source] ReadHostedClusterError),
    #[error("the HostedCluster is not valid")]
    Invalid(#[source] HostedClusterValidationError),
    #[error("a rendered SecretProviderClass is not valid")]
    Class(#[source] ParameterProblems),
    #[error("the HostedCluster runs no component")]
    NoComponent,
    #[error("the HostedCluster configures no encryption key")]
    NoKey,
    #[error("the identities of the suite could not be prepared: {message}")]
    Identities { message: String },
}

impl ErrorHint for SuiteSetupError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Live(error) => error.hint(),
            Self::AzureTarget(_) => {
                Some("run `lanyard azure serve` manually and read its error".into())
            }
            Self::SuiteCluster(error) => error.hint(),
            _ => None,
        }
    }
}

impl SuiteArgs {
    /// Arguments of the test runner. Suites of short-lived clients run two trials in parallel, the others
    /// one.
    pub(crate) fn runner_arguments(&self) -> libtest_mimic::Arguments {
        let threads = match self.suite {
            DriverTask::Suite(
                SuiteName::Python | SuiteName::Rust | SuiteName::Java | SuiteName::Js,
            ) => 2,
            _ => 1,
        };
        libtest_mimic::Arguments {
            filter: self.filter.clone(),
            test_threads: Some(threads),
            ..libtest_mimic::Arguments::default()
        }
    }

    /// The name of the suite, such as `azcli`; empty for a benchmark.
    pub(crate) fn suite_name(&self) -> String {
        match self.suite {
            DriverTask::Suite(suite) => suite.name(),
            DriverTask::Benchmark(_) => String::new(),
        }
    }

    /// Whether only some of the cases run.
    pub(crate) const fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// The root of the repository.
    pub(crate) fn repository(&self) -> &Path {
        &self.repository
    }

    /// Whether the operations that the clients use are recorded instead of compared.
    pub(crate) const fn records_clients(&self) -> bool {
        self.record_clients
    }
}

/// A suite that is ready to run.
pub(crate) struct PreparedSuite {
    pub(crate) trials: Vec<Trial>,
    /// Owns the local Azure and the cluster, so it must outlive the trials.
    pub(crate) keep_alive: Arc<dyn Any>,
    /// The request log of the local Azure, if clients of other projects use it.
    pub(crate) request_log: Option<Arc<SuiteRequestLog>>,
}

/// Prepares the environment of the suite and returns its trials.
pub(crate) fn prepare_suite(
    arguments: &SuiteArgs,
    environment: BTreeMap<String, String>,
) -> Result<PreparedSuite, SuiteSetupError> {
    if arguments.record_clients && (arguments.live || !arguments.suite.kind().can_record_clients())
    {
        return Err(SuiteSetupError::NoRequestLog);
    }
    let runtime = Arc::new(Runtime::new().map_err(SuiteSetupError::Runtime)?);
    match arguments.suite.kind() {
        SuiteKind::Client(suite) => prepare_client_suite(suite, arguments, environment, runtime),
        SuiteKind::Drills
        | SuiteKind::Page
        | SuiteKind::AzureBenchmark
        | SuiteKind::ApiServer(_)
        | SuiteKind::Kubernetes(_)
            if arguments.live =>
        {
            Err(SuiteSetupError::NotLive)
        }
        SuiteKind::Drills => prepare_drills(arguments, &runtime),
        SuiteKind::Page => page_suite::prepare_page_suite(arguments, runtime),
        SuiteKind::AzureBenchmark => azure_benchmark::prepare_azure_benchmark(arguments),
        SuiteKind::ApiServer(suite) => {
            api_server_suites::prepare_api_server_suite(suite, arguments, &runtime)
        }
        SuiteKind::Kubernetes(suite) => {
            cluster_suites::prepare_cluster_suite(suite, arguments, &runtime)
        }
    }
}

fn prepare_client_suite(
    suite: ClientSuite,
    arguments: &SuiteArgs,
    environment: BTreeMap<String, String>,
    runtime: Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    let path = arguments.program.clone().ok_or(SuiteSetupError::NoProgram)?;
    let (text, cluster) = load_cluster(&arguments.hosted_cluster)?;
    let target = Arc::new(if arguments.live {
        AzureTarget::Live(LiveSubscription::parse(environment)?)
    } else {
        let place = hosted_cluster_names(&cluster)?;
        AzureTarget::Local(Arc::new(LocalAzureTarget::start(
            &arguments.lanyard,
            &text,
            place,
            &runtime,
        )?))
    });
    let program = ClientProgram::new(path, arguments.script.clone(), target.client_environment());
    let keep_alive: Arc<dyn Any> = Arc::<AzureTarget>::clone(&target);
    let request_log = suite_request_log(&target, &runtime);
    let lifecycle_trials = lifecycle_trials(suite, arguments, (&target, &program), &runtime)?;
    let mut trials = match suite {
        ClientSuite::Python => python::trials(&target, &program, &runtime),
        ClientSuite::Azcli | ClientSuite::Infra => {
            let seed = (text, hosted_cluster_names(&cluster)?);
            azure_cli_trials(suite, request_log.clone(), arguments, seed, &runtime)?
        }
        ClientSuite::Rust => rust::trials(&target, &program),
        ClientSuite::Java => java_and_js::java_trials(&target, &program),
        ClientSuite::Js => java_and_js::js_trials(&target, &program),
        ClientSuite::Go => go::trials(go::GoSuiteFixture {
            azure_target: target,
            program,
            runtime,
            credentials: component_credentials(&cluster)?,
            request_log: request_log.clone(),
        }),
        ClientSuite::Requests => {
            let accepted = arguments.accepted.as_deref().map_or(Ok(Vec::new()), load_accepted)?;
            requests::trials(requests::RequestsSuiteFixture {
                azure_target: target,
                program,
                runtime,
                accepted,
            })
        }
    };
    trials.extend(lifecycle_trials);
    Ok(PreparedSuite { trials, keep_alive, request_log })
}

/// The request log of a local Azure; `None` for a real subscription.
fn suite_request_log(target: &AzureTarget, runtime: &Arc<Runtime>) -> Option<Arc<SuiteRequestLog>> {
    match target {
        AzureTarget::Local(local) => Some(SuiteRequestLog::of(local, runtime)),
        AzureTarget::Live(_) => None,
    }
}

/// The trials of a client's lifecycles. Real subscriptions have none, because lifecycles create resources.
fn lifecycle_trials(
    suite: ClientSuite,
    arguments: &SuiteArgs,
    (target, program): (&AzureTarget, &ClientProgram),
    runtime: &Runtime,
) -> Result<Vec<Trial>, SuiteSetupError> {
    let AzureTarget::Local(local) = target else { return Ok(Vec::new()) };
    let client = match suite {
        ClientSuite::Python => python::lifecycle_client(program.clone()),
        ClientSuite::Rust => rust::lifecycle_client(program.clone()),
        ClientSuite::Go => go::lifecycle_client(program.sibling("lifecycles")),
        ClientSuite::Java => java_and_js::java_lifecycle_client(program.clone()),
        ClientSuite::Js | ClientSuite::Requests | ClientSuite::Azcli | ClientSuite::Infra => {
            return Ok(Vec::new());
        }
    };
    let inputs = local.prepare_lifecycles(runtime).map_err(SuiteSetupError::LifecycleRoles)?;
    let directory = arguments.repository.join("conformance").join("lifecycles");
    Ok(lifecycles::trials(&client, &inputs, &directory)?)
}

/// The drills, which need the local Azure, because they inject faults and advance the time.
fn prepare_drills(
    arguments: &SuiteArgs,
    runtime: &Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    let python = arguments.program.clone().ok_or(SuiteSetupError::NoProgram)?;
    let (text, cluster) = load_cluster(&arguments.hosted_cluster)?;
    let names = hosted_cluster_names(&cluster)?;
    let target = LocalAzureTarget::start(&arguments.lanyard, &text, names, runtime)?;
    let target = Arc::new(target);
    let request_log = Some(SuiteRequestLog::of(&target, runtime));
    let program = ClientProgram::new(python, arguments.script.clone(), target.client_environment());
    let tools = Toolbox::new(&arguments.tools);
    let trials = drills::trials(&target, &program, &tools, runtime)?;
    Ok(PreparedSuite { trials, keep_alive: target, request_log })
}

/// The trials of the Azure CLI, which need local Azures, because they create and delete resources.
fn azure_cli_trials(
    suite: ClientSuite,
    request_log: Option<Arc<SuiteRequestLog>>,
    arguments: &SuiteArgs,
    (hosted_cluster, names): (String, HostedClusterNames),
    runtime: &Arc<Runtime>,
) -> Result<Vec<Trial>, SuiteSetupError> {
    let request_log = request_log.ok_or(SuiteSetupError::NotLive)?;
    let python = arguments.program.clone().ok_or(SuiteSetupError::NoProgram)?;
    let script = arguments.script.as_deref().ok_or(SuiteSetupError::NoProgram)?;
    let absolute = |path: &Path| std::path::absolute(path).map_err(FileError::of("resolve", path));
    // The runner has another working directory.
    let runner = absolute(script)?;
    let has_lanyard_commands = matches!(suite, ClientSuite::Infra);
    let (name, cases) = if has_lanyard_commands {
        ("infra", arguments.repository.join("conformance").join("infra"))
    } else {
        ("azcli", runner.with_file_name("cases"))
    };
    let suite = AzureCliSuite {
        name,
        program: AzureCliProgram { python, runner, cases },
        lanyard: absolute(&arguments.lanyard)?,
        has_lanyard_commands,
        hosted_cluster,
        names,
        request_log,
        runtime: Arc::clone(runtime),
    };
    Ok(azcli::trials(suite, arguments.filter.as_deref())?)
}

fn load_cluster(path: &Path) -> Result<(String, ValidatedHostedCluster), SuiteSetupError> {
    let text = load_text(path)?;
    let cluster = parse_cluster(&text)?;
    Ok((text, cluster))
}

fn parse_cluster(text: &str) -> Result<ValidatedHostedCluster, SuiteSetupError> {
    let wire = HostedCluster::parse_yaml(text).map_err(SuiteSetupError::HostedCluster)?;
    Ok(validate(&wire).map_err(SuiteSetupError::Invalid)?.hosted_cluster)
}

fn load_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(FileError::of("read", path))
}

fn load_yaml<T: DeserializeOwned>(path: &Path) -> Result<T, SuiteSetupError> {
    serde_saphyr::from_str(&load_text(path)?).map_err(|source| SuiteSetupError::Yaml {
        path: path.to_path_buf(),
        source: Box::new(source),
    })
}

/// Loads the custom resource definitions in a directory.
fn load_definitions(directory: &Path) -> Result<Vec<CustomResourceDefinition>, SuiteSetupError> {
    let failed = FileError::of("list", directory);
    let entries = fs::read_dir(directory).map_err(&failed)?;
    entries.map(|entry| load_yaml(&entry.map_err(&failed)?.path())).collect()
}

/// Options with etcd and kube-apiserver from the tool `node`.
fn control_plane_options(arguments: &SuiteArgs) -> Result<ControlPlaneOptions, SuiteSetupError> {
    let tools = Toolbox::new(&arguments.tools);
    let node = tools.program_path("node")?;
    Ok(ControlPlaneOptions::new(node.join("etcd"), node.join("kube-apiserver")))
}

fn load_accepted(path: &Path) -> Result<Vec<AcceptedDifference>, SuiteSetupError> {
    let text = fs::read(path).map_err(FileError::of("read", path))?;
    serde_json::from_slice(&text)
        .map_err(|source| SuiteSetupError::AcceptedDifferences { path: path.to_path_buf(), source })
}

fn hosted_cluster_names(
    cluster: &ValidatedHostedCluster,
) -> Result<HostedClusterNames, SuiteSetupError> {
    let (component, identity) =
        cluster.running_components().next().ok_or(SuiteSetupError::NoComponent)?;
    let suffix = cluster.azure.cloud.endpoints().map_or("vault.azure.net", |it| it.vault_suffix);
    Ok(HostedClusterNames {
        subscription: cluster.azure.subscription.to_string(),
        resource_group: cluster.azure.resource_group.clone(),
        forbidden_resource_group: cluster
            .azure
            .vnet
            .as_ref()
            .and_then(|vnet| vnet.resource_group().map(str::to_owned))
            .unwrap_or_default(),
        vault_host: format!("{}.{suffix}", cluster.vault.name).to_ascii_lowercase(),
        vault_tenant: cluster.vault.tenant.0.to_string(),
        component: component.name().to_owned(),
        component_secret: identity.secret_name.to_string(),
    })
}

/// What each component's volume contains and may call, derived with the functions of the product.
fn component_credentials(
    cluster: &ValidatedHostedCluster,
) -> Result<BTreeMap<Component, go::ComponentCredential>, SuiteSetupError> {
    let mut proofs = desired_proof_calls(cluster);
    let classes = desired_state(cluster, &RenderContext::default()).secret_provider_classes;
    cluster
        .running_components()
        .zip(classes)
        .map(|((component, _), class)| {
            let parameters = class.parse_parameters().map_err(SuiteSetupError::Class)?;
            Ok((
                component,
                go::ComponentCredential { parameters, proof_calls: proofs.remove(&component) },
            ))
        })
        .collect()
}
