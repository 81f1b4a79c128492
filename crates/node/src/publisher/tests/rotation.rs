use super::*;
use crate::audit::{AuditSink, AuditTrail};
use crate::provider::Stamps;
use crate::publisher::fixture::DRIVER;
use crate::reporter::Looked;
use crate::rotation::ClassWishes;

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_due_volume_gets_its_new_content_at_the_kubelets_republish() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    node.wait();
    node.provider.gives(&[("cert", "two")], "v2");
    let created = node.clock.now().checked_sub(jiff::SignedDuration::from_secs(7)).unwrap();
    node.provider.stamps(Stamps { created: Some(created), ..Stamps::default() });
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(read(&target, "cert"), "two");
    let look = node.listener.looks.lock()[0].clone();
    assert_eq!((look.outcome, look.lags), (Ok(true), vec![Duration::from_secs(7)]));
    assert_eq!(node.listener.kinds(), [NoticeKind::MountRotationComplete]);
    let message = node.listener.notices.lock()[0].message.clone();
    assert!(message.contains("secret/one v2"), "{message}");
    assert_eq!(node.listener.reports.lock().last().unwrap().objects[0].version, "v2");
    assert_eq!(*node.provider.urgencies.lock(), [Urgency::Mount, Urgency::Rotation]);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_rotation_that_fails_is_masked_told_once_and_heals() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    node.provider.refuses(OutcomeCode::VaultForbidden);
    for _ in 0..5 {
        node.wait();
        publisher.publish(order(&target)).await.unwrap();
        assert_eq!((read(&target, "cert").as_str(), node.layers(&target)), ("one", 1));
    }
    let code = OutcomeCode::VaultForbidden;
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(code)]);
    let trouble = publisher.state(&target).unwrap().trouble.clone().unwrap();
    let report = node.listener.reports.lock().last().unwrap().clone();
    assert_eq!(report.facts.outcome.as_deref(), Some("VaultForbidden"));
    assert_eq!(report.facts.since, Some(trouble.since));
    assert_eq!(report.facts.message.as_deref(), Some("the vault said no"));
    assert_eq!(report.facts.cause, None);
    assert_eq!(report.facts.last_good_hop.as_deref(), Some("imds-token"));
    assert_eq!(report.objects[0].version, "v1");

    // The next process knows since when it is wrong, and does not tell it again.
    let next = node.start();
    assert_eq!(next.recover().await.unwrap().volumes, 1);
    assert_eq!(next.state(&target).unwrap().trouble.clone().unwrap(), trouble);
    node.wait();
    next.publish(order(&target)).await.unwrap();
    assert_eq!(node.listener.kinds().len(), 1);

    node.provider.gives(&[("cert", "two")], "v2");
    node.clock.advance(Duration::from_mins(30));
    next.publish(order(&target)).await.unwrap();
    assert_eq!(read(&target, "cert"), "two");
    let healed = [NoticeKind::MountRotationComplete, NoticeKind::Recovered(code)];
    assert_eq!(node.listener.kinds()[1..], healed);
    assert_eq!(node.listener.reports.lock().last().unwrap().facts.outcome, None);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn rotation_goes_on_without_the_kubelet_where_no_proof_is_needed() {
    let node = Node::new();
    let target = node.prepared("v");
    node.start().publish(order(&target)).await.unwrap();
    let publisher = node.start();
    publisher.recover().await.unwrap();
    node.provider.gives(&[("cert", "two")], "v2");
    let refreshed = publisher.refresh(&target, Urgency::Rotation).await.unwrap();
    assert_eq!((refreshed, read(&target, "cert").as_str()), (Refreshed::Changed, "two"));
    let refreshed = publisher.refresh(&target, Urgency::Refresh).await.unwrap();
    assert_eq!(refreshed, Refreshed::Unchanged);

    node.provider.refuses(OutcomeCode::TokenNotFound);
    let next = node.start();
    next.recover().await.unwrap();
    let refreshed = next.refresh(&target, Urgency::Rotation).await.unwrap();
    assert_eq!(refreshed, Refreshed::AwaitsOrder);
    assert_eq!(next.state(&target).unwrap().trouble, None);
    let gone = node.target("other");
    assert_eq!(next.refresh(&gone, Urgency::Rotation).await.unwrap(), Refreshed::Gone);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_rotation_by_ourselves_is_left_out_if_the_kubelet_was_quicker() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    let looked = publisher.volumes()[0].clock.looked();
    node.wait();
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(node.provider.times_asked(), 2);
    publisher.rotate(&target, Urgency::Rotation, looked).await;
    assert_eq!(node.provider.times_asked(), 2);
    let looked = publisher.volumes()[0].clock.looked();
    publisher.rotate(&target, Urgency::Rotation, looked).await;
    assert_eq!(node.provider.times_asked(), 3);
}

/// A credential is mounted, and then the provider gives an older one, for three looks.
async fn an_older_credential_comes(node: &Node, publisher: &Publisher, target: &Path) {
    node.provider.gives_credential("one", "v1", Timestamp::from_second(2_000).unwrap());
    publisher.publish(order(target)).await.unwrap();
    node.provider.gives_credential("old", "v0", Timestamp::from_second(1_000).unwrap());
    for _ in 0..3 {
        node.wait();
        publisher.publish(order(target)).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn an_older_credential_is_refused_and_the_mounted_one_stays() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    an_older_credential_comes(&node, &publisher, &target).await;
    assert_eq!(read(&target, "cert"), "one");
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(OutcomeCode::CredentialOlder)]);
    let looks = node.listener.looks.lock().clone();
    assert_eq!(looks.len(), 3);
    let is_unchanged = |look: &Looked| look.outcome == Ok(false) && look.lags.is_empty();
    assert!(looks.iter().all(is_unchanged), "readers see nothing newer: {looks:?}");
    let report = node.listener.reports.lock().last().unwrap().clone();
    assert_eq!(report.facts.outcome.as_deref(), Some("CredentialOlder"));
    assert_eq!(report.objects[0].version, "v1");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn an_older_credential_that_the_class_accepts_is_taken_and_stands_in_the_trail() {
    let node = Node::new();
    let trail = tempfile::NamedTempFile::new().unwrap();
    let sink = AuditSink::File(trail.path().to_owned());
    let audit = AuditTrail::begin(&sink, Arc::new(node.clock.clone())).unwrap();
    let settings = PublisherSettings {
        audit: audit.clone(),
        ..PublisherSettings::new(node.dir.path(), DRIVER)
    };
    let accepted = [(ClassWishes::ACCEPT_OLDER, "secret/one@v0")];
    let publisher = node.start_with_annotations(settings, &accepted);
    let target = node.prepared("v");
    an_older_credential_comes(&node, &publisher, &target).await;
    assert_eq!(read(&target, "cert"), "old");
    audit.flush();
    let text = fs::read_to_string(trail.path()).unwrap();
    let older: Vec<_> = text.lines().filter(|line| line.contains("olderAccepted")).collect();
    assert_eq!(older.len(), 1, "{text}");
    for part in ["\"namespace\":\"ns\"", "\"object\":\"secret/one\"", "\"version\":\"v0\""] {
        assert!(older[0].contains(part), "{part}: {text}");
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn content_from_the_cache_is_mounted_and_loudly_called_stale() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    let since = node.clock.now();
    node.provider.stale_since(Some(since));
    publisher.publish(order(&target)).await.unwrap();
    let code = OutcomeCode::ServedStale;
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(code)]);
    let state = publisher.state(&target).unwrap();
    assert_eq!((state.clock.checked(), state.stale_since), (None, Some(since)));
    let message = node.listener.notices.lock()[0].message.clone();
    for part in ["ServedStale", &since.to_string(), "VaultUnavailable: no way to the vault"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let facts = || node.listener.reports.lock().last().unwrap().facts.clone();
    let loud = facts();
    assert_eq!((loud.outcome.as_deref(), loud.since), (Some("ServedStale"), Some(since)));
    assert_eq!(loud.cause.as_deref(), Some("VaultUnavailable"));
    assert_eq!(loud.message.as_deref(), Some("no way to the vault"));
    assert_eq!(loud.last_good_hop.as_deref(), Some("imds-token"));

    // It stays so while the vault cannot be read, for the next process too, and is told once.
    for code in [OutcomeCode::VaultUnavailable, OutcomeCode::TokenUnavailable] {
        node.provider.refuses(code);
        node.wait();
        publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
        assert_eq!(facts(), loud);
    }
    let publisher = node.start();
    publisher.recover().await.unwrap();
    publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(code)]);
    let trouble = publisher.state(&target).unwrap().trouble.clone().unwrap();
    assert_eq!((trouble.code, trouble.since), (code, since));
    assert_eq!(Some(trouble.message), loud.message);

    // What somebody has to change is another matter.
    let forbidden = OutcomeCode::VaultForbidden;
    node.provider.refuses(forbidden);
    node.wait();
    publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
    assert_eq!(facts().outcome.as_deref(), Some("VaultForbidden"));
    node.provider.refuses(OutcomeCode::VaultThrottled);
    node.wait();
    publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
    let kinds = [code, forbidden, code].map(NoticeKind::Failed);
    assert_eq!(node.listener.kinds(), kinds);
    assert_eq!((facts().since, facts().cause.as_deref()), (Some(since), Some("VaultThrottled")));

    node.provider.recovers();
    node.wait();
    node.provider.stale_since(None);
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(node.listener.kinds().last(), Some(&NoticeKind::Recovered(code)));
    assert!(publisher.state(&target).unwrap().clock.checked().is_some());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn retired_content_is_scrubbed_after_its_grace() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    let retired = fs::canonicalize(target.join("cert")).unwrap();
    node.wait();
    node.provider.gives(&[("cert", "two")], "v2");
    publisher.publish(order(&target)).await.unwrap();
    let next = publisher.scrub(&target).await.unwrap();
    assert!(next.is_some() && fs::read(&retired).unwrap() == b"one");
    node.wait();
    assert_eq!(publisher.scrub(&target).await.unwrap(), None);
    assert_eq!(fs::read(&retired).unwrap(), b"");
    assert_eq!(publisher.scrub(&node.target("other")).await.unwrap(), None);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn where_the_node_does_not_rotate_only_what_is_unknown_is_asked_for() {
    let node = Node::new();
    let target = node.prepared("v");
    let mut settings = PublisherSettings::new(node.dir.path(), DRIVER);
    settings.interval = None;
    let publisher = node.start_with(settings);
    publisher.publish(order(&target)).await.unwrap();
    node.clock.advance(Duration::from_hours(24));
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(node.provider.times_asked(), 1);
    let other = BTreeMap::from([("more".to_owned(), "1".to_owned())]);
    publisher.publish(MountOrder { attributes: other, ..order(&target) }).await.unwrap();
    assert_eq!(node.provider.times_asked(), 2);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn what_cannot_be_written_is_no_rotation() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    let checked = publisher.state(&target).unwrap().clock.checked();
    // The provider answers, and what it gives cannot be a volume.
    node.provider.gives(&[("a", "1"), ("a/b", "2")], "v2");
    for _ in 0..3 {
        node.wait();
        assert!(publisher.refresh(&target, Urgency::Rotation).await.is_err());
    }
    let looks = node.listener.looks.lock().clone();
    assert_eq!(looks.len(), 3);
    assert!(looks.iter().all(|look| look.outcome.is_err() && look.lags.is_empty()), "{looks:?}");
    let state = publisher.state(&target).unwrap();
    assert_eq!(state.clock.checked(), checked, "what readers see is as old as it was");
    assert!(state.trouble.is_some());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_swap_of_which_not_everybody_heard_goes_on_being_looked_after_and_is_told() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    let retired = fs::canonicalize(target.join("cert")).unwrap();
    node.wait();
    node.provider.gives(&[("cert", "two")], "v2");
    publisher.publish(order(&target)).await.unwrap();
    // A pipe, which cannot be read at an offset, where a file was.
    fs::remove_file(&retired).unwrap();
    mknodat(CWD, &retired, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    node.wait();
    node.provider.gives(&[("cert", "three")], "v3");
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(read(&target, "cert"), "three");
    assert!(publisher.refresh(&target, Urgency::Rotation).await.is_err(), "it is still there");
    assert_eq!(publisher.volumes().len(), 1);
    fs::remove_file(&retired).unwrap();
    let refreshed = publisher.refresh(&target, Urgency::Rotation).await.unwrap();
    assert_eq!(refreshed, Refreshed::Changed);
    let rotations = node.listener.kinds().into_iter();
    let rotations = rotations.filter(|kind| *kind == NoticeKind::MountRotationComplete).count();
    assert_eq!(rotations, 2);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_look_that_finds_nothing_new_wakes_nobody_who_watches_the_directory() {
    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    let queue = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let flags = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE;
    add_watch(&queue, &target, flags).unwrap();
    node.wait();
    publisher.publish(order(&target)).await.unwrap();
    node.provider.refuses(OutcomeCode::VaultUnavailable);
    node.wait();
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(node.provider.times_asked(), 3);
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let heard = Reader::new(&queue, &mut buffer).next().map(|event| event.events());
    assert_eq!(heard.err(), Some(rustix::io::Errno::AGAIN));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn new_content_is_told_though_the_note_beside_it_could_not_be_written() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = node.start();
    publisher.publish(order(&target)).await.unwrap();
    node.provider.gives(&[("cert", "two")], "v2");
    // A note does not replace a directory.
    let marker = target.join("..lanyard/marker");
    fs::remove_file(&marker).unwrap();
    fs::create_dir_all(marker.join("in-the-way")).unwrap();
    let failure = publisher.refresh(&target, Urgency::Refresh).await.unwrap_err();
    assert_eq!(failure.code, OutcomeCode::FileWriteError);
    assert_eq!(read(&target, "cert"), "two");
    assert!(!node.listener.kinds().contains(&NoticeKind::MountRotationComplete));

    fs::remove_dir_all(&marker).unwrap();
    let refreshed = publisher.refresh(&target, Urgency::Refresh).await.unwrap();
    assert_eq!(refreshed, Refreshed::Changed);
    assert!(node.listener.kinds().contains(&NoticeKind::MountRotationComplete));
    assert_eq!(publisher.refresh(&target, Urgency::Refresh).await.unwrap(), Refreshed::Unchanged);
}
