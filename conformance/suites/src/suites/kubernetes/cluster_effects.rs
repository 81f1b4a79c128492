//! The effects of a Kubernetes object and of a Helm release, with the engine that applies them.

mod effect_run;
mod releases;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{Patch, PatchParams};
use lanyard_changes::{EffectUsage, KubernetesObject, property_reference};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use self::effect_run::{CLUSTER, ClusterEffect, EffectRun, resource_key};
use super::trial_fixture::KubernetesTrialFixture;
use super::{KubernetesSuiteFixture, trial};

pub(super) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    let mut trials = vec![
        trial(suite, "objects::an_object_is_applied_once_repaired_and_deleted", apply_and_delete),
        trial(suite, "objects::a_conflict_names_the_field_manager_and_the_field", conflict),
        trial(
            suite,
            "objects::an_object_with_a_finalizer_is_deleted_after_its_controller",
            finalizer,
        ),
    ];
    trials.extend(releases::trials(suite));
    trials
}

async fn apply_and_delete(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let run = EffectRun::new(&fixture).await?;
    let account = object("v1/ServiceAccount", "api", json!({}));
    let config = |text: &str| {
        let uid = property_reference(&resource_key("api"), "/metadata/uid");
        object("v1/ConfigMap", "config", json!({ "data": { "text": text, "account": uid } }))
    };
    let desired = [account.clone(), config("a")];
    run.apply(&desired).await?.success()?;
    let data = fixture.api::<ConfigMap>().get("config").await?.data.unwrap_or_default();
    let uid = fixture.api::<ServiceAccount>().get("api").await?.metadata.uid;
    assert_eq!((data["text"].as_str(), data.get("account")), ("a", uid.as_ref()));
    run.assert_no_changes(&desired).await?;
    let drift = json!({ "data": { "text": "edited", "other": "kept" } });
    fixture.merge_patch::<ConfigMap>("config", drift).await?;
    run.apply(&desired).await?.success()?;
    let repaired = fixture.api::<ConfigMap>().get("config").await?.data.unwrap_or_default();
    assert_eq!((repaired["text"].as_str(), repaired["other"].as_str()), ("a", "kept"));
    // What the configuration no longer contains is deleted; a removal deletes the rest.
    run.apply(&[account]).await?.success()?;
    assert!(fixture.api::<ConfigMap>().get_opt("config").await?.is_none());
    run.destroy().await?.success()?;
    assert!(fixture.api::<ServiceAccount>().get_opt("api").await?.is_none());
    Ok(())
}

async fn conflict(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let run = EffectRun::new(&fixture).await?;
    let foreign = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "config" }, "data": { "text": "foreign" } });
    let (manager, foreign) = (PatchParams::apply("kubectl"), Patch::Apply(foreign));
    fixture.api::<ConfigMap>().patch("config", &manager, &foreign).await?;
    let config = object("v1/ConfigMap", "config", json!({ "data": { "text": "a" } }));
    // The engine does not write an object of another client, so the effect is used without it.
    let error = run.write_unread(&config).await;
    let problem = error.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(problem.contains("field manager `kubectl` holds .data.text"), "{problem}");
    let report = run.apply(&[config]).await?;
    assert!(report.success().is_err_and(|error| error.contains("exists and differs")));
    Ok(())
}

async fn finalizer(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let run = EffectRun::new(&fixture).await?;
    let metadata = json!({ "finalizers": ["example.com/controller"] });
    run.apply(&[object("v1/ConfigMap", "config", json!({ "metadata": metadata }))])
        .await?
        .success()?;
    let problem = run.destroy().await?.success().err().unwrap_or_default();
    assert!(problem.contains("example.com/controller"), "{problem}");
    let done = json!({ "metadata": { "finalizers": null } });
    fixture.merge_patch::<ConfigMap>("config", done).await?;
    run.destroy().await?.success()?;
    Ok(())
}

/// An object of the namespace: its id, in which `NAMESPACE` stands for the namespace, and its effect.
fn object(kind: &str, name: &str, body: Value) -> (String, ClusterEffect) {
    let object = KubernetesObject { body, usage: EffectUsage::Own };
    (format!("kubernetes:{CLUSTER}/{kind}/NAMESPACE/{name}"), ClusterEffect::Object(object))
}
