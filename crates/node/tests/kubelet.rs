//! The node before the kubelet: real sockets, real mounts, virtual hours, a hundred pods. Mounting
//! needs root; for everybody else the cases are counted as left out.

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
            "a_hundred_pods_are_rotated_though_the_kubelet_never_comes_again",
            a_hundred_pods_are_rotated_without_republish_calls,
        ),
        trial(
            "pods_whose_vault_fails_keep_what_they_have_and_the_kubelet_hears_nothing",
            pods_keep_content_and_republish_succeeds_during_a_vault_outage,
        ),
        trial(
            "a_pod_that_cannot_start_leaves_nothing_and_starts_when_the_vault_is_back",
            failed_publish_leaves_no_mount_and_succeeds_after_recovery,
        ),
        trial(
            "after_a_reboot_every_volume_is_filled_before_the_kubelet_hears_ok",
            volumes_are_refilled_before_republish_succeeds_after_a_reboot,
        ),
        trial(
            "the_tokens_of_a_workload_identity_come_with_the_kubelet_and_rotation_goes_on_with_them",
            rotation_uses_the_workload_identity_tokens_of_the_last_republish,
        ),
    ];
    trials.extend(class_annotations::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A case on a runtime of its own.
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

/// Mount, rotate, unmount: what the kubelet's calls and our own clock make of a hundred pods.
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

    // The kubelet comes again at once, and from then on every minute or so: nobody is asked.
    scene.advance_in_steps(Duration::from_mins(5), Duration::from_secs(10)).await;
    assert_eq!(scene.vault.fetch_count(), PODS);

    // Ten minutes are the interval. Every volume has the new version within it and its jitter.
    scene.vault.set_version("2");
    scene.advance_in_steps(Duration::from_mins(7), Duration::from_secs(10)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 2"));
    }
    assert_eq!(scene.vault.fetch_count(), 2 * PODS);
    assert_eq!(scene.mount_count(), PODS, "nothing was mounted over anything");

    // A restart of the plugin under running pods: nobody is asked before it is time.
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
    // Ten volumes, thirty minutes: waits of 10, 20, 40, 80, then 120 s and up to a fifth more.
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
    // A republish must never be answered OK by an empty directory (csi.md 5.4 is the story).
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
    // The first token lives for an hour; the kubelet brings another one after four fifths of it.
    scene.advance_in_steps(Duration::from_hours(3), Duration::from_secs(10)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 2");
    let fills = scene.vault.fetch_count();
    assert!((6..=8).contains(&fills), "{fills}");
    assert_eq!(scene.vault.expired_tokens(), 0);
    scene.stop().await;
}
