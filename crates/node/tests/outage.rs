//! An hour-long vault outage, and what users see of it: the real publisher, rotator, Key Vault provider and
//! reporter, in virtual time. The tests mount file systems and need root; without root they are reported as
//! ignored.

#![cfg(test)]

#[path = "outage/api.rs"]
mod api;
#[path = "outage/fixture.rs"]
mod fixture;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::Clock as _;
use lanyard_keyvault::testing::{FakeAzureFailure, FakeAzureService};
use lanyard_provider::PollInterval;
use lanyard_vocabulary::OutcomeCode;
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

use crate::api::RecordedEvent;
use crate::fixture::{OutageClass, OutageFixture, VAULT, runtime};

const MINUTE: Duration = Duration::from_mins(1);
const INTERVAL: Duration = PollInterval::DEFAULT.duration();
/// The number of classes that opt in, each with an object of its own and one object that all classes share.
const STALE_CLASSES: usize = 6;
const STRICT: &str = "strict";

fn main() -> ExitCode {
    let trials = vec![
        trial(
            "pods_start_from_the_stale_cache_during_an_hour_long_outage",
            pods_start_from_the_stale_cache_during_an_hour_long_outage,
        ),
        trial(
            "pods_start_within_the_kubelet_timeout_while_the_vault_hangs",
            pods_start_within_the_kubelet_timeout_while_the_vault_hangs,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial<F>(name: &str, case: F) -> Trial
where
    F: AsyncFnOnce() + Send + 'static,
{
    let trial = Trial::test(name, move || {
        runtime()?.block_on(case());
        Ok(())
    });
    trial.with_ignored_flag(!rustix::process::geteuid().is_root())
}

fn stale_class_name(number: usize) -> String {
    format!("patient-{}", number % STALE_CLASSES)
}

fn classes() -> Vec<OutageClass> {
    let class = |name: String, serve_stale| OutageClass {
        objects: vec!["common".to_owned(), format!("of-{name}")],
        name,
        serve_stale,
    };
    let patient = (0..STALE_CLASSES).map(|number| class(stale_class_name(number), Some("4h")));
    patient.chain([class(STRICT.to_owned(), None)]).collect()
}

/// The content of a volume of a class while the vault has these versions.
fn content(class: &str, common: u32, own: u32) -> BTreeMap<String, String> {
    let own_name = format!("of-{class}");
    let own_text = format!("{own_name} {own}");
    [("common".to_owned(), format!("common {common}")), (own_name, own_text)].into()
}

/// The failure that the facts of a volume report.
#[derive(Debug, PartialEq, Eq)]
struct ReportedCondition {
    outcome: String,
    cause: Option<String>,
    since: Timestamp,
    message: String,
}

/// Returns the reported condition of a volume, or `None` while it is healthy.
fn reported_condition(node: &OutageFixture, pod: &str, class: &str) -> Option<ReportedCondition> {
    let facts = node.api.volume_facts(pod, class);
    let text = |key: &str| facts[key].as_str().map(str::to_owned);
    let Some(outcome) = text("outcome") else {
        let rest = ["cause", "since", "message"].map(|key| facts[key].clone());
        assert_eq!(rest, [Value::Null, Value::Null, Value::Null]);
        assert_eq!(text("lastGoodHop").as_deref(), Some("file"));
        return None;
    };
    assert_eq!(text("lastGoodHop").as_deref(), Some("imds-token"), "{facts}");
    let since = text("since").unwrap().parse().unwrap();
    Some(ReportedCondition {
        outcome,
        cause: text("cause"),
        since,
        message: text("message").unwrap(),
    })
}

fn event_reasons(node: &OutageFixture, pod: &str) -> Vec<String> {
    node.api.events(pod).into_iter().map(|event| event.reason).collect()
}

/// Returns the only event about a pod.
fn only_event(node: &OutageFixture, pod: &str) -> RecordedEvent {
    let mut events = node.api.events(pod);
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

fn outcome_count(node: &OutageFixture, code: OutcomeCode) -> f64 {
    let labels = format!("code=\"{code}\",hop=\"{}\"", code.hop());
    node.metric(&format!("lanyard_node_outcomes_total{{{labels}}}")).unwrap_or_default()
}

fn failing_volumes(node: &OutageFixture, class: &str) -> f64 {
    let labels = format!("namespace=\"ns\",class=\"{class}\"");
    node.metric(&format!("lanyard_node_volumes_failing{{{labels}}}")).unwrap_or_default()
}

/// Expects that a pod that started during the outage has the sealed content, and that its status and event
/// report the start and the reason.
fn expect_served_stale(
    node: &OutageFixture,
    pod: &str,
    class: &str,
    began: Timestamp,
) -> ReportedCondition {
    assert_eq!(node.read_files(pod), content(class, 1, 1), "{pod}");
    let condition = reported_condition(node, pod, class).unwrap();
    assert_eq!(condition.outcome, "ServedStale");
    assert_eq!(condition.cause.as_deref(), Some("VaultUnavailable"));
    assert!(condition.since >= began, "{condition:?}");
    assert!(condition.since.duration_since(began) < jiff::SignedDuration::from_secs(150));
    assert!(condition.message.starts_with("could not read secret `"), "{condition:?}");
    let event = only_event(node, pod);
    assert_eq!((event.kind.as_str(), event.reason.as_str()), ("Warning", "ServedStale"));
    let since = condition.since.to_string();
    for part in [&since, "sealed cache", "VaultUnavailable", &condition.message, "hint: "] {
        assert!(event.message.contains(part), "{part}: {}", event.message);
    }
    condition
}

/// Expects that a volume that was mounted before the outage keeps its files, and that its status reports why
/// their age is unknown.
fn expect_content_kept(node: &OutageFixture, pod: &str, class: &str, began: Timestamp) {
    assert_eq!(node.read_files(pod), content(class, 1, 1), "{pod}");
    let condition = reported_condition(node, pod, class).unwrap();
    assert_eq!((condition.outcome.as_str(), condition.cause), ("VaultUnavailable", None));
    assert!(condition.since >= began && !condition.message.is_empty());
    let event = only_event(node, pod);
    assert_eq!((event.kind.as_str(), event.reason.as_str()), ("Warning", "VaultUnavailable"));
    assert!(event.message.contains(&condition.message), "{}", event.message);
}

/// Expects that a volume is healthy, and that an event reported the end of `was`.
fn expect_recovered(node: &OutageFixture, pod: &str, class: &str, was: &str) {
    assert_eq!(node.read_files(pod), content(class, 2, 1), "{pod}");
    assert_eq!(reported_condition(node, pod, class), None);
    assert_eq!(event_reasons(node, pod)[0], was);
    let events = node.api.events(pod);
    let is_end = |event: &&RecordedEvent| event.reason == "Recovered";
    let ends: Vec<_> = events.iter().filter(is_end).collect();
    assert_eq!(ends.len(), 1, "{events:?}");
    assert_eq!(ends[0].kind, "Normal");
    assert!(ends[0].message.starts_with(&format!("{was} is resolved")), "{}", ends[0].message);
}

async fn pods_start_from_the_stale_cache_during_an_hour_long_outage() {
    let node = OutageFixture::start(&classes());
    let names: Vec<_> =
        (0..STALE_CLASSES).map(stale_class_name).chain([STRICT.to_owned()]).collect();
    let running: Vec<_> = names.iter().map(|class| (format!("old-{class}"), class)).collect();
    for (pod, class) in &running {
        node.mount(pod, class).await;
        assert_eq!(reported_condition(&node, pod, class), None);
    }
    node.advance(INTERVAL * 2).await;
    let generations: Vec<_> = running.iter().map(|(pod, _)| node.generation(pod)).collect();
    assert_eq!(node.api.take_status_writes(), running.len(), "one for each and no more");

    node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Unreachable));
    // The node cannot detect the change.
    node.azure.add_secret_value(VAULT, "common", "common 2");
    let began = node.azure.clock().now();
    node.azure.clear_calls();
    let hour = 60;
    let mut conditions = Vec::new();
    for minute in 0..hour {
        // A pod starts.
        let (pod, class) = (format!("new-{minute}"), stale_class_name(minute));
        let took = node.mount(&pod, &class).await;
        assert!(took < Duration::from_secs(30), "{took:?}");
        node.advance(MINUTE).await;
        conditions.push(expect_served_stale(&node, &pod, &class, began));
    }
    let waiting = start_pods_without_stale_content(&node).await;
    for (minute, condition) in conditions.iter().enumerate() {
        let (pod, class) = (format!("new-{minute}"), stale_class_name(minute));
        // The condition is unchanged after all the probes of the vault, and was reported once.
        assert_eq!(expect_served_stale(&node, &pod, &class, began), *condition);
        assert_eq!(condition.since, conditions[0].since, "the outage has one beginning");
    }
    for ((pod, class), generation) in running.iter().zip(&generations) {
        expect_content_kept(&node, pod, class, began);
        assert_eq!(node.generation(pod), *generation, "untouched");
    }
    let writes = node.api.take_status_writes();
    assert_eq!(writes, running.len() + hour, "one for each volume and no more");
    let started = f64::from(u32::try_from(hour).unwrap());
    assert_eq!(node.metric("lanyard_node_stale_served_total"), Some(started));
    assert!((outcome_count(&node, OutcomeCode::ServedStale) - started).abs() < 0.5);
    assert!(outcome_count(&node, OutcomeCode::VaultUnavailable) > started);
    assert!(
        (failing_volumes(&node, STRICT) - 1.0).abs() < 0.5
            && failing_volumes(&node, &stale_class_name(0)) > 10.0
    );
    // The circuit breaker: one probe per minute, instead of four attempts per volume.
    assert!(node.azure.calls().len() < hour * 3, "{}", node.azure.calls().len());

    node.azure.set_failure(FakeAzureService::Vaults, None);
    node.advance(INTERVAL * 2).await;
    for (pod, class) in &running {
        expect_recovered(&node, pod, class, "VaultUnavailable");
    }
    for minute in 0..hour {
        let (pod, class) = (format!("new-{minute}"), stale_class_name(minute));
        expect_recovered(&node, &pod, &class, "ServedStale");
    }
    for class in &names {
        assert!(failing_volumes(&node, class).abs() < 0.5, "{class}");
    }
    assert!(waiting.is_finished(), "the waiting pod has started");
    expect_recovered(&node, "waiting", STRICT, "VaultUnavailable");
    assert_eq!(node.metric("lanyard_node_stale_served_total"), Some(started));
}

/// A pod of a class that did not opt in does not start, and the kubelet receives the reason. A second one
/// waits for the end of the outage.
async fn start_pods_without_stale_content(
    node: &OutageFixture,
) -> tokio::task::JoinHandle<Duration> {
    let failure = node.publish("refused", STRICT).await.unwrap_err();
    assert_eq!(failure.code, OutcomeCode::VaultUnavailable);
    let status = failure.status();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let message = status.message();
    assert!(message.starts_with("VaultUnavailable: could not publish the volume of"), "{message}");
    assert!(message.contains("; hint: ") && !message.contains("does not recover"), "{message}");
    assert_eq!(node.read_files("refused"), BTreeMap::new());
    let waiting = node.start_mount("waiting", STRICT);
    node.advance(MINUTE).await;
    for pod in ["refused", "waiting"] {
        let event = only_event(node, pod);
        assert_eq!((event.kind.as_str(), event.reason.as_str()), ("Warning", "VaultUnavailable"));
    }
    assert!(!waiting.is_finished());
    waiting
}

async fn pods_start_within_the_kubelet_timeout_while_the_vault_hangs() {
    let node = OutageFixture::start(&classes());
    for class in (0..STALE_CLASSES).map(stale_class_name) {
        node.mount(&format!("old-{class}"), &class).await;
    }
    node.advance(INTERVAL * 2).await;
    node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::NoResponse));
    let began = node.azure.clock().now();
    let mut took = Vec::new();
    for minute in 0..20 {
        let (pod, class) = (format!("new-{minute}"), stale_class_name(minute));
        took.push(node.mount(&pod, &class).await);
        assert_eq!(node.read_files(&pod), content(&class, 1, 1));
        let condition = reported_condition(&node, &pod, &class).unwrap();
        assert_eq!(condition.outcome, "ServedStale");
        assert!(condition.since >= began);
        node.advance(MINUTE).await;
    }
    // The publisher gives up after 100 s.
    assert!(took.iter().all(|took| *took < Duration::from_secs(100)), "{took:?}");
    // Once the outage is known, only the probe waits for the vault.
    let quick = took.iter().filter(|took| **took < Duration::from_secs(5)).count();
    assert!(quick >= 12, "{took:?}");

    node.azure.set_failure(FakeAzureService::Vaults, None);
    // Running requests get no answer for another minute, and their volumes poll an interval later. Volumes
    // with suppressed requests poll as soon as requests are allowed again.
    node.advance(INTERVAL * 2).await;
    for minute in 0..20 {
        assert_eq!(
            reported_condition(&node, &format!("new-{minute}"), &stale_class_name(minute)),
            None
        );
    }
    for class in (0..STALE_CLASSES).map(stale_class_name) {
        assert_eq!(reported_condition(&node, &format!("old-{class}"), &class), None);
    }
}
