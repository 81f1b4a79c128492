//! Notices: events of the pod, few.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use lanyard_cluster::ControlPlane;
use lanyard_node::{PodEvent, PodEventKind, Reporter};
use lanyard_vocabulary::OutcomeCode;
use libtest_mimic::{Failed, Trial};

use super::pod_status::{start_reporter, volume_report};
use super::trial_fixture::KubernetesTrialFixture;
use super::{KubernetesSuiteFixture, trial};
use crate::suites::expect_equal;
use crate::waiting::eventually;

pub(super) fn trials(stage: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![
        trial(stage, "events::each_transition_emits_one_pod_event", one_event_per_transition),
        trial(stage, "events::full_queue_does_not_block", full_queue_does_not_block),
    ]
}

fn pod_notice(world: &KubernetesTrialFixture, kind: PodEventKind) -> PodEvent {
    PodEvent { pod: volume_report(world, "p", "u", "v").pod, kind, message: "told".to_owned() }
}

async fn list_events(world: &KubernetesTrialFixture) -> Result<Vec<Event>, Failed> {
    Ok(world.api::<Event>().list(&ListParams::default()).await?.items)
}

async fn one_event_per_transition(world: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = world.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let reporter = start_reporter(&counted, "node");
    let failed = PodEventKind::Failed(OutcomeCode::VaultThrottled);
    for _ in 0..50 {
        reporter.emit_event(pod_notice(&world, failed));
    }
    reporter.emit_event(pod_notice(&world, PodEventKind::Recovered(OutcomeCode::VaultThrottled)));
    reporter.emit_event(pod_notice(&world, PodEventKind::MountRotationComplete));
    eventually("there are three events", async || Ok(list_events(&world).await?.len() >= 3))
        .await?;
    let mut reasons: Vec<_> =
        list_events(&world).await?.into_iter().filter_map(|it| it.reason).collect();
    reasons.sort();
    let expected = ["MountRotationComplete", "Recovered", "VaultThrottled"];
    expect_equal("reasons", reasons, expected.map(str::to_owned).to_vec())?;
    expect_equal("writes", counted.take_writes().len(), 3)?;
    let event =
        list_events(&world).await?.into_iter().find(|it| it.type_.as_deref() == Some("Warning"));
    let event = event.ok_or("there is no warning")?;
    expect_equal("the object", event.involved_object.name.as_deref(), Some("p"))?;
    expect_equal("the message", event.message.as_deref(), Some("told"))
}

async fn full_queue_does_not_block(world: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = world.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let queue = lanyard_node::PodEventQueue::start(counted.api.clone(), "node");
    world.plane.kill_api_server();
    // Nothing here waits, so the task that makes events has no turn.
    for _ in 0..1_000 {
        queue.enqueue(pod_notice(&world, PodEventKind::MountRotationComplete));
    }
    let dropped = queue.dropped_events();
    world.plane.start_api_server().await?;
    expect_equal("some were dropped", dropped > 0, true)?;
    eventually("one is told after all", async || {
        queue.enqueue(pod_notice(&world, PodEventKind::Failed(OutcomeCode::VaultForbidden)));
        Ok(!list_events(&world).await?.is_empty())
    })
    .await
}
