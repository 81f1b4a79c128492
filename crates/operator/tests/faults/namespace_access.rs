//! The operator's own RoleBinding in the namespaces of control planes: it is the first object of a namespace and
//! the last one to go.

use std::sync::atomic::{AtomicUsize, Ordering};

use lanyard_operator::OperatorRole;
use serde_json::{Value, json};

use crate::api_state::ReceivedRequest;
use crate::fixture::{
    HOSTED_CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, OperatorFixture, SECOND, cluster_name,
    control_plane_namespace, hosted_cluster, is_fully_applied, is_write_for,
};
use crate::management_api::InjectedResponse;
use crate::request_path::RequestVerb;

const BINDING: &str = "lanyard-control-plane";

/// The authorizer's response to a request without a permission.
fn missing_permission() -> InjectedResponse {
    let message = "hostedcontrolplanes is forbidden: User \"x\" cannot patch resource";
    InjectedResponse::Status(403, json!({"reason": "Forbidden", "message": message}))
}

/// Starts an operator with one cluster. An administrator may have handed its namespace over.
async fn start_cluster(is_handed_over: bool) -> OperatorFixture {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        if is_handed_over {
            let cluster = format!("{NAMESPACE}/{}", cluster_name(0));
            server.put_externally(
                "namespaces",
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                    "name": control_plane_namespace(0),
                    "labels": {"hypershift.openshift.io/hosted-control-plane": "true"},
                    "annotations": {"hypershift.openshift.io/cluster": cluster},
                }}),
            );
        }
        server.put_externally(HOSTED_CLUSTERS, hosted_cluster(0));
    });
    let is_applied = || is_fully_applied(&fixture.server, 0);
    fixture.advance_until("the objects exist", 30 * SECOND, is_applied).await;
    fixture
}

fn change_cluster(fixture: &OperatorFixture, change: impl FnOnce(&mut Value)) {
    let name = cluster_name(0);
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &name), change);
}

/// Deletes the cluster, and waits until the operator has removed its finalizer.
async fn delete_cluster(fixture: &OperatorFixture) {
    change_cluster(fixture, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-11-21T13:00:00Z");
    });
    let is_released = || {
        let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0));
        let finalizers = cluster.unwrap_or_default()["metadata"]["finalizers"].clone();
        finalizers.as_array().is_none_or(Vec::is_empty)
    };
    fixture.advance_until("the finalizer is removed", 5 * MINUTE, is_released).await;
}

/// The deletions, as the collection and the name of each object.
fn deletions(fixture: &OperatorFixture) -> Vec<String> {
    let deleted = fixture.server.describe_requests(|it| it.verb == RequestVerb::Delete);
    deleted.iter().filter_map(|line| line.split(" as ").next().map(str::to_owned)).collect()
}

fn position(lines: &[String], part: &str) -> usize {
    let found = lines.iter().position(|line| line.contains(part));
    found.unwrap_or_else(|| panic!("no request with `{part}`: {lines:#?}"))
}

#[tokio::test]
async fn operator_binds_itself_before_it_writes_in_a_namespace() {
    for is_handed_over in [false, true] {
        let fixture = start_cluster(is_handed_over).await;
        fixture.advance(MINUTE).await;
        let written = fixture.server.describe_requests(is_write_for(0));
        let path = format!("rolebindings {}/{BINDING} ", control_plane_namespace(0));
        let of_binding = written.iter().filter(|line| line.contains(&path)).count();
        assert_eq!(of_binding, 1, "{written:#?}");
        let binding = position(&written, &path);
        assert!(binding < position(&written, " hostedcontrolplanes "), "{written:#?}");
        assert_eq!(written.iter().any(|line| line.contains("Create namespaces")), !is_handed_over);
    }
}

fn is_control_plane_write(request: &ReceivedRequest) -> bool {
    request.verb.is_write() && request.path.collection == "hostedcontrolplanes"
}

#[tokio::test]
async fn operator_writes_after_its_binding_is_in_force() {
    let denials = AtomicUsize::new(3);
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        server.put_externally(HOSTED_CLUSTERS, hosted_cluster(0));
        server.inject(move |request| {
            let is_denied = |left: usize| left.checked_sub(1);
            let is_it = request.verb == RequestVerb::Review
                && denials.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_denied).is_ok();
            is_it.then_some(InjectedResponse::AccessDenied)
        });
    });
    let is_applied = || is_fully_applied(&fixture.server, 0);
    fixture.advance_until("the objects exist", SECOND, is_applied).await;
    let sent = fixture.server.describe_requests(|request| {
        request.verb == RequestVerb::Review || is_control_plane_write(request)
    });
    let (reviews, writes) = sent.split_at(4);
    assert!(reviews.iter().all(|line| line.starts_with("Review ")), "{sent:#?}");
    assert!(writes.iter().all(|line| line.contains(" hostedcontrolplanes ")), "{sent:#?}");
    assert_eq!(writes.len(), 1, "{sent:#?}");
}

#[tokio::test]
async fn operator_writes_after_three_seconds_without_a_granted_review() {
    let responses = [
        || InjectedResponse::AccessDenied,
        || InjectedResponse::error_status(403, "Forbidden"),
        || InjectedResponse::error_status(500, "InternalError"),
    ];
    for response in responses {
        let fixture = OperatorFixture::start(OperatorRole::All, |server| {
            server.put_externally(HOSTED_CLUSTERS, hosted_cluster(0));
            server.inject(move |request| (request.verb == RequestVerb::Review).then(response));
        });
        let is_applied = || is_fully_applied(&fixture.server, 0);
        let waited = fixture.advance_until("the objects exist", 5 * SECOND, is_applied).await;
        assert!((3 * SECOND..4 * SECOND).contains(&waited), "{waited:?}");
        assert_eq!(fixture.server.count_requests(is_control_plane_write), 1);
        let reviews = fixture.server.count_requests(|it| it.verb == RequestVerb::Review);
        assert!((5..=10).contains(&reviews), "{reviews} reviews");
    }
}

/// A quota and admission reply with the same status as the authorizer.
#[tokio::test]
async fn forbidden_write_is_reported_and_repeated_after_half_a_minute() {
    for response in [missing_permission, || InjectedResponse::error_status(403, "Forbidden")] {
        let fixture = OperatorFixture::start(OperatorRole::All, |server| {
            server.put_externally(HOSTED_CLUSTERS, hosted_cluster(0));
            server.inject(move |request| is_control_plane_write(request).then(response));
        });
        fixture.advance(10 * SECOND).await;
        assert_eq!(fixture.server.count_requests(is_control_plane_write), 1);
        let report = fixture.server.object(IDENTITIES, NAMESPACE, &cluster_name(0)).unwrap();
        let status = report["status"].to_string();
        assert!(status.contains("check the operator's log and its permissions"), "{status}");
        fixture.advance(30 * SECOND).await;
        assert_eq!(fixture.server.count_requests(is_control_plane_write), 2);
    }
}

#[tokio::test]
async fn finalizer_stays_while_role_bindings_cannot_be_listed() {
    let fixture = start_cluster(true).await;
    fixture.server.inject(|request| {
        let is_read = matches!(request.verb, RequestVerb::List | RequestVerb::Watch);
        let is_it = is_read && request.path.collection == "rolebindings";
        is_it.then(missing_permission)
    });
    fixture.server.compact();
    fixture.server.close_watches();
    fixture.advance(5 * MINUTE).await;
    change_cluster(&fixture, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-11-21T13:00:00Z");
    });
    fixture.advance(10 * MINUTE).await;
    let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    assert_eq!(cluster["metadata"]["finalizers"], json!(["lanyard.dev/finalizer"]));
    fixture.server.clear_injection();
    delete_cluster(&fixture).await;
    let namespace = control_plane_namespace(0);
    assert_eq!(fixture.server.object("rolebindings", &namespace, BINDING), None);
}

#[tokio::test]
async fn binding_in_a_namespace_that_stays_is_deleted_last() {
    let fixture = start_cluster(true).await;
    fixture.server.clear_requests();
    delete_cluster(&fixture).await;
    let deleted = deletions(&fixture);
    let namespace = control_plane_namespace(0);
    assert_eq!(deleted.last().unwrap(), &format!("Delete rolebindings {namespace}/{BINDING}"));
    assert_eq!(position(&deleted, " hostedcontrolplanes "), deleted.len() - 2);
    assert!(fixture.server.object("namespaces", "", &namespace).is_some());
}

#[tokio::test]
async fn binding_goes_with_a_created_namespace() {
    let fixture = start_cluster(false).await;
    fixture.server.clear_requests();
    delete_cluster(&fixture).await;
    // The namespace controller deletes the content of a namespace, which the fake API does not.
    let deleted = deletions(&fixture);
    let namespace = position(&deleted, " namespaces ");
    assert!(!deleted[..namespace].iter().any(|line| line.contains(BINDING)), "{deleted:#?}");
    assert_eq!(position(&deleted, " hostedcontrolplanes "), namespace - 1);
}

#[tokio::test]
async fn deletion_begins_with_a_missing_binding() {
    let fixture = start_cluster(false).await;
    // The operator writes nothing for a paused cluster, so an upgrade adds no binding.
    change_cluster(&fixture, |cluster| cluster["spec"]["pausedUntil"] = json!("true"));
    fixture.advance(10 * SECOND).await;
    let namespace = control_plane_namespace(0);
    fixture.server.delete_externally("rolebindings", &namespace, BINDING);
    fixture.advance(10 * SECOND).await;
    assert_eq!(fixture.server.object("rolebindings", &namespace, BINDING), None);
    fixture.server.clear_requests();
    delete_cluster(&fixture).await;
    let written = fixture.server.describe_requests(|request| {
        request.verb.is_write() && request.path.namespace == namespace
    });
    let binding = position(&written, &format!("rolebindings {namespace}/{BINDING} "));
    assert_eq!(binding, 0, "{written:#?}");
    assert!(position(&written, "Delete deployments") > 0, "{written:#?}");
}

#[tokio::test]
async fn deleted_binding_is_created_again() {
    let fixture = start_cluster(false).await;
    let namespace = control_plane_namespace(0);
    let binding = || fixture.server.object("rolebindings", &namespace, BINDING);
    let subjects = binding().unwrap()["subjects"].clone();
    assert_eq!(
        subjects,
        json!([{"kind": "ServiceAccount", "name": "lanyard-operator", "namespace": "lanyard"}])
    );
    fixture.server.delete_externally("rolebindings", &namespace, BINDING);
    fixture.advance_until("the binding is back", SECOND, || binding().is_some()).await;
}
