//! The condition and the events about the deletion of a cluster. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lanyard_api::truncate_to_second;
use lanyard_desired::deletion::DeletionStatus;
use lanyard_desired::status::{self, EventType, StatusTransition};

use crate::events::MAX_MESSAGE_CHARS;
use crate::observe::ObservedCluster;

/// Condition: whether the deletion leaves no resource behind in Azure. It is set only while a cluster is
/// being deleted.
pub(crate) const CLEANED_UP: &str = "AzureResourcesCleanedUp";

/// The condition with the blocking dependents and the orphaned resources; `None` without any.
pub(crate) fn deletion_condition(
    observed: &ObservedCluster,
    deletion_status: &DeletionStatus,
    before: Option<&Condition>,
) -> Option<Condition> {
    // From here on the pods go, and their observations add nothing.
    if let Some(previous) =
        before.filter(|it| it.reason == RESOURCES_LEFT && deletion_status.is_unblocked())
    {
        return Some(previous.clone());
    }
    let message =
        [deletion_status.message()?].into_iter().chain(deletion_status.hint()).collect::<Vec<_>>();
    let (status, reason) =
        match (deletion_status.orphaned_resources.is_empty(), deletion_status.is_unblocked()) {
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

/// The event for a changed condition. The blocking dependents change with every deleted machine, so they
/// appear only in the condition.
pub(crate) fn deletion_transition(
    deletion_status: &DeletionStatus,
    condition: &Condition,
    before: Option<&Condition>,
) -> Option<StatusTransition> {
    let leaks: String = deletion_status.orphaned_resources_message().unwrap_or_default();
    let leaks: String = leaks.chars().take(MAX_MESSAGE_CHARS).collect();
    let is_reported = before.is_some_and(|before| {
        before.reason == condition.reason && before.message.starts_with(&leaks)
    });
    let event_type =
        if condition.reason == WAITING_FOR_OTHERS { EventType::Normal } else { EventType::Warning };
    (!is_reported).then(|| StatusTransition {
        event_type,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    })
}

/// The reason if nothing blocks the deletion, but resources stay behind.
const RESOURCES_LEFT: &str = "ResourcesLeft";
/// The reason while other operators still clean up.
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

    /// The events of a deletion with these steps.
    fn deletion_events(
        observed: &ObservedCluster,
        steps: &[DeletionStatus],
    ) -> Vec<(EventType, String)> {
        let mut before = None;
        let mut events = Vec::new();
        for deletion_status in steps {
            let now = deletion_condition(observed, deletion_status, before.as_ref());
            if let Some(now) = &now {
                events.extend(deletion_transition(deletion_status, now, before.as_ref()));
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
