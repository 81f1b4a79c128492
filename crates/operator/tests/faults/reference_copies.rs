//! Reads and copies of the objects that a HostedCluster refers to.

use lanyard_operator::OperatorRole;
use serde_json::{Value, json};

use crate::api_state::ReceivedRequest;
use crate::fixture::{
    HOSTED_CLUSTERS, MINUTE, NAMESPACE, OperatorFixture, SECOND, cluster_name,
    control_plane_namespace, hosted_cluster, is_fully_applied,
};
use crate::management_api::InjectedResponse;
use crate::request_path::RequestVerb;

const SOURCE: &str = "c0000-pull-secret";
const COPY: &str = "pull-secret";

async fn start_with_pull_secret() -> OperatorFixture {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        server.put_externally(
            "secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "data": {".dockerconfigjson": "e30="},
                "metadata": {"name": SOURCE, "namespace": NAMESPACE}}),
        );
        let mut cluster = hosted_cluster(0);
        cluster["spec"]["sshKey"] = json!({});
        server.put_externally(HOSTED_CLUSTERS, cluster);
    });
    let is_applied = || is_fully_applied(&fixture.server, 0) && !copied_value(&fixture).is_null();
    fixture.advance_until("the objects exist", 30 * SECOND, is_applied).await;
    fixture.advance(10 * SECOND).await;
    fixture.server.clear_requests();
    fixture
}

fn copied_value(fixture: &OperatorFixture) -> Value {
    let copy = fixture.server.object("secrets", &control_plane_namespace(0), COPY);
    copy.unwrap_or_default()["data"][".dockerconfigjson"].clone()
}

fn is_read_of_source(request: &ReceivedRequest) -> bool {
    request.verb == RequestVerb::List
        && request.path.collection == "secrets"
        && request.path.name_filter.as_deref() == Some(SOURCE)
}

fn annotate_cluster(fixture: &OperatorFixture, value: &str) {
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), |cluster| {
        cluster["metadata"]["annotations"]["example.com/x"] = json!(value);
    });
}

#[tokio::test]
async fn source_is_read_again_only_after_a_minute() {
    let fixture = start_with_pull_secret().await;
    for number in 0..4 {
        annotate_cluster(&fixture, &number.to_string());
        fixture.advance(10 * SECOND).await;
    }
    assert_eq!(fixture.server.count_requests(is_read_of_source), 0);
    fixture.advance(MINUTE).await;
    annotate_cluster(&fixture, "later");
    fixture.advance(SECOND).await;
    assert_eq!(fixture.server.count_requests(is_read_of_source), 1);
}

#[tokio::test]
async fn outage_causes_no_further_reads_and_no_error() {
    let fixture = start_with_pull_secret().await;
    fixture.server.inject(|request| {
        is_read_of_source(request)
            .then(|| InjectedResponse::error_status(503, "ServiceUnavailable"))
    });
    fixture.advance(20 * MINUTE).await;
    let reads = fixture.server.count_requests(is_read_of_source);
    assert!((1..=20).contains(&reads), "{reads} reads in twenty minutes");
    assert_eq!(copied_value(&fixture), "e30=");
    let written = fixture.server.describe_requests(|request| request.verb.is_write());
    assert!(written.is_empty(), "{written:#?}");
}

#[tokio::test]
async fn changed_copy_is_reverted_at_once() {
    let fixture = start_with_pull_secret().await;
    let namespace = control_plane_namespace(0);
    fixture.server.change_externally(("secrets", &namespace, COPY), |copy| {
        copy["data"][".dockerconfigjson"] = json!("AAAA");
    });
    let is_back = || copied_value(&fixture) == "e30=";
    fixture.advance_until("the copy is reverted", 2 * SECOND, is_back).await;
    assert_eq!(fixture.server.count_requests(is_read_of_source), 1);
    let deleted = fixture.server.count_requests(|request| request.verb == RequestVerb::Delete);
    assert_eq!(deleted, 0);
}
