//! Notices: events of the pod, few.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use lanyard_cluster::ControlPlane;
use lanyard_node::{Notice, NoticeKind, Reporter};
use lanyard_vocabulary::OutcomeCode;
use libtest_mimic::{Failed, Trial};

use super::reports::{report, reporter};
use super::world::World;
use super::{Stage, trial};
use crate::suites::expect_same;
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "events::a_transition_is_one_event_of_the_pod", once),
        trial(stage, "events::a_queue_that_is_full_keeps_nobody_waiting", full),
    ]
}

fn notice(world: &World, kind: NoticeKind) -> Notice {
    Notice { pod: report(world, "p", "u", "v").pod, kind, message: "told".to_owned() }
}

async fn events(world: &World) -> Result<Vec<Event>, Failed> {
    Ok(world.api::<Event>().list(&ListParams::default()).await?.items)
}

async fn once(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let reporter = reporter(&counted, "node");
    let failed = NoticeKind::Failed(OutcomeCode::VaultThrottled);
    for _ in 0..50 {
        reporter.tell(notice(&world, failed));
    }
    reporter.tell(notice(&world, NoticeKind::Recovered(OutcomeCode::VaultThrottled)));
    reporter.tell(notice(&world, NoticeKind::MountRotationComplete));
    eventually("there are three events", async || Ok(events(&world).await?.len() >= 3)).await?;
    let mut reasons: Vec<_> =
        events(&world).await?.into_iter().filter_map(|it| it.reason).collect();
    reasons.sort();
    let expected = ["MountRotationComplete", "Recovered", "VaultThrottled"];
    expect_same("reasons", reasons, expected.map(str::to_owned).to_vec())?;
    expect_same("writes", counted.take_writes().len(), 3)?;
    let event = events(&world).await?.into_iter().find(|it| it.type_.as_deref() == Some("Warning"));
    let event = event.ok_or("there is no warning")?;
    expect_same("the object", event.involved_object.name.as_deref(), Some("p"))?;
    expect_same("the message", event.message.as_deref(), Some("told"))
}

async fn full(world: World) -> Result<(), Failed> {
    let counted = world.counted(ControlPlane::ADMINISTRATOR).await?;
    let queue = lanyard_node::EventQueue::start(counted.api.clone(), "node");
    world.plane.kill_server();
    // Nothing here waits, so the task that makes events has no turn.
    for _ in 0..1_000 {
        queue.tell(notice(&world, NoticeKind::MountRotationComplete));
    }
    let dropped = queue.dropped();
    world.plane.start_server().await?;
    expect_same("some were dropped", dropped > 0, true)?;
    eventually("one is told after all", async || {
        queue.tell(notice(&world, NoticeKind::Failed(OutcomeCode::VaultForbidden)));
        Ok(!events(&world).await?.is_empty())
    })
    .await
}
