//! One pod for each way to prove who it is.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::federation::SERVICE_ACCOUNT;
use super::probe_pod::{PodVolume, ProbePod};
use super::{NAMESPACE, NodeSuiteFixture, failed_with_causes};
use crate::azure_target::SignInMethod;
use crate::class_manifests::ClassIdentityMode;

const SECRET_OBJECT: &str = "objectName: guest-secret\nobjectType: secret";
/// What the guests' secret holds in the world of the local Azure.
const SECRET_VALUE: &str = "for guests";

/// The credential of a component; nobody but the vault knows its content, so it is judged by being
/// one.
pub(super) async fn managed_identity_pod(stage: &NodeSuiteFixture) -> Result<(), Failed> {
    let object = "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
    stage.create_class(
        "managed",
        SignInMethod::ManagedIdentity,
        ClassIdentityMode::ManagedIdentity,
        object,
    )?;
    let pod = ProbePod::new(stage, "managed", PodVolume::of_class("managed"), &["credential"]);
    pod.create_and_wait().await?;
    let content = pod.read_file("credential")?;
    pod.delete()?;
    let credential: Value = serde_json::from_str(&content).map_err(failed_with_causes)?;
    for field in ["client_id", "tenant_id", "client_secret", "not_before", "not_after"] {
        if credential[field].as_str().is_none_or(str::is_empty) {
            return Err(format!("the credential has no {field}").into());
        }
    }
    Ok(())
}

pub(super) async fn workload_identity_pod(stage: &NodeSuiteFixture) -> Result<(), Failed> {
    create_service_account(stage).await?;
    stage.create_class(
        "workload",
        SignInMethod::Federated,
        ClassIdentityMode::WorkloadIdentity,
        SECRET_OBJECT,
    )?;
    let pod = ProbePod::new(stage, "workload", PodVolume::of_class("workload"), &["guest-secret"]);
    expect_pod_reads_secret(&pod.with_account(SERVICE_ACCOUNT)).await
}

pub(super) async fn identity_binding_pod(stage: &NodeSuiteFixture) -> Result<(), Failed> {
    create_service_account(stage).await?;
    stage.create_class(
        "binding",
        SignInMethod::Federated,
        ClassIdentityMode::IdentityBinding,
        SECRET_OBJECT,
    )?;
    let pod = ProbePod::new(stage, "binding", PodVolume::of_class("binding"), &["guest-secret"]);
    expect_pod_reads_secret(&pod.with_account(SERVICE_ACCOUNT)).await
}

pub(super) async fn service_principal_pod(stage: &NodeSuiteFixture) -> Result<(), Failed> {
    let inputs = stage.azure.inputs(SignInMethod::Secret);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "principal", "namespace": NAMESPACE },
        "stringData": { "clientid": inputs.client, "clientsecret": inputs.client_secret },
    });
    stage.suite_cluster.kubectl.apply(&secret).map_err(failed_with_causes)?;
    stage.create_class(
        "principal",
        SignInMethod::Secret,
        ClassIdentityMode::ServicePrincipal,
        SECRET_OBJECT,
    )?;
    let volume = PodVolume { secret: Some("principal"), ..PodVolume::of_class("principal") };
    expect_pod_reads_secret(&ProbePod::new(stage, "principal", volume, &["guest-secret"])).await
}

/// Runs a pod, reads the secret in it, and lets it go.
async fn expect_pod_reads_secret(pod: &ProbePod<'_>) -> Result<(), Failed> {
    pod.create_and_wait().await?;
    let content = pod.read_file("guest-secret")?;
    pod.delete()?;
    if content == SECRET_VALUE { Ok(()) } else { Err("the file holds something else".into()) }
}

async fn create_service_account(stage: &NodeSuiteFixture) -> Result<(), Failed> {
    stage.ensure_federation().await?;
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": SERVICE_ACCOUNT, "namespace": NAMESPACE },
    });
    stage.suite_cluster.kubectl.apply(&account).map_err(failed_with_causes)
}
