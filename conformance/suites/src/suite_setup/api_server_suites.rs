//! Preparation of the suites that run on an API server without a node.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use lanyard_vocabulary::Component;
use tokio::runtime::Runtime;

use super::{
    PreparedSuite, SuiteArgs, SuiteSetupError, hosted_cluster_names, kubernetes_suite,
    load_cluster, operator_suite,
};
use crate::azure_target::LocalAzureTarget;
use crate::operation_clients::SuiteRequestLog;
use crate::suites::kms;
use crate::toolbox::Toolbox;

/// A suite that runs on an API server.
#[derive(Debug, Clone, Copy)]
pub(super) enum ApiServerSuite {
    Kms,
    Kubernetes,
    Operator,
    MeasureOperator,
}

/// Prepares the environment of a suite and its trials.
pub(super) fn prepare_api_server_suite(
    suite: ApiServerSuite,
    arguments: &SuiteArgs,
    runtime: &Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    match suite {
        ApiServerSuite::Kms => prepare_kms(arguments, runtime),
        ApiServerSuite::Kubernetes => {
            kubernetes_suite::prepare_kubernetes_suite(arguments, runtime)
        }
        ApiServerSuite::Operator => operator_suite::prepare_operator_suite(arguments, runtime),
        ApiServerSuite::MeasureOperator => operator_suite::prepare_measurements(arguments),
    }
}

/// Starts a local Azure and prepares the trials of the suite `kms`.
fn prepare_kms(
    arguments: &SuiteArgs,
    runtime: &Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    let tools = Toolbox::new(&arguments.tools);
    let (text, cluster) = load_cluster(&arguments.hosted_cluster)?;
    let key = cluster.encryption.as_ref().map(|encryption| &encryption.active_key);
    let key = key.ok_or(SuiteSetupError::NoKey)?;
    let identity = cluster.running_components().find(|(component, _)| *component == Component::Kms);
    let (_, identity) = identity.ok_or(SuiteSetupError::NoKey)?;
    let key = kms::KmsKeyVersion {
        vault: key.vault.to_string(),
        name: key.name.to_string(),
        version: key.version.to_string(),
    };
    let secret_name = identity.secret_name.to_string();
    let program = |name| tools.program_path(name).map(Path::to_path_buf);
    let node = tools.program_path("node")?;
    let programs = kms::KmsPrograms {
        lanyard: arguments.lanyard.clone(),
        kubernetes_kms: program("kubernetes-kms")?,
        etcd: node.join("etcd"),
        kube_apiserver: node.join("kube-apiserver"),
    };
    let azure = Arc::new(LocalAzureTarget::start(
        &arguments.lanyard,
        &text,
        hosted_cluster_names(&cluster)?,
        runtime,
    )?);
    let request_log = Some(SuiteRequestLog::of(&azure, runtime));
    let keep_alive: Arc<dyn Any> = Arc::<LocalAzureTarget>::clone(&azure);
    let fixture =
        kms::KmsSuiteFixture::new(azure, Arc::clone(runtime), programs, (key, secret_name));
    let prepared = runtime.block_on(fixture.prepare());
    prepared.map_err(|failed| SuiteSetupError::Identities {
        message: failed.message().unwrap_or_default().to_owned(),
    })?;
    Ok(PreparedSuite { trials: kms::trials(fixture), keep_alive, request_log })
}
