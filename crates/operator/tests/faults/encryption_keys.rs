//! The record of the active encryption key and the delivery of keys to the API servers, with conflicts,
//! errors and interruptions.

use k8s_openapi::ByteString;
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

/// Starts one cluster whose API server the operator deploys, and waits until its key is recorded.
async fn start_with_recorded_key(prepare: impl Fn(&mut Value)) -> OperatorFixture {
    start_with_template(API_SERVER, prepare).await
}

/// Does the same with this template of the API server.
async fn start_with_template(template: &str, prepare: impl Fn(&mut Value)) -> OperatorFixture {
    let templates = WorkloadTemplates::parse(template).unwrap();
    let fixture = OperatorFixture::start_with_templates(OperatorRole::All, templates, |server| {
        let mut first = hosted_cluster(0);
        prepare(&mut first);
        server.put_externally(HOSTED_CLUSTERS, first);
    });
    let is_so =
        || is_fully_applied(&fixture.server, 0) && !key_record(&fixture)["activeKey"].is_null();
    fixture.advance_until("the objects exist and the key is recorded", 30 * SECOND, is_so).await;
    fixture.advance(30 * SECOND).await;
    fixture.server.clear_requests();
    fixture
}

fn key_record(fixture: &OperatorFixture) -> Value {
    let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    cluster["status"]["secretEncryption"].clone()
}

fn remove_key_record(fixture: &OperatorFixture) {
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |cluster| {
        cluster["status"].as_object_mut().unwrap().remove("secretEncryption");
    });
}

/// Makes the new key active in the spec; `keeps_old` makes the old one its backup.
fn set_rotated_key(cluster: &mut Value, keeps_old: bool) {
    let keys = cluster.pointer_mut(KEYS).unwrap();
    let old = keys["activeKey"].clone();
    keys["activeKey"]["keyVersion"] = json!(NEW);
    if keeps_old {
        keys["backupKey"] = old;
    }
}

fn is_key_record_write(request: &ReceivedRequest) -> bool {
    request.verb.is_write() && request.path.field_manager == "lanyard-encryption-key"
}

fn encryption_configuration(fixture: &OperatorFixture) -> Value {
    fixture.server.object("secrets", &control_plane_namespace(0), CONFIGURATION).unwrap()["data"]
        .clone()
}

/// The pod template annotations of the API server; a change triggers a rollout.
fn pod_template_annotations(fixture: &OperatorFixture) -> Value {
    let deployment = fixture
        .server
        .object("deployments", &control_plane_namespace(0), "kube-apiserver")
        .unwrap();
    deployment["spec"]["template"]["metadata"]["annotations"].clone()
}

/// Completes the rollout of the API server.
fn finish_rollout(fixture: &OperatorFixture) {
    fixture.server.change_externally(
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
        let fixture = start_with_recorded_key(|cluster| {
            if !rotates_meanwhile {
                set_rotated_key(cluster, true);
            }
        })
        .await;
        if rotates_meanwhile {
            fixture.server.change_externally(
                (HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)),
                |it| {
                    set_rotated_key(it, true);
                },
            );
            fixture.advance(10 * SECOND).await;
            assert_eq!(key_record(&fixture)["history"][0]["state"], "ReadOnlyDeploy");
        }
        let (good, keys) =
            (class_vault(&fixture.server, 0, CLASS), encryption_configuration(&fixture));
        fixture.server.clear_requests();
        for second in 0..60 {
            remove_key_record(&fixture);
            fixture.advance(SECOND).await;
            if second == 40 {
                change_vault_externally(&fixture.server, 0, CLASS, "elsewhere");
                let is_back = || class_vault(&fixture.server, 0, CLASS) == good;
                fixture.advance_until("the class is reverted", SECOND, is_back).await;
            }
        }
        let written = fixture.server.count_requests(is_key_record_write);
        assert!((5..=14).contains(&written), "{written} records in a minute");
        let report = fixture.server.object(IDENTITIES, NAMESPACE, &cluster_name(0)).unwrap();
        let drift = report["status"]["drift"].to_string();
        assert!(drift.contains("status.secretEncryption (repeatedly changed"), "{drift}");
        assert_eq!(
            encryption_configuration(&fixture),
            keys,
            "no other key becomes active meanwhile"
        );
        let is_there = || key_record(&fixture)["targetKey"]["azure"]["keyVersion"] == NEW;
        fixture.advance_until("the key is recorded", 3 * MINUTE, is_there).await;
        assert_eq!(encryption_configuration(&fixture), keys);
    }
}

#[tokio::test]
async fn key_is_not_promoted_before_configuration_is_readable() {
    let fixture = start_with_recorded_key(|_| ()).await;
    let (keys, annotations) =
        (encryption_configuration(&fixture), pod_template_annotations(&fixture));
    let refuse = |name: &'static str| {
        fixture.server.inject(move |request| {
            let is_it = request.verb.is_write() && request.path.name == name;
            is_it.then(|| InjectedResponse::error_status(403, "Forbidden"))
        });
    };
    refuse(CONFIGURATION);
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.advance(MINUTE).await;
    assert_eq!(key_record(&fixture)["history"][0]["state"], "ReadOnlyDeploy");
    finish_rollout(&fixture);
    fixture.advance(MINUTE).await;
    assert_eq!(
        (encryption_configuration(&fixture), pod_template_annotations(&fixture)),
        (keys.clone(), annotations.clone())
    );
    assert_eq!(key_record(&fixture)["history"][0]["state"], "ReadOnlyDeploy");

    fixture.server.clear_injection();
    let is_read = || {
        encryption_configuration(&fixture) != keys
            && pod_template_annotations(&fixture) != annotations
    };
    fixture.advance_until("both objects are applied", 10 * MINUTE, is_read).await;
    // The rollout is complete; now the write of the record fails.
    fixture.server.inject(|request| {
        is_key_record_write(request)
            .then(|| InjectedResponse::Status(429, json!({"details": {"retryAfterSeconds": 7}})))
    });
    fixture.server.clear_requests();
    finish_rollout(&fixture);
    fixture.advance(MINUTE).await;
    let tries = fixture.server.count_requests(is_key_record_write);
    assert!((6..=9).contains(&tries), "{tries} tries in a minute, each after seven seconds");
    fixture.server.clear_injection();
    let is_promoted = || key_record(&fixture)["history"][0]["state"] == "WritePromote";
    // The requested delay, and up to an eighth more.
    fixture.advance_until("the key is promoted", 9 * SECOND, is_promoted).await;
}

/// Status and reason of a condition of the HostedCluster.
fn cluster_condition(fixture: &OperatorFixture, kind: &str) -> Option<(Value, Value)> {
    let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    let conditions = cluster["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|it| it["type"] == kind)?;
    Some((found["status"].clone(), found["reason"].clone()))
}

#[tokio::test]
async fn hosted_cluster_reports_its_data_encryption() {
    let fixture = start_with_recorded_key(|_| ()).await;
    let is = |status: &str, reason: &str| {
        let found = cluster_condition(&fixture, "EtcdDataEncryptionUpToDate");
        found == Some((json!(status), json!(reason)))
    };
    assert!(is("True", "ReEncryptionCompleted"));
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    let is_begun = || is("False", "ReadOnlyRolloutInProgress");
    fixture.advance_until("the rotation is reported", 10 * SECOND, is_begun).await;
    fixture.advance(10 * SECOND).await;
    finish_rollout(&fixture);
    let is_promoted = || is("False", "WritePromotionInProgress");
    fixture.advance_until("the promotion is reported", MINUTE, is_promoted).await;
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        let record = it["status"]["secretEncryption"].as_object_mut().unwrap();
        let target = record.remove("targetKey").unwrap();
        record.insert("activeKey".to_owned(), target);
    });
    let is_over = || is("True", "ReEncryptionCompleted");
    fixture.advance_until("the end is reported", 10 * SECOND, is_over).await;
}

#[tokio::test]
async fn cluster_without_templated_api_server_has_no_condition_about_data_encryption() {
    let fixture = OperatorFixture::start_converged(1).await;
    assert_eq!(cluster_condition(&fixture, "EtcdDataEncryptionUpToDate"), None);
    assert!(cluster_condition(&fixture, "ValidAzureIdentities").is_some());
}

#[tokio::test]
async fn key_is_not_promoted_if_api_server_reads_another_configuration() {
    let other = "{name: kube-apiserver, image: x, args: [--encryption-provider-config=/own.yaml]}";
    let template = API_SERVER.replace("{name: kube-apiserver, image: x}", other);
    assert_ne!(template, API_SERVER);
    let fixture = start_with_template(&template, |_| ()).await;
    let advised = cluster_condition(&fixture, "AdvisedConfiguration");
    assert_eq!(advised, Some((json!("False"), json!("Linted"))));
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.advance(MINUTE).await;
    finish_rollout(&fixture);
    fixture.advance(10 * MINUTE).await;
    assert_eq!(key_record(&fixture)["history"][0]["state"], "ReadOnlyDeploy");
    assert_eq!(key_record(&fixture)["activeKey"]["azure"]["keyVersion"], OLD);
}

#[tokio::test]
async fn configuration_keeps_its_kms_api_version() {
    let fixture = start_with_recorded_key(|_| ()).await;
    let configuration = || {
        let data = encryption_configuration(&fixture);
        let bytes: ByteString = serde_json::from_value(data["config.yaml"].clone()).unwrap();
        String::from_utf8(bytes.0).unwrap()
    };
    let old = configuration().replace("apiVersion: v2\n", "apiVersion: v1\n");
    assert!(old.contains("      apiVersion: v1\n"), "{old}");
    let bytes = json!(ByteString(old.clone().into_bytes()));
    fixture.server.change_externally(
        ("secrets", &control_plane_namespace(0), CONFIGURATION),
        |secret| {
            secret["data"]["config.yaml"] = bytes;
        },
    );
    fixture.advance(MINUTE).await;
    assert_eq!(configuration(), old);
    // A new key gets the version of the existing one.
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.advance(MINUTE).await;
    let text = configuration();
    assert_eq!(text.matches("      apiVersion: v1\n").count(), 2, "{text}");
    assert!(!text.contains("apiVersion: v2"), "{text}");
}

#[tokio::test]
async fn recreated_api_server_waits_for_its_configuration() {
    let fixture = start_with_recorded_key(|_| ()).await;
    let keys = encryption_configuration(&fixture);
    fixture.server.inject(|request| {
        let is_it = request.verb.is_write() && request.path.name == CONFIGURATION;
        is_it.then(|| InjectedResponse::error_status(403, "Forbidden"))
    });
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.advance(10 * SECOND).await;
    let namespace = control_plane_namespace(0);
    fixture.server.delete_externally("deployments", &namespace, "kube-apiserver");
    fixture.advance(MINUTE).await;
    assert_eq!(encryption_configuration(&fixture), keys, "the new configuration is not written");
    let deployment = || fixture.server.object("deployments", &namespace, "kube-apiserver");
    assert_eq!(deployment(), None, "the API server would start with the old configuration");
    assert_eq!(key_record(&fixture)["history"][0]["state"], "ReadOnlyDeploy");
    fixture.server.clear_injection();
    let is_back = || deployment().is_some() && encryption_configuration(&fixture) != keys;
    fixture.advance_until("both objects are applied", 10 * MINUTE, is_back).await;
}

#[tokio::test]
async fn lost_key_record_drops_no_key() {
    let fixture = start_with_recorded_key(|_| ()).await;
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.advance(10 * SECOND).await;
    finish_rollout(&fixture);
    let is_promoted = || key_record(&fixture)["history"][0]["state"] == "WritePromote";
    fixture.advance_until("the key is promoted", MINUTE, is_promoted).await;
    fixture.advance(10 * SECOND).await;
    let keys = encryption_configuration(&fixture);
    // Another client also removed the label that the watch selects.
    fixture.server.change_externally(
        ("secrets", &control_plane_namespace(0), CONFIGURATION),
        |secret| {
            secret["metadata"]["labels"] = json!({});
        },
    );
    remove_key_record(&fixture);
    fixture.advance(MINUTE).await;
    assert_eq!(
        (key_record(&fixture), encryption_configuration(&fixture)),
        (Value::Null, keys.clone())
    );
    let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    let conditions = cluster["status"]["conditions"].to_string();
    assert!(conditions.contains("encrypted, which is not recorded"), "{conditions}");
    // The fix from the hint.
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |cluster| {
        let keys = cluster.pointer_mut(KEYS).unwrap();
        keys["backupKey"] = keys["activeKey"].clone();
        keys["backupKey"]["keyVersion"] = json!(OLD);
    });
    let is_back = || key_record(&fixture)["activeKey"]["azure"]["keyVersion"] == OLD;
    fixture.advance_until("both keys are recorded", 10 * SECOND, is_back).await;
    assert_eq!(key_record(&fixture)["history"][0]["state"], "WritePromote");
    assert_eq!(encryption_configuration(&fixture), keys);
}

#[tokio::test]
async fn plan_shows_key_record_and_key_loss() {
    let fixture = start_with_recorded_key(|_| ()).await;
    assert_eq!(fixture.plan_all().await.len(), 1);
    fixture.server.inject(|request| {
        is_key_record_write(request).then(|| InjectedResponse::error_status(403, "Forbidden"))
    });
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.run_until_idle().await;
    let (plan, is_good) = fixture.plan_all().await.remove(0);
    assert!(is_good && plan.contains("record first, in `status.secretEncryption`"), "{plan}");
    remove_key_record(&fixture);
    fixture.run_until_idle().await;
    let (plan, is_good) = fixture.plan_all().await.remove(0);
    assert!(!is_good && plan.contains("encrypts with another key than"), "{plan}");
    assert!(plan.contains("; next: restore the key, or set it as `backupKey`"), "{plan}");
    // The operator records no key of a paused cluster.
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        it["spec"]["pausedUntil"] = json!("true");
    });
    fixture.run_until_idle().await;
    let (plan, is_good) = fixture.plan_all().await.remove(0);
    assert!(is_good && plan.contains("\n  paused: "), "{plan}");
    assert!(!plan.contains("encrypts with another key than"), "{plan}");
}

#[tokio::test]
async fn plan_shows_key_promotion_after_the_rollout() {
    let fixture = start_with_recorded_key(|_| ()).await;
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.advance(MINUTE).await;
    assert_eq!(key_record(&fixture)["history"][0]["state"], "ReadOnlyDeploy");
    let plan = fixture.plans().await.remove(0);
    assert!(!plan.has_changes && plan.is_applicable, "the rollout is not complete: {plan}");

    fixture.server.inject(|request| {
        is_key_record_write(request).then(|| InjectedResponse::error_status(403, "Forbidden"))
    });
    finish_rollout(&fixture);
    fixture.advance(MINUTE).await;
    let plan = fixture.plans().await.remove(0);
    assert!(plan.has_changes && plan.is_applicable, "{plan}");
    let line = "\n  promote the key, in `status.secretEncryption`: ";
    assert!(plan.to_string().contains(line), "{plan}");

    fixture.server.clear_injection();
    let is_promoted = || key_record(&fixture)["history"][0]["state"] == "WritePromote";
    fixture.advance_until("the key is promoted", 10 * MINUTE, is_promoted).await;
    fixture.advance(MINUTE).await;
    let plan = fixture.plans().await.remove(0);
    assert!(!plan.has_changes && plan.is_applicable, "{plan}");
}

#[tokio::test]
async fn key_record_write_names_its_resource_version() {
    let fixture = start_with_recorded_key(|_| ()).await;
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |it| {
        set_rotated_key(it, false);
    });
    fixture.advance(10 * SECOND).await;
    // A write that arrives after another one conflicts and changes nothing.
    let is_meant = |request: &ReceivedRequest| {
        is_key_record_write(request) && request.expected_version.is_some()
    };
    assert_eq!(
        (
            fixture.server.count_requests(is_key_record_write),
            fixture.server.count_requests(is_meant)
        ),
        (1, 1)
    );
}
