//! The node and the kubelet: real sockets, real mounts, virtual hours, a hundred pods. Mounting needs root;
//! without root the tests are reported as ignored.

#![cfg(test)]

#[path = "kubelet/class_annotations.rs"]
mod class_annotations;
#[path = "kubelet/fixture.rs"]
mod fixture;

use std::process::ExitCode;
use std::time::Duration;

use lanyard_kubelet::KubeletEvent;
use libtest_mimic::{Arguments, Trial};

use crate::fixture::{KubeletFixture, KubeletFixtureSettings, count_published};

const PODS: usize = 100;

fn main() -> ExitCode {
    let mut trials = vec![
        trial(
            "a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_kubelets_calls",
            a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_kubelets_calls,
        ),
        trial(
            "a_hundred_pods_are_rotated_without_republish_calls",
            a_hundred_pods_are_rotated_without_republish_calls,
        ),
        trial(
            "pods_keep_content_and_republish_succeeds_during_a_vault_outage",
            pods_keep_content_and_republish_succeeds_during_a_vault_outage,
        ),
        trial(
            "failed_publish_leaves_no_mount_and_succeeds_after_recovery",
            failed_publish_leaves_no_mount_and_succeeds_after_recovery,
        ),
        trial(
            "volumes_are_refilled_before_republish_succeeds_after_a_reboot",
            volumes_are_refilled_before_republish_succeeds_after_a_reboot,
        ),
        trial(
            "rotation_uses_the_workload_identity_tokens_of_the_last_republish",
            rotation_uses_the_workload_identity_tokens_of_the_last_republish,
        ),
    ];
    trials.extend(class_annotations::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A test on its own runtime.
fn trial<F>(name: &str, case: F) -> Trial
where
    F: AsyncFnOnce() + Send + 'static,
{
    let trial = Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(case());
        Ok(())
    });
    trial.with_ignored_flag(!rustix::process::geteuid().is_root())
}

/// Mounts, rotates and unmounts a hundred pods through calls of the kubelet and the rotator's own schedule.
async fn run_hundred_pod_lifecycle(requires_republish: bool) {
    let mut scene = KubeletFixture::start(KubeletFixtureSettings {
        requires_republish,
        interval: "10m",
        ..KubeletFixtureSettings::default()
    });
    scene.wait_for_registration().await;
    let keys: Vec<_> = (0..PODS).map(|number| scene.add_pod(number)).collect();
    let events = scene.advance(Duration::ZERO).await;
    assert_eq!(count_published(&events), PODS, "{events:?}");
    assert_eq!((scene.mount_count(), scene.vault.fetch_count()), (PODS, PODS));
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 1"));
    }

    // The kubelet republishes immediately and then every minute or so, which causes no fetch.
    scene.advance_in_steps(Duration::from_mins(5), Duration::from_secs(10)).await;
    assert_eq!(scene.vault.fetch_count(), PODS);

    // The interval is ten minutes. Every volume has the new version within the interval and its jitter.
    scene.vault.set_version("2");
    scene.advance_in_steps(Duration::from_mins(7), Duration::from_secs(10)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 2"));
    }
    assert_eq!(scene.vault.fetch_count(), 2 * PODS);
    assert_eq!(scene.mount_count(), PODS, "nothing was mounted over anything");

    // A restart of the plugin under running pods causes no fetch before the next poll is due.
    scene.restart_plugin().await;
    scene.advance_in_steps(Duration::from_mins(5), Duration::from_secs(10)).await;
    assert_eq!(scene.vault.fetch_count(), 2 * PODS);
    scene.vault.set_version("3");
    scene.advance_in_steps(Duration::from_mins(7), Duration::from_secs(10)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 3"));
    }

    for number in 0..PODS {
        scene.delete_pod(number);
    }
    let events = scene.advance(Duration::from_secs(1)).await;
    let gone =
        |it: &&KubeletEvent| matches!(it, KubeletEvent::Unpublished { still_mounted: false, .. });
    assert_eq!(events.iter().filter(gone).count(), PODS, "{events:?}");
    assert_eq!((scene.mount_count(), scene.kubelet.volume_count()), (0, 0));
    assert_eq!(scene.pod_directory_count(), 0);
    scene.stop().await;
}

async fn a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_kubelets_calls() {
    run_hundred_pod_lifecycle(true).await;
}

async fn a_hundred_pods_are_rotated_without_republish_calls() {
    run_hundred_pod_lifecycle(false).await;
}

async fn pods_keep_content_and_republish_succeeds_during_a_vault_outage() {
    let scene = KubeletFixture::start(KubeletFixtureSettings {
        interval: "2m",
        ..KubeletFixtureSettings::default()
    });
    scene.wait_for_registration().await;
    let keys: Vec<_> = (0..10).map(|number| scene.add_pod(number)).collect();
    scene.advance(Duration::ZERO).await;
    scene.vault.set_failing(true);
    let events = scene.advance_in_steps(Duration::from_mins(30), Duration::from_secs(5)).await;
    assert!(count_published(&events) > 200, "{}", count_published(&events));
    assert_eq!(count_published(&events), events.len(), "{events:?}");
    // Ten volumes in thirty minutes: waits of 10, 20, 40, 80, then 120 s, each with up to a fifth of jitter.
    let tries = scene.vault.fetch_count() - 10;
    assert!((120..=200).contains(&tries), "{tries}");
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 1"));
    }

    scene.vault.set_failing(false);
    scene.vault.set_version("2");
    scene.advance_in_steps(Duration::from_secs(150), Duration::from_secs(5)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 2"));
    }
    scene.stop().await;
}

async fn failed_publish_leaves_no_mount_and_succeeds_after_recovery() {
    let scene = KubeletFixture::start(KubeletFixtureSettings::default());
    scene.wait_for_registration().await;
    scene.vault.set_failing(true);
    let key = scene.add_pod(1);
    let events = scene.advance(Duration::ZERO).await;
    let [KubeletEvent::PublishFailed { message, was_published: false, .. }] = events.as_slice()
    else {
        panic!("{events:?}");
    };
    assert!(message.contains("VaultUnavailable") && message.contains("hint:"), "{message}");
    assert_eq!(scene.mount_count(), 0);
    assert!(!scene.kubelet.is_mounted(&key));
    // A republish must never succeed with an empty directory.
    for _ in 0..20 {
        let events = scene.advance(Duration::from_secs(10)).await;
        assert_eq!((count_published(&events), scene.mount_count()), (0, 0));
    }
    scene.vault.set_failing(false);
    let events = scene.advance(Duration::from_secs(130)).await;
    assert_eq!((count_published(&events), scene.mount_count()), (1, 1));
    assert_eq!(scene.content(&key), "pod-1 holds 1");
    scene.stop().await;
}

async fn volumes_are_refilled_before_republish_succeeds_after_a_reboot() {
    let mut scene = KubeletFixture::start(KubeletFixtureSettings::default());
    scene.wait_for_registration().await;
    let keys: Vec<_> = (0..5).map(|number| scene.add_pod(number)).collect();
    scene.advance(Duration::ZERO).await;
    scene.reboot().await;
    assert_eq!(scene.mount_count(), 0);
    assert!(keys.iter().all(|key| scene.kubelet.target_path(key).is_dir()));
    let events = scene.advance(Duration::from_secs(2)).await;
    assert_eq!(
        (count_published(&events), scene.mount_count(), scene.vault.fetch_count()),
        (5, 5, 10)
    );
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 1"));
    }
    scene.stop().await;
}

async fn rotation_uses_the_workload_identity_tokens_of_the_last_republish() {
    let settings = KubeletFixtureSettings {
        audience: Some("api://AzureADTokenExchange"),
        ..KubeletFixtureSettings::default()
    };
    let scene = KubeletFixture::start(KubeletFixtureSettings {
        interval: "30m",
        managed: false,
        ..settings
    });
    scene.wait_for_registration().await;
    let key = scene.add_pod(1);
    scene.advance(Duration::ZERO).await;
    scene.vault.set_version("2");
    // The first token lives for an hour; the kubelet sends a new one after four fifths of it.
    scene.advance_in_steps(Duration::from_hours(3), Duration::from_secs(10)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 2");
    let fills = scene.vault.fetch_count();
    assert!((6..=8).contains(&fills), "{fills}");
    assert_eq!(scene.vault.expired_tokens(), 0);
    scene.stop().await;
}
