use std::os::unix::fs::symlink;

use rustix::mount::{MountFlags, mount, mount_bind};

use super::*;

/// What upstream's driver mounts: a tmpfs without options, filled by the atomic writer.
fn mount_upstream_volume(target: &Path, content: &str) {
    fs::create_dir_all(target).unwrap();
    mount("tmpfs", target, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
    let generation = "..2026_11_20_10_00_00.3285412978";
    fs::create_dir(target.join(generation)).unwrap();
    fs::write(target.join(generation).join("cert"), content).unwrap();
    symlink(generation, target.join("..data")).unwrap();
    symlink("..data/cert", target.join("cert")).unwrap();
}

fn mount_empty_tmpfs(target: &Path) {
    fs::create_dir_all(target).unwrap();
    mount("tmpfs", target, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_volume_of_upstream_is_adopted_under_the_running_pod() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    mount_upstream_volume(&target, "theirs");
    // A container keeps the mount that was topmost when it started.
    let container = node.dir.path().join("container");
    fs::create_dir(&container).unwrap();
    mount_bind(&target, &container).unwrap();

    let publisher = node.start();
    let options = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(target.to_str().unwrap())).unwrap();
        line.to_owned()
    };
    let theirs = options();
    assert_eq!(publisher.recover().await.unwrap().volumes, 0);
    assert_eq!(options(), theirs, "another driver may still use the volume");
    node.provider.fail_with(OutcomeCode::VaultUnavailable);
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(read_file(&container, "cert"), "theirs");
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(OutcomeCode::VaultUnavailable)]);
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(
        node.provider.request_count(),
        1,
        "the poll after a failure is delayed by the back-off"
    );

    node.clock.advance(Duration::from_mins(5));
    node.provider.set_files(&[("cert", "ours")], "v1");
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!((read_file(&container, "cert").as_str(), node.mount_layers(&target)), ("ours", 1));
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o755);
    let ours = options();
    assert!(ours.contains("noexec") && ours.contains("size="), "{ours}");
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());
}

/// A credential as the identities of a hosted control plane have it.
fn credential_json(not_before: &str) -> String {
    serde_json::json!({
        "client_id": "22222222-2222-2222-2222-222222222222",
        "tenant_id": "contoso",
        "authentication_endpoint": "https://login.microsoftonline.com/",
        "client_secret": "cGxhbnRlZA==",
        "not_before": not_before,
        "not_after": "2027-02-19T12:00:00Z",
    })
    .to_string()
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_credential_of_upstream_is_not_replaced_by_an_older_one() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let theirs = credential_json("2026-11-21T11:00:00Z");
    mount_upstream_volume(&target, &theirs);
    let publisher = node.start();
    let gives = |not_before: &str, version: &str| {
        let stamp = not_before.parse().unwrap();
        node.provider.set_credential(&credential_json(not_before), version, stamp);
    };
    gives("2026-11-20T11:00:00Z", "v0");
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(read_file(&target, "cert"), theirs);
    let refused = PodEventKind::Failed(OutcomeCode::CredentialOlder);
    assert!(node.reporter.event_kinds().contains(&refused), "{:?}", node.reporter.event_kinds());
    let older = publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap();
    assert_eq!((older, read_file(&target, "cert")), (RefreshOutcome::Unchanged, theirs));
    gives("2026-11-22T11:00:00Z", "v2");
    publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap();
    assert_eq!(read_file(&target, "cert"), credential_json("2026-11-22T11:00:00Z"));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn content_written_by_another_driver_is_not_replaced_by_an_older_credential() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let gives = |not_before: &str, version: &str| {
        let stamp = not_before.parse().unwrap();
        node.provider.set_credential(&credential_json(not_before), version, stamp);
    };
    gives("2026-11-18T11:00:00Z", "v1");
    node.start().publish(publish_request(&target)).await.unwrap();
    // Another driver writes the volume for a while; the marker of this driver stays.
    let theirs = credential_json("2026-11-20T11:00:00Z");
    let generation = "..2026_11_21_13_00_00.3285412978";
    fs::create_dir(target.join(generation)).unwrap();
    fs::write(target.join(generation).join("cert"), &theirs).unwrap();
    symlink(generation, target.join("..data_tmp")).unwrap();
    fs::rename(target.join("..data_tmp"), target.join("..data")).unwrap();

    gives("2026-11-19T11:00:00Z", "v2");
    let publisher = node.start();
    assert_eq!(publisher.recover().await.unwrap().volumes, 1);
    assert_eq!(publisher.state(&target).unwrap().objects, []);
    publisher.publish(publish_request(&target)).await.unwrap();
    publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap();
    assert_eq!(read_file(&target, "cert"), theirs);
    let refused = PodEventKind::Failed(OutcomeCode::CredentialOlder);
    assert!(node.reporter.event_kinds().contains(&refused), "{:?}", node.reporter.event_kinds());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unknown_mount_is_detected_at_any_path() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    mount_upstream_volume(&target, "theirs");
    let publisher = node.start();
    assert!(publisher.is_mounted(&target).await);
    assert!(!publisher.is_mounted(&node.target_path("other")).await);
    // A process that was configured with another directory than the kubelet's.
    let elsewhere = PublisherSettings::new("/var/lib/another", fixture::DRIVER_NAME);
    let real = target.canonicalize().unwrap();
    let publisher = node.start_with(elsewhere);
    assert!(publisher.is_mounted(&real).await);
    assert!(!publisher.is_mounted(&real.join("..")).await);
    assert!(!publisher.is_mounted(Path::new("")).await);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volume_with_a_missing_link_is_not_kept() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    node.start().publish(publish_request(&target)).await.unwrap();
    fs::remove_file(target.join("cert")).unwrap();
    node.provider.fail_with(OutcomeCode::VaultForbidden);
    let failure = node.start().publish(publish_request(&target)).await.unwrap_err();
    assert_eq!(
        failure.grpc,
        Code::Unavailable,
        "the volume is mounted, so the kubelet must unpublish it"
    );
    node.provider.clear_failure();
    node.start().publish(publish_request(&target)).await.unwrap();
    assert_eq!((node.mount_layers(&target), read_file(&target, "cert").as_str()), (1, "one"));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn empty_mount_is_filled_and_not_kept_as_a_volume() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    mount_empty_tmpfs(&target);
    let publisher = node.start();
    node.provider.fail_with(OutcomeCode::ObjectNotFound);
    let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
    assert_eq!(
        failure.grpc,
        Code::Unavailable,
        "the volume is mounted, so the kubelet must unpublish it"
    );
    node.provider.clear_failure();
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!((node.mount_layers(&target), read_file(&target, "cert").as_str()), (1, "one"));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn an_empty_mount_above_a_volume_is_removed() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    for _ in 0..3 {
        mount_empty_tmpfs(&target);
    }
    assert_eq!(node.mount_layers(&target), 4);
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!((node.mount_layers(&target), read_file(&target, "cert").as_str()), (1, "one"));
    assert_eq!(node.provider.request_count(), 1);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unpublish_removes_every_mount_layer() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    mount_upstream_volume(&target, "theirs");
    mount_empty_tmpfs(&target);
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert_eq!((node.mount_layers(&target), target.exists()), (0, false));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_dead_mount_is_replaced_and_can_be_unpublished() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    for unpublish in [false, true] {
        let target = node.prepare_target(if unpublish { "w" } else { "v" });
        fs::create_dir_all(&target).unwrap();
        // A FUSE file system whose server has died.
        let server = fs::File::options().read(true).write(true).open("/dev/fuse");
        let server = server.expect("open /dev/fuse: run as root where only root may");
        let number = std::os::fd::AsRawFd::as_raw_fd(&server);
        let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
        let options = std::ffi::CString::new(options).unwrap();
        mount("dead", &target, "fuse", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        drop(server);
        assert!(fs::read_dir(&target).is_err());
        if unpublish {
            publisher.unpublish("csi-1", &target).await.unwrap();
            assert_eq!((node.mount_layers(&target), target.exists()), (0, false));
        } else {
            publisher.publish(publish_request(&target)).await.unwrap();
            assert_eq!(
                (node.mount_layers(&target), read_file(&target, "cert").as_str()),
                (1, "one")
            );
        }
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn planted_symlink_or_file_at_target_is_refused_and_not_followed() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "kept").unwrap();

    let target = node.prepare_target("link");
    symlink(outside.path(), &target).unwrap();
    let above = node.target_path("above");
    let above_parent = above.parent().unwrap();
    fs::create_dir_all(above_parent.parent().unwrap()).unwrap();
    symlink(outside.path(), above_parent).unwrap();
    let file = node.prepare_target("file");
    fs::write(&file, "kept").unwrap();
    let disk = node.prepare_target("disk");
    fs::create_dir_all(&disk).unwrap();
    let other = outside.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("precious"), "kept").unwrap();
    mount_bind(&other, &disk).unwrap();

    for target in [&target, &above, &file, &disk] {
        let failure = publisher.publish(publish_request(target)).await.unwrap_err();
        // The kubelet must unpublish a mounted volume, so it must not forget it.
        let code = if target == &disk { Code::Unavailable } else { Code::FailedPrecondition };
        assert_eq!(failure.grpc, code, "{}: {failure}", target.display());
        publisher.unpublish("csi-1", target).await.unwrap();
    }
    assert_eq!(read_file(outside.path(), "precious"), "kept");
    assert_eq!(read_file(&other, "precious"), "kept");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(node.mount_layers(&disk), 0);
    assert_eq!(node.provider.request_count(), 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn targets_outside_the_kubelets_directory_are_refused() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    let root = node.dir.path();
    for target in [root.to_owned(), root.join("../x"), PathBuf::from("/etc"), "x".into()] {
        let failure = publisher.publish(publish_request(&target)).await.unwrap_err();
        assert_eq!(failure.code, OutcomeCode::InvalidRequest, "{}", target.display());
        assert!(publisher.unpublish("csi-1", &target).await.is_err());
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn links_planted_in_a_volume_are_not_followed() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    fs::write(&precious, "kept").unwrap();
    let notes = ["..lanyard", "..lanyard/marker", "..lanyard/marker_tmp"];
    for planted in notes.into_iter().chain(["..data", "..data_tmp", "cert"]) {
        let publisher = node.start();
        publisher.publish(publish_request(&target)).await.unwrap();
        let place = target.join(planted);
        let _absent = fs::remove_file(&place).or_else(|_| fs::remove_dir_all(&place));
        let to = if planted == "..data" { outside.path() } else { &precious };
        symlink(to, &place).unwrap();
        let publisher = node.start();
        publisher.recover().await.unwrap();
        node.advance_to_next_poll();
        publisher.publish(publish_request(&target)).await.unwrap();
        assert_eq!(read_file(&target, "cert"), "one", "{planted}");
        publisher.unpublish("csi-1", &target).await.unwrap();
        assert!(!target.exists(), "{planted}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept", "{planted}");
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unpublish_of_a_disk_directory_removes_all_that_is_in_it() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    let target = node.prepare_target("v");
    fs::create_dir(&target).unwrap();
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());

    fs::create_dir(&target).unwrap();
    let generation = target.join("..2026_11_20_10_00_00.1");
    fs::create_dir(&generation).unwrap();
    fs::write(generation.join("cert"), "ours").unwrap();
    symlink("..2026_11_20_10_00_00.1", target.join("..data")).unwrap();
    symlink("..data/cert", target.join("cert")).unwrap();
    fs::create_dir(target.join("..lanyard")).unwrap();
    fs::write(target.join("..lanyard/marker"), "{}").unwrap();
    // What other programs left: a file, a link, a directory, and a hard link to a file elsewhere.
    let outside = tempfile::tempdir_in(node.dir.path()).unwrap();
    fs::write(outside.path().join("precious"), "kept").unwrap();
    fs::hard_link(outside.path().join("precious"), target.join("hard")).unwrap();
    symlink(outside.path(), target.join("link")).unwrap();
    fs::write(target.join("foreign"), "left").unwrap();
    fs::create_dir_all(target.join("directory/below")).unwrap();
    fs::write(target.join("directory/below/foreign"), "left").unwrap();
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());
    assert_eq!(read_file(outside.path(), "precious"), "kept");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unpublish_removes_what_a_mount_hid() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    let target = node.prepare_target("v");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("foreign"), "hidden by the mount").unwrap();
    publisher.publish(publish_request(&target)).await.unwrap();
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn unpublish_fails_with_the_path_that_it_may_not_remove() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    let unpublish = async |target: &Path, path: &Path| {
        let failure = publisher.unpublish("csi-1", target).await.unwrap_err();
        assert_eq!(failure.grpc, Code::Internal);
        let message = failure.status_message();
        assert!(message.contains(&path.display().to_string()), "{message}");
    };
    // A mount below the target.
    let outside = tempfile::tempdir_in(node.dir.path()).unwrap();
    fs::write(outside.path().join("precious"), "kept").unwrap();
    let target = node.prepare_target("v");
    let mounted = target.join("mounted");
    fs::create_dir_all(&mounted).unwrap();
    mount_bind(outside.path(), &mounted).unwrap();
    unpublish(&target, &mounted).await;
    assert_eq!(read_file(outside.path(), "precious"), "kept");
    // A directory of the kubelet that is not the one of a CSI volume.
    for kept in ["pods", "plugins/driver", "pods/uid/volumes/kubernetes.io~csi/v"] {
        let target = node.dir.path().join(kept);
        fs::create_dir_all(&target).unwrap();
        fs::write(target.join("precious"), "kept").unwrap();
        unpublish(&target, &target).await;
        assert_eq!(read_file(&target, "precious"), "kept");
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn mount_inside_a_generation_on_disk_is_not_emptied() {
    let node = PublisherFixture::new();
    let publisher = node.start();
    let target = node.prepare_target("v");
    let outside = tempfile::tempdir_in(node.dir.path()).unwrap();
    fs::write(outside.path().join("precious"), "kept").unwrap();
    let generation = target.join("..2026_11_20_10_00_00.1");
    fs::create_dir_all(&generation).unwrap();
    mount_bind(outside.path(), &generation).unwrap();
    let failure = publisher.unpublish("csi-1", &target).await.unwrap_err();
    assert_eq!(failure.grpc, Code::Internal);
    assert_eq!(read_file(outside.path(), "precious"), "kept");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn publish_mounts_in_place_without_detached_mounts() {
    let mut node = PublisherFixture::new();
    node.staged_mounts = false;
    let target = node.prepare_target("v");
    let publisher = node.start();
    node.provider.set_files(&[], "v1");
    assert!(publisher.publish(publish_request(&target)).await.is_err());
    assert_eq!(node.mount_layers(&target), 0);
    node.provider.set_files(&[("cert", "one")], "v1");
    publisher.publish(publish_request(&target)).await.unwrap();
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!((node.mount_layers(&target), node.provider.request_count()), (1, 2));
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volume_that_cannot_be_emptied_is_still_unmounted() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    let outside = tempfile::tempdir_in(node.dir.path()).unwrap();
    fs::write(outside.path().join("precious"), "kept").unwrap();
    let generation = fs::canonicalize(target.join("..data")).unwrap();
    mount_bind(outside.path(), &generation).unwrap();
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert_eq!((node.mount_layers(&target), target.exists()), (0, false));
    assert_eq!(read_file(outside.path(), "precious"), "kept");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn mount_that_appears_during_the_fetch_is_not_stacked_upon() {
    for staged in [true, false] {
        let mut node = PublisherFixture::new();
        node.staged_mounts = staged;
        let target = node.prepare_target("v");
        let publisher = node.start();
        let call = node.start_blocked_publish(&publisher, &target).await;
        mount_upstream_volume(&target, "theirs");
        node.provider.open_gate();
        let failure = call.await.unwrap().unwrap_err();
        assert_eq!(failure.grpc, Code::Unavailable, "{failure}");
        assert_eq!(
            (node.mount_layers(&target), read_file(&target, "cert").as_str()),
            (1, "theirs")
        );
        publisher.publish(publish_request(&target)).await.unwrap();
        assert_eq!((node.mount_layers(&target), read_file(&target, "cert").as_str()), (1, "one"));
    }
}
