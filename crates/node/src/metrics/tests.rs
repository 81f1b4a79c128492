use std::collections::BTreeSet;

use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_keyvault::Pod;
use lanyard_telemetry::MetricsPage;
use parking_lot::Mutex;

use super::*;
use crate::marker::{MountedObject, Trouble};
use crate::provider::{ObjectVersion, Stamps};
use crate::publisher::{VolumeState, VolumesMemory};
use crate::reporter::{NoReporter, Notice, NoticeKind, Reporter};
use crate::rotation::{CheckRecord, VolumeClock};

const SECOND: Duration = Duration::from_secs(1);

fn node() -> (NodeMetrics, MetricsPage, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
    let metrics = NodeMetrics::new(Arc::new(clock.clone()));
    let page = MetricsPage::build(|registry| metrics.register(registry));
    (metrics, page, clock)
}

#[track_caller]
fn assert_line(page: &MetricsPage, line: &str) {
    let text = page.render();
    assert!(text.lines().any(|it| it == line), "`{line}` is not in:\n{text}");
}

#[test]
fn upstreams_dashboards_find_their_names() {
    let (metrics, page, _clock) = node();
    metrics.published(Some("azure"), Ok(()));
    metrics.published(Some("azure"), Ok(()));
    metrics.published(None, Err(OutcomeCode::SecretProviderClassNotFound));
    metrics.unpublished(true);
    metrics.unpublished(false);
    let look = |outcome| Looked {
        provider: Some("azure".into()),
        took: SECOND,
        outcome,
        lags: vec![SECOND],
    };
    metrics.looked(&look(Ok(true)));
    metrics.looked(&Looked { lags: Vec::new(), ..look(Err(OutcomeCode::ProviderError)) });
    metrics.vault_answered(ReadKind::Secret, SECOND, Err(OutcomeCode::VaultThrottled));
    metrics.call_answered("/v1alpha1.CSIDriverProvider/Mount", tonic::Code::Unavailable, SECOND);
    let lines = [
        "node_publish_total{provider=\"azure\",os_type=\"linux\"} 2",
        "node_publish_error_total{provider=\"\",error_type=\"SecretProviderClassNotFound\",os_type=\"linux\"} 1",
        "node_unpublish_total{os_type=\"linux\"} 2",
        "node_unpublish_error_total{os_type=\"linux\"} 1",
        "rotation_reconcile_total{provider=\"azure\",os_type=\"linux\",rotated=\"true\"} 1",
        "rotation_reconcile_error_total{provider=\"azure\",error_type=\"GRPCProviderError\",os_type=\"linux\",rotated=\"false\"} 1",
        "rotation_reconcile_duration_sec_bucket{le=\"1.0\",os_type=\"linux\"} 2",
        "keyvault_request_bucket{le=\"1.0\",provider=\"azure\",os_type=\"linux\",object_type=\"secret\",error=\"VaultThrottled\"} 1",
        "grpc_request_count{provider=\"azure\",os_type=\"linux\",grpc_method=\"/v1alpha1.CSIDriverProvider/Mount\",grpc_code=\"Unavailable\"} 1",
        "lanyard_node_rotation_lag_seconds_count 1",
        "lanyard_node_outcomes_total{code=\"GRPCProviderError\",hop=\"volume\"} 1",
    ];
    for line in lines {
        assert_line(&page, line);
    }
}

/// A volume that was looked at last at `checked`, in seconds.
fn volume(class: &str, checked: i64, not_after: Option<i64>) -> VolumeState {
    let second = |second| Timestamp::from_second(second).unwrap();
    let record = CheckRecord {
        checked: second(checked),
        refreshed: None,
        interval: None,
        accepted_older: BTreeSet::new(),
    };
    let version = ObjectVersion { id: "secret/one".to_owned(), version: "v1".to_owned() };
    let stamps = Stamps { not_after: not_after.map(second), ..Stamps::default() };
    VolumeState {
        volume_id: "csi-1".to_owned(),
        target: "/a".into(),
        pod: Pod {
            namespace: "tenant".to_owned(),
            name: "pod".to_owned(),
            uid: "1".to_owned(),
            service_account: String::new(),
        },
        class_name: class.to_owned(),
        provider: None,
        generation: 1,
        objects: vec![MountedObject { version, stamps }],
        changed: second(checked),
        clock: VolumeClock::resumed(Some(record), second(checked)),
        trouble: None,
        stale_since: None,
        memory: 8192,
        proofs: None,
    }
}

#[test]
fn what_is_only_told_is_counted_and_nothing_twice() {
    let (metrics, page, _clock) = node();
    let inner = || Arc::new(NoReporter);
    let publisher = CountedReporter::new(inner(), metrics.clone());
    let others = CountedReporter::of_notices_alone(inner(), metrics);
    let failed = |code| Notice {
        pod: Pod {
            namespace: "tenant".to_owned(),
            name: "pod".to_owned(),
            uid: "1".to_owned(),
            service_account: String::new(),
        },
        kind: NoticeKind::Failed(code),
        message: String::new(),
    };
    for code in [OutcomeCode::ServedStale, OutcomeCode::TokenNotFound] {
        publisher.tell(failed(code));
    }
    for code in [
        OutcomeCode::SecretNotSynced,
        OutcomeCode::ObjectExpired,
        OutcomeCode::TokenNotFound,
        OutcomeCode::SecretProviderClassInvalid,
    ] {
        others.tell(failed(code));
        others.tell(Notice { kind: NoticeKind::Recovered(code), ..failed(code) });
        let (name, hop) = (code.name(), code.hop());
        let line = format!("lanyard_node_outcomes_total{{code=\"{name}\",hop=\"{hop}\"}} 1");
        assert_line(&page, &line);
    }
    let (name, hop) = (OutcomeCode::ServedStale.name(), OutcomeCode::ServedStale.hop());
    assert_line(&page, &format!("lanyard_node_outcomes_total{{code=\"{name}\",hop=\"{hop}\"}} 1"));
}

#[test]
fn names_that_tenants_choose_do_not_grow_the_page_without_end() {
    let (metrics, page, _clock) = node();
    for number in 0..1000 {
        metrics.published(Some(&format!("provider-{number}")), Ok(()));
    }
    let states = move || {
        let class = |number| Arc::new(volume(&format!("class-{number:04}"), 0, None));
        (0..1000).map(class).collect()
    };
    metrics.0.classes.watch(states);
    assert_line(&page, "node_publish_total{provider=\"other\",os_type=\"linux\"} 985");
    assert_line(&page, "lanyard_node_volumes{namespace=\"\",class=\"other\"} 500");
    assert!(page.render().lines().count() < 2200);
}

#[test]
fn invented_names_of_providers_neither_stand_on_the_page_nor_crowd_out_real_ones() {
    let (metrics, page, _clock) = node();
    let failed = Err(OutcomeCode::ProviderNotFound);
    for number in 0..100 {
        metrics.published(Some(&format!("made-up-{number}")), failed);
        metrics.published(Some(&"x".repeat(1 << 20)), Err(OutcomeCode::InvalidProvider));
    }
    metrics.published(Some("azure"), failed);
    metrics.published(Some("vault"), Ok(()));
    for line in [
        "node_publish_total{provider=\"other\",os_type=\"linux\"} 100",
        "node_publish_total{provider=\"invalid\",os_type=\"linux\"} 100",
        "node_publish_total{provider=\"azure\",os_type=\"linux\"} 1",
        "node_publish_total{provider=\"vault\",os_type=\"linux\"} 1",
    ] {
        assert_line(&page, line);
    }
    let text = page.render();
    assert!(!text.contains("made-up") && !text.contains("xxx"), "{text}");
}

#[test]
fn what_volumes_hold_together_stands_beside_what_they_may() {
    let (metrics, page, _clock) = node();
    assert!(!page.render().contains("lanyard_node_volumes_memory_used"));
    let used = Arc::new(Mutex::new(0));
    let watched = Arc::clone(&used);
    metrics.0.memory.watch(move || VolumesMemory {
        used: *watched.lock(),
        read: 7,
        limit: 64 << 20,
    });
    for bytes in [0, 4096, u64::MAX] {
        *used.lock() = bytes;
        let told = bytes.min(i64::MAX.unsigned_abs());
        assert_line(&page, &format!("lanyard_node_volumes_memory_used_bytes {told}"));
        assert_line(&page, "lanyard_node_volumes_memory_limit_bytes 67108864");
    }
}

#[test]
fn a_class_is_as_old_as_its_oldest_volume_and_ends_with_its_first() {
    let (metrics, page, clock) = node();
    let volumes = Arc::new(Mutex::new(Vec::new()));
    let watched = Arc::clone(&volumes);
    metrics.0.classes.watch(move || watched.lock().clone());
    clock.advance(Duration::from_secs(100));
    let failing = VolumeState {
        trouble: Some(Trouble::new(OutcomeCode::VaultThrottled, Timestamp::UNIX_EPOCH, "")),
        ..volume("disk", 10, Some(500))
    };
    *volumes.lock() = vec![
        Arc::new(failing),
        Arc::new(volume("disk", 60, Some(400))),
        Arc::new(volume("disk", 100, None)),
    ];
    let labels = "{namespace=\"tenant\",class=\"disk\"}";
    assert_line(&page, &format!("lanyard_node_content_age_seconds{labels} 90.0"));
    assert_line(&page, &format!("lanyard_node_expires_in_seconds{labels} 300.0"));
    assert_line(&page, &format!("lanyard_node_volumes{labels} 3"));
    assert_line(&page, &format!("lanyard_node_volumes_failing{labels} 1"));
    assert_line(&page, &format!("lanyard_node_volumes_memory_bytes{labels} 24576"));
    volumes.lock().clear();
    assert!(!page.render().contains("tenant"));
}
