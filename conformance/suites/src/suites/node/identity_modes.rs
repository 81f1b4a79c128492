//! One trial for each identity mode of a pod.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::federation::SERVICE_ACCOUNT;
use super::probe_pod::{PodVolume, ProbePod};
use super::{NAMESPACE, NodeSuiteFixture, failed_with_causes};
use crate::class_manifests::ClassIdentityMode;
use crate::sign_in_method::SignInMethod;

const SECRET_OBJECT: &str = "objectName: test-secret\nobjectType: secret";
/// The value of the test clients' secret in the seed data.
const SECRET_VALUE: &str = "for test clients";

/// Reads a component's credential with the managed identity. Only the vault knows its content, so the trial
/// checks its fields.
pub(super) async fn managed_identity_pod(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let object = "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
    fixture.create_class(
        "managed",
        SignInMethod::ManagedIdentity,
        ClassIdentityMode::ManagedIdentity,
        object,
    )?;
    let pod = ProbePod::new(fixture, "managed", PodVolume::of_class("managed"), &["credential"]);
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

pub(super) async fn workload_identity_pod(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    create_service_account(fixture).await?;
    fixture.create_class(
        "workload",
        SignInMethod::Federated,
        ClassIdentityMode::WorkloadIdentity,
        SECRET_OBJECT,
    )?;
    let pod = ProbePod::new(fixture, "workload", PodVolume::of_class("workload"), &["test-secret"]);
    expect_pod_reads_secret(&pod.with_account(SERVICE_ACCOUNT)).await
}

pub(super) async fn identity_binding_pod(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    create_service_account(fixture).await?;
    fixture.create_class(
        "binding",
        SignInMethod::Federated,
        ClassIdentityMode::IdentityBinding,
        SECRET_OBJECT,
    )?;
    let pod = ProbePod::new(fixture, "binding", PodVolume::of_class("binding"), &["test-secret"]);
    expect_pod_reads_secret(&pod.with_account(SERVICE_ACCOUNT)).await
}

pub(super) async fn service_principal_pod(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let inputs = fixture.azure.inputs(SignInMethod::Secret);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "principal", "namespace": NAMESPACE },
        "stringData": { "clientid": inputs.client, "clientsecret": inputs.client_secret },
    });
    fixture.suite_cluster.kubectl.apply(&secret).map_err(failed_with_causes)?;
    fixture.create_class(
        "principal",
        SignInMethod::Secret,
        ClassIdentityMode::ServicePrincipal,
        SECRET_OBJECT,
    )?;
    let volume = PodVolume { secret: Some("principal"), ..PodVolume::of_class("principal") };
    expect_pod_reads_secret(&ProbePod::new(fixture, "principal", volume, &["test-secret"])).await
}

/// Runs a pod, reads the secret in it, and deletes the pod.
async fn expect_pod_reads_secret(pod: &ProbePod<'_>) -> Result<(), Failed> {
    pod.create_and_wait().await?;
    let content = pod.read_file("test-secret")?;
    pod.delete()?;
    if content == SECRET_VALUE { Ok(()) } else { Err("the file holds something else".into()) }
}

async fn create_service_account(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    fixture.ensure_federation().await?;
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": SERVICE_ACCOUNT, "namespace": NAMESPACE },
    });
    fixture.suite_cluster.kubectl.apply(&account).map_err(failed_with_causes)
}
