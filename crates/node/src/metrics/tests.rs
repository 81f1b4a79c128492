use std::collections::BTreeSet;

use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_keyvault::VolumePod;
use lanyard_provider::{ObjectTimestamps, ProviderObjectVersion};
use lanyard_telemetry::MetricsPage;
use parking_lot::Mutex;

use super::*;
use crate::marker::{MountedObject, VolumeLastError};
use crate::publisher::{NodeMemoryUsage, VolumeSnapshot};
use crate::reporter::{NoopReporter, PodEvent, PodEventKind, Reporter};
use crate::rotation::{PollHistory, PollRecord};

const SECOND: Duration = Duration::from_secs(1);

fn metrics_with_page() -> (NodeMetrics, MetricsPage, ManualClock) {
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
fn upstream_metric_names_are_exposed() {
    let (metrics, page, _clock) = metrics_with_page();
    metrics.record_publish(Some("azure"), Ok(()));
    metrics.record_publish(Some("azure"), Ok(()));
    metrics.record_publish(None, Err(OutcomeCode::SecretProviderClassNotFound));
    metrics.record_unpublish(true);
    metrics.record_unpublish(false);
    let poll = |outcome| PollResult {
        provider: Some("azure".into()),
        duration: SECOND,
        outcome,
        rotation_lags: vec![SECOND],
    };
    metrics.record_poll(&poll(Ok(true)));
    metrics.record_poll(&PollResult {
        rotation_lags: Vec::new(),
        ..poll(Err(OutcomeCode::ProviderError))
    });
    metrics.record_vault_request(ReadKind::Secret, SECOND, Err(OutcomeCode::VaultThrottled));
    metrics.record_grpc_call("/v1alpha1.CSIDriverProvider/Mount", tonic::Code::Unavailable, SECOND);
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

/// A volume with a last successful poll at second `checked`.
fn volume_snapshot(class: &str, checked: i64, not_after: Option<i64>) -> VolumeSnapshot {
    let second = |second| Timestamp::from_second(second).unwrap();
    let record = PollRecord {
        checked: second(checked),
        refreshed: None,
        interval: None,
        accepted_older: BTreeSet::new(),
    };
    let version = ProviderObjectVersion { id: "secret/one".to_owned(), version: "v1".to_owned() };
    let timestamps =
        ObjectTimestamps { not_after: not_after.map(second), ..ObjectTimestamps::default() };
    VolumeSnapshot {
        volume_id: "csi-1".to_owned(),
        target: "/a".into(),
        pod: VolumePod {
            namespace: "tenant".to_owned(),
            name: "pod".to_owned(),
            uid: "1".to_owned(),
            service_account: String::new(),
        },
        class_name: class.to_owned(),
        provider: None,
        generation: 1,
        objects: vec![MountedObject { version, timestamps }],
        content_changed: second(checked),
        history: PollHistory::restored(Some(record), second(checked)),
        last_error: None,
        stale_since: None,
        memory: 8192,
        pod_credentials: None,
    }
}

#[test]
fn failures_are_counted_exactly_once() {
    let (metrics, page, _clock) = metrics_with_page();
    let inner = || Arc::new(NoopReporter);
    let publisher = MeteredReporter::new(inner(), metrics.clone());
    let others = MeteredReporter::counting_every_failure(inner(), metrics);
    let failed = |code| PodEvent {
        pod: VolumePod {
            namespace: "tenant".to_owned(),
            name: "pod".to_owned(),
            uid: "1".to_owned(),
            service_account: String::new(),
        },
        kind: PodEventKind::Failed(code),
        message: String::new(),
    };
    for code in [OutcomeCode::ServedStale, OutcomeCode::TokenNotFound] {
        publisher.emit_event(failed(code));
    }
    for code in [
        OutcomeCode::SecretNotSynced,
        OutcomeCode::ObjectExpired,
        OutcomeCode::TokenNotFound,
        OutcomeCode::SecretProviderClassInvalid,
    ] {
        others.emit_event(failed(code));
        others.emit_event(PodEvent { kind: PodEventKind::Recovered(code), ..failed(code) });
        let (name, hop) = (code.name(), code.hop());
        let line = format!("lanyard_node_outcomes_total{{code=\"{name}\",hop=\"{hop}\"}} 1");
        assert_line(&page, &line);
    }
    let (name, hop) = (OutcomeCode::ServedStale.name(), OutcomeCode::ServedStale.hop());
    assert_line(&page, &format!("lanyard_node_outcomes_total{{code=\"{name}\",hop=\"{hop}\"}} 1"));
}

#[test]
fn tenant_chosen_names_are_bounded() {
    let (metrics, page, _clock) = metrics_with_page();
    for number in 0..1000 {
        metrics.record_publish(Some(&format!("provider-{number}")), Ok(()));
    }
    let states = move || {
        let class = |number| Arc::new(volume_snapshot(&format!("class-{number:04}"), 0, None));
        (0..1000).map(class).collect()
    };
    metrics.0.classes.watch(states);
    assert_line(&page, "node_publish_total{provider=\"other\",os_type=\"linux\"} 985");
    assert_line(&page, "lanyard_node_volumes{namespace=\"\",class=\"other\"} 500");
    assert!(page.render().lines().count() < 2200);
}

#[test]
fn unknown_provider_names_do_not_use_up_the_limit() {
    let (metrics, page, _clock) = metrics_with_page();
    let failed = Err(OutcomeCode::ProviderNotFound);
    for number in 0..100 {
        metrics.record_publish(Some(&format!("made-up-{number}")), failed);
        metrics.record_publish(Some(&"x".repeat(1 << 20)), Err(OutcomeCode::InvalidProvider));
    }
    metrics.record_publish(Some("azure"), failed);
    metrics.record_publish(Some("vault"), Ok(()));
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
fn used_and_allowed_volume_memory_are_exposed() {
    let (metrics, page, _clock) = metrics_with_page();
    assert!(!page.render().contains("lanyard_node_volumes_memory_used"));
    let used = Arc::new(Mutex::new(0));
    let watched = Arc::clone(&used);
    metrics.0.memory.watch(move || NodeMemoryUsage {
        used: *watched.lock(),
        read_or_cached: 7,
        limit: 64 << 20,
    });
    for bytes in [0, 4096, u64::MAX] {
        *used.lock() = bytes;
        let exposed = bytes.min(i64::MAX.unsigned_abs());
        assert_line(&page, &format!("lanyard_node_volumes_memory_used_bytes {exposed}"));
        assert_line(&page, "lanyard_node_volumes_memory_limit_bytes 67108864");
    }
}

#[test]
fn class_row_has_the_oldest_age_and_the_earliest_expiry() {
    let (metrics, page, clock) = metrics_with_page();
    let volumes = Arc::new(Mutex::new(Vec::new()));
    let watched = Arc::clone(&volumes);
    metrics.0.classes.watch(move || watched.lock().clone());
    clock.advance(Duration::from_secs(100));
    let failing = VolumeSnapshot {
        last_error: Some(VolumeLastError::new(
            OutcomeCode::VaultThrottled,
            Timestamp::UNIX_EPOCH,
            "",
        )),
        ..volume_snapshot("disk", 10, Some(500))
    };
    *volumes.lock() = vec![
        Arc::new(failing),
        Arc::new(volume_snapshot("disk", 60, Some(400))),
        Arc::new(volume_snapshot("disk", 100, None)),
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
