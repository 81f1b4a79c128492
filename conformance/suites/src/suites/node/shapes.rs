//! Pods that mount in another way, read as somebody else, or must not start.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::pods::{MOUNT, Pod, Volume};
use super::{START, Stage, chain};
use crate::classes::Mode;
use crate::ground::Holder;

const CLASS: &str = "shapes";
const OBJECT: &str = "objectName: {component}\nobjectType: secret\nobjectAlias: credential";

fn class(stage: &Stage) -> Result<(), Failed> {
    stage.class(CLASS, Holder::ManagedIdentity, Mode::ManagedIdentity, OBJECT)
}

pub(super) async fn sub_path(stage: &Stage) -> Result<(), Failed> {
    class(stage)?;
    let volume = Volume { sub_path: Some("credential"), ..Volume::of(CLASS) };
    let pod = Pod::new(stage, "sub-path", volume, &["credential"]);
    pod.run().await?;
    let content = pod.read("credential")?;
    pod.delete()?;
    if content.is_empty() { Err("the file is empty".into()) } else { Ok(()) }
}

/// Files belong to root and the pod's group, and the group may read them.
pub(super) async fn fs_group(stage: &Stage) -> Result<(), Failed> {
    class(stage)?;
    let user = json!({ "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000 });
    let pod = Pod::new(stage, "fs-group", Volume::of(CLASS), &["credential"]).with_security(user);
    pod.run().await?;
    let found = pod.witness(&["stat", &format!("{MOUNT}/credential")])?;
    pod.delete()?;
    let found: Value = serde_json::from_str(&found).map_err(chain)?;
    if found == json!({ "mode": "0640", "owner": 0, "group": 2000 }) {
        return Ok(());
    }
    Err(format!("the file is {found}").into())
}

pub(super) async fn read_only(stage: &Stage) -> Result<(), Failed> {
    class(stage)?;
    let pod = Pod::new(stage, "read-only", Volume::of(CLASS), &["credential"]);
    pod.run().await?;
    let answers =
        ["credential", "more"].map(|file| pod.witness(&["write", &format!("{MOUNT}/{file}")]));
    pod.delete()?;
    for answer in answers {
        let answer: Value = serde_json::from_str(&answer?).map_err(chain)?;
        let refused = answer["error"].as_str().unwrap_or_default();
        if !refused.contains("Read-only file system") {
            return Err(format!("a write ended with `{refused}`").into());
        }
    }
    Ok(())
}

/// The event says what was tried, what came back, and what to do next.
pub(super) async fn refused(stage: &Stage) -> Result<(), Failed> {
    let object = "objectName: nobody\nobjectType: secret";
    stage.class("refused", Holder::Secret, Mode::ManagedIdentity, object)?;
    let pod = Pod::new(stage, "refused", Volume::of("refused"), &["nobody"]);
    pod.create()?;
    let told = |_: &Value| pod.events().is_ok_and(|events| events.iter().any(is_told));
    let arguments = ["pod", "refused", "--namespace", super::NAMESPACE];
    let kubectl = &stage.site.kubectl;
    let outcome = kubectl.await_object("an event names the object", START, &arguments, told).await;
    let phase = pod.object()?["status"]["phase"].clone();
    let events = pod.events()?;
    pod.delete()?;
    outcome.map_err(|error| format!("{error}; events: {events:?}"))?;
    if phase == "Pending" { Ok(()) } else { Err(format!("the pod is {phase}").into()) }
}

fn is_told((reason, message): &(String, String)) -> bool {
    reason == "FailedMount" && message.contains("nobody")
}
