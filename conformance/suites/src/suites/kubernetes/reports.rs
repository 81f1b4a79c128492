//! Reports: the objects of upstream, written only where they differ.

use std::path::PathBuf;

use kube::api::PostParams;
use lanyard_api::{SecretProviderClassPodStatus, VolumeFacts};
use lanyard_cluster::ControlPlane;
use lanyard_keyvault::Pod;
use lanyard_node::{
    EventQueue, KubeReporter, KubeReporterSettings, ObjectVersion, Reporter, VolumeReport,
};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::world::{Counted, World};
use super::{Stage, trial};
use crate::suites::expect_same;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "reports::a_report_becomes_the_object_of_upstream", whole),
        trial(stage, "reports::equal_reports_cost_no_write_whoever_wrote_first", unchanged),
        trial(stage, "reports::what_upstream_wrote_is_taken_over_and_can_be_taken_back", upstream),
        trial(stage, "reports::two_volumes_of_one_class_do_not_overwrite_each_other", two_volumes),
        trial(stage, "reports::two_pods_of_one_name_do_not_overwrite_each_other", two_pods),
        trial(stage, "reports::the_remains_of_a_former_pod_are_taken_over", former_pod),
        trial(stage, "reports::an_object_that_somebody_removed_comes_back", removed),
        trial(stage, "reports::a_hundred_volumes_are_reported_side_by_side", crowd),
    ]
}

pub(super) fn reporter(counted: &Counted, node: &str) -> KubeReporter {
    let events = EventQueue::start(counted.api.clone(), node);
    KubeReporter::new(counted.api.clone(), node, events, KubeReporterSettings::default())
}

pub(super) fn report(world: &World, pod: &str, uid: &str, volume: &str) -> VolumeReport {
    let target = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount");
    let object =
        |id: &str, version: &str| ObjectVersion { id: id.to_owned(), version: version.to_owned() };
    VolumeReport {
        pod: Pod {
            namespace: world.namespace.clone(),
            name: pod.to_owned(),
            uid: uid.to_owned(),
            service_account: "default".to_owned(),
        },
        class_name: "c".to_owned(),
        target: PathBuf::from(target),
        objects: vec![object("secret/a", "1"), object("secret/b", "2")],
        facts: VolumeFacts { last_good_hop: Some("file".to_owned()), ..VolumeFacts::default() },
    }
}

fn name_of(world: &World, pod: &str) -> String {
    format!("{pod}-{}-c", world.namespace)
}

async fn read(world: &World, name: &str) -> Result<SecretProviderClassPodStatus, Failed> {
    Ok(world.api::<SecretProviderClassPodStatus>().get(name).await?)
}

fn owners(status: &SecretProviderClassPodStatus) -> Vec<&str> {
    status.metadata.owner_references.iter().flatten().map(|it| it.uid.as_str()).collect()
}

async fn whole(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let long_node = "n".repeat(100);
    let reporter = reporter(&counted, &long_node);
    let report = report(&world, "p", "u", "v");
    reporter.report(&report).await?;
    let name = name_of(&world, "p");
    let status = serde_json::to_value(read(&world, &name).await?)?;
    expect_same(
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
    expect_same(
        "the owner",
        &metadata["ownerReferences"],
        &json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
        ]),
    )?;
    let facts = metadata["annotations"]["lanyard.dev/volume-facts"].as_str();
    expect_same("the facts", facts, Some(r#"{"lastGoodHop":"file"}"#))?;
    let label = &metadata["labels"]["internal.secrets-store.csi.k8s.io/node-name"];
    let fits = label.as_str().is_some_and(|label| label.starts_with("nnn") && label.len() == 63);
    expect_same("the label fits", fits, true)
}

async fn unchanged(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let report = report(&world, "p", "u", "v");
    let first = reporter(&counted, "node");
    first.report(&report).await?;
    expect_same("writes of the first report", counted.take_writes().len(), 1)?;
    for _ in 0..100 {
        first.report(&report).await?;
    }
    expect_same("requests of a hundred equal reports", counted.take(), Vec::new())?;
    // Another process finds what the first one wrote.
    let second = reporter(&counted, "node");
    second.report(&report).await?;
    let asked = counted.take();
    expect_same("requests of a restarted process", asked.len(), 1)?;
    expect_same("it reads", asked[0].starts_with("GET "), true)?;
    let mut changed = report.clone();
    changed.facts.outcome = Some("VaultThrottled".to_owned());
    second.report(&changed).await?;
    expect_same("writes of a change", counted.take_writes().len(), 1)?;
    second.report(&report).await?;
    expect_same("writes of a change back", counted.take_writes().len(), 1)?;
    let name = name_of(&world, "p");
    let facts = read(&world, &name).await?.metadata.annotations.unwrap_or_default();
    let facts = facts.get("lanyard.dev/volume-facts").map(String::as_str);
    expect_same("the facts", facts, Some(r#"{"lastGoodHop":"file"}"#))
}

/// The object as the Secrets Store CSI driver posts it, and puts it when it is there.
async fn write_as_upstream(
    world: &World,
    report: &VolumeReport,
    version: &str,
) -> Result<(), Failed> {
    let name = name_of(world, &report.pod.name);
    let statuses = world.api::<SecretProviderClassPodStatus>();
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

async fn upstream(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let report = report(&world, "p", "u", "v");
    let name = name_of(&world, "p");
    write_as_upstream(&world, &report, "0").await?;
    reporter(&counted, "node").report(&report).await?;
    let ours = read(&world, &name).await?;
    expect_same("objects of ours", ours.status.objects.len(), 2)?;
    expect_same("owners", owners(&ours), vec!["u"])?;
    write_as_upstream(&world, &report, "3").await?;
    let theirs = read(&world, &name).await?;
    expect_same("objects of theirs", theirs.status.objects.len(), 1)?;
    reporter(&counted, "node").report(&report).await?;
    let ours = read(&world, &name).await?;
    let versions: Vec<_> =
        ours.status.objects.iter().filter_map(|it| it.version.as_deref()).collect();
    expect_same("versions of ours", versions, vec!["1", "2"])?;
    expect_same("owners", owners(&ours), vec!["u"])
}

async fn two_volumes(world: World) -> Result<(), Failed> {
    let (one, two) = (report(&world, "p", "u", "one"), report(&world, "p", "u", "two"));
    stay_apart(&world, &one, &two).await
}

/// Names of pods, namespaces and classes may hold the hyphen that stands between them.
async fn two_pods(world: World) -> Result<(), Failed> {
    let namespace = &world.namespace;
    let mut one = report(&world, "p", "one", "v");
    one.class_name = format!("q-{namespace}-c");
    let two = report(&world, &format!("p-{namespace}-q"), "two", "v");
    let name = format!("p-{namespace}-q-{namespace}-c");
    stay_apart(&world, &one, &two).await?;
    expect_same("one has the plain name", read(&world, &name).await.is_ok(), true)
}

/// Two volumes of one plain name have two objects, and keep them.
async fn stay_apart(world: &World, one: &VolumeReport, two: &VolumeReport) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let first = reporter(&counted, "node");
    let (a, b) = tokio::join!(first.report(one), first.report(two));
    a?;
    b?;
    let parameters = kube::api::ListParams::default();
    let statuses = world.api::<SecretProviderClassPodStatus>();
    let all = statuses.list(&parameters).await?.items;
    let mut targets: Vec<_> = all.iter().filter_map(|it| it.status.target_path.clone()).collect();
    targets.sort();
    let mut expected = [one, two].map(|it| it.target.display().to_string()).to_vec();
    expected.sort();
    expect_same("targets", targets, expected)?;
    counted.take();
    // In whichever order another process sees them.
    let second = reporter(&counted, "node");
    second.report(two).await?;
    second.report(one).await?;
    expect_same("writes", counted.take_writes(), Vec::new())?;
    second.forget(&one.target);
    second.forget(&two.target);
    second.report(one).await?;
    expect_same("writes after forgetting", counted.take_writes(), Vec::new())
}

async fn former_pod(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let name = name_of(&world, "p");
    // Theirs, then ours, then the next pod of the StatefulSet.
    write_as_upstream(&world, &report(&world, "p", "first", "v"), "0").await?;
    for uid in ["second", "third"] {
        let report = report(&world, "p", uid, "v");
        reporter(&counted, "node").report(&report).await?;
        let status = read(&world, &name).await?;
        expect_same("owners", owners(&status), vec![uid])?;
        let target = status.status.target_path.as_deref().map(PathBuf::from);
        expect_same("target", target, Some(report.target))?;
    }
    Ok(())
}

async fn removed(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let report = report(&world, "p", "u", "v");
    let events = EventQueue::start(counted.api.clone(), "node");
    let settings = KubeReporterSettings { read_again_after: std::time::Duration::ZERO };
    let reporter = KubeReporter::new(counted.api.clone(), "node", events, settings);
    reporter.report(&report).await?;
    let name = name_of(&world, "p");
    let statuses = world.api::<SecretProviderClassPodStatus>();
    statuses.delete(&name, &kube::api::DeleteParams::default()).await?;
    reporter.report(&report).await?;
    read(&world, &name).await?;
    counted.take();
    reporter.report(&report).await?;
    expect_same("writes", counted.take_writes(), Vec::new())
}

async fn crowd(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let reporter = reporter(&counted, "node");
    let reports: Vec<_> = (0..100)
        .map(|number| report(&world, &format!("p{number}"), &format!("u{number}"), "v"))
        .collect();
    for outcome in futures::future::join_all(reports.iter().map(|it| reporter.report(it))).await {
        outcome?;
    }
    expect_same("writes", counted.take_writes().len(), 100)?;
    futures::future::join_all(reports.iter().map(|it| reporter.report(it))).await;
    expect_same("requests of equal reports", counted.take(), Vec::new())
}
