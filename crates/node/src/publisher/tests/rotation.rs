use lanyard_provider::{ObjectTimestamps, RotationPolicy};

use super::*;
use crate::audit::{AuditSink, AuditTrail};
use crate::publisher::fixture::DRIVER_NAME;
use crate::reporter::PollResult;

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_due_volume_gets_its_new_content_at_the_kubelets_republish() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    node.advance_to_next_poll();
    node.provider.set_files(&[("cert", "two")], "v2");
    let created = node.clock.now().checked_sub(jiff::SignedDuration::from_secs(7)).unwrap();
    node.provider
        .set_timestamps(ObjectTimestamps { created: Some(created), ..ObjectTimestamps::default() });
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(read_file(&target, "cert"), "two");
    let poll = node.reporter.polls.lock()[0].clone();
    assert_eq!((poll.outcome, poll.rotation_lags), (Ok(true), vec![Duration::from_secs(7)]));
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::MountRotationComplete]);
    let message = node.reporter.events.lock()[0].message.clone();
    assert!(message.contains("secret/one v2"), "{message}");
    assert_eq!(node.reporter.reports.lock().last().unwrap().objects[0].version, "v2");
    assert_eq!(*node.provider.urgencies.lock(), [Urgency::Mount, Urgency::Rotation]);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn warnings_of_the_provider_are_one_event_for_each_content() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    node.provider.set_warnings(&["one", "two"]);
    for _ in 0..3 {
        publisher.publish(publish_request(&target)).await.unwrap();
        node.advance_to_next_poll();
    }
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::ContentWarning]);
    assert_eq!(node.reporter.events.lock()[0].message, "one; two");
    node.provider.set_files(&[("cert", "new")], "v2");
    node.provider.set_warnings(&["three"]);
    publisher.publish(publish_request(&target)).await.unwrap();
    let kinds = [
        PodEventKind::ContentWarning,
        PodEventKind::ContentWarning,
        PodEventKind::MountRotationComplete,
    ];
    assert_eq!(node.reporter.event_kinds(), kinds);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn failed_rotation_is_masked_emits_one_event_and_recovers() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    node.provider.fail_with(OutcomeCode::VaultForbidden);
    for _ in 0..5 {
        node.advance_to_next_poll();
        publisher.publish(publish_request(&target)).await.unwrap();
        assert_eq!((read_file(&target, "cert").as_str(), node.mount_layers(&target)), ("one", 1));
    }
    let code = OutcomeCode::VaultForbidden;
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(code)]);
    let last_error = publisher.state(&target).unwrap().last_error.clone().unwrap();
    let report = node.reporter.reports.lock().last().unwrap().clone();
    assert_eq!(report.facts.outcome.as_deref(), Some("VaultForbidden"));
    assert_eq!(report.facts.since, Some(last_error.since));
    assert_eq!(report.facts.message.as_deref(), Some("the vault said no"));
    assert_eq!(report.facts.cause, None);
    assert_eq!(report.facts.last_good_hop.as_deref(), Some("imds-token"));
    assert_eq!(report.objects[0].version, "v1");

    // The next process reads the error from the marker and does not report it again.
    let next = node.start();
    assert_eq!(next.recover().await.unwrap().volumes, 1);
    assert_eq!(next.state(&target).unwrap().last_error.clone().unwrap(), last_error);
    node.advance_to_next_poll();
    next.publish(publish_request(&target)).await.unwrap();
    assert_eq!(node.reporter.event_kinds().len(), 1);

    node.provider.set_files(&[("cert", "two")], "v2");
    node.clock.advance(Duration::from_mins(30));
    next.publish(publish_request(&target)).await.unwrap();
    assert_eq!(read_file(&target, "cert"), "two");
    let healed = [PodEventKind::MountRotationComplete, PodEventKind::Recovered(code)];
    assert_eq!(node.reporter.event_kinds()[1..], healed);
    assert_eq!(node.reporter.reports.lock().last().unwrap().facts.outcome, None);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn rotation_without_republish_works_when_no_proof_is_needed() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    node.start().publish(publish_request(&target)).await.unwrap();
    let publisher = node.start();
    publisher.recover().await.unwrap();
    node.provider.set_files(&[("cert", "two")], "v2");
    let refreshed = publisher.refresh(&target, Urgency::Rotation).await.unwrap();
    assert_eq!((refreshed, read_file(&target, "cert").as_str()), (RefreshOutcome::Changed, "two"));
    let refreshed = publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap();
    assert_eq!(refreshed, RefreshOutcome::Unchanged);

    node.provider.fail_with(OutcomeCode::TokenNotFound);
    let next = node.start();
    next.recover().await.unwrap();
    let refreshed = next.refresh(&target, Urgency::Rotation).await.unwrap();
    assert_eq!(refreshed, RefreshOutcome::AwaitsPublish);
    assert_eq!(next.state(&target).unwrap().last_error, None);
    let gone = node.target_path("other");
    assert_eq!(next.refresh(&gone, Urgency::Rotation).await.unwrap(), RefreshOutcome::NotMounted);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn rotation_is_skipped_after_a_republish_polled_the_volume() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    let polled = publisher.volumes()[0].history.last_attempt();
    node.advance_to_next_poll();
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(node.provider.request_count(), 2);
    publisher.rotate(&target, Urgency::Rotation, polled).await;
    assert_eq!(node.provider.request_count(), 2);
    let polled = publisher.volumes()[0].history.last_attempt();
    publisher.rotate(&target, Urgency::Rotation, polled).await;
    assert_eq!(node.provider.request_count(), 3);
}

/// A credential is mounted, and then the provider returns an older one, for three polls.
async fn offer_older_credential(node: &PublisherFixture, publisher: &Publisher, target: &Path) {
    node.provider.set_credential("one", "v1", Timestamp::from_second(2_000).unwrap());
    publisher.publish(publish_request(target)).await.unwrap();
    node.provider.set_credential("old", "v0", Timestamp::from_second(1_000).unwrap());
    for _ in 0..3 {
        node.advance_to_next_poll();
        publisher.publish(publish_request(target)).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn an_older_credential_is_refused_and_the_mounted_one_stays() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    offer_older_credential(&node, &publisher, &target).await;
    assert_eq!(read_file(&target, "cert"), "one");
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(OutcomeCode::CredentialOlder)]);
    let polls = node.reporter.polls.lock().clone();
    assert_eq!(polls.len(), 3);
    let is_unchanged =
        |poll: &PollResult| poll.outcome == Ok(false) && poll.rotation_lags.is_empty();
    assert!(polls.iter().all(is_unchanged), "readers see no newer content: {polls:?}");
    let report = node.reporter.reports.lock().last().unwrap().clone();
    assert_eq!(report.facts.outcome.as_deref(), Some("CredentialOlder"));
    assert_eq!(report.objects[0].version, "v1");
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn accepted_older_credential_is_mounted_and_audited() {
    let node = PublisherFixture::new();
    let trail = tempfile::NamedTempFile::new().unwrap();
    let sink = AuditSink::File(trail.path().to_owned());
    let audit = AuditTrail::open(&sink, Arc::new(node.clock.clone())).unwrap();
    let settings = PublisherSettings {
        audit: audit.clone(),
        ..PublisherSettings::new(node.dir.path(), DRIVER_NAME)
    };
    let accepted = [(RotationPolicy::ACCEPT_OLDER, "secret/one@v0")];
    let publisher = node.start_with_annotations(settings, &accepted);
    let target = node.prepare_target("v");
    offer_older_credential(&node, &publisher, &target).await;
    assert_eq!(read_file(&target, "cert"), "old");
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
async fn stale_content_from_the_cache_is_mounted_and_reported() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    let since = node.clock.now();
    node.provider.set_stale_since(Some(since));
    publisher.publish(publish_request(&target)).await.unwrap();
    let code = OutcomeCode::ServedStale;
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(code)]);
    let state = publisher.state(&target).unwrap();
    assert_eq!((state.history.last_success_started_at(), state.stale_since), (None, Some(since)));
    let message = node.reporter.events.lock()[0].message.clone();
    for part in ["ServedStale", &since.to_string(), "VaultUnavailable: no way to the vault"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let facts = || node.reporter.reports.lock().last().unwrap().facts.clone();
    let loud = facts();
    assert_eq!((loud.outcome.as_deref(), loud.since), (Some("ServedStale"), Some(since)));
    assert_eq!(loud.cause.as_deref(), Some("VaultUnavailable"));
    assert_eq!(loud.message.as_deref(), Some("no way to the vault"));
    assert_eq!(loud.last_good_hop.as_deref(), Some("imds-token"));

    // The error persists while the vault cannot be read, for the next process too, and is reported
    // once.
    for code in [OutcomeCode::VaultUnavailable, OutcomeCode::TokenUnavailable] {
        node.provider.fail_with(code);
        node.advance_to_next_poll();
        publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
        assert_eq!(facts(), loud);
    }
    let publisher = node.start();
    publisher.recover().await.unwrap();
    publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(code)]);
    let last_error = publisher.state(&target).unwrap().last_error.clone().unwrap();
    assert_eq!((last_error.code, last_error.since), (code, since));
    assert_eq!(Some(last_error.message), loud.message);

    // Errors that need a change of configuration are reported.
    let forbidden = OutcomeCode::VaultForbidden;
    node.provider.fail_with(forbidden);
    node.advance_to_next_poll();
    publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
    assert_eq!(facts().outcome.as_deref(), Some("VaultForbidden"));
    node.provider.fail_with(OutcomeCode::VaultThrottled);
    node.advance_to_next_poll();
    publisher.refresh(&target, Urgency::Rotation).await.unwrap_err();
    let kinds = [code, forbidden, code].map(PodEventKind::Failed);
    assert_eq!(node.reporter.event_kinds(), kinds);
    assert_eq!((facts().since, facts().cause.as_deref()), (Some(since), Some("VaultThrottled")));

    node.provider.clear_failure();
    node.advance_to_next_poll();
    node.provider.set_stale_since(None);
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(node.reporter.event_kinds().last(), Some(&PodEventKind::Recovered(code)));
    assert!(publisher.state(&target).unwrap().history.last_success_started_at().is_some());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn retired_content_is_scrubbed_after_its_grace() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    let retired = fs::canonicalize(target.join("cert")).unwrap();
    node.advance_to_next_poll();
    node.provider.set_files(&[("cert", "two")], "v2");
    publisher.publish(publish_request(&target)).await.unwrap();
    let next = publisher.scrub(&target).await.unwrap();
    assert!(next.is_some() && fs::read(&retired).unwrap() == b"one");
    node.advance_to_next_poll();
    assert_eq!(publisher.scrub(&target).await.unwrap(), None);
    assert_eq!(fs::read(&retired).unwrap(), b"");
    assert_eq!(publisher.scrub(&node.target_path("other")).await.unwrap(), None);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn with_rotation_disabled_only_unknown_content_is_fetched() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let mut settings = PublisherSettings::new(node.dir.path(), DRIVER_NAME);
    settings.interval = None;
    let publisher = node.start_with(settings);
    publisher.publish(publish_request(&target)).await.unwrap();
    node.clock.advance(Duration::from_hours(24));
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(node.provider.request_count(), 1);
    let other = BTreeMap::from([("more".to_owned(), "1".to_owned())]);
    publisher
        .publish(PublishRequest { attributes: other, ..publish_request(&target) })
        .await
        .unwrap();
    assert_eq!(node.provider.request_count(), 2);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn content_that_cannot_be_written_counts_as_failed_rotation() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    let checked = publisher.state(&target).unwrap().history.last_success_started_at();
    // The provider responds with files that cannot form a volume.
    node.provider.set_files(&[("a", "1"), ("a/b", "2")], "v2");
    for _ in 0..3 {
        node.advance_to_next_poll();
        assert!(publisher.refresh(&target, Urgency::Rotation).await.is_err());
    }
    let polls = node.reporter.polls.lock().clone();
    assert_eq!(polls.len(), 3);
    assert!(
        polls.iter().all(|poll| poll.outcome.is_err() && poll.rotation_lags.is_empty()),
        "{polls:?}"
    );
    let state = publisher.state(&target).unwrap();
    assert_eq!(
        state.history.last_success_started_at(),
        checked,
        "a failed poll does not change the last success"
    );
    assert!(state.last_error.is_some());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn swap_with_failed_watcher_notification_is_rotated_and_reported() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    let retired = fs::canonicalize(target.join("cert")).unwrap();
    node.advance_to_next_poll();
    node.provider.set_files(&[("cert", "two")], "v2");
    publisher.publish(publish_request(&target)).await.unwrap();
    // A pipe replaces a file; it cannot be read at an offset.
    fs::remove_file(&retired).unwrap();
    mknodat(CWD, &retired, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    node.advance_to_next_poll();
    node.provider.set_files(&[("cert", "three")], "v3");
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(read_file(&target, "cert"), "three");
    assert!(
        publisher.refresh(&target, Urgency::Rotation).await.is_err(),
        "the volume is still mounted"
    );
    assert_eq!(publisher.volumes().len(), 1);
    fs::remove_file(&retired).unwrap();
    let refreshed = publisher.refresh(&target, Urgency::Rotation).await.unwrap();
    assert_eq!(refreshed, RefreshOutcome::Changed);
    let rotations = node.reporter.event_kinds().into_iter();
    let rotations = rotations.filter(|kind| *kind == PodEventKind::MountRotationComplete).count();
    assert_eq!(rotations, 2);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn poll_without_changes_triggers_no_inotify_event() {
    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    let queue = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let flags = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE;
    add_watch(&queue, &target, flags).unwrap();
    node.advance_to_next_poll();
    publisher.publish(publish_request(&target)).await.unwrap();
    node.provider.fail_with(OutcomeCode::VaultUnavailable);
    node.advance_to_next_poll();
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(node.provider.request_count(), 3);
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let received = Reader::new(&queue, &mut buffer).next().map(|event| event.events());
    assert_eq!(received.err(), Some(rustix::io::Errno::AGAIN));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn new_content_emits_its_event_after_a_failed_marker_write() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = node.start();
    publisher.publish(publish_request(&target)).await.unwrap();
    node.provider.set_files(&[("cert", "two")], "v2");
    // A marker does not replace a directory.
    let marker = target.join("..lanyard/marker");
    fs::remove_file(&marker).unwrap();
    fs::create_dir_all(marker.join("in-the-way")).unwrap();
    let failure = publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap_err();
    assert_eq!(failure.code, OutcomeCode::FileWriteError);
    assert_eq!(read_file(&target, "cert"), "two");
    assert!(!node.reporter.event_kinds().contains(&PodEventKind::MountRotationComplete));

    fs::remove_dir_all(&marker).unwrap();
    let refreshed = publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap();
    assert_eq!(refreshed, RefreshOutcome::Changed);
    assert!(node.reporter.event_kinds().contains(&PodEventKind::MountRotationComplete));
    assert_eq!(
        publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap(),
        RefreshOutcome::Unchanged
    );
}
