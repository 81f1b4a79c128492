//! The suite `kubernetes`: the node plugin's requests on a real etcd and kube-apiserver.

use std::any::Any;
use std::sync::Arc;

use lanyard_cluster::ControlPlane;
use tokio::runtime::Runtime;

use super::{Arguments, Prepared, SetupError, control_plane, load_definitions};
use crate::api_server::{client, install};
use crate::suites::kubernetes::{self, ChartRights, Stage};

/// Starts the control plane, and returns the trials of the suite.
pub(super) fn prepare(
    arguments: &Arguments,
    runtime: &Arc<Runtime>,
) -> Result<Prepared, SetupError> {
    let definitions = load_definitions(&arguments.repository.join(DEFINITIONS))?;
    let rights = Arc::new(ChartRights::load(&arguments.repository.join(RENDERED))?);
    let options = control_plane(arguments)?.user(kubernetes::NODE);
    let plane = runtime.block_on(async {
        let plane = Arc::new(ControlPlane::start(options).await?);
        let client = client(&plane, ControlPlane::ADMINISTRATOR).await?;
        install(&client, &definitions).await?;
        Ok::<_, SetupError>(plane)
    })?;
    let ground: Arc<dyn Any> = Arc::<ControlPlane>::clone(&plane);
    let stage = Stage { plane, runtime: Arc::clone(runtime), rights };
    Ok(Prepared { trials: kubernetes::trials(&stage), ground })
}

/// The custom resource definitions, in the repository.
const DEFINITIONS: &str = "charts/lanyard-node/files/crds";
/// What the chart renders, in the repository.
const RENDERED: &str = "conformance/kubernetes/chart";
