//! Somebody else who writes the same all the time.

use std::time::Duration;

use lanyard_operator::OperatorRole;
use serde_json::{Value, json};

use crate::api_state::ReceivedRequest;
use crate::fixture::{
    HOSTED_CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, OperatorFixture, SECOND,
    SECRET_PROVIDER_CLASSES, change_vault_externally, class_vault, cluster_name, concerns_cluster,
    control_plane_namespace, hosted_cluster, is_fully_applied, is_status_reported, is_write_for,
};
use crate::management_api::InjectedResponse;
use crate::request_path::RequestVerb;

const CLASS: &str = "managed-azure-disk-csi";
const ADDED_CLUSTERS: usize = 24;

/// The drift that is told of a cluster.
fn reported_drift(stage: &OperatorFixture, number: usize) -> String {
    let told = stage.server.object(IDENTITIES, NAMESPACE, &cluster_name(number)).unwrap();
    told["status"]["drift"].to_string()
}

/// How often each kind of news was told about a cluster.
fn event_count(stage: &OperatorFixture, number: usize, reason: &str) -> usize {
    let events = stage.server.objects("events", NAMESPACE);
    let is_so = |event: &&Value| {
        event["reason"] == reason && event["involvedObject"]["name"] == cluster_name(number)
    };
    events.iter().filter(is_so).count()
}

fn is_write_of_class(asked: &ReceivedRequest) -> bool {
    asked.verb.is_write()
        && asked.path.name == CLASS
        && asked.path.namespace == control_plane_namespace(0)
}

/// Adds clusters, and says how long it takes until they have everything.
async fn time_to_add_clusters(stage: &OperatorFixture, from: usize) -> Duration {
    let numbers = from..from + ADDED_CLUSTERS;
    numbers
        .clone()
        .for_each(|number| stage.server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number)));
    let made = || numbers.clone().all(|number| is_fully_applied(&stage.server, number));
    stage.advance_until("the others are made", 10 * SECOND, made).await
}

#[tokio::test]
async fn conflicting_field_manager_is_reported_and_backed_off() {
    let stage = OperatorFixture::start_converged(2).await;
    let good = class_vault(&stage.server, 0, CLASS);
    let usual = time_to_add_clusters(&stage, 10).await;
    stage.server.clear_requests();
    // Five times a second for five minutes.
    let storm = async |rounds: u32| {
        for round in 0..rounds {
            change_vault_externally(&stage.server, 0, CLASS, &format!("elsewhere-{round}"));
            stage.advance(SECOND / 5).await;
        }
    };
    storm(300).await;
    let written = stage.server.count_requests(is_write_of_class);
    assert!((5..=12).contains(&written), "{written} writes in the first minute");
    let told = reported_drift(&stage, 0);
    assert!(told.contains("written again and again by meddler"), "{told}");
    assert!(told.contains(CLASS) && told.contains("keyvaultName"), "{told}");
    // The others do not wait, and neither does what else there is of the cluster.
    assert_eq!(time_to_add_clusters(&stage, 100).await, usual);
    stage.server.change_externally(
        ("configmaps", &control_plane_namespace(0), "azure-cloud-config"),
        |map| {
            map["data"] = json!({});
        },
    );
    let map = || {
        stage
            .server
            .object("configmaps", &control_plane_namespace(0), "azure-cloud-config")
            .unwrap()
    };
    stage.advance_until("the map is set back", SECOND, || map()["data"] != json!({})).await;
    stage.server.clear_requests();
    storm(300 * 4).await;
    let written = stage.server.count_requests(is_write_of_class);
    assert!(written <= 5, "{written} writes in the four minutes after it");
    let all = stage.server.count_requests(is_write_for(0));
    assert!(all <= written, "{all} writes about the cluster, {written} of the class");
    assert_eq!(event_count(&stage, 0, "ObjectChanged"), 1, "it is told once");

    stage.server.clear_requests();
    let passed = stage
        .advance_until("it is set back", 2 * MINUTE, || {
            class_vault(&stage.server, 0, CLASS) == good
        })
        .await;
    assert!(passed <= 2 * MINUTE);
    stage.advance(11 * MINUTE).await;
    assert_eq!(reported_drift(&stage, 0), "null", "it is over");
    assert_eq!(stage.server.count_requests(is_write_of_class), 1);
    assert_eq!(class_vault(&stage.server, 0, CLASS), good);
}

#[tokio::test]
async fn recreated_class_is_reported_immediately() {
    let stage = OperatorFixture::start_converged(1).await;
    let told = || {
        let told = stage.server.object(IDENTITIES, NAMESPACE, &cluster_name(0)).unwrap();
        let identities = told["status"]["identities"].as_array().cloned().unwrap();
        identities.iter().map(|it| it["reason"].clone()).collect::<Vec<_>>()
    };
    let before = told();
    stage.server.delete_externally(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS);
    stage.advance(SECOND).await;
    assert!(
        stage.server.object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS).is_some()
    );
    assert_eq!(told(), before);
}

#[tokio::test]
async fn repeatedly_deleted_object_is_recreated_with_backoff() {
    let stage = OperatorFixture::start_converged(1).await;
    for _ in 0..600 {
        stage.server.delete_externally(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS);
        stage.advance(SECOND).await;
    }
    let written = stage.server.count_requests(is_write_of_class);
    assert!((5..=16).contains(&written), "{written} writes in ten minutes");
    assert!(
        reported_drift(&stage, 0).contains("taken away again and again"),
        "{}",
        reported_drift(&stage, 0)
    );
    let is_there = || {
        stage.server.object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS).is_some()
    };
    stage.advance_until("it is there", 2 * MINUTE, is_there).await;
}

#[tokio::test]
async fn repeatedly_deleted_control_plane_is_reported_with_few_requests() {
    let stage = OperatorFixture::start_converged(1).await;
    for _ in 0..600 {
        stage.server.delete_externally(
            "hostedcontrolplanes",
            &control_plane_namespace(0),
            &cluster_name(0),
        );
        stage.advance(SECOND).await;
    }
    let made =
        |it: &ReceivedRequest| it.verb.is_write() && it.path.collection == "hostedcontrolplanes";
    let written = stage.server.count_requests(made);
    assert!((5..=16).contains(&written), "{written} writes in ten minutes");
    let asked = stage.server.count_requests(|_| true);
    assert!(asked < 2_000, "{asked} requests in ten minutes");
    assert!(
        reported_drift(&stage, 0).contains("taken away again and again"),
        "{}",
        reported_drift(&stage, 0)
    );
    let is_there = || {
        stage
            .server
            .object("hostedcontrolplanes", &control_plane_namespace(0), &cluster_name(0))
            .is_some()
    };
    stage.advance_until("it is there", 2 * MINUTE, is_there).await;
}

#[tokio::test]
async fn conflicting_condition_writes_do_not_block_reconciles() {
    let stage = OperatorFixture::start_converged(2).await;
    let usual = time_to_add_clusters(&stage, 10).await;
    stage.server.clear_requests();
    let own = || {
        let cluster = stage.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().filter(|it| it["type"] != "Available").count()
    };
    let all = own();
    assert!(all >= 5, "{all} conditions are ours");
    let storm = async |rounds: u32| {
        for round in 0..rounds {
            stage.server.change_externally(
                (HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)),
                |cluster| {
                    let available = json!({"type": "Available", "status": "True", "reason": "A",
                    "message": format!("{round}"), "lastTransitionTime": "2026-01-01T00:00:00Z"});
                    cluster["status"]["conditions"] = json!([available]);
                },
            );
            stage.advance(SECOND / 2).await;
        }
    };
    storm(120).await;
    assert_eq!(time_to_add_clusters(&stage, 100).await, usual);
    storm(1_080).await;
    let written = stage.server.count_requests(is_write_for(0));
    assert!(written <= 36, "{written} writes in ten minutes");
    assert!(
        reported_drift(&stage, 0).contains("status.conditions"),
        "{}",
        reported_drift(&stage, 0)
    );
    stage.advance_until("our conditions are back", 2 * MINUTE, || own() == all).await;
}

#[tokio::test]
async fn conflicting_status_writes_are_reported_in_either_role() {
    for role in [OperatorRole::All, OperatorRole::IdentityOnly] {
        let stage = OperatorFixture::start(role, |server| {
            (0..2).for_each(|it| server.put_externally(HOSTED_CLUSTERS, hosted_cluster(it)))
        });
        let told = || (0..2).all(|number| is_status_reported(&stage.server, number));
        stage.advance_until("they are told of", 30 * SECOND, told).await;
        stage.advance(MINUTE).await;
        stage.server.clear_requests();
        for _ in 0..600 {
            stage.server.change_externally((IDENTITIES, NAMESPACE, &cluster_name(0)), |it| {
                it["status"]["identities"] = json!([]);
            });
            stage.advance(SECOND / 2).await;
        }
        let written = stage.server.count_requests(is_write_for(0));
        assert!((5..=24).contains(&written), "{written} writes in five minutes");
        assert_eq!(stage.server.count_requests(is_write_for(1)), 0);
        stage.advance_until("it is told again", 2 * MINUTE, told).await;
        let drift = reported_drift(&stage, 0);
        assert!(drift.contains("HostedClusterIdentities"), "{drift}");
        assert!(drift.contains("written again and again"), "{drift}");
    }
}

#[tokio::test]
async fn cluster_with_conflicting_writes_backs_off_alone_then_converges() {
    const FILE: &str = "managed-azure-file-csi";
    let stage = OperatorFixture::start_converged(1).await;
    let good = class_vault(&stage.server, 0, FILE);
    let usual = time_to_add_clusters(&stage, 10).await;
    stage.server.clear_requests();
    stage.server.inject(|asked| {
        let held = asked.verb == RequestVerb::Patch && is_write_of_class(asked);
        held.then(|| InjectedResponse::field_conflict("meddler", ".spec.parameters"))
    });
    // A wish comes, and somebody changes what is there all the time.
    stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |cluster| {
        let encoding = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/\
                        controlPlane/disk/credentialsSecretName";
        *cluster.pointer_mut(encoding).unwrap() = json!("another-disk");
    });
    for round in 0..600 {
        change_vault_externally(&stage.server, 0, FILE, &format!("elsewhere-{round}"));
        stage.advance(SECOND / 5).await;
        if round == 100 {
            assert_eq!(time_to_add_clusters(&stage, 100).await, usual);
        }
    }
    let tries = stage.server.count_requests(is_write_of_class);
    // Five seconds after each other, however often something around them changes.
    assert!((1..=25).contains(&tries), "{tries} tries in two minutes");
    let told = reported_drift(&stage, 0);
    assert!(told.contains("held by meddler") && told.contains(CLASS), "{told}");
    // What waits because it was contested does not wait for what goes on to conflict.
    stage
        .advance_until("it is set back", 2 * MINUTE, || class_vault(&stage.server, 0, FILE) == good)
        .await;
    stage.server.clear_injection();
    let is_so = || {
        let class = stage
            .server
            .object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS)
            .unwrap_or_default();
        class.to_string().contains("another-disk")
    };
    stage.advance_until("the wish is there", 10 * MINUTE, is_so).await;
}

#[tokio::test]
async fn resource_version_conflicts_are_retried_with_backoff() {
    let stage = OperatorFixture::start_converged(1).await;
    let usual = time_to_add_clusters(&stage, 10).await;
    stage.server.clear_requests();
    stage.server.inject(|asked| {
        (asked.verb.is_write() && concerns_cluster(asked, 0))
            .then(|| InjectedResponse::error_status(409, "Conflict"))
    });
    change_vault_externally(&stage.server, 0, CLASS, "elsewhere");
    stage.advance(MINUTE).await;
    assert_eq!(time_to_add_clusters(&stage, 100).await, usual);
    stage.advance(MINUTE).await;
    let tries = stage.server.count_requests(is_write_of_class);
    // After 1, 2, 4, 8, 10, 10 … seconds, of which chance takes up to a half.
    assert!((8..=28).contains(&tries), "{tries} tries in two minutes");
    stage.server.clear_injection();
    let good = || class_vault(&stage.server, 0, CLASS) != json!("elsewhere");
    stage.advance_until("it is set back", 11 * SECOND, good).await;
}
