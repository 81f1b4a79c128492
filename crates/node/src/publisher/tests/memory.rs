use super::*;
use crate::budget::{Usage, needed_for};
use crate::memory::NodeMemory;
use crate::publisher::fixture::DRIVER;
use crate::rotation::Volumes;

const KIB: usize = 1024;
const FULL: OutcomeCode = OutcomeCode::VolumeMemoryExhausted;

/// A publisher whose volumes may hold a mebibyte together, new ones three quarters of it.
fn tight(node: &Node) -> Publisher {
    with_limit(node, 1024 * KIB)
}

fn with_limit(node: &Node, limit: usize) -> Publisher {
    let memory = NodeMemory::new(u64::try_from(limit).unwrap());
    node.start_with(PublisherSettings { memory, ..PublisherSettings::new(node.dir.path(), DRIVER) })
}

fn gives(node: &Node, letter: &str, kib: usize, version: &str) {
    node.provider.gives(&[("blob", &letter.repeat(kib * KIB))], version);
}

/// The first letter of what a pod reads, and how much of it there is.
fn seen(target: &Path) -> (String, usize) {
    let text = read(target, "blob");
    (text[..1].to_owned(), text.len() / KIB)
}

/// What the kernel says that the volumes at these places hold.
fn held(targets: &[&Path]) -> u64 {
    let of = |target: &&Path| Usage::of(&rustix::fs::statvfs(*target).unwrap()).held;
    targets.iter().map(of).sum()
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_mount_that_does_not_fit_leaves_nothing_and_fits_when_another_volume_is_gone() {
    let node = Node::new();
    let (one, other) = (node.prepared("one"), node.prepared("other"));
    let publisher = tight(&node);
    gives(&node, "a", 400, "v1");
    publisher.publish(order(&one)).await.unwrap();
    let used = publisher.memory().used;
    assert_eq!(used, held(&[&one]));
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
        let failure = publisher.publish(order(&other)).await.unwrap_err();
        assert_eq!((failure.code, failure.grpc), (FULL, Code::ResourceExhausted), "{failure}");
        let text = failure.status_message();
        for part in ["pod ns/pod", "ns/class", "and may hold 768 KiB", "spread the pods"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("will not heal"), "{text}");
        assert!(!other.exists() && node.layers(&other) == 0);
        assert_eq!((publisher.memory().used, publisher.states().len()), (used, 1));
    }
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(FULL)]);
    assert_eq!(publisher.engine.lanes.count(), 1, "nothing is remembered of what is not there");

    publisher.unpublish("csi-1", &one).await.unwrap();
    assert_eq!(publisher.memory().used, 0);
    publisher.publish(order(&other)).await.unwrap();
    assert_eq!(seen(&other), ("a".to_owned(), 400));
    assert_eq!(node.listener.kinds().last(), Some(&NoticeKind::Recovered(FULL)));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn what_would_not_fit_into_an_empty_node_is_said_not_to_heal() {
    let node = Node::new();
    let target = node.prepared("v");
    gives(&node, "a", 800, "v1");
    let failure = tight(&node).publish(order(&target)).await.unwrap_err();
    let text = failure.status_message();
    assert_eq!(failure.code, FULL);
    assert!(text.contains("will not heal by itself") && text.contains("smaller objects"), "{text}");
    assert!(!target.exists());
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn of_volumes_that_come_at_the_same_time_only_those_are_mounted_that_fit() {
    let node = Node::new();
    let publisher = tight(&node);
    gives(&node, "a", 200, "v1");
    let targets: Vec<_> = (0..8).map(|number| node.prepared(&number.to_string())).collect();
    node.provider.shut().await;
    let all = futures::future::join_all(targets.iter().map(|it| publisher.publish(order(it))));
    let opened = async { node.provider.open() };
    let (outcomes, ()) = futures::join!(all, opened);
    let mounted: Vec<_> = targets.iter().filter(|it| it.exists()).map(PathBuf::as_path).collect();
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), mounted.len());
    // What is being written is reckoned too high, so how many fit depends on who is how far.
    assert!((2..=3).contains(&mounted.len()), "{}", mounted.len());
    assert_eq!(publisher.memory().used, held(&mounted));
    for failure in outcomes.iter().filter_map(|it| it.as_ref().err()) {
        assert_eq!(failure.code, FULL);
    }
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_rotation_that_does_not_fit_keeps_what_is_mounted_and_is_masked() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = tight(&node);
    gives(&node, "a", 400, "v1");
    publisher.publish(order(&target)).await.unwrap();
    let used = publisher.memory().used;
    gives(&node, "b", 700, "v2");
    for _ in 0..3 {
        node.wait();
        publisher.publish(order(&target)).await.unwrap();
        assert_eq!(seen(&target), ("a".to_owned(), 400));
        assert_eq!((publisher.memory().used, node.layers(&target)), (used, 1));
    }
    assert_eq!(node.listener.kinds(), [NoticeKind::Failed(FULL)]);
    let told = node.listener.notices.lock()[0].message.clone();
    assert!(told.contains("may hold 1.0 MiB") && told.contains("hint: "), "{told}");
    assert_eq!(publisher.state(&target).unwrap().trouble.clone().unwrap().code, FULL);
    let report = node.listener.reports.lock().last().unwrap().clone();
    assert_eq!(report.facts.outcome.as_deref(), Some("VolumeMemoryExhausted"));
    assert_eq!(report.facts.last_good_hop.as_deref(), Some("decode"));
    assert_eq!(report.objects[0].version, "v1");

    // More than a mount would be given.
    gives(&node, "c", 450, "v3");
    node.wait();
    publisher.publish(order(&target)).await.unwrap();
    assert_eq!(seen(&target), ("c".to_owned(), 450));
    assert_eq!(node.listener.kinds().last(), Some(&NoticeKind::Recovered(FULL)));
    assert_eq!(publisher.memory().used, held(&[&target]));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_retired_generation_counts_until_it_is_truncated() {
    let node = Node::new();
    let target = node.prepared("v");
    let publisher = tight(&node);
    let refresh = async || publisher.refresh(&target, Urgency::Refresh).await;
    gives(&node, "a", 400, "v1");
    publisher.publish(order(&target)).await.unwrap();
    gives(&node, "b", 400, "v2");
    assert_eq!(refresh().await.unwrap(), Refreshed::Changed);
    let both = publisher.memory().used;
    assert!(both > 800 * 1024, "{both}");
    gives(&node, "c", 400, "v3");
    assert_eq!(refresh().await.unwrap_err().code, FULL);

    node.clock.advance(Duration::from_secs(62));
    assert_eq!(publisher.scrub(&target).await.unwrap(), None);
    let one = publisher.memory().used;
    assert!(one < both - 390 * 1024, "{one} {both}");
    assert_eq!(one, held(&[&target]));
    assert_eq!(refresh().await.unwrap(), Refreshed::Changed);
    assert_eq!(seen(&target), ("c".to_owned(), 400));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_volume_that_rotates_without_end_leaves_the_others_room_to_rotate() {
    let node = Node::new();
    let (one, other) = (node.prepared("one"), node.prepared("other"));
    let publisher = tight(&node);
    let names: Vec<_> = (0..30).map(|number| format!("f{number}")).collect();
    for target in [&one, &other] {
        publisher.publish(order(target)).await.unwrap();
    }
    let (mut rotated, mut last) = (0, None);
    for turn in 0..1000 {
        let text = turn.to_string();
        let files: Vec<_> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
        node.provider.gives(&files, &text);
        match publisher.refresh(&one, Urgency::Refresh).await {
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
    gives(&node, "b", 100, "v2");
    let refreshed = publisher.refresh(&other, Urgency::Refresh).await;
    assert_eq!(refreshed.unwrap(), Refreshed::Changed);
    assert_eq!(seen(&other), ("b".to_owned(), 100));
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volumes_of_an_earlier_process_count_and_stay_though_they_are_too_much() {
    let node = Node::new();
    let (one, other) = (node.prepared("one"), node.prepared("other"));
    let first = tight(&node);
    gives(&node, "a", 400, "v1");
    first.publish(order(&one)).await.unwrap();
    let used = first.memory().used;
    drop(first);

    let second = tight(&node);
    assert_eq!(second.memory().used, 0);
    assert_eq!(second.recover().await.unwrap().volumes, 1);
    assert_eq!(second.memory(), VolumesMemory { used, read: 0, limit: 1024 * 1024 });
    assert_eq!(second.publish(order(&other)).await.unwrap_err().code, FULL);
    drop(second);

    let third = with_limit(&node, 100 * KIB);
    third.recover().await.unwrap();
    assert_eq!(third.memory(), VolumesMemory { used, read: 0, limit: 100 * 1024 });
    node.wait();
    // What is unchanged takes nothing; what is new does.
    third.publish(order(&one)).await.unwrap();
    assert_eq!(third.state(&one).unwrap().trouble, None);
    gives(&node, "b", 1, "v2");
    let refreshed = third.refresh(&one, Urgency::Refresh).await;
    assert_eq!(refreshed.unwrap_err().code, FULL);
    assert_eq!(seen(&one), ("a".to_owned(), 400));
    third.unpublish("csi-1", &one).await.unwrap();
    assert_eq!(third.memory().used, 0);
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn no_volume_holds_more_than_it_was_reckoned_to_need() {
    let node = Node::new();
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
        let target = node.prepared(&number.to_string());
        let publisher = node.start();
        let length = |text: &str| u64::try_from(text.len()).unwrap();
        let paths: Vec<_> =
            files.iter().map(|(path, text)| (path.parse().unwrap(), length(text))).collect();
        let needed = needed_for(paths.iter().map(|(path, length)| (path, *length)), page);
        let content: u64 = paths.iter().map(|(_, length)| length.div_ceil(page) * page).sum();
        node.provider.gives(files, "v1");
        publisher.publish(order(&target)).await.unwrap();
        let first = publisher.memory().used;
        assert!((content + 1..=needed).contains(&first), "{number}: {content} {first} {needed}");

        // A rotation takes no more than that once again.
        let other: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (*path, text.replace(['1', 'x'], "y"))).collect();
        let other: Vec<_> = other.iter().map(|(path, text)| (*path, text.as_str())).collect();
        node.provider.gives(&other, "v2");
        publisher.refresh(&target, Urgency::Refresh).await.unwrap();
        let second = publisher.memory().used;
        assert!((first..=first + needed).contains(&second), "{number}: {first} {second} {needed}");
    }
}
