//! What the annotations of a class do to mounted volumes.

use std::time::Duration;

use lanyard_node::NoticeKind;
use lanyard_node::rotation::ClassWishes;
use lanyard_vocabulary::OutcomeCode;
use libtest_mimic::Trial;

use crate::scene::{Scene, SceneSettings};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_new_value_of_the_refresh_annotation_brings_the_new_version_within_seconds",
            a_new_value_of_the_refresh_annotation_brings_the_new_version_within_seconds,
        ),
        trial(
            "an_older_credential_is_refused_until_the_class_accepts_exactly_that_version",
            an_older_credential_is_refused_until_the_class_accepts_exactly_that_version,
        ),
    ]
}

async fn a_new_value_of_the_refresh_annotation_brings_the_new_version_within_seconds() {
    let mut scene = Scene::open(SceneSettings::default());
    scene.registered().await;
    let keys: Vec<_> = (0..10).map(|number| scene.add_pod(number)).collect();
    scene.step(Duration::ZERO).await;
    scene.pass(Duration::from_mins(5), Duration::from_secs(10)).await;
    scene.vault.give("2");
    scene.annotate(ClassWishes::REFRESH, "2026-11-21T12:05:00Z");
    scene.pass(Duration::from_secs(10), Duration::from_secs(1)).await;
    assert_eq!(scene.vault.fills(), 20, "{:?}", scene.notices());
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 2"));
    }
    scene.pass(Duration::from_mins(5), Duration::from_secs(10)).await;
    scene.restart_node().await;
    scene.pass(Duration::from_mins(5), Duration::from_secs(10)).await;
    assert_eq!(scene.vault.fills(), 20, "the wish is fulfilled once, across a restart");
    scene.end().await;
}

async fn an_older_credential_is_refused_until_the_class_accepts_exactly_that_version() {
    let mut scene = Scene::open(SceneSettings::default());
    scene.registered().await;
    let key = scene.add_pod(1);
    scene.vault.give("5");
    scene.step(Duration::ZERO).await;
    assert_eq!(scene.content(&key), "pod-1 holds 5");

    // The vault is rolled back. Its versions count their `not_before` too.
    scene.vault.give("3");
    scene.annotate(ClassWishes::REFRESH, "a");
    scene.pass(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 5");
    let refused = NoticeKind::Failed(OutcomeCode::CredentialOlder);
    let told = scene.told(refused);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("lanyard.dev/accept-older: \"secret/credential@3\""), "{told:?}");

    scene.annotate(ClassWishes::ACCEPT_OLDER, "secret/credential@4");
    scene.annotate(ClassWishes::REFRESH, "b");
    scene.pass(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 5");

    scene.annotate(ClassWishes::ACCEPT_OLDER, "secret/credential@3");
    scene.annotate(ClassWishes::REFRESH, "c");
    scene.pass(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 3");
    assert_eq!(scene.told(NoticeKind::Recovered(OutcomeCode::CredentialOlder)).len(), 1);
    let audited = scene.audited();
    let accepted = audited.lines().filter(|line| line.contains("\"olderAccepted\""));
    let accepted: Vec<_> = accepted.collect();
    assert_eq!(accepted.len(), 1, "{audited}");
    for part in ["\"object\":\"secret/credential\"", "\"version\":\"3\"", "\"pod\":\"pod-1\""] {
        assert!(accepted[0].contains(part), "{part} is not in {}", accepted[0]);
    }

    // Newer is taken, and the same roll-back again is not: it was accepted once.
    scene.vault.give("6");
    scene.annotate(ClassWishes::REFRESH, "d");
    scene.pass(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 6");
    scene.restart_node().await;
    scene.vault.give("3");
    scene.annotate(ClassWishes::REFRESH, "e");
    scene.pass(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 6");
    scene.end().await;
}
