//! Preparation of the suite `kubernetes`: the node plugin's requests to a real API server.

use std::any::Any;
use std::sync::Arc;

use lanyard_cluster::ControlPlane;
use tokio::runtime::Runtime;

use super::{PreparedSuite, SuiteArgs, SuiteSetupError, control_plane_options, load_definitions};
use crate::api_server::{install_definitions, user_client};
use crate::suites::kubernetes::{self, ChartPermissions, KubernetesSuiteFixture};
use crate::toolbox::Toolbox;

/// Starts the control plane and returns the trials.
pub(super) fn prepare_kubernetes_suite(
    arguments: &SuiteArgs,
    runtime: &Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    let definitions = load_definitions(&arguments.repository.join(DEFINITION_DIRECTORY))?;
    let permissions =
        Arc::new(ChartPermissions::load(&arguments.repository.join(RENDERED_CHART_DIRECTORY))?);
    let options = control_plane_options(arguments)?.with_user(kubernetes::NODE_PLUGIN_USER);
    let plane = runtime.block_on(async {
        let plane = Arc::new(ControlPlane::start(options).await?);
        let client = user_client(&plane, ControlPlane::ADMINISTRATOR).await?;
        install_definitions(&client, &definitions).await?;
        Ok::<_, SuiteSetupError>(plane)
    })?;
    let keep_alive: Arc<dyn Any> = Arc::<ControlPlane>::clone(&plane);
    let helm = Toolbox::new(&arguments.tools).program_path("helm")?.to_path_buf();
    let fixture = KubernetesSuiteFixture { plane, runtime: Arc::clone(runtime), permissions, helm };
    Ok(PreparedSuite { trials: kubernetes::trials(&fixture), keep_alive, request_log: None })
}

/// The directory of the node chart's CRDs, in the repository.
const DEFINITION_DIRECTORY: &str = "charts/lanyard-node/files/crds";
/// The directory of the node chart's golden files, in the repository.
const RENDERED_CHART_DIRECTORY: &str = "conformance/kubernetes/chart";
