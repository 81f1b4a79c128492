//! Watches that break in every way that they can.

use std::time::Duration;

use serde_json::json;

use crate::path::Verb;
use crate::server::{Instead, Server};
use crate::stage::{MINUTE, SECOND, Stage, is, is_list_of_all, meddle, room, vault};

const CLASS: &str = "managed-azure-disk-csi";
/// The kinds that are watched.
const KINDS: usize = 14;

/// Something that somebody else does while the watches are broken is noticed in time.
async fn notices(stage: &Stage, within: Duration) {
    let good = vault(&stage.server, 0, CLASS);
    meddle(&stage.server, 0, CLASS, "elsewhere");
    let is_back = || vault(&stage.server, 0, CLASS) == good;
    stage.until("it is set back", within, is_back).await;
}

#[tokio::test]
async fn watches_that_are_cut_go_on_where_they_were() {
    for cut in [Server::cut, Server::break_off] {
        let stage = Stage::settled(2).await;
        assert_eq!(stage.server.watches(), KINDS);
        for _ in 0..3 {
            cut(&stage.server);
            notices(&stage, 2 * SECOND).await;
        }
        assert_eq!(stage.server.count(is_list_of_all), 0, "nothing is listed anew");
        let begun = stage.server.count(is(Verb::Watch));
        assert!(begun <= 4 * KINDS, "{begun} watches were begun");
        let written = stage.server.told(|it| it.verb.is_write());
        assert_eq!(written.len(), 3, "what was meddled with: {written:#?}");
    }
}

#[tokio::test]
async fn a_version_that_is_too_old_is_listed_once_and_nothing_is_missed() {
    let stage = Stage::settled(2).await;
    // Nobody tells of it any more.
    stage.server.fall_silent();
    let good = vault(&stage.server, 0, CLASS);
    meddle(&stage.server, 0, CLASS, "elsewhere");
    stage.server.take("configmaps", &room(1), "azure-cloud-config");
    stage.server.compact();
    stage.server.cut();
    let is_back = || {
        let map = stage.server.object("configmaps", &room(1), "azure-cloud-config");
        vault(&stage.server, 0, CLASS) == good && map.is_some()
    };
    stage.until("both are set back", 5 * SECOND, is_back).await;
    stage.pass(MINUTE).await;
    assert_eq!(stage.server.count(is_list_of_all), KINDS, "each kind once");
    assert_eq!(stage.server.watches(), KINDS);
}

#[tokio::test]
async fn an_api_that_always_says_gone_is_not_asked_for_lists_in_a_storm() {
    // As an event, and as the answer to the watch: as soon as it begins, so that nothing but the
    // client's own pauses keeps lists apart.
    for instead in [Instead::Failed(410, "Expired"), Instead::refused(410, "Expired")] {
        let stage = Stage::settled(1).await;
        stage.server.rule(move |asked| (asked.verb == Verb::Watch).then(|| instead.clone()));
        stage.server.fail_watches(410, "Expired");
        stage.pass(MINUTE).await;
        let lists = stage.server.count(is_list_of_all);
        // After 0.2, 0.4, 0.8 … 10 s, of which chance takes up to a half.
        assert!(lists >= 6 * KINDS, "{lists} lists in a minute");
        assert!(lists <= 18 * KINDS, "{lists} lists in a minute");
        stage.server.behave();
        notices(&stage, 11 * SECOND).await;
        stage.pass(MINUTE).await;
        assert_eq!(stage.server.watches(), KINDS);
    }
}

#[tokio::test]
async fn an_error_in_the_stream_costs_no_list() {
    let stage = Stage::settled(2).await;
    for code in [500, 504, 429] {
        stage.server.fail_watches(code, "InternalError");
        notices(&stage, 2 * SECOND).await;
    }
    stage.pass(10 * SECOND).await;
    assert_eq!(stage.server.count(is_list_of_all), 0);
    assert_eq!(stage.server.watches(), KINDS);
}

#[tokio::test]
async fn a_watch_that_says_nothing_and_does_not_end_is_given_up_in_five_minutes() {
    let stage = Stage::settled(2).await;
    stage.server.fall_silent();
    notices(&stage, 5 * MINUTE + SECOND).await;
    assert_eq!(stage.server.count(is_list_of_all), 0);
    stage.pass(MINUTE).await;
    assert_eq!(stage.server.watches(), KINDS);
}

#[tokio::test]
async fn watches_that_end_as_soon_as_they_begin_are_begun_ever_more_seldom() {
    let stage = Stage::settled(1).await;
    stage.server.rule(|asked| (asked.verb == Verb::Watch).then_some(Instead::Ended));
    stage.server.cut();
    stage.pass(10 * MINUTE).await;
    let begun = stage.server.count(is(Verb::Watch));
    // Every ten seconds, of which chance takes up to a half.
    assert!(begun <= KINDS * 130, "{begun} watches in ten minutes");
    assert_eq!(stage.server.count(is_list_of_all), 0);
    stage.server.behave();
    notices(&stage, 11 * SECOND).await;
}

#[tokio::test]
async fn bookmarks_keep_a_quiet_watch_from_growing_too_old() {
    let stage = Stage::settled(1).await;
    // Somebody else is busy elsewhere, and what was is forgotten.
    for number in 0..50 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": number},
            "metadata": {"name": "busy", "namespace": "elsewhere"}});
        stage.server.put("configmaps", map);
    }
    stage.server.compact();
    stage.server.bookmark();
    stage.settle().await;
    stage.server.cut();
    notices(&stage, 2 * SECOND).await;
    assert_eq!(stage.server.count(is_list_of_all), 0);
}

#[tokio::test]
async fn an_api_that_is_away_for_long_is_asked_seldom_and_then_all_goes_on() {
    let stage = Stage::settled(2).await;
    stage.server.rule(|_| Some(Instead::refused(503, "ServiceUnavailable")));
    stage.server.cut();
    stage.pass(20 * MINUTE).await;
    let asked = stage.server.count(|_| true);
    assert!(asked <= KINDS * 20 * 13, "{asked} requests in twenty minutes");
    stage.server.behave();
    notices(&stage, 11 * SECOND).await;
    stage.pass(MINUTE).await;
    assert_eq!(stage.server.count(is_list_of_all), 0);
}
