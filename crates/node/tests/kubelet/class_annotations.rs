//! Tests of class annotations and their effect on mounted volumes.

use std::time::Duration;

use lanyard_node::PodEventKind;
use lanyard_provider::RotationPolicy;
use lanyard_vocabulary::OutcomeCode;
use libtest_mimic::Trial;

use crate::fixture::{KubeletFixture, KubeletFixtureSettings};
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
    let mut scene = KubeletFixture::start(KubeletFixtureSettings::default());
    scene.wait_for_registration().await;
    let keys: Vec<_> = (0..10).map(|number| scene.add_pod(number)).collect();
    scene.advance(Duration::ZERO).await;
    scene.advance_in_steps(Duration::from_mins(5), Duration::from_secs(10)).await;
    scene.vault.set_version("2");
    scene.annotate(RotationPolicy::REFRESH, "2026-11-21T12:05:00Z");
    scene.advance_in_steps(Duration::from_secs(10), Duration::from_secs(1)).await;
    assert_eq!(scene.vault.fetch_count(), 20, "{:?}", scene.events());
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 2"));
    }
    scene.advance_in_steps(Duration::from_mins(5), Duration::from_secs(10)).await;
    scene.restart_plugin().await;
    scene.advance_in_steps(Duration::from_mins(5), Duration::from_secs(10)).await;
    assert_eq!(scene.vault.fetch_count(), 20, "the refresh happens once, across a restart");
    scene.stop().await;
}

async fn an_older_credential_is_refused_until_the_class_accepts_exactly_that_version() {
    let mut scene = KubeletFixture::start(KubeletFixtureSettings::default());
    scene.wait_for_registration().await;
    let key = scene.add_pod(1);
    scene.vault.set_version("5");
    scene.advance(Duration::ZERO).await;
    assert_eq!(scene.content(&key), "pod-1 holds 5");

    // The vault is rolled back. The version number is also the `not_before` of the credential.
    scene.vault.set_version("3");
    scene.annotate(RotationPolicy::REFRESH, "a");
    scene.advance_in_steps(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 5");
    let refused = PodEventKind::Failed(OutcomeCode::CredentialOlder);
    let messages = scene.event_messages(refused);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("lanyard.dev/accept-older: \"secret/credential@3\""),
        "{messages:?}"
    );

    scene.annotate(RotationPolicy::ACCEPT_OLDER, "secret/credential@4");
    scene.annotate(RotationPolicy::REFRESH, "b");
    scene.advance_in_steps(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 5");

    scene.annotate(RotationPolicy::ACCEPT_OLDER, "secret/credential@3");
    scene.annotate(RotationPolicy::REFRESH, "c");
    scene.advance_in_steps(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 3");
    assert_eq!(
        scene.event_messages(PodEventKind::Recovered(OutcomeCode::CredentialOlder)).len(),
        1
    );
    let audited = scene.audit_log();
    let accepted = audited.lines().filter(|line| line.contains("\"olderAccepted\""));
    let accepted: Vec<_> = accepted.collect();
    assert_eq!(accepted.len(), 1, "{audited}");
    for part in ["\"object\":\"secret/credential\"", "\"version\":\"3\"", "\"pod\":\"pod-1\""] {
        assert!(accepted[0].contains(part), "{part} is not in {}", accepted[0]);
    }

    // A newer credential is accepted. The same roll-back is rejected again, because it was accepted once.
    scene.vault.set_version("6");
    scene.annotate(RotationPolicy::REFRESH, "d");
    scene.advance_in_steps(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 6");
    scene.restart_plugin().await;
    scene.vault.set_version("3");
    scene.annotate(RotationPolicy::REFRESH, "e");
    scene.advance_in_steps(Duration::from_secs(20), Duration::from_secs(1)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 6");
    scene.stop().await;
}
