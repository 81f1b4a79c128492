//! The node before the kubelet: real sockets, real mounts, virtual hours, a hundred pods. Mounting
//! needs root; for everybody else the cases are counted as left out.

#![cfg(test)]

#[path = "kubelet/scene.rs"]
mod scene;
#[path = "kubelet/wishes.rs"]
mod wishes;

use std::process::ExitCode;
use std::time::Duration;

use lanyard_kubelet::Event;
use libtest_mimic::{Arguments, Trial};

use crate::scene::{Scene, SceneSettings, published};

const PODS: usize = 100;

fn main() -> ExitCode {
    let mut trials = vec![
        trial(
            "a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_kubelets_calls",
            a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_kubelets_calls,
        ),
        trial(
            "a_hundred_pods_are_rotated_though_the_kubelet_never_comes_again",
            a_hundred_pods_are_rotated_though_the_kubelet_never_comes_again,
        ),
        trial(
            "pods_whose_vault_fails_keep_what_they_have_and_the_kubelet_hears_nothing",
            pods_whose_vault_fails_keep_what_they_have_and_the_kubelet_hears_nothing,
        ),
        trial(
            "a_pod_that_cannot_start_leaves_nothing_and_starts_when_the_vault_is_back",
            a_pod_that_cannot_start_leaves_nothing_and_starts_when_the_vault_is_back,
        ),
        trial(
            "after_a_reboot_every_volume_is_filled_before_the_kubelet_hears_ok",
            after_a_reboot_every_volume_is_filled_before_the_kubelet_hears_ok,
        ),
        trial(
            "the_tokens_of_a_workload_identity_come_with_the_kubelet_and_rotation_goes_on_with_them",
            the_tokens_of_a_workload_identity_come_with_the_kubelet_and_rotation_goes_on_with_them,
        ),
    ];
    trials.extend(wishes::trials());
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
async fn life_of_a_hundred_pods(requires_republish: bool) {
    let mut scene = Scene::open(SceneSettings {
        requires_republish,
        interval: "10m",
        ..SceneSettings::default()
    });
    scene.registered().await;
    let keys: Vec<_> = (0..PODS).map(|number| scene.add_pod(number)).collect();
    let events = scene.step(Duration::ZERO).await;
    assert_eq!(published(&events), PODS, "{events:?}");
    assert_eq!((scene.mounts(), scene.vault.fills()), (PODS, PODS));
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 1"));
    }

    // The kubelet comes again at once, and from then on every minute or so: nobody is asked.
    scene.pass(Duration::from_mins(5), Duration::from_secs(10)).await;
    assert_eq!(scene.vault.fills(), PODS);

    // Ten minutes are the interval. Every volume has the new version within it and its jitter.
    scene.vault.give("2");
    scene.pass(Duration::from_mins(7), Duration::from_secs(10)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 2"));
    }
    assert_eq!(scene.vault.fills(), 2 * PODS);
    assert_eq!(scene.mounts(), PODS, "nothing was mounted over anything");

    // A restart of the plugin under running pods: nobody is asked before it is time.
    scene.restart_node().await;
    scene.pass(Duration::from_mins(5), Duration::from_secs(10)).await;
    assert_eq!(scene.vault.fills(), 2 * PODS);
    scene.vault.give("3");
    scene.pass(Duration::from_mins(7), Duration::from_secs(10)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 3"));
    }

    for number in 0..PODS {
        scene.delete_pod(number);
    }
    let events = scene.step(Duration::from_secs(1)).await;
    let gone = |it: &&Event| matches!(it, Event::Unpublished { still_mounted: false, .. });
    assert_eq!(events.iter().filter(gone).count(), PODS, "{events:?}");
    assert_eq!((scene.mounts(), scene.kubelet.volumes()), (0, 0));
    assert_eq!(scene.directories_of_pods(), 0);
    scene.end().await;
}

async fn a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_kubelets_calls() {
    life_of_a_hundred_pods(true).await;
}

async fn a_hundred_pods_are_rotated_though_the_kubelet_never_comes_again() {
    life_of_a_hundred_pods(false).await;
}

async fn pods_whose_vault_fails_keep_what_they_have_and_the_kubelet_hears_nothing() {
    let scene = Scene::open(SceneSettings { interval: "2m", ..SceneSettings::default() });
    scene.registered().await;
    let keys: Vec<_> = (0..10).map(|number| scene.add_pod(number)).collect();
    scene.step(Duration::ZERO).await;
    scene.vault.fail(true);
    let events = scene.pass(Duration::from_mins(30), Duration::from_secs(5)).await;
    assert!(published(&events) > 200, "{}", published(&events));
    assert_eq!(published(&events), events.len(), "{events:?}");
    // Ten volumes, thirty minutes: waits of 10, 20, 40, 80, then 120 s and up to a fifth more.
    let tries = scene.vault.fills() - 10;
    assert!((120..=200).contains(&tries), "{tries}");
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 1"));
    }

    scene.vault.fail(false);
    scene.vault.give("2");
    scene.pass(Duration::from_secs(150), Duration::from_secs(5)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 2"));
    }
    scene.end().await;
}

async fn a_pod_that_cannot_start_leaves_nothing_and_starts_when_the_vault_is_back() {
    let scene = Scene::open(SceneSettings::default());
    scene.registered().await;
    scene.vault.fail(true);
    let key = scene.add_pod(1);
    let events = scene.step(Duration::ZERO).await;
    let [Event::PublishFailed { message, was_published: false, .. }] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert!(message.contains("VaultUnavailable") && message.contains("hint:"), "{message}");
    assert_eq!(scene.mounts(), 0);
    assert!(!scene.kubelet.is_mounted(&key));
    // A republish must never be answered OK by an empty directory (csi.md 5.4 is the story).
    for _ in 0..20 {
        let events = scene.step(Duration::from_secs(10)).await;
        assert_eq!((published(&events), scene.mounts()), (0, 0));
    }
    scene.vault.fail(false);
    let events = scene.step(Duration::from_secs(130)).await;
    assert_eq!((published(&events), scene.mounts()), (1, 1));
    assert_eq!(scene.content(&key), "pod-1 holds 1");
    scene.end().await;
}

async fn after_a_reboot_every_volume_is_filled_before_the_kubelet_hears_ok() {
    let mut scene = Scene::open(SceneSettings::default());
    scene.registered().await;
    let keys: Vec<_> = (0..5).map(|number| scene.add_pod(number)).collect();
    scene.step(Duration::ZERO).await;
    scene.reboot().await;
    assert_eq!(scene.mounts(), 0);
    assert!(keys.iter().all(|key| scene.kubelet.target(key).is_dir()));
    let events = scene.step(Duration::from_secs(2)).await;
    assert_eq!((published(&events), scene.mounts(), scene.vault.fills()), (5, 5, 10));
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(scene.content(key), format!("pod-{number} holds 1"));
    }
    scene.end().await;
}

async fn the_tokens_of_a_workload_identity_come_with_the_kubelet_and_rotation_goes_on_with_them() {
    let settings =
        SceneSettings { audience: Some("api://AzureADTokenExchange"), ..SceneSettings::default() };
    let scene = Scene::open(SceneSettings { interval: "30m", managed: false, ..settings });
    scene.registered().await;
    let key = scene.add_pod(1);
    scene.step(Duration::ZERO).await;
    scene.vault.give("2");
    // The first token lives for an hour; the kubelet brings another one after four fifths of it.
    scene.pass(Duration::from_hours(3), Duration::from_secs(10)).await;
    assert_eq!(scene.content(&key), "pod-1 holds 2");
    let fills = scene.vault.fills();
    assert!((6..=8).contains(&fills), "{fills}");
    assert_eq!(scene.vault.expired_tokens(), 0);
    scene.end().await;
}
