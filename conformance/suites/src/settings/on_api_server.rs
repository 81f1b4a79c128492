//! The suites that run on API servers without a node.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use lanyard_vocabulary::Component;
use tokio::runtime::Runtime;

use super::{Arguments, Prepared, SetupError, kubernetes, load_cluster, operator, place_of};
use crate::ground::Local;
use crate::suites::kms;
use crate::toolbox::Toolbox;

/// A suite that runs on an API server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Suite {
    Kms,
    Kubernetes,
    Operator,
    MeasureOperator,
}

/// What the suite runs on, and its trials.
pub(super) fn prepare(
    suite: Suite,
    arguments: &Arguments,
    runtime: &Arc<Runtime>,
) -> Result<Prepared, SetupError> {
    match suite {
        Suite::Kms => prepare_kms(arguments, runtime),
        Suite::Kubernetes => kubernetes::prepare(arguments, runtime),
        Suite::Operator => operator::prepare(arguments, runtime),
        Suite::MeasureOperator => operator::prepare_measurements(arguments),
    }
}

/// A local Azure for the suite, and its trials.
fn prepare_kms(arguments: &Arguments, runtime: &Arc<Runtime>) -> Result<Prepared, SetupError> {
    let tools = Toolbox::new(&arguments.tools);
    let (text, cluster) = load_cluster(&arguments.hosted_cluster)?;
    let key = cluster.encryption.as_ref().map(|encryption| &encryption.active_key);
    let key = key.ok_or(SetupError::NoKey)?;
    let identity = cluster.components().find(|(component, _)| *component == Component::Kms);
    let (_, identity) = identity.ok_or(SetupError::NoKey)?;
    let key = kms::Key {
        vault: key.vault.to_string(),
        name: key.name.to_string(),
        version: key.version.to_string(),
    };
    let secret_name = identity.secret_name.to_string();
    let program = |name| tools.path(name).map(Path::to_path_buf);
    let node = tools.path("node")?;
    let programs = kms::Programs {
        lanyard: arguments.lanyard.clone(),
        kubernetes_kms: program("kubernetes-kms")?,
        etcd: node.join("etcd"),
        kube_apiserver: node.join("kube-apiserver"),
    };
    let azure = Local::start(&arguments.lanyard, &text, place_of(&cluster)?, runtime)?;
    let stage = kms::Stage::new(azure, Arc::clone(runtime), programs, (key, secret_name));
    let prepared = runtime.block_on(stage.prepare());
    prepared.map_err(|failed| SetupError::Identities {
        said: failed.message().unwrap_or_default().to_owned(),
    })?;
    let ground: Arc<dyn Any> = Arc::new(());
    Ok(Prepared { trials: kms::trials(stage), ground })
}
