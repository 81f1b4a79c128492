//! Trials of pod statuses, which are written as upstream does and only if they differ.

use std::path::PathBuf;

use kube::api::PostParams;
use lanyard_api::{SecretProviderClassPodStatus, VolumeStatusReport};
use lanyard_cluster::ControlPlane;
use lanyard_keyvault::VolumePod;
use lanyard_node::{
    KubeReporter, KubeReporterSettings, PodEventQueue, Reporter, VolumeStatusUpdate,
};
use lanyard_provider::ProviderObjectVersion;
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::trial_fixture::{CountingNodeApi, KubernetesTrialFixture};
use super::{KubernetesSuiteFixture, trial};
use crate::suites::expect_equal;

pub(super) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "reports::report_is_written_as_upstream_pod_status",
            report_becomes_pod_status,
        ),
        trial(suite, "reports::equal_report_causes_no_write", equal_reports_need_no_write),
        trial(
            suite,
            "reports::pod_status_is_handed_over_from_and_to_upstream",
            upstream_status_is_taken_over,
        ),
        trial(
            suite,
            "reports::two_volumes_of_one_class_do_not_overwrite_each_other",
            volumes_of_one_class_stay_separate,
        ),
        trial(
            suite,
            "reports::two_pods_of_one_name_do_not_overwrite_each_other",
            pods_with_one_status_name_stay_separate,
        ),
        trial(
            suite,
            "reports::pod_status_of_a_former_pod_is_taken_over",
            status_of_former_pod_is_taken_over,
        ),
        trial(
            suite,
            "reports::deleted_pod_status_is_created_again",
            deleted_status_is_created_again,
        ),
        trial(
            suite,
            "reports::a_hundred_volumes_are_reported_side_by_side",
            hundred_volumes_in_parallel,
        ),
    ]
}

pub(super) fn start_reporter(counted: &CountingNodeApi, node: &str) -> KubeReporter {
    let events = PodEventQueue::start(counted.api.clone(), node);
    KubeReporter::new(counted.api.clone(), node, events, KubeReporterSettings::default())
}

pub(super) fn status_update(
    fixture: &KubernetesTrialFixture,
    pod: &str,
    uid: &str,
    volume: &str,
) -> VolumeStatusUpdate {
    let target = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount");
    let object = |id: &str, version: &str| ProviderObjectVersion {
        id: id.to_owned(),
        version: version.to_owned(),
    };
    VolumeStatusUpdate {
        pod: VolumePod {
            namespace: fixture.namespace.clone(),
            name: pod.to_owned(),
            uid: uid.to_owned(),
            service_account: "default".to_owned(),
        },
        class_name: "c".to_owned(),
        target: PathBuf::from(target),
        objects: vec![object("secret/a", "1"), object("secret/b", "2")],
        facts: VolumeStatusReport {
            last_good_hop: Some("file".to_owned()),
            ..VolumeStatusReport::default()
        },
    }
}

fn pod_status_name(fixture: &KubernetesTrialFixture, pod: &str) -> String {
    format!("{pod}-{}-c", fixture.namespace)
}

async fn read_pod_status(
    fixture: &KubernetesTrialFixture,
    name: &str,
) -> Result<SecretProviderClassPodStatus, Failed> {
    Ok(fixture.api::<SecretProviderClassPodStatus>().get(name).await?)
}

fn owner_uids(status: &SecretProviderClassPodStatus) -> Vec<&str> {
    status.metadata.owner_references.iter().flatten().map(|it| it.uid.as_str()).collect()
}

async fn report_becomes_pod_status(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let long_node = "n".repeat(100);
    let reporter = start_reporter(&counted, &long_node);
    let report = status_update(&fixture, "p", "u", "v");
    reporter.report_status(&report).await?;
    let name = pod_status_name(&fixture, "p");
    let status = serde_json::to_value(read_pod_status(&fixture, &name).await?)?;
    expect_equal(
        "the status",
        &status["status"],
        &json!({
            "podName": "p",
            "secretProviderClassName": "c",
            "targetPath": report.target,
            "mounted": true,
            "objects": [{"id": "secret/a", "version": "1"}, {"id": "secret/b", "version": "2"}],
        }),
    )?;
    let metadata = &status["metadata"];
    expect_equal(
        "the owner",
        &metadata["ownerReferences"],
        &json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
        ]),
    )?;
    let facts = metadata["annotations"]["lanyard.dev/volume-facts"].as_str();
    expect_equal("the facts", facts, Some(r#"{"lastGoodHop":"file"}"#))?;
    let label = &metadata["labels"]["internal.secrets-store.csi.k8s.io/node-name"];
    let fits = label.as_str().is_some_and(|label| label.starts_with("nnn") && label.len() == 63);
    expect_equal("the label fits", fits, true)
}

async fn equal_reports_need_no_write(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let report = status_update(&fixture, "p", "u", "v");
    let first = start_reporter(&counted, "node");
    first.report_status(&report).await?;
    expect_equal("writes of the first report", counted.take_writes().len(), 1)?;
    for _ in 0..100 {
        first.report_status(&report).await?;
    }
    expect_equal("requests of a hundred equal reports", counted.take_requests(), Vec::new())?;
    // Another process finds the status that the first one wrote.
    let second = start_reporter(&counted, "node");
    second.report_status(&report).await?;
    let requests = counted.take_requests();
    expect_equal("requests of a restarted process", requests.len(), 1)?;
    expect_equal("the restarted process reads", requests[0].starts_with("GET "), true)?;
    let mut changed = report.clone();
    changed.facts.outcome = Some("VaultThrottled".to_owned());
    second.report_status(&changed).await?;
    expect_equal("writes of a change", counted.take_writes().len(), 1)?;
    second.report_status(&report).await?;
    expect_equal("writes of a change back", counted.take_writes().len(), 1)?;
    let name = pod_status_name(&fixture, "p");
    let facts = read_pod_status(&fixture, &name).await?.metadata.annotations.unwrap_or_default();
    let facts = facts.get("lanyard.dev/volume-facts").map(String::as_str);
    expect_equal("the facts", facts, Some(r#"{"lastGoodHop":"file"}"#))
}

/// Writes a pod status as the Secrets Store CSI driver does: POST for a new one, PUT for an existing one.
async fn write_as_upstream(
    fixture: &KubernetesTrialFixture,
    report: &VolumeStatusUpdate,
    version: &str,
) -> Result<(), Failed> {
    let name = pod_status_name(fixture, &report.pod.name);
    let statuses = fixture.api::<SecretProviderClassPodStatus>();
    let parameters = PostParams {
        field_manager: Some("secrets-store-csi-driver".to_owned()),
        ..PostParams::default()
    };
    let mut object = statuses.get_opt(&name).await?.unwrap_or_default();
    let is_new = object.metadata.name.is_none();
    let written: SecretProviderClassPodStatus = serde_json::from_value(json!({
        "apiVersion": SecretProviderClassPodStatus::API_VERSION,
        "kind": SecretProviderClassPodStatus::KIND,
        "metadata": {
            "name": name,
            "labels": {"internal.secrets-store.csi.k8s.io/node-name": "node"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": report.pod.name, "uid": report.pod.uid},
            ],
        },
        "status": {
            "podName": report.pod.name,
            "secretProviderClassName": report.class_name,
            "targetPath": report.target,
            "mounted": true,
            "objects": [{"id": "secret/a", "version": version}],
        },
    }))?;
    if is_new {
        statuses.create(&parameters, &written).await?;
        return Ok(());
    }
    object.metadata.labels = written.metadata.labels;
    object.metadata.owner_references = written.metadata.owner_references;
    object.status = written.status;
    statuses.replace(&name, &parameters, &object).await?;
    Ok(())
}

async fn upstream_status_is_taken_over(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let report = status_update(&fixture, "p", "u", "v");
    let name = pod_status_name(&fixture, "p");
    write_as_upstream(&fixture, &report, "0").await?;
    start_reporter(&counted, "node").report_status(&report).await?;
    let ours = read_pod_status(&fixture, &name).await?;
    expect_equal("objects of lanyard's status", ours.status.objects.len(), 2)?;
    expect_equal("owners", owner_uids(&ours), vec!["u"])?;
    write_as_upstream(&fixture, &report, "3").await?;
    let theirs = read_pod_status(&fixture, &name).await?;
    expect_equal("objects of upstream's status", theirs.status.objects.len(), 1)?;
    start_reporter(&counted, "node").report_status(&report).await?;
    let ours = read_pod_status(&fixture, &name).await?;
    let versions: Vec<_> =
        ours.status.objects.iter().filter_map(|it| it.version.as_deref()).collect();
    expect_equal("versions in lanyard's status", versions, vec!["1", "2"])?;
    expect_equal("owners", owner_uids(&ours), vec!["u"])
}

async fn volumes_of_one_class_stay_separate(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let (one, two) =
        (status_update(&fixture, "p", "u", "one"), status_update(&fixture, "p", "u", "two"));
    expect_separate_statuses(&fixture, &one, &two).await
}

/// Names of pods, namespaces and classes can contain the hyphen that separates them in a pod status name.
async fn pods_with_one_status_name_stay_separate(
    fixture: KubernetesTrialFixture,
) -> Result<(), Failed> {
    let namespace = &fixture.namespace;
    let mut one = status_update(&fixture, "p", "one", "v");
    one.class_name = format!("q-{namespace}-c");
    let two = status_update(&fixture, &format!("p-{namespace}-q"), "two", "v");
    let name = format!("p-{namespace}-q-{namespace}-c");
    expect_separate_statuses(&fixture, &one, &two).await?;
    expect_equal(
        "one pod status has the plain name",
        read_pod_status(&fixture, &name).await.is_ok(),
        true,
    )
}

/// Expects that two volumes with one status name get two objects, and keep them.
async fn expect_separate_statuses(
    fixture: &KubernetesTrialFixture,
    one: &VolumeStatusUpdate,
    two: &VolumeStatusUpdate,
) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let first = start_reporter(&counted, "node");
    let (a, b) = tokio::join!(first.report_status(one), first.report_status(two));
    a?;
    b?;
    let parameters = kube::api::ListParams::default();
    let statuses = fixture.api::<SecretProviderClassPodStatus>();
    let all = statuses.list(&parameters).await?.items;
    let mut targets: Vec<_> = all.iter().filter_map(|it| it.status.target_path.clone()).collect();
    targets.sort();
    let mut expected = [one, two].map(|it| it.target.display().to_string()).to_vec();
    expected.sort();
    expect_equal("targets", targets, expected)?;
    counted.take_requests();
    // Another process may report them in any order.
    let second = start_reporter(&counted, "node");
    second.report_status(two).await?;
    second.report_status(one).await?;
    expect_equal("writes", counted.take_writes(), Vec::new())?;
    second.forget_volume(&one.target);
    second.forget_volume(&two.target);
    second.report_status(one).await?;
    expect_equal("writes after forgetting", counted.take_writes(), Vec::new())
}

async fn status_of_former_pod_is_taken_over(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let name = pod_status_name(&fixture, "p");
    // First upstream's pod, then lanyard's, then the next pod of the StatefulSet.
    write_as_upstream(&fixture, &status_update(&fixture, "p", "first", "v"), "0").await?;
    for uid in ["second", "third"] {
        let report = status_update(&fixture, "p", uid, "v");
        start_reporter(&counted, "node").report_status(&report).await?;
        let status = read_pod_status(&fixture, &name).await?;
        expect_equal("owners", owner_uids(&status), vec![uid])?;
        let target = status.status.target_path.as_deref().map(PathBuf::from);
        expect_equal("target", target, Some(report.target))?;
    }
    Ok(())
}

async fn deleted_status_is_created_again(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let report = status_update(&fixture, "p", "u", "v");
    let events = PodEventQueue::start(counted.api.clone(), "node");
    let settings = KubeReporterSettings { reread_after: std::time::Duration::ZERO };
    let reporter = KubeReporter::new(counted.api.clone(), "node", events, settings);
    reporter.report_status(&report).await?;
    let name = pod_status_name(&fixture, "p");
    let statuses = fixture.api::<SecretProviderClassPodStatus>();
    statuses.delete(&name, &kube::api::DeleteParams::default()).await?;
    reporter.report_status(&report).await?;
    read_pod_status(&fixture, &name).await?;
    counted.take_requests();
    reporter.report_status(&report).await?;
    expect_equal("writes", counted.take_writes(), Vec::new())
}

async fn hundred_volumes_in_parallel(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let reporter = start_reporter(&counted, "node");
    let reports: Vec<_> = (0..100)
        .map(|number| status_update(&fixture, &format!("p{number}"), &format!("u{number}"), "v"))
        .collect();
    for outcome in
        futures::future::join_all(reports.iter().map(|it| reporter.report_status(it))).await
    {
        outcome?;
    }
    expect_equal("writes", counted.take_writes().len(), 100)?;
    futures::future::join_all(reports.iter().map(|it| reporter.report_status(it))).await;
    expect_equal("requests of equal reports", counted.take_requests(), Vec::new())
}
