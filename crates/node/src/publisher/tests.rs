mod concurrency;
mod memory;
mod mount_targets;
mod rotation;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use lanyard_clock::Clock;
use lanyard_vocabulary::OutcomeCode;
use tonic::Code;

use super::fixture::{PublisherFixture, pod, publish_request, read_file};
use super::*;
use crate::reporter::PodEventKind;

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_volume_is_mounted_whole_hardened_and_reported() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    node.provider.set_files(&[("cert", "one"), ("tls/key", "k")], "v1");
    node.start().publish(publish_request(&target)).await.unwrap();

    assert_eq!(
        (read_file(&target, "cert").as_str(), read_file(&target, "tls/key").as_str()),
        ("one", "k")
    );
    assert_eq!(node.mount_layers(&target), 1);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(target.to_str().unwrap())).unwrap();
    for option in ["nosuid", "nodev", "noexec", "tmpfs", "size=", "mode=755"] {
        assert!(line.contains(option), "{option} is not in {line}");
    }
    let marker = fs::metadata(target.join("..lanyard/marker")).unwrap();
    assert_eq!(marker.permissions().mode() & 0o7777, 0o600);
    let cert = fs::metadata(target.join("cert")).unwrap();
    assert_eq!(cert.permissions().mode() & 0o7777, 0o644);

    let reports = node.reporter.reports.lock();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].target, target);
    assert_eq!(reports[0].objects[0].version, "v1");
    assert_eq!(reports[0].facts.last_good_hop.as_deref(), Some("file"));
    assert_eq!(reports[0].facts.outcome, None);
    assert_eq!(node.reporter.events.lock().len(), 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn only_the_pod_group_can_read_the_volume() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    let grouped = |group| PublishRequest { group: Some(group), ..publish_request(&target) };
    // A user namespace may have only the caller's own group.
    let probe = std::os::unix::fs::chown(node.dir.path(), None, Some(4242));
    let own = rustix::process::getegid().as_raw();
    let [first, second] = if probe.is_ok() { [4242, 4243] } else { [own, own] };
    publisher.publish(grouped(first)).await.unwrap();
    let attributes = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.permissions().mode() & 0o7777, metadata.gid())
    };
    assert_eq!(attributes(&target), (0o750, first));
    assert_eq!(attributes(&target.join("cert")), (0o640, first));

    // Another group makes the volume due, though nothing else has changed.
    publisher.publish(grouped(second)).await.unwrap();
    assert_eq!(attributes(&target), (0o750, second));
    assert_eq!(attributes(&target.join("cert")), (0o640, second));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn republish_of_a_volume_that_is_not_due_calls_no_provider() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    for _ in 0..5 {
        publisher.publish(publish_request(&target)).await.unwrap();
    }
    assert_eq!(node.provider.request_count(), 1);
    assert_eq!(node.reporter.reports.lock().len(), 1);
    assert_eq!(node.mount_layers(&target), 1);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn failed_first_publish_leaves_nothing_mounted_and_emits_one_event() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    node.provider.fail_with(OutcomeCode::ObjectNotFound);
    for _ in 0..3 {
        let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
        assert_eq!((failure.code, failure.grpc), (OutcomeCode::ObjectNotFound, Code::NotFound));
        let text = failure.status_message();
        assert!(text.contains("pod ns/pod") && text.contains("ns/class"), "{text}");
        assert!(text.contains("the vault said no") && text.contains("does not recover"), "{text}");
        assert_eq!(node.mount_layers(&target), 0);
    }
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(OutcomeCode::ObjectNotFound)]);
    assert_eq!(publisher.states().len(), 0);

    node.provider.clear_failure();
    publisher.publish(publish_request(&target)).await.unwrap();
    let recovered = PodEventKind::Recovered(OutcomeCode::ObjectNotFound);
    assert_eq!(node.reporter.event_kinds().last(), Some(&recovered));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn missing_class_fails_with_not_found() {
    let node = PublisherFixture::new();
    let other = PublishRequest {
        class_name: "other".to_owned(),
        ..publish_request(node.prepare_target("v"))
    };
    let failure = node.start().publish(other).await.unwrap_err();
    let code = OutcomeCode::SecretProviderClassNotFound;
    assert_eq!((failure.code, failure.grpc), (code, Code::NotFound));
    assert_eq!(node.provider.request_count(), 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn failed_status_write_does_not_block_the_pod_and_is_retried() {
    use std::sync::atomic::Ordering::SeqCst;
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    node.reporter.fails_status_writes.store(true, SeqCst);
    publisher.publish(publish_request(&target)).await.unwrap();
    publisher.publish(publish_request(&target)).await.unwrap();
    let code = OutcomeCode::StatusNotWritten;
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(code)]);

    node.reporter.fails_status_writes.store(false, SeqCst);
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(node.reporter.reports.lock().len(), 1);
    assert_eq!(node.reporter.event_kinds().last(), Some(&PodEventKind::Recovered(code)));
    assert_eq!(node.provider.request_count(), 1);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn files_that_cannot_be_mounted_together_are_refused_with_their_reason() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    node.provider.set_files(&[], "v1");
    let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
    let code = OutcomeCode::SecretProviderClassInvalid;
    assert_eq!((failure.code, failure.grpc), (code, Code::InvalidArgument));
    assert!(failure.status_message().contains("does not recover by itself"), "{failure}");
    node.provider.set_files(&[("a", "1"), ("a/b", "2")], "v1");
    let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
    assert!(failure.message.contains("`a/b` is below `a`"), "{failure}");
    let large = "x".repeat(33 * 1024 * 1024);
    node.provider.set_files(&[("large", &large)], "v1");
    let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
    assert!(failure.message.contains("limit of a volume is 33554432"), "{failure}");
    assert_eq!((failure.code, failure.grpc), (code, Code::InvalidArgument));
    let names: Vec<_> = (0..5000).map(|number| number.to_string()).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    node.provider.set_files(&many, "v1");
    let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
    assert!(failure.message.contains("limit of a volume is 4096"), "{failure}");
    assert_eq!(node.mount_layers(&target), 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unpublish_takes_everything_away_and_can_be_repeated() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    let open = fs::File::open(target.join("cert")).unwrap();
    for _ in 0..2 {
        publisher.unpublish("csi-1", &target).await.unwrap();
        assert!(!target.exists());
        assert_eq!((node.mount_layers(&target), publisher.states().len()), (0, 0));
        assert_eq!(
            publisher.engine.locks.count(),
            0,
            "the lock of an unpublished volume is removed"
        );
    }
    assert_eq!(open.metadata().unwrap().len(), 0, "unpublish truncates files that are open");
    assert_eq!(*node.reporter.forgotten.lock(), [target.clone(), target.clone()]);
    // A volume with the same id may be published again.
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(read_file(&target, "cert"), "one");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn new_process_recovers_mounted_volumes() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let first = node.start();
    first.publish(publish_request(&target)).await.unwrap();
    let state = first.state(&target).unwrap();
    drop(first);

    let second = node.start();
    let recovered = second.recover().await.unwrap();
    assert_eq!((recovered.volumes, recovered.problems.len()), (1, 0));
    let taken = second.state(&target).unwrap();
    assert_eq!(taken.history.last_success_started_at(), state.history.last_success_started_at());
    assert_eq!((&taken.objects, taken.content_changed), (&state.objects, state.content_changed));
    assert!(taken.pod_credentials.is_none() && state.pod_credentials.is_some());
    second.publish(publish_request(&target)).await.unwrap();
    assert_eq!(node.provider.request_count(), 1, "a volume that was polled just now is not due");
    // The last process may have failed to write the status.
    assert_eq!(node.reporter.reports.lock().len(), 2);
    second.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volumes_of_another_driver_are_not_recovered() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    node.start().publish(publish_request(&target)).await.unwrap();
    let text = read_file(&target, "..lanyard/marker").replace(fixture::DRIVER_NAME, "other.driver");
    fs::write(target.join("..lanyard/marker"), text).unwrap();
    assert_eq!(node.start().recover().await.unwrap().volumes, 0);
    assert_eq!(read_file(&target, "cert"), "one");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volume_is_filled_again_after_a_reboot() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    fs::create_dir(&target).unwrap();
    let publisher = node.start();
    assert_eq!(publisher.recover().await.unwrap().volumes, 0);
    node.provider.fail_with(OutcomeCode::VaultUnavailable);
    let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
    assert_eq!(failure.grpc, Code::Unavailable, "an empty directory is not a volume");
    node.provider.clear_failure();
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!((node.mount_layers(&target), read_file(&target, "cert").as_str()), (1, "one"));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn marker_contains_no_token() {
    use lanyard_keyvault::{ServiceAccountToken, SharedSecretBytes};
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let mut order = publish_request(&target);
    let token = Arc::new(SharedSecretBytes::from("planted-token".to_owned()));
    let expires = Timestamp::MAX;
    order.pod_credentials.tokens.0.insert("aud".to_owned(), ServiceAccountToken { token, expires });
    let secret = Arc::new(SharedSecretBytes::from("planted-secret".to_owned()));
    order.pod_credentials.secrets.0.insert("clientsecret".to_owned(), secret);
    let publisher = node.start();
    publisher.publish(order).await.unwrap();
    let noted = read_file(&target, "..lanyard/marker");
    assert!(noted.contains(&pod().uid) && !noted.contains("planted"), "{noted}");
    assert!(!format!("{publisher:?} {:?}", publisher.states()).contains("planted"));
}
