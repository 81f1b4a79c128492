//! The suite `kubernetes`: the node plugin's requests on a real etcd and kube-apiserver.

use std::any::Any;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use lanyard_cluster::ControlPlane;
use tokio::runtime::Runtime;

use super::{Arguments, Prepared, SetupError, control_plane};
use crate::suites::kubernetes::{self, ChartRights, Stage};

/// Starts the control plane, and returns the trials of the suite.
pub(super) fn prepare(
    arguments: &Arguments,
    runtime: &Arc<Runtime>,
) -> Result<Prepared, SetupError> {
    let definitions = load_definitions(&arguments.repository.join(DEFINITIONS))?;
    let rights = Arc::new(ChartRights::load(&arguments.repository.join(RENDERED))?);
    let options = control_plane(arguments)?.user(kubernetes::NODE);
    let plane = Arc::new(runtime.block_on(ControlPlane::start(options))?);
    let ground: Arc<dyn Any> = Arc::<ControlPlane>::clone(&plane);
    let stage = Stage { plane, runtime: Arc::clone(runtime), definitions, rights };
    Ok(Prepared { trials: kubernetes::trials(&stage), ground })
}

fn load_definitions(directory: &Path) -> Result<Vec<String>, SetupError> {
    let failed = |source| SetupError::Read { path: directory.to_path_buf(), source };
    let entries = fs::read_dir(directory).map_err(failed)?;
    entries.map(|entry| fs::read_to_string(entry.map_err(failed)?.path()).map_err(failed)).collect()
}

/// The custom resource definitions, in the repository.
const DEFINITIONS: &str = "charts/lanyard-node/files/crds";
/// What the chart renders, in the repository.
const RENDERED: &str = "conformance/kubernetes/chart";
