use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_keyvault::Pod;
use lanyard_telemetry::MetricsPage;

use super::*;
use crate::reporter::{NoReporter, Notice, NoticeKind, ObjectFacts, Reporter, VolumeFacts};

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
    metrics.filled_by(Path::new("/a"), "azure");
    metrics.published(Path::new("/a"), Ok(()));
    metrics.published(Path::new("/a"), Err(OutcomeCode::SecretProviderClassNotFound));
    metrics.unpublished(true);
    metrics.unpublished(false);
    metrics.rotated("azure", SECOND, Ok(true));
    metrics.rotated("azure", SECOND, Err(OutcomeCode::ProviderError));
    metrics.vault_answered(ReadKind::Secret, SECOND, Err(OutcomeCode::VaultThrottled));
    metrics.call_answered("/v1alpha1.CSIDriverProvider/Mount", tonic::Code::Unavailable, SECOND);
    let lines = [
        "node_publish_total{provider=\"azure\",os_type=\"linux\"} 2",
        "node_publish_error_total{provider=\"azure\",error_type=\"SecretProviderClassNotFound\",os_type=\"linux\"} 1",
        "node_unpublish_total{os_type=\"linux\"} 2",
        "node_unpublish_error_total{os_type=\"linux\"} 1",
        "rotation_reconcile_total{provider=\"azure\",os_type=\"linux\",rotated=\"true\"} 1",
        "rotation_reconcile_error_total{provider=\"azure\",error_type=\"GRPCProviderError\",os_type=\"linux\",rotated=\"false\"} 1",
        "rotation_reconcile_duration_sec_bucket{le=\"1.0\",os_type=\"linux\"} 2",
        "keyvault_request_bucket{le=\"1.0\",provider=\"azure\",os_type=\"linux\",object_type=\"secret\",error=\"VaultThrottled\"} 1",
        "grpc_request_count{provider=\"azure\",os_type=\"linux\",grpc_method=\"/v1alpha1.CSIDriverProvider/Mount\",grpc_code=\"Unavailable\"} 1",
        "lanyard_node_outcomes_total{code=\"GRPCProviderError\",hop=\"volume\"} 1",
    ];
    for line in lines {
        assert_line(&page, line);
    }
}

#[test]
fn what_is_only_told_is_counted_and_nothing_twice() {
    let (metrics, page, _clock) = node();
    let inner = || Arc::new(NoReporter);
    let publisher = CountedReporter::new(inner(), metrics.clone());
    let others = CountedReporter::of_notices_alone(inner(), metrics.clone());
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
        let target = format!("/{number:04}");
        let target = Path::new(&target);
        metrics.filled_by(target, &format!("provider-{number}"));
        metrics.published(target, Ok(()));
        metrics.volume_checked(target, "tenant", &format!("class-{number:04}"));
    }
    assert_line(&page, "node_publish_total{provider=\"other\",os_type=\"linux\"} 984");
    assert_line(&page, "lanyard_node_volumes{namespace=\"\",class=\"other\"} 500");
    assert!(page.render().lines().count() < 2200);
}

#[test]
fn a_class_is_as_old_as_its_oldest_volume_and_ends_with_its_first() {
    let (metrics, page, clock) = node();
    let report = |target: &str, not_after: Option<i64>, outcome: Option<&str>| VolumeReport {
        pod: Pod {
            namespace: "tenant".to_owned(),
            name: "pod".to_owned(),
            uid: "1".to_owned(),
            service_account: String::new(),
        },
        class_name: "disk".to_owned(),
        target: target.into(),
        objects: Vec::new(),
        facts: VolumeFacts {
            outcome: outcome.map(str::to_owned),
            objects: vec![ObjectFacts {
                not_after: not_after.map(|it| Timestamp::from_second(it).unwrap()),
                ..ObjectFacts::default()
            }],
            ..VolumeFacts::default()
        },
    };
    let volumes = [
        (10, report("/a", Some(500), Some("VaultThrottled"))),
        (50, report("/b", Some(400), None)),
        (40, report("/c", None, None)),
    ];
    for (seconds, report) in volumes {
        clock.advance(Duration::from_secs(seconds));
        metrics.volume_checked(&report.target, "tenant", "disk");
        metrics.volume_reported(&report);
    }
    let labels = "{namespace=\"tenant\",class=\"disk\"}";
    assert_line(&page, &format!("lanyard_node_content_age_seconds{labels} 90.0"));
    assert_line(&page, &format!("lanyard_node_expires_in_seconds{labels} 300.0"));
    assert_line(&page, &format!("lanyard_node_volumes{labels} 3"));
    assert_line(&page, &format!("lanyard_node_volumes_failing{labels} 1"));
    for target in ["/a", "/b", "/c"] {
        metrics.volume_gone(Path::new(target));
    }
    assert!(!page.render().contains("tenant"));
}
