//! The record of the key that encrypts, and what brings the keys to the API servers, where somebody or
//! something comes between.

use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::Role;
use serde_json::{Value, json};

use crate::server::Instead;
use crate::stage::{
    CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, SECOND, Stage, cluster, is_made, meddle, name, room,
    vault,
};
use crate::state::Asked;

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
async fn recorded(prepare: impl Fn(&mut Value)) -> Stage {
    let templates = WorkloadTemplates::parse(API_SERVER).unwrap();
    let stage = Stage::start_with(Role::All, templates, |server| {
        let mut first = cluster(0);
        prepare(&mut first);
        server.put(CLUSTERS, first);
    });
    let is_so = || is_made(&stage.server, 0) && !record(&stage)["activeKey"].is_null();
    stage.until("it is made and its key is recorded", 30 * SECOND, is_so).await;
    stage.pass(30 * SECOND).await;
    stage.server.forget();
    stage
}

fn record(stage: &Stage) -> Value {
    let cluster = stage.server.object(CLUSTERS, NAMESPACE, &name(0)).unwrap();
    cluster["status"]["secretEncryption"].clone()
}

fn forget_record(stage: &Stage) {
    stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |cluster| {
        cluster["status"].as_object_mut().unwrap().remove("secretEncryption");
    });
}

/// The new key encrypts by the spec; the old one is its backup where that is said.
fn rotate(cluster: &mut Value, keeps_old: bool) {
    let keys = cluster.pointer_mut(KEYS).unwrap();
    let old = keys["activeKey"].clone();
    keys["activeKey"]["keyVersion"] = json!(NEW);
    if keeps_old {
        keys["backupKey"] = old;
    }
}

fn is_record(asked: &Asked) -> bool {
    asked.verb.is_write() && asked.path.manager == "lanyard-encryption-key"
}

fn configuration(stage: &Stage) -> Value {
    stage.server.object("secrets", &room(0), CONFIGURATION).unwrap()["data"].clone()
}

/// What the pods of the API server roll for.
fn rolls_for(stage: &Stage) -> Value {
    let deployment = stage.server.object("deployments", &room(0), "kube-apiserver").unwrap();
    deployment["spec"]["template"]["metadata"]["annotations"].clone()
}

/// The API server has rolled.
fn roll(stage: &Stage) {
    stage.server.change(("deployments", &room(0), "kube-apiserver"), |deployment| {
        let generation = deployment["metadata"]["generation"].clone();
        let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
        deployment["status"] = json!({"observedGeneration": generation, "replicas": replicas,
            "updatedReplicas": replicas, "availableReplicas": replicas});
    });
}

#[tokio::test]
async fn who_takes_the_record_away_all_the_time_is_named_and_stops_nothing_else() {
    for rotates_meanwhile in [false, true] {
        let stage = recorded(|cluster| {
            if !rotates_meanwhile {
                rotate(cluster, true);
            }
        })
        .await;
        if rotates_meanwhile {
            stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |it| rotate(it, true));
            stage.pass(10 * SECOND).await;
            assert_eq!(record(&stage)["history"][0]["state"], "ReadOnlyDeploy");
        }
        let (good, keys) = (vault(&stage.server, 0, CLASS), configuration(&stage));
        stage.server.forget();
        for second in 0..60 {
            forget_record(&stage);
            stage.pass(SECOND).await;
            if second == 40 {
                meddle(&stage.server, 0, CLASS, "elsewhere");
                let is_back = || vault(&stage.server, 0, CLASS) == good;
                stage.until("the class is set back", SECOND, is_back).await;
            }
        }
        let written = stage.server.count(is_record);
        assert!((5..=14).contains(&written), "{written} records in a minute");
        let told = stage.server.object(IDENTITIES, NAMESPACE, &name(0)).unwrap();
        let drift = told["status"]["drift"].to_string();
        assert!(drift.contains("status.secretEncryption (written again and again"), "{drift}");
        assert_eq!(configuration(&stage), keys, "no other key writes meanwhile");
        let is_there = || record(&stage)["targetKey"]["azure"]["keyVersion"] == NEW;
        stage.until("it is recorded", 3 * MINUTE, is_there).await;
        assert_eq!(configuration(&stage), keys);
    }
}

#[tokio::test]
async fn no_api_server_rolls_for_keys_that_it_could_not_read_and_none_is_promoted_on_it() {
    let stage = recorded(|_| ()).await;
    let (keys, annotations) = (configuration(&stage), rolls_for(&stage));
    let refuse = |name: &'static str| {
        stage.server.rule(move |asked| {
            let is_it = asked.verb.is_write() && asked.path.name == name;
            is_it.then(|| Instead::refused(403, "Forbidden"))
        });
    };
    refuse(CONFIGURATION);
    stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |it| rotate(it, false));
    stage.pass(MINUTE).await;
    assert_eq!(record(&stage)["history"][0]["state"], "ReadOnlyDeploy");
    roll(&stage);
    stage.pass(MINUTE).await;
    assert_eq!((configuration(&stage), rolls_for(&stage)), (keys.clone(), annotations.clone()));
    assert_eq!(record(&stage)["history"][0]["state"], "ReadOnlyDeploy");

    stage.server.behave();
    let is_read = || configuration(&stage) != keys && rolls_for(&stage) != annotations;
    stage.until("both follow", 10 * MINUTE, is_read).await;
    // Now it has rolled, and the record is what is refused.
    stage.server.rule(|asked| {
        is_record(asked).then(|| Instead::Status(429, json!({"details": {"retryAfterSeconds": 7}})))
    });
    stage.server.forget();
    roll(&stage);
    stage.pass(MINUTE).await;
    let tries = stage.server.count(is_record);
    assert!((6..=9).contains(&tries), "{tries} tries in a minute, each after seven seconds");
    stage.server.behave();
    let is_promoted = || record(&stage)["history"][0]["state"] == "WritePromote";
    // What was asked for, and up to a quarter more.
    stage.until("it is promoted", 9 * SECOND, is_promoted).await;
}

#[tokio::test]
async fn a_record_that_is_lost_while_the_old_key_is_read_drops_no_key() {
    let stage = recorded(|_| ()).await;
    stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |it| rotate(it, false));
    stage.pass(10 * SECOND).await;
    roll(&stage);
    let is_promoted = || record(&stage)["history"][0]["state"] == "WritePromote";
    stage.until("it is promoted", MINUTE, is_promoted).await;
    stage.pass(10 * SECOND).await;
    let keys = configuration(&stage);
    // Somebody took away the label by which it is watched, too.
    stage.server.change(("secrets", &room(0), CONFIGURATION), |secret| {
        secret["metadata"]["labels"] = json!({});
    });
    forget_record(&stage);
    stage.pass(MINUTE).await;
    assert_eq!((record(&stage), configuration(&stage)), (Value::Null, keys.clone()));
    let cluster = stage.server.object(CLUSTERS, NAMESPACE, &name(0)).unwrap();
    let told = cluster["status"]["conditions"].to_string();
    assert!(told.contains("of which nothing is recorded"), "{told}");
    // What the hint says.
    stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |cluster| {
        let keys = cluster.pointer_mut(KEYS).unwrap();
        keys["backupKey"] = keys["activeKey"].clone();
        keys["backupKey"]["keyVersion"] = json!(OLD);
    });
    let is_back = || record(&stage)["activeKey"]["azure"]["keyVersion"] == OLD;
    stage.until("both keys are recorded", 10 * SECOND, is_back).await;
    assert_eq!(record(&stage)["history"][0]["state"], "WritePromote");
    assert_eq!(configuration(&stage), keys);
}

#[tokio::test]
async fn a_plan_says_what_would_be_recorded_and_what_would_be_lost() {
    let stage = recorded(|_| ()).await;
    assert_eq!(stage.plans().await.len(), 1);
    stage.server.rule(|asked| is_record(asked).then(|| Instead::refused(403, "Forbidden")));
    stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |it| rotate(it, false));
    stage.settle().await;
    let (plan, is_good) = stage.plans().await.remove(0);
    assert!(is_good && plan.contains("recorded first, in status.secretEncryption"), "{plan}");
    forget_record(&stage);
    stage.settle().await;
    let (plan, is_good) = stage.plans().await.remove(0);
    assert!(!is_good && plan.contains("encrypts with another key than"), "{plan}");
}

#[tokio::test]
async fn what_is_recorded_names_the_version_that_it_was_concluded_from() {
    let stage = recorded(|_| ()).await;
    stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |it| rotate(it, false));
    stage.pass(10 * SECOND).await;
    // One that arrives after another one finds another version, and changes nothing.
    let is_meant = |asked: &Asked| is_record(asked) && asked.meant.is_some();
    assert_eq!((stage.server.count(is_record), stage.server.count(is_meant)), (1, 1));
}
