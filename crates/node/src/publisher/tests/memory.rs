use lanyard_volume::{TmpfsUsage, max_generation_size};

use super::*;
use crate::memory::MemoryAccount;
use crate::publisher::fixture::DRIVER_NAME;
use crate::rotation::RotatableVolumes;

const KIB: usize = 1024;
const MEMORY_EXHAUSTED: OutcomeCode = OutcomeCode::VolumeMemoryExhausted;

/// A publisher whose volumes may use 1 MiB in total, new ones three quarters of it.
fn publisher_with_one_mebibyte(node: &PublisherFixture) -> Publisher {
    publisher_with_memory_limit(node, 1024 * KIB)
}

fn publisher_with_memory_limit(node: &PublisherFixture, limit: usize) -> Publisher {
    let memory = MemoryAccount::new(u64::try_from(limit).unwrap());
    node.start_with(PublisherSettings {
        memory,
        ..PublisherSettings::new(node.dir.path(), DRIVER_NAME)
    })
}

fn set_blob(node: &PublisherFixture, letter: &str, kib: usize, version: &str) {
    node.provider.set_files(&[("blob", &letter.repeat(kib * KIB))], version);
}

/// The first letter of the file that a pod reads, and its length.
fn read_blob(target: &Path) -> (String, usize) {
    let text = read_file(target, "blob");
    (text[..1].to_owned(), text.len() / KIB)
}

/// The bytes that the kernel reports for the volumes at these targets.
fn memory_used(targets: &[&Path]) -> u64 {
    let of = |target: &&Path| TmpfsUsage::of(&rustix::fs::statvfs(*target).unwrap()).used;
    targets.iter().map(of).sum()
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_mount_that_does_not_fit_leaves_nothing_and_fits_when_another_volume_is_gone() {
    let node = PublisherFixture::new();
    let (one, other) = (node.prepare_target("one"), node.prepare_target("other"));
    let publisher = publisher_with_one_mebibyte(&node);
    set_blob(&node, "a", 400, "v1");
    publisher.publish(publish_request(&one)).await.unwrap();
    let used = publisher.memory().used;
    assert_eq!(used, memory_used(&[&one]));
    let metrics = crate::NodeMetrics::new(Arc::new(node.clock.clone()));
    metrics.watch_volumes(&publisher);
    let page = lanyard_telemetry::MetricsPage::build(|registry| metrics.register(registry));
    for line in [
        format!("lanyard_node_volumes_memory_bytes{{namespace=\"ns\",class=\"class\"}} {used}"),
        format!("lanyard_node_volumes_memory_used_bytes {used}"),
    ] {
        assert!(page.render().lines().any(|it| it == line), "{line}");
    }

    for _ in 0..3 {
        let failure = publisher.publish(publish_request(&other)).await.unwrap_err();
        assert_eq!(
            (failure.code, failure.grpc),
            (MEMORY_EXHAUSTED, Code::ResourceExhausted),
            "{failure}"
        );
        let text = failure.status_message();
        for part in ["pod ns/pod", "ns/class", "limit is 768 KiB", "spread the pods"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("does not recover"), "{text}");
        assert!(!other.exists() && node.mount_layers(&other) == 0);
        assert_eq!((publisher.memory().used, publisher.states().len()), (used, 1));
    }
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(MEMORY_EXHAUSTED)]);
    assert_eq!(publisher.engine.locks.count(), 1, "the lock of an unmounted volume is removed");

    publisher.unpublish("csi-1", &one).await.unwrap();
    assert_eq!(publisher.memory().used, 0);
    publisher.publish(publish_request(&other)).await.unwrap();
    assert_eq!(read_blob(&other), ("a".to_owned(), 400));
    assert_eq!(
        node.reporter.event_kinds().last(),
        Some(&PodEventKind::Recovered(MEMORY_EXHAUSTED))
    );
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volume_larger_than_the_node_limit_is_reported_as_never_healing() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    set_blob(&node, "a", 800, "v1");
    let failure =
        publisher_with_one_mebibyte(&node).publish(publish_request(&target)).await.unwrap_err();
    let text = failure.status_message();
    assert_eq!(failure.code, MEMORY_EXHAUSTED);
    assert!(
        text.contains("does not recover by itself") && text.contains("smaller objects"),
        "{text}"
    );
    assert!(!target.exists());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn concurrent_mounts_stop_at_the_memory_limit() {
    let node = PublisherFixture::new();
    let publisher = publisher_with_one_mebibyte(&node);
    set_blob(&node, "a", 200, "v1");
    let targets: Vec<_> = (0..8).map(|number| node.prepare_target(&number.to_string())).collect();
    node.provider.close_gate().await;
    let all =
        futures::future::join_all(targets.iter().map(|it| publisher.publish(publish_request(it))));
    let opened = async { node.provider.open_gate() };
    let (outcomes, ()) = futures::join!(all, opened);
    let mounted: Vec<_> = targets.iter().filter(|it| it.exists()).map(PathBuf::as_path).collect();
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), mounted.len());
    // The estimate of a write in progress is too high, so the number of volumes that fit depends on
    // timing.
    assert!((2..=3).contains(&mounted.len()), "{}", mounted.len());
    assert_eq!(publisher.memory().used, memory_used(&mounted));
    for failure in outcomes.iter().filter_map(|it| it.as_ref().err()) {
        assert_eq!(failure.code, MEMORY_EXHAUSTED);
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn rotation_over_the_memory_limit_keeps_the_mounted_content() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = publisher_with_one_mebibyte(&node);
    set_blob(&node, "a", 400, "v1");
    publisher.publish(publish_request(&target)).await.unwrap();
    let used = publisher.memory().used;
    set_blob(&node, "b", 700, "v2");
    for _ in 0..3 {
        node.advance_to_next_poll();
        publisher.publish(publish_request(&target)).await.unwrap();
        assert_eq!(read_blob(&target), ("a".to_owned(), 400));
        assert_eq!((publisher.memory().used, node.mount_layers(&target)), (used, 1));
    }
    assert_eq!(node.reporter.event_kinds(), [PodEventKind::Failed(MEMORY_EXHAUSTED)]);
    let message = node.reporter.events.lock()[0].message.clone();
    assert!(message.contains("limit is 1.0 MiB") && message.contains("hint: "), "{message}");
    assert_eq!(
        publisher.state(&target).unwrap().last_error.clone().unwrap().code,
        MEMORY_EXHAUSTED
    );
    let report = node.reporter.reports.lock().last().unwrap().clone();
    assert_eq!(report.facts.outcome.as_deref(), Some("VolumeMemoryExhausted"));
    assert_eq!(report.facts.last_good_hop.as_deref(), Some("decode"));
    assert_eq!(report.objects[0].version, "v1");

    // More than a new mount would get.
    set_blob(&node, "c", 450, "v3");
    node.advance_to_next_poll();
    publisher.publish(publish_request(&target)).await.unwrap();
    assert_eq!(read_blob(&target), ("c".to_owned(), 450));
    assert_eq!(
        node.reporter.event_kinds().last(),
        Some(&PodEventKind::Recovered(MEMORY_EXHAUSTED))
    );
    assert_eq!(publisher.memory().used, memory_used(&[&target]));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_retired_generation_counts_until_it_is_truncated() {
    let node = PublisherFixture::new();
    let target = node.prepare_target("v");
    let publisher = publisher_with_one_mebibyte(&node);
    let refresh = async || publisher.refresh(&target, Urgency::ForceRefresh).await;
    set_blob(&node, "a", 400, "v1");
    publisher.publish(publish_request(&target)).await.unwrap();
    set_blob(&node, "b", 400, "v2");
    assert_eq!(refresh().await.unwrap(), RefreshOutcome::Changed);
    let both = publisher.memory().used;
    assert!(both > 800 * 1024, "{both}");
    set_blob(&node, "c", 400, "v3");
    assert_eq!(refresh().await.unwrap_err().code, MEMORY_EXHAUSTED);

    node.clock.advance(Duration::from_secs(62));
    assert_eq!(publisher.scrub(&target).await.unwrap(), None);
    let one = publisher.memory().used;
    assert!(one < both - 390 * 1024, "{one} {both}");
    assert_eq!(one, memory_used(&[&target]));
    assert_eq!(refresh().await.unwrap(), RefreshOutcome::Changed);
    assert_eq!(read_blob(&target), ("c".to_owned(), 400));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn endlessly_rotating_volume_leaves_memory_for_other_rotations() {
    let node = PublisherFixture::new();
    let (one, other) = (node.prepare_target("one"), node.prepare_target("other"));
    let publisher = publisher_with_one_mebibyte(&node);
    let names: Vec<_> = (0..30).map(|number| format!("f{number}")).collect();
    for target in [&one, &other] {
        publisher.publish(publish_request(target)).await.unwrap();
    }
    let (mut rotated, mut last) = (0, None);
    for slot in 0..1000 {
        let text = slot.to_string();
        let files: Vec<_> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
        node.provider.set_files(&files, &text);
        match publisher.refresh(&one, Urgency::ForceRefresh).await {
            Ok(_) => rotated += 1,
            Err(failure) => last = Some(failure),
        }
        node.clock.advance(Duration::from_secs(62));
        publisher.scrub(&one).await.unwrap();
    }
    assert!((3..1000).contains(&rotated), "{rotated}");
    let text = last.unwrap().status_message();
    assert!(text.contains("restart the pod"), "{text}");
    let used = publisher.memory().used;
    assert!(used <= 768 * 1024, "{used}");
    set_blob(&node, "b", 100, "v2");
    let refreshed = publisher.refresh(&other, Urgency::ForceRefresh).await;
    assert_eq!(refreshed.unwrap(), RefreshOutcome::Changed);
    assert_eq!(read_blob(&other), ("b".to_owned(), 100));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn recovered_volumes_over_the_limit_count_and_stay_mounted() {
    let node = PublisherFixture::new();
    let (one, other) = (node.prepare_target("one"), node.prepare_target("other"));
    let first = publisher_with_one_mebibyte(&node);
    set_blob(&node, "a", 400, "v1");
    first.publish(publish_request(&one)).await.unwrap();
    let used = first.memory().used;
    drop(first);

    let second = publisher_with_one_mebibyte(&node);
    assert_eq!(second.memory().used, 0);
    assert_eq!(second.recover().await.unwrap().volumes, 1);
    assert_eq!(second.memory(), NodeMemoryUsage { used, read_or_cached: 0, limit: 1024 * 1024 });
    assert_eq!(second.publish(publish_request(&other)).await.unwrap_err().code, MEMORY_EXHAUSTED);
    drop(second);

    let third = publisher_with_memory_limit(&node, 100 * KIB);
    third.recover().await.unwrap();
    assert_eq!(third.memory(), NodeMemoryUsage { used, read_or_cached: 0, limit: 100 * 1024 });
    node.advance_to_next_poll();
    // Unchanged content needs no memory; new content does.
    third.publish(publish_request(&one)).await.unwrap();
    assert_eq!(third.state(&one).unwrap().last_error, None);
    set_blob(&node, "b", 1, "v2");
    let refreshed = third.refresh(&one, Urgency::ForceRefresh).await;
    assert_eq!(refreshed.unwrap_err().code, MEMORY_EXHAUSTED);
    assert_eq!(read_blob(&one), ("a".to_owned(), 400));
    third.unpublish("csi-1", &one).await.unwrap();
    assert_eq!(third.memory().used, 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn no_volume_uses_more_than_its_estimated_memory() {
    let node = PublisherFixture::new();
    let long = "n".repeat(200);
    let many: Vec<_> = (0..300).map(|number| format!("d{}/f{number}", number % 7)).collect();
    let large = "x".repeat(70_001);
    let cases: [Vec<(&str, &str)>; 5] = [
        vec![("a", "")],
        vec![("a", "1"), ("b/c/d/e", "2"), ("b/c/f", &large)],
        vec![(&long, "1")],
        many.iter().map(|path| (path.as_str(), "1")).collect(),
        vec![("a", &large), (&long, &large)],
    ];
    let page = u64::try_from(rustix::param::page_size()).unwrap();
    for (number, files) in cases.iter().enumerate() {
        let target = node.prepare_target(&number.to_string());
        let publisher = node.start();
        let length = |text: &str| u64::try_from(text.len()).unwrap();
        let paths: Vec<_> =
            files.iter().map(|(path, text)| (path.parse().unwrap(), length(text))).collect();
        let needed = max_generation_size(paths.iter().map(|(path, length)| (path, *length)), page);
        let content: u64 = paths.iter().map(|(_, length)| length.div_ceil(page) * page).sum();
        node.provider.set_files(files, "v1");
        publisher.publish(publish_request(&target)).await.unwrap();
        let first = publisher.memory().used;
        assert!((content + 1..=needed).contains(&first), "{number}: {content} {first} {needed}");

        // A rotation needs no more than that once again.
        let other: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (*path, text.replace(['1', 'x'], "y"))).collect();
        let other: Vec<_> = other.iter().map(|(path, text)| (*path, text.as_str())).collect();
        node.provider.set_files(&other, "v2");
        publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap();
        let second = publisher.memory().used;
        assert!((first..=first + needed).contains(&second), "{number}: {first} {second} {needed}");
    }
}
