//! The record of the key that encrypts, and what brings the keys to the API servers, where somebody or
//! something comes between.

use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::OperatorRole;
use serde_json::{Value, json};

use crate::api_state::ReceivedRequest;
use crate::fixture::{
    HOSTED_CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, OperatorFixture, SECOND,
    change_vault_externally, class_vault, cluster_name, control_plane_namespace, hosted_cluster,
    is_fully_applied,
};
use crate::management_api::InjectedResponse;

const API_SERVER: &str = "
deployments:
  kube-apiserver:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: kube-apiserver}
    spec:
      selector: {matchLabels: {app: kube-apiserver}}
      template:
        metadata: {labels: {app: kube-apiserver}}
        spec:
          securityContext: {runAsUser: 1001}
          containers: [{name: kube-apiserver, image: x}]
";
const CLASS: &str = "managed-azure-disk-csi";
const CONFIGURATION: &str = "kas-secret-encryption-config";
const KEYS: &str = "/spec/secretEncryption/kms/azure";
const OLD: &str = "4f9d2c7b1e8a46f0b35d9c6e7a1f2084";
const NEW: &str = "00000000000000000000000000000002";

/// One cluster with an API server of ours, whose key is recorded.
async fn start_with_recorded_key(prepare: impl Fn(&mut Value)) -> OperatorFixture {
    let templates = WorkloadTemplates::parse(API_SERVER).unwrap();
    let stage = OperatorFixture::start_with_templates(OperatorRole::All, templates, |server| {
        let mut first = hosted_cluster(0);
        prepare(&mut first);
        server.put_externally(HOSTED_CLUSTERS, first);
    });
    let is_so = || is_fully_applied(&stage.server, 0) && !key_record(&stage)["activeKey"].is_null();
    stage.advance_until("it is made and its key is recorded", 30 * SECOND, is_so).await;
    stage.advance(30 * SECOND).await;
    stage.server.clear_requests();
    stage
}

fn key_record(stage: &OperatorFixture) -> Value {
    let cluster = stage.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    cluster["status"]["secretEncryption"].clone()
}

fn remove_key_record(stage: &OperatorFixture) {
    stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |cluster| {
        cluster["status"].as_object_mut().unwrap().remove("secretEncryption");
    });
}

/// The new key encrypts by the spec; the old one is its backup where that is said.
fn set_rotated_key(cluster: &mut Value, keeps_old: bool) {
    let keys = cluster.pointer_mut(KEYS).unwrap();
    let old = keys["activeKey"].clone();
    keys["activeKey"]["keyVersion"] = json!(NEW);
    if keeps_old {
        keys["backupKey"] = old;
    }
}

fn is_key_record_write(asked: &ReceivedRequest) -> bool {
    asked.verb.is_write() && asked.path.field_manager == "lanyard-encryption-key"
}

fn encryption_configuration(stage: &OperatorFixture) -> Value {
    stage.server.object("secrets", &control_plane_namespace(0), CONFIGURATION).unwrap()["data"]
        .clone()
}

/// What the pods of the API server roll for.
fn pod_template_annotations(stage: &OperatorFixture) -> Value {
    let deployment =
        stage.server.object("deployments", &control_plane_namespace(0), "kube-apiserver").unwrap();
    deployment["spec"]["template"]["metadata"]["annotations"].clone()
}

/// The API server has rolled.
fn finish_rollout(stage: &OperatorFixture) {
    stage.server.change_externally(
        ("deployments", &control_plane_namespace(0), "kube-apiserver"),
        |deployment| {
            let generation = deployment["metadata"]["generation"].clone();
            let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
            deployment["status"] = json!({"observedGeneration": generation, "replicas": replicas,
            "updatedReplicas": replicas, "availableReplicas": replicas});
        },
    );
}

#[tokio::test]
async fn conflicting_key_record_is_reported_and_blocks_nothing_else() {
    for rotates_meanwhile in [false, true] {
        let stage = start_with_recorded_key(|cluster| {
            if !rotates_meanwhile {
                set_rotated_key(cluster, true);
            }
        })
        .await;
        if rotates_meanwhile {
            stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
                set_rotated_key(it, true)
            });
            stage.advance(10 * SECOND).await;
            assert_eq!(key_record(&stage)["history"][0]["state"], "ReadOnlyDeploy");
        }
        let (good, keys) = (class_vault(&stage.server, 0, CLASS), encryption_configuration(&stage));
        stage.server.clear_requests();
        for second in 0..60 {
            remove_key_record(&stage);
            stage.advance(SECOND).await;
            if second == 40 {
                change_vault_externally(&stage.server, 0, CLASS, "elsewhere");
                let is_back = || class_vault(&stage.server, 0, CLASS) == good;
                stage.advance_until("the class is set back", SECOND, is_back).await;
            }
        }
        let written = stage.server.count_requests(is_key_record_write);
        assert!((5..=14).contains(&written), "{written} records in a minute");
        let told = stage.server.object(IDENTITIES, NAMESPACE, &cluster_name(0)).unwrap();
        let drift = told["status"]["drift"].to_string();
        assert!(drift.contains("status.secretEncryption (written again and again"), "{drift}");
        assert_eq!(encryption_configuration(&stage), keys, "no other key writes meanwhile");
        let is_there = || key_record(&stage)["targetKey"]["azure"]["keyVersion"] == NEW;
        stage.advance_until("it is recorded", 3 * MINUTE, is_there).await;
        assert_eq!(encryption_configuration(&stage), keys);
    }
}

#[tokio::test]
async fn key_is_not_promoted_before_configuration_is_readable() {
    let stage = start_with_recorded_key(|_| ()).await;
    let (keys, annotations) = (encryption_configuration(&stage), pod_template_annotations(&stage));
    let refuse = |name: &'static str| {
        stage.server.inject(move |asked| {
            let is_it = asked.verb.is_write() && asked.path.name == name;
            is_it.then(|| InjectedResponse::error_status(403, "Forbidden"))
        });
    };
    refuse(CONFIGURATION);
    stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false)
    });
    stage.advance(MINUTE).await;
    assert_eq!(key_record(&stage)["history"][0]["state"], "ReadOnlyDeploy");
    finish_rollout(&stage);
    stage.advance(MINUTE).await;
    assert_eq!(
        (encryption_configuration(&stage), pod_template_annotations(&stage)),
        (keys.clone(), annotations.clone())
    );
    assert_eq!(key_record(&stage)["history"][0]["state"], "ReadOnlyDeploy");

    stage.server.clear_injection();
    let is_read = || {
        encryption_configuration(&stage) != keys && pod_template_annotations(&stage) != annotations
    };
    stage.advance_until("both follow", 10 * MINUTE, is_read).await;
    // Now it has rolled, and the record is what is refused.
    stage.server.inject(|asked| {
        is_key_record_write(asked)
            .then(|| InjectedResponse::Status(429, json!({"details": {"retryAfterSeconds": 7}})))
    });
    stage.server.clear_requests();
    finish_rollout(&stage);
    stage.advance(MINUTE).await;
    let tries = stage.server.count_requests(is_key_record_write);
    assert!((6..=9).contains(&tries), "{tries} tries in a minute, each after seven seconds");
    stage.server.clear_injection();
    let is_promoted = || key_record(&stage)["history"][0]["state"] == "WritePromote";
    // What was asked for, and up to a quarter more.
    stage.advance_until("it is promoted", 9 * SECOND, is_promoted).await;
}

#[tokio::test]
async fn lost_key_record_drops_no_key() {
    let stage = start_with_recorded_key(|_| ()).await;
    stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false)
    });
    stage.advance(10 * SECOND).await;
    finish_rollout(&stage);
    let is_promoted = || key_record(&stage)["history"][0]["state"] == "WritePromote";
    stage.advance_until("it is promoted", MINUTE, is_promoted).await;
    stage.advance(10 * SECOND).await;
    let keys = encryption_configuration(&stage);
    // Somebody took away the label by which it is watched, too.
    stage.server.change_externally(
        ("secrets", &control_plane_namespace(0), CONFIGURATION),
        |secret| {
            secret["metadata"]["labels"] = json!({});
        },
    );
    remove_key_record(&stage);
    stage.advance(MINUTE).await;
    assert_eq!((key_record(&stage), encryption_configuration(&stage)), (Value::Null, keys.clone()));
    let cluster = stage.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    let told = cluster["status"]["conditions"].to_string();
    assert!(told.contains("of which nothing is recorded"), "{told}");
    // What the hint says.
    stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |cluster| {
        let keys = cluster.pointer_mut(KEYS).unwrap();
        keys["backupKey"] = keys["activeKey"].clone();
        keys["backupKey"]["keyVersion"] = json!(OLD);
    });
    let is_back = || key_record(&stage)["activeKey"]["azure"]["keyVersion"] == OLD;
    stage.advance_until("both keys are recorded", 10 * SECOND, is_back).await;
    assert_eq!(key_record(&stage)["history"][0]["state"], "WritePromote");
    assert_eq!(encryption_configuration(&stage), keys);
}

#[tokio::test]
async fn plan_shows_key_record_and_key_loss() {
    let stage = start_with_recorded_key(|_| ()).await;
    assert_eq!(stage.plan_all().await.len(), 1);
    stage.server.inject(|asked| {
        is_key_record_write(asked).then(|| InjectedResponse::error_status(403, "Forbidden"))
    });
    stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false)
    });
    stage.run_until_idle().await;
    let (plan, is_good) = stage.plan_all().await.remove(0);
    assert!(is_good && plan.contains("recorded first, in status.secretEncryption"), "{plan}");
    remove_key_record(&stage);
    stage.run_until_idle().await;
    let (plan, is_good) = stage.plan_all().await.remove(0);
    assert!(!is_good && plan.contains("encrypts with another key than"), "{plan}");
}

#[tokio::test]
async fn key_record_write_names_its_resource_version() {
    let stage = start_with_recorded_key(|_| ()).await;
    stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false)
    });
    stage.advance(10 * SECOND).await;
    // One that arrives after another one finds another version, and changes nothing.
    let is_meant =
        |asked: &ReceivedRequest| is_key_record_write(asked) && asked.expected_version.is_some();
    assert_eq!(
        (stage.server.count_requests(is_key_record_write), stage.server.count_requests(is_meant)),
        (1, 1)
    );
}
