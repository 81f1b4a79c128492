//! What is told of the end of a cluster: its condition, and what of it is news. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lanyard_api::truncate_to_second;
use lanyard_desired::deletion::DeletionStatus;
use lanyard_desired::status::{self, EventType, StatusTransition};

use crate::observe::ObservedCluster;
use crate::status::MAX_MESSAGE_CHARS;

/// Whether the end of a cluster leaves nothing behind in Azure. It is told while a cluster is being
/// deleted, and only then.
pub(crate) const CLEANED_UP: &str = "AzureResourcesCleanedUp";

/// What the end of a cluster waits for and leaves behind; nothing where there is nothing to tell.
pub(crate) fn deletion_condition(
    observed: &ObservedCluster,
    parting: &DeletionStatus,
    before: Option<&Condition>,
) -> Option<Condition> {
    // From here on pods go and know no more than they knew.
    if let Some(told) = before.filter(|it| it.reason == RESOURCES_LEFT && parting.is_unblocked()) {
        return Some(told.clone());
    }
    let message = [parting.message()?].into_iter().chain(parting.hint()).collect::<Vec<_>>();
    let (status, reason) = match (parting.orphaned_resources.is_empty(), parting.is_unblocked()) {
        (false, false) => (status::CONDITION_FALSE, "IdentitiesBroken"),
        (false, true) => (status::CONDITION_FALSE, RESOURCES_LEFT),
        (true, false) => (status::CONDITION_UNKNOWN, WAITING_FOR_OTHERS),
        (true, true) => return None,
    };
    let unchanged = before.filter(|it| it.status == status);
    let changed = Time(truncate_to_second(observed.now));
    Some(Condition {
        type_: CLEANED_UP.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.join("; next: ").chars().take(MAX_MESSAGE_CHARS).collect(),
        observed_generation: observed.cluster.generation,
        last_transition_time: unchanged.map_or(changed, |it| it.last_transition_time.clone()),
    })
}

/// The event about a condition that was told otherwise before. Who is waited for changes with every
/// machine that goes, and is in the condition only.
pub(crate) fn deletion_transition(
    parting: &DeletionStatus,
    told: &Condition,
    before: Option<&Condition>,
) -> Option<StatusTransition> {
    let leaks: String = parting.orphaned_resources_message().unwrap_or_default();
    let leaks: String = leaks.chars().take(MAX_MESSAGE_CHARS).collect();
    let is_told = before
        .is_some_and(|before| before.reason == told.reason && before.message.starts_with(&leaks));
    let event_type =
        if told.reason == WAITING_FOR_OTHERS { EventType::Normal } else { EventType::Warning };
    (!is_told).then(|| StatusTransition {
        event_type,
        reason: told.reason.clone(),
        message: told.message.clone(),
    })
}

/// The reason of a cluster that waits for nobody any more.
const RESOURCES_LEFT: &str = "ResourcesLeft";
/// The reason of a cluster that others have yet to clean up.
const WAITING_FOR_OTHERS: &str = "WaitingForOthers";

#[cfg(test)]
mod tests {
    use lanyard_desired::deletion::{Dependent, DependentKind, OrphanedResources};
    use lanyard_vocabulary::Component;

    use super::*;

    fn azure_machines(count: usize) -> Vec<Dependent> {
        let guest =
            |number| Dependent { kind: DependentKind::AzureMachine, name: format!("m{number}") };
        (0..count).map(guest).collect()
    }

    fn leaked_resources(component: Component) -> OrphanedResources {
        let reason = "AADSTS700027".to_owned();
        OrphanedResources { component, reason, resources: "disks", place: "a group".to_owned() }
    }

    /// What an end that goes through these steps tells: a condition each, and events.
    fn deletion_events(
        observed: &ObservedCluster,
        steps: &[DeletionStatus],
    ) -> Vec<(EventType, String)> {
        let mut before = None;
        let mut events = Vec::new();
        for parting in steps {
            let now = deletion_condition(observed, parting, before.as_ref());
            if let Some(now) = &now {
                events.extend(deletion_transition(parting, now, before.as_ref()));
            }
            before = now;
        }
        events.into_iter().map(|it| (it.event_type, it.reason)).collect()
    }

    #[test]
    fn waiting_for_machines_emits_one_event() {
        let steps: Vec<_> = (1..=300)
            .rev()
            .map(|left| DeletionStatus {
                blocking_dependents: azure_machines(left),
                ..DeletionStatus::default()
            })
            .collect();
        let observed = ObservedCluster::from_example(|_| ());
        assert_eq!(
            deletion_events(&observed, &steps),
            [(EventType::Normal, WAITING_FOR_OTHERS.to_owned())]
        );
    }

    #[test]
    fn each_broken_identity_during_deletion_emits_event() {
        let with = |left, leaks: &[Component]| DeletionStatus {
            blocking_dependents: azure_machines(left),
            orphaned_resources: leaks.iter().copied().map(leaked_resources).collect(),
            ..DeletionStatus::default()
        };
        let (disk, file) = (Component::Disk, Component::File);
        let steps = [
            with(9, &[]),
            with(8, &[disk]),
            with(7, &[disk]),
            with(6, &[disk, file]),
            with(5, &[disk, file]),
            with(0, &[disk, file]),
            with(0, &[]),
        ];
        let warned = |reason: &str| (EventType::Warning, reason.to_owned());
        let expected = [
            (EventType::Normal, WAITING_FOR_OTHERS.to_owned()),
            warned("IdentitiesBroken"),
            warned("IdentitiesBroken"),
            warned(RESOURCES_LEFT),
        ];
        assert_eq!(deletion_events(&ObservedCluster::from_example(|_| ()), &steps), expected);
    }
}
