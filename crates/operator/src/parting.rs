//! What is told of the end of a cluster: its condition, and what of it is news. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lanyard_api::whole_second;
use lanyard_desired::deletion::Parting;
use lanyard_desired::status::{self, EventType, Transition};

use crate::observe::Observed;
use crate::status::MOST_MESSAGE;

/// Whether the end of a cluster leaves nothing behind in Azure. It is told while a cluster is being
/// deleted, and only then.
pub(crate) const CLEANED_UP: &str = "AzureResourcesCleanedUp";

/// What the end of a cluster waits for and leaves behind; nothing where there is nothing to tell.
pub(crate) fn condition(
    observed: &Observed,
    parting: &Parting,
    before: Option<&Condition>,
) -> Option<Condition> {
    // From here on pods go and know no more than they knew.
    if let Some(told) = before.filter(|it| it.reason == RESOURCES_LEFT && parting.may_go()) {
        return Some(told.clone());
    }
    let message = [parting.message()?].into_iter().chain(parting.hint()).collect::<Vec<_>>();
    let (status, reason) = match (parting.leaks.is_empty(), parting.may_go()) {
        (false, false) => (status::FALSE, "IdentitiesBroken"),
        (false, true) => (status::FALSE, RESOURCES_LEFT),
        (true, false) => (status::UNKNOWN, WAITING),
        (true, true) => return None,
    };
    let unchanged = before.filter(|it| it.status == status);
    let changed = Time(whole_second(observed.now));
    Some(Condition {
        type_: CLEANED_UP.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.join("; next: ").chars().take(MOST_MESSAGE).collect(),
        observed_generation: observed.cluster.generation,
        last_transition_time: unchanged.map_or(changed, |it| it.last_transition_time.clone()),
    })
}

/// The event about a condition that was told otherwise before. Who is waited for changes with every
/// machine that goes, and is in the condition only.
pub(crate) fn news(
    parting: &Parting,
    told: &Condition,
    before: Option<&Condition>,
) -> Option<Transition> {
    let leaks: String = parting.leak_message().unwrap_or_default();
    let leaks: String = leaks.chars().take(MOST_MESSAGE).collect();
    let is_told = before
        .is_some_and(|before| before.reason == told.reason && before.message.starts_with(&leaks));
    let event_type = if told.reason == WAITING { EventType::Normal } else { EventType::Warning };
    (!is_told).then(|| Transition {
        event_type,
        reason: told.reason.clone(),
        message: told.message.clone(),
    })
}

/// The reason of a cluster that waits for nobody any more.
const RESOURCES_LEFT: &str = "ResourcesLeft";
/// The reason of a cluster that others have yet to clean up.
const WAITING: &str = "WaitingForOthers";

#[cfg(test)]
mod tests {
    use lanyard_desired::deletion::{Guest, GuestKind, Leak};
    use lanyard_vocabulary::Component;

    use super::*;

    fn machines(count: usize) -> Vec<Guest> {
        let guest = |number| Guest { kind: GuestKind::AzureMachine, name: format!("m{number}") };
        (0..count).map(guest).collect()
    }

    fn leak(component: Component) -> Leak {
        let reason = "AADSTS700027".to_owned();
        Leak { component, reason, resources: "disks", place: "a group".to_owned() }
    }

    /// What an end that goes through these steps tells: a condition each, and events.
    fn told(observed: &Observed, steps: &[Parting]) -> Vec<(EventType, String)> {
        let mut before = None;
        let mut events = Vec::new();
        for parting in steps {
            let now = condition(observed, parting, before.as_ref());
            if let Some(now) = &now {
                events.extend(news(parting, now, before.as_ref()));
            }
            before = now;
        }
        events.into_iter().map(|it| (it.event_type, it.reason)).collect()
    }

    #[test]
    fn machines_that_go_one_by_one_are_one_event() {
        let steps: Vec<_> = (1..=300)
            .rev()
            .map(|left| Parting { waits_for: machines(left), ..Parting::default() })
            .collect();
        let observed = Observed::of_example(|_| ());
        assert_eq!(told(&observed, &steps), [(EventType::Normal, WAITING.to_owned())]);
    }

    #[test]
    fn each_identity_that_breaks_while_others_are_waited_for_is_an_event() {
        let with = |left, leaks: &[Component]| Parting {
            waits_for: machines(left),
            leaks: leaks.iter().copied().map(leak).collect(),
            ..Parting::default()
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
            (EventType::Normal, WAITING.to_owned()),
            warned("IdentitiesBroken"),
            warned("IdentitiesBroken"),
            warned(RESOURCES_LEFT),
        ];
        assert_eq!(told(&Observed::of_example(|_| ()), &steps), expected);
    }
}
