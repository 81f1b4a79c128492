//! Trials of other mounts, other users and a mount that fails.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::probe_pod::{MOUNT_PATH, PodVolume, ProbePod};
use super::{NodeSuiteFixture, START_TIMEOUT, failed_with_causes};
use crate::class_manifests::ClassIdentityMode;
use crate::sign_in_method::SignInMethod;

const CLASS_NAME: &str = "shapes";
const CREDENTIAL_OBJECT: &str =
    "objectName: {component}\nobjectType: secret\nobjectAlias: credential";

fn create_class(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    fixture.create_class(
        CLASS_NAME,
        SignInMethod::ManagedIdentity,
        ClassIdentityMode::ManagedIdentity,
        CREDENTIAL_OBJECT,
    )
}

pub(super) async fn sub_path_mount(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    create_class(fixture)?;
    let volume = PodVolume { sub_path: Some("credential"), ..PodVolume::of_class(CLASS_NAME) };
    let pod = ProbePod::new(fixture, "sub-path", volume, &["credential"]);
    pod.create_and_wait().await?;
    let content = pod.read_file("credential")?;
    pod.delete()?;
    if content.is_empty() { Err("the file is empty".into()) } else { Ok(()) }
}

/// Files belong to root and the pod's group, which may read them.
pub(super) async fn fs_group_permissions(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    create_class(fixture)?;
    let user = json!({ "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000 });
    let pod = ProbePod::new(fixture, "fs-group", PodVolume::of_class(CLASS_NAME), &["credential"])
        .with_security(user);
    pod.create_and_wait().await?;
    let found = pod.run_probe(&["stat", &format!("{MOUNT_PATH}/credential")])?;
    pod.delete()?;
    let found: Value = serde_json::from_str(&found).map_err(failed_with_causes)?;
    if found == json!({ "mode": "0640", "owner": 0, "group": 2000 }) {
        return Ok(());
    }
    Err(format!("the file is {found}").into())
}

pub(super) async fn read_only_volume(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    create_class(fixture)?;
    let pod = ProbePod::new(fixture, "read-only", PodVolume::of_class(CLASS_NAME), &["credential"]);
    pod.create_and_wait().await?;
    let answers = ["credential", "more"]
        .map(|file| pod.run_probe(&["write", &format!("{MOUNT_PATH}/{file}")]));
    pod.delete()?;
    for answer in answers {
        let answer: Value = serde_json::from_str(&answer?).map_err(failed_with_causes)?;
        let refused = answer["error"].as_str().unwrap_or_default();
        if !refused.contains("Read-only file system") {
            return Err(format!("a write ended with `{refused}`").into());
        }
    }
    Ok(())
}

/// The event must contain the failed operation, its error and the next step.
pub(super) async fn mount_failure_event(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let object = "objectName: absent\nobjectType: secret";
    fixture.create_class(
        "refused",
        SignInMethod::Secret,
        ClassIdentityMode::ManagedIdentity,
        object,
    )?;
    let pod = ProbePod::new(fixture, "refused", PodVolume::of_class("refused"), &["absent"]);
    pod.create()?;
    let reported =
        |_: &Value| pod.events().is_ok_and(|events| events.iter().any(is_failed_mount_event));
    let arguments = ["pod", "refused", "--namespace", super::NAMESPACE];
    let kubectl = &fixture.suite_cluster.kubectl;
    let outcome = kubectl
        .wait_for_object("an event names the object", START_TIMEOUT, &arguments, reported)
        .await;
    let phase = pod.read_object()?["status"]["phase"].clone();
    let events = pod.events()?;
    pod.delete()?;
    outcome.map_err(|error| format!("{error}; events: {events:?}"))?;
    if phase == "Pending" { Ok(()) } else { Err(format!("the pod is {phase}").into()) }
}

fn is_failed_mount_event((reason, message): &(String, String)) -> bool {
    reason == "FailedMount" && message.contains("absent")
}
