//! Preparation of the suites that run on a real cluster.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;

use super::{PreparedSuite, SuiteArgs, SuiteSetupError, hosted_cluster_names, load_cluster};
use crate::azure_target::LocalAzureTarget;
use crate::file_error::FileError;
use crate::helm::{Helm, LanyardChart};
use crate::operation_clients::SuiteRequestLog;
use crate::suite_cluster::SuiteCluster;
use crate::suites::{chart, csi, hosted_cluster, interop, measure, node};
use crate::toolbox::Toolbox;

/// A suite that runs on a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClusterSuite {
    Chart,
    Csi,
    Interop,
    Node,
    HostedCluster,
    Measure,
}

impl ClusterSuite {
    pub(super) const fn can_record_clients(self) -> bool {
        matches!(self, Self::Interop | Self::Node)
    }
}

/// A `suite_cluster` for the suite, and its trials.
pub(super) fn prepare_cluster_suite(
    suite: ClusterSuite,
    arguments: &SuiteArgs,
    runtime: &Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    let tools = &Toolbox::new(&arguments.tools);
    let suite_cluster = Arc::new(SuiteCluster::start(tools.program_path("node")?, runtime)?);
    let runtime = Arc::clone(runtime);
    let started_cluster = Arc::clone(&suite_cluster);
    // The local Azure that clients of other projects use.
    let mut azure: Option<Arc<LocalAzureTarget>> = None;
    let trials = match suite {
        ClusterSuite::Chart => chart::trials(chart::ChartSuiteFixture {
            node_helm: helm_for_chart(arguments, tools, &suite_cluster, LanyardChart::Node)?,
            operator_helm: helm_for_chart(
                arguments,
                tools,
                &suite_cluster,
                LanyardChart::Operator,
            )?,
            azure_helm: helm_for_chart(arguments, tools, &suite_cluster, LanyardChart::Azure)?,
            suite_cluster,
            golden_root: arguments.repository.join("conformance").join("kubernetes"),
            update_golden: arguments.update_golden,
        }),
        ClusterSuite::Csi => csi::trials(&csi_fixture(arguments, tools, &suite_cluster)?)?,
        ClusterSuite::Interop => {
            let fixture = interop_fixture(arguments, tools, &suite_cluster)?;
            azure = Some(Arc::clone(&fixture.azure));
            interop::trials(fixture)
        }
        ClusterSuite::Node => {
            let fixture = node_fixture(arguments, tools, &suite_cluster)?;
            azure = Some(Arc::clone(&fixture.azure));
            node::trials(fixture)
        }
        ClusterSuite::HostedCluster => {
            hosted_cluster::trials(hosted_cluster_fixture(arguments, tools, &suite_cluster)?)
        }
        ClusterSuite::Measure => measure::trials(measure::NodeBenchmarkFixture {
            azure: Arc::new(start_local_azure(arguments, &suite_cluster)?),
            lanyard_program: tools.program_path("lanyard-released")?.to_path_buf(),
            driver_program: tools.program_path("driver-1.6")?.to_path_buf(),
            provider_program: tools.program_path("azure-provider")?.to_path_buf(),
            crd_directory: crd_directory(arguments),
            output: arguments.measurements.clone(),
            suite_cluster,
        }),
    };
    let request_log = azure.as_ref().map(|azure| SuiteRequestLog::of(azure, &runtime));
    let keep_alive: Arc<dyn Any> = Arc::new((started_cluster, azure));
    Ok(PreparedSuite { trials, keep_alive, request_log })
}

fn helm_for_chart(
    arguments: &SuiteArgs,
    tools: &Toolbox,
    suite_cluster: &SuiteCluster,
    chart: LanyardChart,
) -> Result<Helm, SuiteSetupError> {
    let home = suite_cluster.directory().join("helm");
    let (program, kubeconfig) = (tools.program_path("helm")?, suite_cluster.kubectl.kubeconfig());
    Ok(Helm::new(program, &arguments.repository, chart, kubeconfig, &home))
}

fn csi_fixture(
    arguments: &SuiteArgs,
    tools: &Toolbox,
    suite_cluster: &Arc<SuiteCluster>,
) -> Result<csi::CsiSuiteFixture, SuiteSetupError> {
    let fixture = csi::CsiSuiteFixture {
        suite_cluster: Arc::clone(suite_cluster),
        csi_sanity: tools.program_path("csi-sanity")?.to_path_buf(),
        mock_provider: tools.program_path("mock-provider")?.to_path_buf(),
        lanyard: arguments.lanyard.clone(),
    };
    fixture.prepare(&crd_directory(arguments)).map_err(SuiteSetupError::Objects)?;
    Ok(fixture)
}

/// The directory of the chart's CRDs.
fn crd_directory(arguments: &SuiteArgs) -> String {
    arguments.repository.join("charts/lanyard-node/files/crds").display().to_string()
}

fn interop_fixture(
    arguments: &SuiteArgs,
    tools: &Toolbox,
    suite_cluster: &Arc<SuiteCluster>,
) -> Result<interop::InteropSuiteFixture, SuiteSetupError> {
    let program = |name| tools.program_path(name).map(Path::to_path_buf);
    let programs = interop::InteropPrograms {
        lanyard: arguments.lanyard.clone(),
        driver_1_5: program("driver-1.5")?,
        driver_1_6: program("driver-1.6")?,
        azure_provider: program("azure-provider")?,
        mock_provider: program("mock-provider")?,
    };
    let azure = Arc::new(start_local_azure(arguments, suite_cluster)?);
    let fixture =
        interop::InteropSuiteFixture { suite_cluster: Arc::clone(suite_cluster), azure, programs };
    fixture.prepare(&crd_directory(arguments)).map_err(SuiteSetupError::Objects)?;
    Ok(fixture)
}

fn node_fixture(
    arguments: &SuiteArgs,
    tools: &Toolbox,
    suite_cluster: &Arc<SuiteCluster>,
) -> Result<node::NodeSuiteFixture, SuiteSetupError> {
    let azure = Arc::new(start_local_azure(arguments, suite_cluster)?);
    let images = node::NodeSuiteImages {
        lanyard: load_image(tools.program_path("lanyard-node-image")?, suite_cluster)?,
        witness: load_image(tools.program_path("witness-image")?, suite_cluster)?,
    };
    let upstream = (
        tools.program_path("driver-1.6")?.to_path_buf(),
        tools.program_path("azure-provider")?.to_path_buf(),
    );
    let helm = helm_for_chart(arguments, tools, suite_cluster, LanyardChart::Node)?;
    let fixture =
        node::NodeSuiteFixture::new(Arc::clone(suite_cluster), azure, helm, images, upstream)?;
    fixture.prepare().map_err(SuiteSetupError::Objects)?;
    Ok(fixture)
}

fn hosted_cluster_fixture(
    arguments: &SuiteArgs,
    tools: &Toolbox,
    suite_cluster: &Arc<SuiteCluster>,
) -> Result<hosted_cluster::HostedClusterSuiteFixture, SuiteSetupError> {
    let images = hosted_cluster::HostedClusterImages {
        node: load_image(tools.program_path("lanyard-node-image")?, suite_cluster)?,
        operator: load_image(tools.program_path("lanyard-image")?, suite_cluster)?,
        azure: load_image(tools.program_path("lanyard-azure-image")?, suite_cluster)?,
    };
    let absolute = |path: &Path| path.canonicalize().map_err(FileError::of("resolve", path));
    let parts = hosted_cluster::HostedClusterSuiteInputs {
        suite_cluster: Arc::clone(suite_cluster),
        images,
        helm_program: tools.program_path("helm")?.to_path_buf(),
        lanyard_program: absolute(&arguments.lanyard)?,
        repository: absolute(&arguments.repository)?,
    };
    hosted_cluster::HostedClusterSuiteFixture::new(parts).map_err(|error| {
        SuiteSetupError::Tutorial { message: error.message().unwrap_or_default().to_owned() }
    })
}

/// Imports an image into the node and returns its name there.
fn load_image(archive: &Path, suite_cluster: &SuiteCluster) -> Result<String, SuiteSetupError> {
    let output = suite_cluster
        .runtime
        .block_on(suite_cluster.cluster.load_image_archive(archive))
        .map_err(SuiteSetupError::Image)?;
    let name = output.split_whitespace().find(|word| word.contains('/') && word.contains(':'));
    name.map(str::to_owned).ok_or_else(|| SuiteSetupError::UnnamedImage {
        archive: archive.to_path_buf(),
        output: output.clone(),
    })
}

fn start_local_azure(
    arguments: &SuiteArgs,
    suite_cluster: &SuiteCluster,
) -> Result<LocalAzureTarget, SuiteSetupError> {
    let (text, cluster) = load_cluster(&arguments.hosted_cluster)?;
    let place = hosted_cluster_names(&cluster)?;
    Ok(LocalAzureTarget::start(&arguments.lanyard, &text, place, &suite_cluster.runtime)?)
}
