//! Helm releases that the real Helm writes.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::ListParams;
use lanyard_changes::{HelmChart, HelmRelease, property_reference};
use lanyard_clock::SystemClock;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::super::trial_fixture::KubernetesTrialFixture;
use super::super::{KubernetesSuiteFixture, trial};
use super::effect_run::{CLUSTER, ClusterEffect, EffectRun, resource_key};
use super::object;

/// A chart with a text, an account that exists before, and a Deployment that never becomes ready.
const TEMPLATE: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: chart}
data: {text: "{{ .Chart.Version }} {{ .Values.text }}"}
{{- with .Values.account }}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ . }}}
{{- end }}
{{- if .Values.deployment }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "localhost/web:1"}]}
{{- end }}
"#;

pub(super) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "releases::a_release_adopts_its_account_and_is_upgraded_and_uninstalled",
            upgrade,
        ),
        trial(suite, "releases::a_release_that_does_not_become_ready_names_the_object", not_ready),
        trial(
            suite,
            "releases::a_release_of_a_killed_helm_is_repaired_after_the_lease",
            killed_helm,
        ),
        trial(suite, "releases::an_interrupted_upgrade_is_rolled_back", interrupted_upgrade),
        trial(
            suite,
            "releases::a_release_of_another_client_is_neither_changed_nor_removed",
            foreign_release,
        ),
    ]
}

async fn upgrade(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let run = EffectRun::new(&fixture).await?;
    let account = helm_account(&fixture.namespace);
    let values = |text: &str| {
        let account = property_reference(&resource_key("api"), "/metadata/name");
        json!({ "text": text, "account": account, "number": 1_234_567, "fraction": 1.0,
            "none": null, "off": false })
    };
    for (version, text) in [("1.0.0", "a"), ("1.0.0", "b"), ("1.1.0", "b")] {
        let desired = [account.clone(), release(&run, version, values(text), 30)?];
        run.apply(&desired).await?.success()?;
        assert_eq!(chart_text(&fixture).await?, format!("{version} {text}"));
        run.assert_no_changes(&desired).await?;
    }
    run.destroy().await?.success()?;
    let remaining = fixture.api::<Secret>().list(&ListParams::default()).await?;
    assert!(remaining.items.is_empty(), "{remaining:?}");
    assert!(fixture.api::<ServiceAccount>().get_opt("api").await?.is_none());
    Ok(())
}

async fn not_ready(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let run = EffectRun::new(&fixture).await?;
    let waiting = release(&run, "1.0.0", json!({ "deployment": true }), 2)?;
    let problem = run.apply(&[waiting]).await?.success().err().unwrap_or_default();
    assert!(problem.contains("web") && problem.contains("not ready"), "{problem}");
    run.apply(&[release(&run, "1.0.0", json!({}), 30)?]).await?.success()?;
    run.destroy().await?.success()?;
    Ok(())
}

async fn killed_helm(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    for revision in [1, 2] {
        let run = EffectRun::new(&fixture).await?;
        if revision == 2 {
            run.apply(&[release(&run, "1.0.0", json!({}), 30)?]).await?.success()?;
        }
        let waiting = [release(&run, "1.0.0", json!({ "deployment": true }), 300)?];
        kill_at_revision(&run, &fixture, &waiting, revision).await?;
        let repaired = [release(&run, "1.0.0", json!({ "text": "c" }), 30)?];
        let problem = run.apply(&repaired).await?.success().err().unwrap_or_default();
        assert!(problem.contains("another `helm` or pipeline may be running"), "{problem}");
        let run = run.without_lease().await?;
        run.apply(&repaired).await?.success()?;
        assert_eq!(chart_text(&fixture).await?, "1.0.0 c");
        run.assert_no_changes(&repaired).await?;
        run.destroy().await?.success()?;
        assert!(fixture.api::<Deployment>().get_opt("web").await?.is_none());
    }
    Ok(())
}

async fn interrupted_upgrade(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let run = EffectRun::new(&fixture).await?;
    let config = |text| object("v1/ConfigMap", "config", json!({ "data": { "text": text } }));
    let before = [config("a"), release(&run, "1.0.0", json!({ "text": "a" }), 30)?];
    run.apply(&before).await?.success()?;
    let values = json!({ "text": "b", "deployment": true });
    let after = [config("b"), release(&run, "1.1.0", values, 300)?];
    kill_at_revision(&run, &fixture, &after, 2).await?;
    let run = run.without_lease().await?;
    run.roll_back().await?.success()?;
    assert_eq!(chart_text(&fixture).await?, "1.0.0 a");
    run.assert_no_changes(&before).await?;
    run.destroy().await?.success()?;
    Ok(())
}

async fn foreign_release(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let run = EffectRun::new(&fixture).await?;
    run.apply(&[release(&run, "1.0.0", json!({}), 30)?]).await?.success()?;
    let other = EffectRun::new(&fixture).await?.named("other");
    let report = other.apply(&[release(&other, "1.0.0", json!({ "text": "x" }), 30)?]).await?;
    assert!(report.success().is_err_and(|error| error.contains("exists and differs")));
    other.destroy().await?.success()?;
    assert_eq!(chart_text(&fixture).await?, "1.0.0 default");
    run.destroy().await?.success()?;
    Ok(())
}

/// A ServiceAccount with the marks of the release that adopts it.
fn helm_account(namespace: &str) -> (String, ClusterEffect) {
    let annotations = json!({ "meta.helm.sh/release-name": "web",
        "meta.helm.sh/release-namespace": namespace });
    let labels = json!({ "app.kubernetes.io/managed-by": "Helm" });
    let metadata = json!({ "labels": labels, "annotations": annotations });
    object("v1/ServiceAccount", "api", json!({ "metadata": metadata }))
}

/// A release of the chart in this version, which is written first.
fn release(
    run: &EffectRun,
    version: &str,
    values: Value,
    seconds: u64,
) -> Result<(String, ClusterEffect), Failed> {
    let chart = run.directory().join(format!("chart-{version}"));
    write_chart(&chart, version)?;
    let release = HelmRelease {
        chart: HelmChart::Path(chart),
        version: Some(version.to_owned()),
        values,
        timeout: Duration::from_secs(seconds),
        creates_namespace: false,
        rolls_back: false,
    };
    Ok((format!("helm:{CLUSTER}/NAMESPACE/web"), ClusterEffect::Release(release)))
}

fn write_chart(chart: &Path, version: &str) -> Result<(), Failed> {
    std::fs::create_dir_all(chart.join("templates"))?;
    let description = format!("apiVersion: v2\nname: web\nversion: {version}\n");
    std::fs::write(chart.join("Chart.yaml"), description)?;
    std::fs::write(chart.join("values.yaml"), "text: default\n")?;
    std::fs::write(chart.join("templates/objects.yaml"), TEMPLATE)?;
    Ok(())
}

/// The text that the chart writes.
async fn chart_text(fixture: &KubernetesTrialFixture) -> Result<String, Failed> {
    let data = fixture.api::<ConfigMap>().get("chart").await?.data.unwrap_or_default();
    Ok(data.get("text").cloned().unwrap_or_default())
}

/// Drops the engine while its Helm waits for the Deployment of this revision. Helm is killed.
async fn kill_at_revision(
    run: &EffectRun,
    fixture: &KubernetesTrialFixture,
    effects: &[(String, ClusterEffect)],
    revision: u32,
) -> Result<(), Failed> {
    let waits = async {
        let release = format!("sh.helm.release.v1.web.v{revision}");
        loop {
            let labels = fixture.api::<Secret>().get_opt(&release).await?;
            let labels = labels.and_then(|secret| secret.metadata.labels).unwrap_or_default();
            let is_pending = labels.get("status").is_some_and(|it| it.starts_with("pending-"));
            if is_pending && fixture.api::<Deployment>().get_opt("web").await?.is_some() {
                return Ok::<_, Failed>(());
            }
            SystemClock::shared().sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        report = run.apply(effects) => Err(format!("{:?}", report?.success()).into()),
        found = waits => found,
    }
}
