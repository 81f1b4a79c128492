//! One pod for each way to prove who it is.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::federation::ACCOUNT;
use super::pods::{Pod, Volume};
use super::{NAMESPACE, Stage, chain};
use crate::classes::Mode;
use crate::ground::Holder;

const SECRET: &str = "objectName: guest-secret\nobjectType: secret";
/// What the guests' secret holds in the world of the local Azure.
const CONTENT: &str = "for guests";

/// The credential of a component; nobody but the vault knows its content, so it is judged by being
/// one.
pub(super) async fn managed(stage: &Stage) -> Result<(), Failed> {
    let object = "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
    stage.class("managed", Holder::ManagedIdentity, Mode::ManagedIdentity, object)?;
    let pod = Pod::new(stage, "managed", Volume::of("managed"), &["credential"]);
    pod.run().await?;
    let content = pod.read("credential")?;
    pod.delete()?;
    let credential: Value = serde_json::from_str(&content).map_err(chain)?;
    for field in ["client_id", "tenant_id", "client_secret", "not_before", "not_after"] {
        if credential[field].as_str().is_none_or(str::is_empty) {
            return Err(format!("the credential has no {field}").into());
        }
    }
    Ok(())
}

pub(super) async fn workload(stage: &Stage) -> Result<(), Failed> {
    account(stage).await?;
    stage.class("workload", Holder::Federated, Mode::WorkloadIdentity, SECRET)?;
    let pod = Pod::new(stage, "workload", Volume::of("workload"), &["guest-secret"]);
    reads(&pod.with_account(ACCOUNT)).await
}

pub(super) async fn binding(stage: &Stage) -> Result<(), Failed> {
    account(stage).await?;
    stage.class("binding", Holder::Federated, Mode::IdentityBinding, SECRET)?;
    let pod = Pod::new(stage, "binding", Volume::of("binding"), &["guest-secret"]);
    reads(&pod.with_account(ACCOUNT)).await
}

pub(super) async fn principal(stage: &Stage) -> Result<(), Failed> {
    let inputs = stage.azure.inputs(Holder::Secret);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "principal", "namespace": NAMESPACE },
        "stringData": { "clientid": inputs.client, "clientsecret": inputs.client_secret },
    });
    stage.site.kubectl.apply(&secret).map_err(chain)?;
    stage.class("principal", Holder::Secret, Mode::ServicePrincipal, SECRET)?;
    let volume = Volume { secret: Some("principal"), ..Volume::of("principal") };
    reads(&Pod::new(stage, "principal", volume, &["guest-secret"])).await
}

/// Runs a pod, reads the secret in it, and lets it go.
async fn reads(pod: &Pod<'_>) -> Result<(), Failed> {
    pod.run().await?;
    let content = pod.read("guest-secret")?;
    pod.delete()?;
    if content == CONTENT { Ok(()) } else { Err("the file holds something else".into()) }
}

async fn account(stage: &Stage) -> Result<(), Failed> {
    stage.federation().await?;
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": ACCOUNT, "namespace": NAMESPACE },
    });
    stage.site.kubectl.apply(&account).map_err(chain)
}
