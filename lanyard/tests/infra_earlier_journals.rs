//! Tests in virtual time that runs which an earlier release began are continued, rolled back and destroyed.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "infra/cluster_fixture.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod cluster_fixture;
#[path = "support/cluster_resources.rs"]
mod cluster_resources;
#[path = "infra/earlier_journal.rs"]
mod earlier_journal;
#[path = "infra/earlier_run.rs"]
mod earlier_run;
#[path = "infra/request_cutter.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod request_cutter;
#[path = "support/virtual_time_azure.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod virtual_time_azure;

use lanyard_changes::NothingToRollBack;

use crate::earlier_journal::EarlierJournal;
use crate::earlier_run::{EarlierRun, UnknownWrites};
use crate::virtual_time_azure::run_in_virtual_time;

macro_rules! journal {
    ($name:literal) => {
        include_str!(concat!("fixtures/journals-4de0aadc/", $name, ".jsonl"))
    };
}

/// Journals of runs that created the cluster, the last one with a part of their roll-back, and what Azure can have
/// done with the writes of each.
const CREATIONS: [(&str, [UnknownWrites; 2]); 4] = [
    (ANNOUNCEMENTS, [UnknownWrites::Lost, UnknownWrites::Done]),
    (journal!("creation-with-pending-operations"), [UnknownWrites::Done, UnknownWrites::Forgotten]),
    (journal!("creation-within-role-assignments"), [UnknownWrites::Lost, UnknownWrites::Done]),
    (journal!("interrupted-roll-back"), [UnknownWrites::Lost, UnknownWrites::Done]),
];
const ANNOUNCEMENTS: &str = journal!("creation-without-replies");

/// What today's program does with the run of the earlier release.
#[derive(Debug, Clone, Copy)]
enum Action {
    Continue,
    RollBack,
    Destroy,
}

const ACTIONS: [Action; 3] = [Action::Continue, Action::RollBack, Action::Destroy];

#[test]
fn completed_creation_is_unchanged_and_destroyed() {
    run_in_virtual_time(async {
        let mut run = EarlierRun::start().await;
        run.restore(&EarlierJournal::new(journal!("complete-creation")), UnknownWrites::Done).await;
        assert_eq!(run.cluster.plan().await.writes().count(), 0);
        let error = run.cluster.roll_back().await.unwrap_err();
        assert_eq!(error, NothingToRollBack::NoInterruptedRun);
        run.continue_run(&run.complete, "complete").await;
        run.destroy("complete").await;
        run.shutdown().await;
    });
}

#[test]
fn interrupted_creation_is_continued() {
    run_in_virtual_time(finish_creations(Action::Continue));
}

#[test]
fn interrupted_creation_is_rolled_back() {
    run_in_virtual_time(finish_creations(Action::RollBack));
}

#[test]
fn interrupted_creation_is_destroyed() {
    run_in_virtual_time(finish_creations(Action::Destroy));
}

async fn finish_creations(action: Action) {
    let mut run = EarlierRun::start().await;
    for (number, (journal, writes)) in CREATIONS.into_iter().enumerate() {
        for unknown in writes {
            let context = format!("{number} {unknown:?}");
            run.restore(&EarlierJournal::new(journal), unknown).await;
            match action {
                Action::Continue => run.continue_run(&run.complete, &context).await,
                Action::RollBack => run.roll_back(&run.before, &context).await,
                Action::Destroy => {}
            }
            run.destroy(&context).await;
        }
    }
    run.shutdown().await;
}

#[test]
fn interrupted_repair_is_continued_rolled_back_and_destroyed() {
    run_in_virtual_time(async {
        let journal = EarlierJournal::new(journal!("repair"));
        let mut run = EarlierRun::start().await;
        for unknown in [UnknownWrites::Done, UnknownWrites::Forgotten] {
            for action in ACTIONS {
                let context = format!("{unknown:?} {action:?}");
                let earlier = run.restore_repair(&journal, unknown).await;
                match action {
                    Action::Continue => run.continue_run(&run.complete, &context).await,
                    Action::RollBack => run.roll_back_to(earlier, None, &context).await,
                    Action::Destroy => {}
                }
                run.destroy(&context).await;
            }
        }
        run.shutdown().await;
    });
}

#[test]
fn interrupted_replacement_and_removal_are_continued_rolled_back_and_destroyed() {
    run_in_virtual_time(async {
        let journal = EarlierJournal::new(journal!("replacement-and-removal"));
        let mut run = EarlierRun::start().await;
        for unknown in [UnknownWrites::Lost, UnknownWrites::Done, UnknownWrites::Forgotten] {
            for action in ACTIONS {
                let context = format!("{unknown:?} {action:?}");
                let earlier = run.restore_replacement(&journal, unknown).await;
                match action {
                    Action::Continue => {
                        run.continue_run(&run.ids_without_removed(), &context).await;
                    }
                    Action::RollBack => {
                        run.roll_back_to(earlier, Some("load-balancer"), &context).await;
                    }
                    Action::Destroy => {}
                }
                run.destroy(&context).await;
            }
        }
        run.shutdown().await;
    });
}

#[test]
fn interrupted_destroy_is_repeated_and_reverted_by_a_creation() {
    run_in_virtual_time(async {
        let journal = EarlierJournal::new(journal!("interrupted-destroy"));
        let mut run = EarlierRun::start().await;
        for unknown in [UnknownWrites::Lost, UnknownWrites::Done] {
            for action in ACTIONS {
                let context = format!("{unknown:?} {action:?}");
                run.restore(&journal, unknown).await;
                match action {
                    Action::Continue => run.continue_run(&run.complete, &context).await,
                    Action::RollBack => {
                        let error = run.cluster.roll_back().await.unwrap_err();
                        assert_eq!(error, NothingToRollBack::InterruptedDestroy);
                    }
                    Action::Destroy => {}
                }
                run.destroy(&context).await;
            }
        }
        run.shutdown().await;
    });
}

#[test]
fn resource_of_another_client_with_an_announced_name_stays() {
    run_in_virtual_time(async {
        const GROUP: &str = "group/nsg";
        let mut run = EarlierRun::start().await;
        for action in [Action::RollBack, Action::Destroy] {
            let context = format!("{action:?}");
            run.restore(&EarlierJournal::new(ANNOUNCEMENTS), UnknownWrites::Lost).await;
            let body = serde_json::json!({ "location": "eastus", "tags": { "team": "other" } });
            run.cluster.start_write(GROUP, Some(body)).await;
            let (ids, live) = (run.cluster.resource_ids().await, run.cluster.live(GROUP).await);
            assert_eq!(ids.len(), run.before.len() + 1);
            let report = match action {
                Action::RollBack => run.cluster.roll_back().await.unwrap(),
                _ => run.cluster.destroy().await,
            };
            assert!(report.succeeded(), "{context}: {:?}", report.outcomes);
            assert_eq!(run.cluster.resource_ids().await, ids, "{context}");
            assert_eq!(run.cluster.live(GROUP).await, live, "{context}");
            run.cluster.start_write(GROUP, None).await;
            run.destroy(&context).await;
        }
        run.shutdown().await;
    });
}
