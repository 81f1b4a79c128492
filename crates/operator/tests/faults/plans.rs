//! Plans of a dry run: the lines about the finalizer and about deletions, and whether there are changes.

use lanyard_operator::{ClusterPlan, FINALIZER, OperatorRole};
use serde_json::{Value, json};

use crate::fixture::{
    HOSTED_CLUSTERS, NAMESPACE, OperatorFixture, SECOND, cluster_name, hosted_cluster,
};
use crate::management_api::{FakeManagementApi, InjectedResponse};

fn reject_writes(server: &FakeManagementApi) {
    server.inject(|request| {
        request.verb.is_write().then(|| InjectedResponse::error_status(403, "Forbidden"))
    });
}

/// The plan of the only cluster after a change by another client.
async fn plan_after(
    fixture: &OperatorFixture,
    change: impl FnOnce(&mut Value),
) -> (ClusterPlan, String) {
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), change);
    fixture.run_until_idle().await;
    let plan = fixture.plans().await.remove(0);
    let text = plan.to_string();
    (plan, text)
}

#[tokio::test]
async fn plan_adds_missing_finalizer_unless_cluster_is_paused() {
    let fixture = OperatorFixture::start_converged(1).await;
    let (plan, text) = plan_after(&fixture, |_| ()).await;
    assert!(!plan.has_changes && !text.contains(FINALIZER), "{text}");

    reject_writes(&fixture.server);
    let (plan, text) = plan_after(&fixture, |cluster| {
        cluster["metadata"]["finalizers"] = json!([]);
    })
    .await;
    assert!(plan.has_changes && plan.is_applicable, "{text}");
    assert!(text.contains(&format!("\n  add the finalizer `{FINALIZER}`\n")), "{text}");

    let (plan, text) = plan_after(&fixture, |cluster| {
        cluster["spec"]["pausedUntil"] = json!("true");
    })
    .await;
    assert!(!plan.has_changes && plan.is_applicable, "{text}");
    assert!(text.contains("\n  paused: ") && !text.contains(FINALIZER), "{text}");
    assert!(!text.contains("record first"), "{text}");
}

#[tokio::test]
async fn plan_of_a_paused_cluster_is_incomplete_if_its_namespace_cannot_be_read() {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        let mut cluster = hosted_cluster(0);
        cluster["spec"]["pausedUntil"] = json!("true");
        server.put_externally(HOSTED_CLUSTERS, cluster);
        server.inject(|request| {
            let path = &request.path;
            let is_namespace_read = path.collection == "namespaces" && path.name_filter.is_some();
            is_namespace_read.then(|| InjectedResponse::error_status(403, "Forbidden"))
        });
    });
    fixture.advance(SECOND).await;
    let plan = fixture.plans().await.remove(0);
    let text = plan.to_string();
    assert!(!plan.has_changes && !plan.is_applicable, "{text}");
    assert!(text.contains("\n  paused: "), "{text}");
    assert!(text.contains("\n  could not compare the objects: "), "{text}");
}

#[tokio::test]
async fn plan_of_a_deletion_has_changes_only_if_the_operator_deletes_objects() {
    let (all, identity_only) = (OperatorRole::All, OperatorRole::IdentityOnly);
    let cases = [
        (all, "Azure", FINALIZER, "being deleted: the operator would delete its objects", true),
        (all, "Azure", "other/finalizer", "being deleted: the operator deletes no objects", false),
        (all, "AWS", "other/finalizer", "no changes: this is ", false),
        (identity_only, "Azure", FINALIZER, "the operator would only report the status", false),
    ];
    for (role, platform, finalizer, line, has_changes) in cases {
        let fixture = OperatorFixture::start(role, |server| {
            let mut cluster = hosted_cluster(0);
            cluster["spec"]["platform"]["type"] = json!(platform);
            cluster["metadata"]["deletionTimestamp"] = json!("2026-11-21T13:00:00Z");
            cluster["metadata"]["finalizers"] = json!([finalizer]);
            server.put_externally(HOSTED_CLUSTERS, cluster);
            reject_writes(server);
        });
        fixture.advance(SECOND).await;
        let plan = fixture.plans().await.remove(0);
        assert_eq!((plan.has_changes, plan.is_applicable), (has_changes, true), "{plan}");
        assert!(plan.to_string().contains(line), "{plan}");
    }
}
