//! Watches that break in every way that they can.

use std::time::Duration;

use serde_json::json;

use crate::fixture::{
    MINUTE, OperatorFixture, SECOND, change_vault_externally, class_vault, control_plane_namespace,
    has_verb, is_full_list,
};
use crate::management_api::{FakeManagementApi, InjectedResponse};
use crate::request_path::RequestVerb;

const CLASS: &str = "managed-azure-disk-csi";
/// The kinds that are watched.
const WATCHED_KINDS: usize = 14;

/// Something that somebody else does while the watches are broken is noticed in time.
async fn assert_external_change_reverted(stage: &OperatorFixture, within: Duration) {
    let good = class_vault(&stage.server, 0, CLASS);
    change_vault_externally(&stage.server, 0, CLASS, "elsewhere");
    let is_back = || class_vault(&stage.server, 0, CLASS) == good;
    stage.advance_until("it is set back", within, is_back).await;
}

#[tokio::test]
async fn cut_watches_resume_from_their_version() {
    for cut in [FakeManagementApi::close_watches, FakeManagementApi::break_watches] {
        let stage = OperatorFixture::start_converged(2).await;
        assert_eq!(stage.server.open_watch_count(), WATCHED_KINDS);
        for _ in 0..3 {
            cut(&stage.server);
            assert_external_change_reverted(&stage, 2 * SECOND).await;
        }
        assert_eq!(stage.server.count_requests(is_full_list), 0, "nothing is listed anew");
        let begun = stage.server.count_requests(has_verb(RequestVerb::Watch));
        assert!(begun <= 4 * WATCHED_KINDS, "{begun} watches were begun");
        let written = stage.server.describe_requests(|it| it.verb.is_write());
        assert_eq!(written.len(), 3, "what was meddled with: {written:#?}");
    }
}

#[tokio::test]
async fn expired_version_causes_one_list_and_misses_nothing() {
    let stage = OperatorFixture::start_converged(2).await;
    // Nobody tells of it any more.
    stage.server.silence_watches();
    let good = class_vault(&stage.server, 0, CLASS);
    change_vault_externally(&stage.server, 0, CLASS, "elsewhere");
    stage.server.delete_externally("configmaps", &control_plane_namespace(1), "azure-cloud-config");
    stage.server.compact();
    stage.server.close_watches();
    let is_back = || {
        let map =
            stage.server.object("configmaps", &control_plane_namespace(1), "azure-cloud-config");
        class_vault(&stage.server, 0, CLASS) == good && map.is_some()
    };
    stage.advance_until("both are set back", 5 * SECOND, is_back).await;
    stage.advance(MINUTE).await;
    assert_eq!(stage.server.count_requests(is_full_list), WATCHED_KINDS, "each kind once");
    assert_eq!(stage.server.open_watch_count(), WATCHED_KINDS);
}

#[tokio::test]
async fn permanent_gone_errors_do_not_cause_list_storm() {
    // As an event, and as the answer to the watch: as soon as it begins, so that nothing but the
    // client's own pauses keeps lists apart.
    for instead in [
        InjectedResponse::WatchError(410, "Expired"),
        InjectedResponse::error_status(410, "Expired"),
    ] {
        let stage = OperatorFixture::start_converged(1).await;
        stage
            .server
            .inject(move |asked| (asked.verb == RequestVerb::Watch).then(|| instead.clone()));
        stage.server.fail_watches(410, "Expired");
        stage.advance(MINUTE).await;
        let lists = stage.server.count_requests(is_full_list);
        // After 0.2, 0.4, 0.8 … 10 s, of which chance takes up to a half.
        assert!(lists >= 6 * WATCHED_KINDS, "{lists} lists in a minute");
        assert!(lists <= 18 * WATCHED_KINDS, "{lists} lists in a minute");
        stage.server.clear_injection();
        assert_external_change_reverted(&stage, 11 * SECOND).await;
        stage.advance(MINUTE).await;
        assert_eq!(stage.server.open_watch_count(), WATCHED_KINDS);
    }
}

#[tokio::test]
async fn watch_stream_error_causes_no_list() {
    let stage = OperatorFixture::start_converged(2).await;
    for code in [500, 504, 429] {
        stage.server.fail_watches(code, "InternalError");
        assert_external_change_reverted(&stage, 2 * SECOND).await;
    }
    stage.advance(10 * SECOND).await;
    assert_eq!(stage.server.count_requests(is_full_list), 0);
    assert_eq!(stage.server.open_watch_count(), WATCHED_KINDS);
}

#[tokio::test]
async fn silent_watch_is_closed_after_five_minutes() {
    let stage = OperatorFixture::start_converged(2).await;
    stage.server.silence_watches();
    assert_external_change_reverted(&stage, 5 * MINUTE + SECOND).await;
    assert_eq!(stage.server.count_requests(is_full_list), 0);
    stage.advance(MINUTE).await;
    assert_eq!(stage.server.open_watch_count(), WATCHED_KINDS);
}

#[tokio::test]
async fn watches_that_end_immediately_back_off() {
    let stage = OperatorFixture::start_converged(1).await;
    stage
        .server
        .inject(|asked| (asked.verb == RequestVerb::Watch).then_some(InjectedResponse::WatchEnd));
    stage.server.close_watches();
    stage.advance(10 * MINUTE).await;
    let begun = stage.server.count_requests(has_verb(RequestVerb::Watch));
    // Every ten seconds, of which chance takes up to a half.
    assert!(begun <= WATCHED_KINDS * 130, "{begun} watches in ten minutes");
    assert_eq!(stage.server.count_requests(is_full_list), 0);
    stage.server.clear_injection();
    assert_external_change_reverted(&stage, 11 * SECOND).await;
}

#[tokio::test]
async fn bookmarks_keep_quiet_watch_version_fresh() {
    let stage = OperatorFixture::start_converged(1).await;
    // Somebody else is busy elsewhere, and what was is forgotten.
    for number in 0..50 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": number},
            "metadata": {"name": "busy", "namespace": "elsewhere"}});
        stage.server.put_externally("configmaps", map);
    }
    stage.server.compact();
    stage.server.send_bookmarks();
    stage.run_until_idle().await;
    stage.server.close_watches();
    assert_external_change_reverted(&stage, 2 * SECOND).await;
    assert_eq!(stage.server.count_requests(is_full_list), 0);
}

#[tokio::test]
async fn unavailable_api_is_polled_with_backoff_then_recovers() {
    let stage = OperatorFixture::start_converged(2).await;
    stage.server.inject(|_| Some(InjectedResponse::error_status(503, "ServiceUnavailable")));
    stage.server.close_watches();
    stage.advance(20 * MINUTE).await;
    let asked = stage.server.count_requests(|_| true);
    assert!(asked <= WATCHED_KINDS * 20 * 13, "{asked} requests in twenty minutes");
    stage.server.clear_injection();
    assert_external_change_reverted(&stage, 11 * SECOND).await;
    stage.advance(MINUTE).await;
    assert_eq!(stage.server.count_requests(is_full_list), 0);
}
