mod concurrency;
mod memory;
mod places;
mod rotation;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use lanyard_clock::Clock;
use lanyard_vocabulary::OutcomeCode;
use tonic::Code;

use super::fixture::{Node, order, pod, read};
use super::*;
use crate::reporter::NoticeKind;

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_volume_is_mounted_whole_hardened_and_reported() {
    let node = Node::new();
    let target = node.prepared("v");
    node.provider.gives(&[("cert", "one"), ("tls/key", "k")], "v1");
    node.start().publish(order(&target)).await.unwrap();

    assert_eq!((read(&target, "cert").as_str(), read(&target, "tls/key").as_str()), ("one", "k"));
    assert_eq!(node.layers(&target), 1);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(target.to_str().unwrap())).unwrap();
    for option in ["nosuid", "nodev", "noexec", "tmpfs", "size=", "mode=755"] {
        assert!(line.contains(option), "{option} is not in {line}");
    }
    let marker = fs::metadata(target.join("..lanyard/marker")).unwrap();
    assert_eq!(marker.permissions().mode() & 0o7777, 0o600);
    let cert = fs::metadata(target.join("cert")).unwrap();
    assert_eq!(cert.permissions().mode() & 0o7777, 0o644);

    let reports = node.listener.reports.lock();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].target, target);
    assert_eq!(reports[0].objects[0].version, "v1");
    assert_eq!(reports[0].facts.last_good_hop.as_deref(), Some("file"));
    assert_eq!(reports[0].facts.outcome, None);
    assert_eq!(node.listener.notices.lock().len(), 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn the_group_of_the_pod_reads_and_nobody_else_does() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    let grouped = |group| MountOrder { group: Some(group), ..order(&target) };
    // In a user namespace there may be no other group than one's own.
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
async fn what_is_not_due_asks_nobody_and_reports_nothing() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    for _ in 0..5 {
        publisher.publish(order(&target)).await.unwrap();
    }
    assert_eq!(node.provider.times_asked(), 1);
    assert_eq!(node.listener.reports.lock().len(), 1);
    assert_eq!(node.layers(&target), 1);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_first_publish_that_fails_leaves_nothing_mounted_and_is_told_once() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    node.provider.refuses(OutcomeCode::ObjectNotFound);
    for _ in 0..3 {
        let failure = publisher.publish(order(&target)).await.unwrap_err();
        assert_eq!((failure.code, failure.grpc), (OutcomeCode::ObjectNotFound, Code::NotFound));
        let text = failure.status_message();
        assert!(text.contains("pod ns/pod") && text.contains("ns/class"), "{text}");
        assert!(text.contains("the vault said no") && text.contains("will not heal"), "{text}");
        assert_eq!(node.layers(&target), 0);
    }
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(OutcomeCode::ObjectNotFound)]);
    assert_eq!(publisher.states().len(), 0);

    node.provider.recovers();
    publisher.publish(order(&target)).await.unwrap();
    let recovered = NoticeKind::Recovered(OutcomeCode::ObjectNotFound);
    assert_eq!(node.listener.kinds().last(), Some(&recovered));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_class_that_is_not_there_is_the_callers_matter() {
    let node = Node::new();
    let other = MountOrder { class_name: "other".to_owned(), ..order(node.prepared("v")) };
    let failure = node.start().publish(other).await.unwrap_err();
    let code = OutcomeCode::SecretProviderClassNotFound;
    assert_eq!((failure.code, failure.grpc), (code, Code::NotFound));
    assert_eq!(node.provider.times_asked(), 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_status_that_cannot_be_written_keeps_no_pod_from_starting_and_is_written_later() {
    use std::sync::atomic::Ordering::SeqCst;
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    node.listener.is_deaf.store(true, SeqCst);
    publisher.publish(order(&target)).await.unwrap();
    publisher.publish(order(&target)).await.unwrap();
    let code = OutcomeCode::StatusNotWritten;
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(code)]);

    node.listener.is_deaf.store(false, SeqCst);
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(node.listener.reports.lock().len(), 1);
    assert_eq!(node.listener.kinds().last(), Some(&NoticeKind::Recovered(code)));
    assert_eq!(node.provider.times_asked(), 1);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn files_that_cannot_be_mounted_together_are_refused_with_their_reason() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    node.provider.gives(&[], "v1");
    let failure = publisher.publish(order(&target)).await.unwrap_err();
    let code = OutcomeCode::SecretProviderClassInvalid;
    assert_eq!((failure.code, failure.grpc), (code, Code::InvalidArgument));
    assert!(failure.status_message().contains("will not heal by itself"), "{failure}");
    node.provider.gives(&[("a", "1"), ("a/b", "2")], "v1");
    let failure = publisher.publish(order(&target)).await.unwrap_err();
    assert!(failure.message.contains("`a/b` lies under `a`"), "{failure}");
    let large = "x".repeat(33 * 1024 * 1024);
    node.provider.gives(&[("large", &large)], "v1");
    let failure = publisher.publish(order(&target)).await.unwrap_err();
    assert!(failure.message.contains("33554432 at most"), "{failure}");
    assert_eq!((failure.code, failure.grpc), (code, Code::InvalidArgument));
    let names: Vec<_> = (0..5000).map(|number| number.to_string()).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    node.provider.gives(&many, "v1");
    let failure = publisher.publish(order(&target)).await.unwrap_err();
    assert!(failure.message.contains("4096 at most"), "{failure}");
    assert_eq!(node.layers(&target), 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unpublish_takes_everything_away_and_can_be_repeated() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    let open = fs::File::open(target.join("cert")).unwrap();
    for _ in 0..2 {
        publisher.unpublish("csi-1", &target).await.unwrap();
        assert!(!target.exists());
        assert_eq!((node.layers(&target), publisher.states().len()), (0, 0));
        assert_eq!(publisher.engine.lanes.count(), 0, "nothing is remembered of what is gone");
    }
    assert_eq!(open.metadata().unwrap().len(), 0, "content is emptied, whoever has it open");
    assert_eq!(*node.listener.forgotten.lock(), [target.clone(), target.clone()]);
    // The same volume may come back.
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(read(&target, "cert"), "one");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_new_process_goes_on_with_what_the_last_one_left() {
    let node = Node::new();
    let target = node.prepared("v");
    let first = node.start();
    first.publish(order(&target)).await.unwrap();
    let state = first.state(&target).unwrap();
    drop(first);

    let second = node.start();
    let recovered = second.recover().await.unwrap();
    assert_eq!((recovered.volumes, recovered.problems.len()), (1, 0));
    let taken = second.state(&target).unwrap();
    assert_eq!(taken.clock.checked(), state.clock.checked());
    assert_eq!((&taken.objects, taken.changed), (&state.objects, state.changed));
    assert!(taken.proofs.is_none() && state.proofs.is_some());
    second.publish(order(&target)).await.unwrap();
    assert_eq!(node.provider.times_asked(), 1, "what was checked a moment ago is not due");
    // The status of the last process may not have been written.
    assert_eq!(node.listener.reports.lock().len(), 2);
    second.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volumes_of_another_driver_are_not_taken_over_unasked() {
    let node = Node::new();
    let target = node.prepared("v");
    node.start().publish(order(&target)).await.unwrap();
    let text = read(&target, "..lanyard/marker").replace(fixture::DRIVER, "other.driver");
    fs::write(target.join("..lanyard/marker"), text).unwrap();
    assert_eq!(node.start().recover().await.unwrap().volumes, 0);
    assert_eq!(read(&target, "cert"), "one");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn after_a_reboot_the_directory_is_there_and_the_volume_is_filled_anew() {
    let node = Node::new();
    let target = node.prepared("v");
    fs::create_dir(&target).unwrap();
    let publisher = node.start();
    assert_eq!(publisher.recover().await.unwrap().volumes, 0);
    node.provider.refuses(OutcomeCode::VaultUnavailable);
    let failure = publisher.publish(order(&target)).await.unwrap_err();
    assert_eq!(failure.grpc, Code::Unavailable, "an empty directory is no volume");
    node.provider.recovers();
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!((node.layers(&target), read(&target, "cert").as_str()), (1, "one"));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn no_token_is_noted_beside_the_files() {
    use lanyard_keyvault::{SecretBytes, ServiceAccountToken};
    let node = Node::new();
    let target = node.prepared("v");
    let mut order = order(&target);
    let token = Arc::new(SecretBytes::from("planted-token".to_owned()));
    let expires = Timestamp::MAX;
    order.proofs.tokens.0.insert("aud".to_owned(), ServiceAccountToken { token, expires });
    let secret = Arc::new(SecretBytes::from("planted-secret".to_owned()));
    order.proofs.secrets.0.insert("clientsecret".to_owned(), secret);
    let publisher = node.start();
    publisher.publish(order).await.unwrap();
    let noted = read(&target, "..lanyard/marker");
    assert!(noted.contains(&pod().uid) && !noted.contains("planted"), "{noted}");
    assert!(!format!("{publisher:?} {:?}", publisher.states()).contains("planted"));
}
