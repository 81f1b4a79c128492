//! Conflicts with another client that keeps changing the operator's objects.

use std::sync::atomic::{AtomicUsize, Ordering};
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

/// The reported drift of a cluster.
fn reported_drift(fixture: &OperatorFixture, number: usize) -> String {
    let report = fixture.server.object(IDENTITIES, NAMESPACE, &cluster_name(number)).unwrap();
    report["status"]["drift"].to_string()
}

/// The number of events with this reason about a cluster.
fn event_count(fixture: &OperatorFixture, number: usize, reason: &str) -> usize {
    let events = fixture.server.objects("events", NAMESPACE);
    let is_so = |event: &&Value| {
        event["reason"] == reason && event["involvedObject"]["name"] == cluster_name(number)
    };
    events.iter().filter(is_so).count()
}

fn is_write_of_class(request: &ReceivedRequest) -> bool {
    request.verb.is_write()
        && request.path.name == CLASS
        && request.path.namespace == control_plane_namespace(0)
}

/// Adds clusters, and returns the time until all of their objects exist.
async fn time_to_add_clusters(fixture: &OperatorFixture, from: usize) -> Duration {
    let numbers = from..from + ADDED_CLUSTERS;
    numbers
        .clone()
        .for_each(|number| fixture.server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number)));
    let created = || numbers.clone().all(|number| is_fully_applied(&fixture.server, number));
    fixture.advance_until("the added clusters have all objects", 10 * SECOND, created).await
}

#[tokio::test]
async fn plan_shows_changed_values_and_whether_there_are_changes() {
    let fixture = OperatorFixture::start_converged(1).await;
    assert!(!fixture.plans().await[0].has_changes);
    fixture.server.inject(|request| {
        is_write_of_class(request).then(|| InjectedResponse::error_status(403, "Forbidden"))
    });
    let vault = class_vault(&fixture.server, 0, CLASS);
    change_vault_externally(&fixture.server, 0, CLASS, "elsewhere");
    fixture.run_until_idle().await;
    let plan = fixture.plans().await.remove(0);
    let line = format!("set spec.parameters.keyvaultName: \"elsewhere\" -> {vault}\n");
    assert!(plan.has_changes && plan.is_applicable, "{plan}");
    assert!(plan.to_string().contains(&line), "{line}{plan}");
}

#[tokio::test]
async fn plan_of_a_cluster_without_ids_has_changes() {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        let mut cluster = hosted_cluster(0);
        cluster["spec"].as_object_mut().unwrap().remove("infraID");
        server.put_externally(HOSTED_CLUSTERS, cluster);
        server.inject(|request| {
            request.verb.is_write().then(|| InjectedResponse::error_status(403, "Forbidden"))
        });
    });
    fixture.advance(SECOND).await;
    let plan = fixture.plans().await.remove(0);
    assert!(plan.has_changes && plan.is_applicable, "{plan}");
    assert!(plan.to_string().contains("generate first: spec.infraID"), "{plan}");
}

/// The condition of another release of the operator, or of other templates.
#[tokio::test]
async fn removal_of_a_condition_is_repeated_after_a_failure() {
    let fixture = OperatorFixture::start_converged(1).await;
    let failures = AtomicUsize::new(1);
    let is_condition_write = |request: &ReceivedRequest| {
        request.verb.is_write()
            && request.path.collection == HOSTED_CLUSTERS
            && request.path.subresource.as_deref() == Some("status")
    };
    fixture.server.inject(move |request| {
        let is_left = |left: usize| left.checked_sub(1);
        let fails = is_condition_write(request)
            && failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).is_ok();
        fails.then(|| InjectedResponse::error_status(500, "InternalError"))
    });
    let condition = json!({"type": "EtcdDataEncryptionUpToDate", "status": "True",
        "reason": "ReEncryptionCompleted", "message": "", "lastTransitionTime": "2026-11-21T12:00:00Z"});
    let name = cluster_name(0);
    fixture.server.change_externally((IDENTITIES, NAMESPACE, &name), |report| {
        report["status"]["conditions"].as_array_mut().unwrap().push(condition);
    });
    fixture.advance(MINUTE).await;
    assert_eq!(fixture.server.count_requests(is_condition_write), 2);
}

#[tokio::test]
async fn conflicting_field_manager_is_reported_and_backed_off() {
    let fixture = OperatorFixture::start_converged(2).await;
    let good = class_vault(&fixture.server, 0, CLASS);
    let usual = time_to_add_clusters(&fixture, 10).await;
    fixture.server.clear_requests();
    // Five times a second for five minutes.
    let change_repeatedly = async |rounds: u32| {
        for round in 0..rounds {
            change_vault_externally(&fixture.server, 0, CLASS, &format!("elsewhere-{round}"));
            fixture.advance(SECOND / 5).await;
        }
    };
    change_repeatedly(300).await;
    let written = fixture.server.count_requests(is_write_of_class);
    assert!((5..=12).contains(&written), "{written} writes in the first minute");
    let drift = reported_drift(&fixture, 0);
    assert!(drift.contains("repeatedly changed by meddler"), "{drift}");
    assert!(drift.contains(CLASS) && drift.contains("keyvaultName"), "{drift}");
    // Neither other clusters nor other objects of this cluster wait.
    assert_eq!(time_to_add_clusters(&fixture, 100).await, usual);
    fixture.server.change_externally(
        ("configmaps", &control_plane_namespace(0), "azure-cloud-config"),
        |map| {
            map["data"] = json!({});
        },
    );
    let map = || {
        fixture
            .server
            .object("configmaps", &control_plane_namespace(0), "azure-cloud-config")
            .unwrap()
    };
    fixture.advance_until("the ConfigMap is reverted", SECOND, || map()["data"] != json!({})).await;
    fixture.server.clear_requests();
    change_repeatedly(300 * 4).await;
    let written = fixture.server.count_requests(is_write_of_class);
    assert!(written <= 5, "{written} writes in the four minutes after it");
    let all = fixture.server.count_requests(is_write_for(0));
    assert!(all <= written, "{all} writes about the cluster, {written} of the class");
    assert_eq!(event_count(&fixture, 0, "ObjectChanged"), 1, "one event is emitted");

    fixture.server.clear_requests();
    let passed = fixture
        .advance_until("the class is reverted", 2 * MINUTE, || {
            class_vault(&fixture.server, 0, CLASS) == good
        })
        .await;
    assert!(passed <= 2 * MINUTE);
    fixture.advance(11 * MINUTE).await;
    assert_eq!(reported_drift(&fixture, 0), "null", "the conflict has ended");
    assert_eq!(fixture.server.count_requests(is_write_of_class), 1);
    assert_eq!(class_vault(&fixture.server, 0, CLASS), good);
}

#[tokio::test]
async fn recreated_class_is_reported_immediately() {
    let fixture = OperatorFixture::start_converged(1).await;
    let reasons = || {
        let report = fixture.server.object(IDENTITIES, NAMESPACE, &cluster_name(0)).unwrap();
        let identities = report["status"]["identities"].as_array().cloned().unwrap();
        identities.iter().map(|it| it["reason"].clone()).collect::<Vec<_>>()
    };
    let before = reasons();
    fixture.server.delete_externally(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS);
    fixture.advance(SECOND).await;
    assert!(
        fixture
            .server
            .object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS)
            .is_some()
    );
    assert_eq!(reasons(), before);
}

#[tokio::test]
async fn repeatedly_deleted_object_is_recreated_with_backoff() {
    let fixture = OperatorFixture::start_converged(1).await;
    for _ in 0..600 {
        fixture.server.delete_externally(
            SECRET_PROVIDER_CLASSES,
            &control_plane_namespace(0),
            CLASS,
        );
        fixture.advance(SECOND).await;
    }
    let written = fixture.server.count_requests(is_write_of_class);
    assert!((5..=16).contains(&written), "{written} writes in ten minutes");
    assert!(
        reported_drift(&fixture, 0).contains("repeatedly deleted"),
        "{}",
        reported_drift(&fixture, 0)
    );
    let is_there = || {
        fixture.server.object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS).is_some()
    };
    fixture.advance_until("the object exists", 2 * MINUTE, is_there).await;
}

#[tokio::test]
async fn repeatedly_deleted_control_plane_is_reported_with_few_requests() {
    let fixture = OperatorFixture::start_converged(1).await;
    for _ in 0..600 {
        fixture.server.delete_externally(
            "hostedcontrolplanes",
            &control_plane_namespace(0),
            &cluster_name(0),
        );
        fixture.advance(SECOND).await;
    }
    let created =
        |it: &ReceivedRequest| it.verb.is_write() && it.path.collection == "hostedcontrolplanes";
    let written = fixture.server.count_requests(created);
    assert!((5..=16).contains(&written), "{written} writes in ten minutes");
    let request_count = fixture.server.count_requests(|_| true);
    assert!(request_count < 2_000, "{request_count} requests in ten minutes");
    assert!(
        reported_drift(&fixture, 0).contains("repeatedly deleted"),
        "{}",
        reported_drift(&fixture, 0)
    );
    let is_there = || {
        fixture
            .server
            .object("hostedcontrolplanes", &control_plane_namespace(0), &cluster_name(0))
            .is_some()
    };
    fixture.advance_until("the object exists", 2 * MINUTE, is_there).await;
}

#[tokio::test]
async fn conflicting_condition_writes_do_not_block_reconciles() {
    let fixture = OperatorFixture::start_converged(2).await;
    let usual = time_to_add_clusters(&fixture, 10).await;
    fixture.server.clear_requests();
    let own = || {
        let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().filter(|it| it["type"] != "Available").count()
    };
    let all = own();
    assert!(all >= 5, "{all} conditions of the operator");
    let change_repeatedly = async |rounds: u32| {
        for round in 0..rounds {
            fixture.server.change_externally(
                (HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)),
                |cluster| {
                    let available = json!({"type": "Available", "status": "True", "reason": "A",
                    "message": format!("{round}"), "lastTransitionTime": "2026-01-01T00:00:00Z"});
                    cluster["status"]["conditions"] = json!([available]);
                },
            );
            fixture.advance(SECOND / 2).await;
        }
    };
    change_repeatedly(120).await;
    assert_eq!(time_to_add_clusters(&fixture, 100).await, usual);
    change_repeatedly(1_080).await;
    let written = fixture.server.count_requests(is_write_for(0));
    assert!(written <= 36, "{written} writes in ten minutes");
    assert!(
        reported_drift(&fixture, 0).contains("status.conditions"),
        "{}",
        reported_drift(&fixture, 0)
    );
    fixture
        .advance_until("the operator's conditions are restored", 2 * MINUTE, || own() == all)
        .await;
}

#[tokio::test]
async fn conflicting_status_writes_are_reported_in_either_role() {
    for role in [OperatorRole::All, OperatorRole::IdentityOnly] {
        let fixture = OperatorFixture::start(role, |server| {
            (0..2).for_each(|it| server.put_externally(HOSTED_CLUSTERS, hosted_cluster(it)));
        });
        let is_reported = || (0..2).all(|number| is_status_reported(&fixture.server, number));
        fixture.advance_until("both statuses are reported", 30 * SECOND, is_reported).await;
        fixture.advance(MINUTE).await;
        fixture.server.clear_requests();
        for _ in 0..600 {
            fixture.server.change_externally((IDENTITIES, NAMESPACE, &cluster_name(0)), |it| {
                it["status"]["identities"] = json!([]);
            });
            fixture.advance(SECOND / 2).await;
        }
        let written = fixture.server.count_requests(is_write_for(0));
        assert!((5..=24).contains(&written), "{written} writes in five minutes");
        assert_eq!(fixture.server.count_requests(is_write_for(1)), 0);
        fixture.advance_until("the status is reported again", 2 * MINUTE, is_reported).await;
        let drift = reported_drift(&fixture, 0);
        assert!(drift.contains("HostedClusterIdentities"), "{drift}");
        assert!(drift.contains("repeatedly changed"), "{drift}");
    }
}

#[tokio::test]
async fn cluster_with_conflicting_writes_backs_off_alone_then_converges() {
    const FILE: &str = "managed-azure-file-csi";
    let fixture = OperatorFixture::start_converged(1).await;
    let good = class_vault(&fixture.server, 0, FILE);
    let usual = time_to_add_clusters(&fixture, 10).await;
    fixture.server.clear_requests();
    fixture.server.inject(|request| {
        let is_conflict = request.verb == RequestVerb::Patch && is_write_of_class(request);
        is_conflict.then(|| InjectedResponse::field_conflict("meddler", ".spec.parameters"))
    });
    // The spec changes, while another client keeps changing an object.
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |cluster| {
        let encoding = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/\
                        controlPlane/disk/credentialsSecretName";
        *cluster.pointer_mut(encoding).unwrap() = json!("another-disk");
    });
    for round in 0..600 {
        change_vault_externally(&fixture.server, 0, FILE, &format!("elsewhere-{round}"));
        fixture.advance(SECOND / 5).await;
        if round == 100 {
            assert_eq!(time_to_add_clusters(&fixture, 100).await, usual);
        }
    }
    let tries = fixture.server.count_requests(is_write_of_class);
    // At least five seconds apart, however often a related object changes.
    assert!((1..=25).contains(&tries), "{tries} tries in two minutes");
    let drift = reported_drift(&fixture, 0);
    assert!(drift.contains("held by meddler") && drift.contains(CLASS), "{drift}");
    // A write in back-off does not wait for another one that keeps conflicting.
    fixture
        .advance_until("the class is reverted", 2 * MINUTE, || {
            class_vault(&fixture.server, 0, FILE) == good
        })
        .await;
    fixture.server.clear_injection();
    let is_so = || {
        let class = fixture
            .server
            .object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0), CLASS)
            .unwrap_or_default();
        class.to_string().contains("another-disk")
    };
    fixture.advance_until("the spec change is applied", 10 * MINUTE, is_so).await;
}

#[tokio::test]
async fn resource_version_conflicts_are_retried_with_backoff() {
    let fixture = OperatorFixture::start_converged(1).await;
    let usual = time_to_add_clusters(&fixture, 10).await;
    fixture.server.clear_requests();
    fixture.server.inject(|request| {
        (request.verb.is_write() && concerns_cluster(request, 0))
            .then(|| InjectedResponse::error_status(409, "Conflict"))
    });
    change_vault_externally(&fixture.server, 0, CLASS, "elsewhere");
    fixture.advance(MINUTE).await;
    assert_eq!(time_to_add_clusters(&fixture, 100).await, usual);
    fixture.advance(MINUTE).await;
    let tries = fixture.server.count_requests(is_write_of_class);
    // After 1, 2, 4, 8, 10, 10 … seconds, less up to a half by jitter.
    assert!((8..=28).contains(&tries), "{tries} tries in two minutes");
    fixture.server.clear_injection();
    let good = || class_vault(&fixture.server, 0, CLASS) != json!("elsewhere");
    fixture.advance_until("the class is reverted", 11 * SECOND, good).await;
}
