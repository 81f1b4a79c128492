//! Trials of pod events.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use lanyard_cluster::ControlPlane;
use lanyard_node::{PodEvent, PodEventKind, Reporter};
use lanyard_vocabulary::OutcomeCode;
use libtest_mimic::{Failed, Trial};

use super::pod_status::{start_reporter, status_update};
use super::trial_fixture::KubernetesTrialFixture;
use super::{KubernetesSuiteFixture, trial};
use crate::suites::expect_equal;
use crate::waiting::eventually;

pub(super) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![
        trial(suite, "events::each_transition_emits_one_pod_event", one_event_per_transition),
        trial(suite, "events::full_queue_does_not_block", full_queue_does_not_block),
    ]
}

fn pod_notice(fixture: &KubernetesTrialFixture, kind: PodEventKind) -> PodEvent {
    PodEvent { pod: status_update(fixture, "p", "u", "v").pod, kind, message: "example".to_owned() }
}

async fn list_events(fixture: &KubernetesTrialFixture) -> Result<Vec<Event>, Failed> {
    Ok(fixture.api::<Event>().list(&ListParams::default()).await?.items)
}

async fn one_event_per_transition(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let reporter = start_reporter(&counted, "node");
    let failed = PodEventKind::Failed(OutcomeCode::VaultThrottled);
    for _ in 0..50 {
        reporter.emit_event(pod_notice(&fixture, failed));
    }
    reporter.emit_event(pod_notice(&fixture, PodEventKind::Recovered(OutcomeCode::VaultThrottled)));
    reporter.emit_event(pod_notice(&fixture, PodEventKind::MountRotationComplete));
    eventually("there are three events", async || Ok(list_events(&fixture).await?.len() >= 3))
        .await?;
    let mut reasons: Vec<_> =
        list_events(&fixture).await?.into_iter().filter_map(|it| it.reason).collect();
    reasons.sort();
    let expected = ["MountRotationComplete", "Recovered", "VaultThrottled"];
    expect_equal("reasons", reasons, expected.map(str::to_owned).to_vec())?;
    expect_equal("writes", counted.take_writes().len(), 3)?;
    let event =
        list_events(&fixture).await?.into_iter().find(|it| it.type_.as_deref() == Some("Warning"));
    let event = event.ok_or("there is no warning")?;
    expect_equal("the object", event.involved_object.name.as_deref(), Some("p"))?;
    expect_equal("the message", event.message.as_deref(), Some("example"))
}

async fn full_queue_does_not_block(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let queue = lanyard_node::PodEventQueue::start(counted.api.clone(), "node");
    fixture.plane.kill_api_server();
    // Nothing in this loop awaits, so the task that creates events does not run.
    for _ in 0..1_000 {
        queue.enqueue(pod_notice(&fixture, PodEventKind::MountRotationComplete));
    }
    let dropped = queue.dropped_events();
    fixture.plane.start_api_server().await?;
    expect_equal("some were dropped", dropped > 0, true)?;
    eventually("an event is created after the outage", async || {
        queue.enqueue(pod_notice(&fixture, PodEventKind::Failed(OutcomeCode::VaultForbidden)));
        Ok(!list_events(&fixture).await?.is_empty())
    })
    .await
}
