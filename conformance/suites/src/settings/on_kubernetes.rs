//! The suites that run on a real cluster.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;

use super::{Arguments, Prepared, SetupError, load_cluster, place_of};
use crate::ground::Local;
use crate::helm::{Chart, Helm};
use crate::site::Site;
use crate::suites::{chart, csi, hosted_cluster, interop, measure, node};
use crate::toolbox::Toolbox;

/// A suite that runs on a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) enum Suite {
    Chart,
    Csi,
    Interop,
    Node,
    HostedCluster,
    Measure,
}

/// A site for the suite, and its trials.
pub(super) fn prepare(
    suite: Suite,
    arguments: &Arguments,
    runtime: &Arc<Runtime>,
) -> Result<Prepared, SetupError> {
    let tools = &Toolbox::new(&arguments.tools);
    let site = Arc::new(Site::start(tools.path("node")?, runtime)?);
    let ground: Arc<dyn Any> = Arc::<Site>::clone(&site);
    let trials = match suite {
        Suite::Chart => chart::trials(chart::Stage {
            helm: helm(arguments, tools, &site, Chart::Node)?,
            operator: helm(arguments, tools, &site, Chart::Operator)?,
            azure: helm(arguments, tools, &site, Chart::Azure)?,
            site,
            golden: arguments.repository.join("conformance").join("kubernetes"),
            bless: arguments.bless,
        }),
        Suite::Csi => csi::trials(&csi_stage(arguments, tools, &site)?)?,
        Suite::Interop => interop::trials(interop_stage(arguments, tools, &site)?),
        Suite::Node => node::trials(node_stage(arguments, tools, &site)?),
        Suite::HostedCluster => {
            hosted_cluster::trials(hosted_cluster_stage(arguments, tools, &site)?)
        }
        Suite::Measure => measure::trials(measure::Stage {
            azure: Arc::new(local_azure(arguments, &site)?),
            lanyard: tools.path("lanyard-released")?.to_path_buf(),
            driver: tools.path("driver-1.6")?.to_path_buf(),
            provider: tools.path("azure-provider")?.to_path_buf(),
            crds: crds(arguments),
            output: arguments.measurements.clone(),
            site,
        }),
    };
    Ok(Prepared { trials, ground })
}

fn helm(
    arguments: &Arguments,
    tools: &Toolbox,
    site: &Site,
    chart: Chart,
) -> Result<Helm, SetupError> {
    let home = site.directory().join("helm");
    let (program, kubeconfig) = (tools.path("helm")?, site.kubectl.kubeconfig());
    Ok(Helm::new(program, &arguments.repository, chart, kubeconfig, &home))
}

fn csi_stage(
    arguments: &Arguments,
    tools: &Toolbox,
    site: &Arc<Site>,
) -> Result<csi::Stage, SetupError> {
    let stage = csi::Stage {
        site: Arc::clone(site),
        csi_sanity: tools.path("csi-sanity")?.to_path_buf(),
        mock_provider: tools.path("mock-provider")?.to_path_buf(),
        lanyard: arguments.lanyard.clone(),
    };
    stage.prepare(&crds(arguments)).map_err(SetupError::Objects)?;
    Ok(stage)
}

/// The directory of the chart's CRDs.
fn crds(arguments: &Arguments) -> String {
    arguments.repository.join("charts/lanyard-node/files/crds").display().to_string()
}

fn interop_stage(
    arguments: &Arguments,
    tools: &Toolbox,
    site: &Arc<Site>,
) -> Result<interop::Stage, SetupError> {
    let program = |name| tools.path(name).map(Path::to_path_buf);
    let programs = interop::Programs {
        lanyard: arguments.lanyard.clone(),
        driver_1_5: program("driver-1.5")?,
        driver_1_6: program("driver-1.6")?,
        azure_provider: program("azure-provider")?,
        mock_provider: program("mock-provider")?,
    };
    let azure = Arc::new(local_azure(arguments, site)?);
    let stage = interop::Stage { site: Arc::clone(site), azure, programs };
    stage.prepare(&crds(arguments)).map_err(SetupError::Objects)?;
    Ok(stage)
}

fn node_stage(
    arguments: &Arguments,
    tools: &Toolbox,
    site: &Arc<Site>,
) -> Result<node::Stage, SetupError> {
    let azure = Arc::new(local_azure(arguments, site)?);
    let images = node::Images {
        lanyard: load(tools.path("lanyard-node-image")?, site)?,
        witness: load(tools.path("witness-image")?, site)?,
    };
    let upstream =
        (tools.path("driver-1.6")?.to_path_buf(), tools.path("azure-provider")?.to_path_buf());
    let helm = helm(arguments, tools, site, Chart::Node)?;
    let stage = node::Stage::new(Arc::clone(site), azure, helm, images, upstream)?;
    stage.prepare().map_err(SetupError::Objects)?;
    Ok(stage)
}

fn hosted_cluster_stage(
    arguments: &Arguments,
    tools: &Toolbox,
    site: &Arc<Site>,
) -> Result<hosted_cluster::Stage, SetupError> {
    let images = hosted_cluster::Images {
        node: load(tools.path("lanyard-node-image")?, site)?,
        operator: load(tools.path("lanyard-image")?, site)?,
        azure: load(tools.path("lanyard-azure-image")?, site)?,
    };
    let absolute = |path: &Path| {
        path.canonicalize().map_err(|source| SetupError::Read { path: path.to_path_buf(), source })
    };
    let parts = hosted_cluster::Parts {
        site: Arc::clone(site),
        images,
        helm: tools.path("helm")?.to_path_buf(),
        lanyard: absolute(&arguments.lanyard)?,
        repository: absolute(&arguments.repository)?,
    };
    hosted_cluster::Stage::new(parts).map_err(|error| SetupError::Tutorial {
        said: error.message().unwrap_or_default().to_owned(),
    })
}

/// Gives the node an image, and returns the name that it has there.
fn load(archive: &Path, site: &Site) -> Result<String, SetupError> {
    let said = site.runtime.block_on(site.cluster.load(archive)).map_err(SetupError::Image)?;
    let name = said.split_whitespace().find(|word| word.contains('/') && word.contains(':'));
    name.map(str::to_owned).ok_or_else(|| SetupError::UnnamedImage {
        archive: archive.to_path_buf(),
        said: said.clone(),
    })
}

fn local_azure(arguments: &Arguments, site: &Site) -> Result<Local, SetupError> {
    let (text, cluster) = load_cluster(&arguments.hosted_cluster)?;
    let place = place_of(&cluster)?;
    Ok(Local::start(&arguments.lanyard, &text, place, &site.runtime)?)
}
