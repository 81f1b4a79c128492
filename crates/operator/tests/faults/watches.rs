//! Watches that fail in every way.

use std::time::Duration;

use serde_json::json;

use crate::api_state::ReceivedRequest;
use crate::fixture::{
    MINUTE, OperatorFixture, SECOND, change_vault_externally, class_vault, control_plane_namespace,
    has_verb, is_full_list,
};
use crate::management_api::{FakeManagementApi, InjectedResponse};
use crate::request_path::RequestVerb;

const CLASS: &str = "managed-azure-disk-csi";
/// The number of watched kinds.
const WATCHED_KINDS: usize = 15;

/// Asserts that the operator reverts an external change in time although the watches fail.
async fn assert_external_change_reverted(fixture: &OperatorFixture, within: Duration) {
    let expected = class_vault(&fixture.server, 0, CLASS);
    change_vault_externally(&fixture.server, 0, CLASS, "elsewhere");
    let is_back = || class_vault(&fixture.server, 0, CLASS) == expected;
    fixture.advance_until("the class is reverted", within, is_back).await;
}

#[tokio::test]
async fn cut_watches_resume_from_their_version() {
    for cut in [FakeManagementApi::close_watches, FakeManagementApi::break_watches] {
        let fixture = OperatorFixture::start_converged(2).await;
        assert_eq!(fixture.server.open_watch_count(), WATCHED_KINDS);
        for _ in 0..3 {
            cut(&fixture.server);
            assert_external_change_reverted(&fixture, 2 * SECOND).await;
        }
        assert_eq!(fixture.server.count_requests(is_full_list), 0, "no kind is listed again");
        let begun = fixture.server.count_requests(has_verb(RequestVerb::Watch));
        assert!(begun <= 4 * WATCHED_KINDS, "{begun} watches were begun");
        let written = fixture.server.describe_requests(|it| it.verb.is_write());
        assert_eq!(written.len(), 3, "only the changed class: {written:#?}");
    }
}

#[tokio::test]
async fn expired_version_causes_one_list_and_misses_nothing() {
    let fixture = OperatorFixture::start_converged(2).await;
    // The watch never delivers these changes.
    fixture.server.silence_watches();
    let good = class_vault(&fixture.server, 0, CLASS);
    change_vault_externally(&fixture.server, 0, CLASS, "elsewhere");
    fixture.server.delete_externally(
        "configmaps",
        &control_plane_namespace(1),
        "azure-cloud-config",
    );
    fixture.server.compact();
    fixture.server.close_watches();
    let is_back = || {
        let map =
            fixture.server.object("configmaps", &control_plane_namespace(1), "azure-cloud-config");
        class_vault(&fixture.server, 0, CLASS) == good && map.is_some()
    };
    fixture.advance_until("both objects are reverted", 5 * SECOND, is_back).await;
    fixture.advance(MINUTE).await;
    assert_eq!(fixture.server.count_requests(is_full_list), WATCHED_KINDS, "each kind once");
    assert_eq!(fixture.server.open_watch_count(), WATCHED_KINDS);
}

#[tokio::test]
async fn permanent_gone_errors_do_not_cause_list_storm() {
    // As an event and as the response to the watch request: both fail immediately, so only the client's
    // own back-off spaces the lists.
    for instead in [
        InjectedResponse::WatchError(410, "Expired"),
        InjectedResponse::error_status(410, "Expired"),
    ] {
        let fixture = OperatorFixture::start_converged(1).await;
        fixture
            .server
            .inject(move |request| (request.verb == RequestVerb::Watch).then(|| instead.clone()));
        fixture.server.fail_watches(410, "Expired");
        fixture.advance(MINUTE).await;
        let lists = fixture.server.count_requests(is_full_list);
        // After 0.2, 0.4, 0.8 … 10 s, less up to a half by jitter.
        assert!(lists >= 6 * WATCHED_KINDS, "{lists} lists in a minute");
        assert!(lists <= 18 * WATCHED_KINDS, "{lists} lists in a minute");
        fixture.server.clear_injection();
        assert_external_change_reverted(&fixture, 11 * SECOND).await;
        fixture.advance(MINUTE).await;
        assert_eq!(fixture.server.open_watch_count(), WATCHED_KINDS);
    }
}

#[tokio::test]
async fn watch_stream_error_causes_no_list() {
    let fixture = OperatorFixture::start_converged(2).await;
    for code in [500, 504, 429] {
        fixture.server.fail_watches(code, "InternalError");
        assert_external_change_reverted(&fixture, 2 * SECOND).await;
    }
    fixture.advance(10 * SECOND).await;
    assert_eq!(fixture.server.count_requests(is_full_list), 0);
    assert_eq!(fixture.server.open_watch_count(), WATCHED_KINDS);
}

#[tokio::test]
async fn silent_watch_is_closed_after_five_minutes() {
    let fixture = OperatorFixture::start_converged(2).await;
    fixture.server.silence_watches();
    assert_external_change_reverted(&fixture, 5 * MINUTE + SECOND).await;
    assert_eq!(fixture.server.count_requests(is_full_list), 0);
    fixture.advance(MINUTE).await;
    assert_eq!(fixture.server.open_watch_count(), WATCHED_KINDS);
}

#[tokio::test]
async fn watches_that_end_immediately_back_off() {
    let fixture = OperatorFixture::start_converged(1).await;
    fixture.server.inject(|request| {
        (request.verb == RequestVerb::Watch).then_some(InjectedResponse::WatchEnd)
    });
    fixture.server.close_watches();
    fixture.advance(10 * MINUTE).await;
    let begun = fixture.server.count_requests(has_verb(RequestVerb::Watch));
    // Every ten seconds, less up to a half by jitter.
    assert!(begun <= WATCHED_KINDS * 130, "{begun} watches in ten minutes");
    assert_eq!(fixture.server.count_requests(is_full_list), 0);
    fixture.server.clear_injection();
    assert_external_change_reverted(&fixture, 11 * SECOND).await;
}

#[tokio::test]
async fn bookmarks_keep_quiet_watch_version_fresh() {
    let fixture = OperatorFixture::start_converged(1).await;
    // Another client writes elsewhere, and the API server compacts its history.
    for number in 0..50 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": number},
            "metadata": {"name": "busy", "namespace": "elsewhere"}});
        fixture.server.put_externally("configmaps", map);
    }
    fixture.server.compact();
    fixture.server.send_bookmarks();
    fixture.run_until_idle().await;
    fixture.server.close_watches();
    assert_external_change_reverted(&fixture, 2 * SECOND).await;
    assert_eq!(fixture.server.count_requests(is_full_list), 0);
}

#[tokio::test]
async fn unavailable_api_is_polled_with_backoff_then_recovers() {
    let fixture = OperatorFixture::start_converged(2).await;
    fixture.server.inject(|_| Some(InjectedResponse::error_status(503, "ServiceUnavailable")));
    fixture.server.close_watches();
    fixture.advance(20 * MINUTE).await;
    // Each cluster refers to a pull secret and an SSH key, which do not exist.
    let is_read_of_source = |request: &ReceivedRequest| {
        request.verb == RequestVerb::List && !request.path.namespace.is_empty()
    };
    let source_reads = fixture.server.count_requests(is_read_of_source);
    assert!(source_reads <= 4 * 20 * 3, "{source_reads} reads in twenty minutes");
    let request_count = fixture.server.count_requests(|_| true) - source_reads;
    assert!(request_count <= WATCHED_KINDS * 20 * 13, "{request_count} requests in twenty minutes");
    fixture.server.clear_injection();
    assert_external_change_reverted(&fixture, 11 * SECOND).await;
    fixture.advance(MINUTE).await;
    assert_eq!(fixture.server.count_requests(is_full_list), 0);
}
