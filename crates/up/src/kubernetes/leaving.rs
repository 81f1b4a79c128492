//! How far the clearing away came: what is gone, what stays for others, what could not be removed.
//! Pure.
//!
//! A call that fails ends nothing: what may succeed later is tried again for as long as anybody
//! waits, and what is refused for good keeps nothing else from going.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lanyard_kubernetes::ApiError;

use super::ledger::{Certainty, Ledger, Thing};

/// What became of one thing at one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sight {
    /// It is not there, or is not of this run.
    Gone,
    /// It is there, and on its way out.
    Going,
    /// Others have put this into it.
    Stays(Vec<String>),
}

/// How far the clearing away came.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pending: BTreeMap<Thing, Pending>,
    stays: BTreeMap<Thing, Vec<String>>,
    refused: BTreeMap<Thing, ApiError>,
}

/// Something that is to go.
#[derive(Debug)]
struct Pending {
    certainty: Certainty,
    /// What failed last.
    error: Option<ApiError>,
}

impl Leaving {
    /// Nothing has gone yet.
    pub(super) fn of(ledger: &Ledger) -> Self {
        let pending = |(thing, certainty): (&Thing, &Certainty)| {
            (thing.clone(), Pending { certainty: *certainty, error: None })
        };
        Self { pending: ledger.iter().map(pending).collect(), ..Self::default() }
    }

    /// What is to be looked at now. The ground stays until the HostedCluster is gone, because the
    /// operator stands on it.
    pub(super) fn next(&self) -> Vec<Thing> {
        if self.pending.contains_key(&Thing::Cluster) {
            return vec![Thing::Cluster];
        }
        let has_cluster = self.refused.contains_key(&Thing::Cluster);
        let all = self.pending.keys();
        all.filter(|thing| !has_cluster || **thing == Thing::Node).cloned().collect()
    }

    /// Takes in what came of a look, so long after the beginning. Returns whether it makes sense to
    /// look at others now: they would not be reached either.
    pub(super) fn note(
        &mut self,
        thing: &Thing,
        sight: Result<Sight, ApiError>,
        spent: Duration,
    ) -> bool {
        let Some(pending) = self.pending.get_mut(thing) else { return true };
        match sight {
            Ok(Sight::Gone) if pending.certainty == Certainty::Asked && spent < LATE => {}
            Ok(Sight::Gone) => drop(self.pending.remove(thing)),
            Ok(Sight::Going) => {
                *pending = Pending { certainty: Certainty::Made, error: None };
            }
            Ok(Sight::Stays(others)) => {
                self.pending.remove(thing);
                self.stays.insert(thing.clone(), others);
            }
            Err(error) if may_pass(&error) => {
                let is_reached =
                    !matches!(error, ApiError::Unreached { .. } | ApiError::TimedOut { .. });
                pending.error = Some(error);
                return is_reached;
            }
            Err(error) => {
                self.pending.remove(thing);
                self.refused.insert(thing.clone(), error);
            }
        }
        true
    }

    /// What could not be removed.
    pub(super) fn left(&self) -> BTreeSet<Thing> {
        self.pending.keys().chain(self.refused.keys()).cloned().collect()
    }

    /// What stays, and what others have put into it.
    pub(super) const fn stays(&self) -> &BTreeMap<Thing, Vec<String>> {
        &self.stays
    }

    /// Why something is left: what was refused before what merely failed.
    pub(super) fn reason(&self) -> Option<&ApiError> {
        let failed = self.pending.values().filter_map(|pending| pending.error.as_ref());
        self.refused.values().chain(failed).next()
    }
}

/// Whether another try may help. A conflict says that the object is another one by now, and the next
/// look sees which.
const fn may_pass(error: &ApiError) -> bool {
    error.is_transient()
        || matches!(error, ApiError::Conflict { .. } | ApiError::Refused { status: 409, .. })
}

/// How long a creation whose answer is not known may be on its way.
const LATE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn ledger() -> Ledger {
        let things = [Thing::Cluster, Thing::Node, Thing::Namespace, definition()];
        things.into_iter().map(|thing| (thing, Certainty::Made)).collect()
    }

    fn definition() -> Thing {
        Thing::Definition("boats.example.com".to_owned())
    }

    fn refused(status: u16) -> ApiError {
        ApiError::Refused {
            action: "delete it".to_owned(),
            status,
            reason: String::new(),
            message: "no".to_owned(),
            retry_after: None,
        }
    }

    fn unreached() -> ApiError {
        ApiError::Unreached { action: "read it".to_owned(), problem: "refused".to_owned() }
    }

    #[test]
    fn the_ground_is_looked_at_when_the_cluster_is_gone() {
        let mut leaving = Leaving::of(&ledger());
        assert_eq!(leaving.next(), [Thing::Cluster]);
        leaving.note(&Thing::Cluster, Ok(Sight::Going), NOW);
        assert_eq!(leaving.next(), [Thing::Cluster]);
        leaving.note(&Thing::Cluster, Ok(Sight::Gone), NOW);
        assert_eq!(leaving.next(), [Thing::Node, Thing::Namespace, definition()]);
        for thing in leaving.next() {
            leaving.note(&thing, Ok(Sight::Gone), NOW);
        }
        assert!(leaving.next().is_empty() && leaving.left().is_empty());
    }

    #[test]
    fn a_failure_that_may_pass_is_looked_at_again_and_any_other_keeps_nothing_else() {
        for (error, passes, others_are_reached) in [
            (refused(503), true, true),
            (refused(409), true, true),
            (refused(429), true, true),
            (unreached(), true, false),
            (refused(403), false, true),
            (refused(422), false, true),
        ] {
            let mut leaving = Leaving::of(&ledger());
            leaving.note(&Thing::Cluster, Ok(Sight::Gone), NOW);
            let go_on = leaving.note(&Thing::Node, Err(error.clone()), NOW);
            assert_eq!(go_on, others_are_reached, "{error}");
            assert_eq!(leaving.next().contains(&Thing::Node), passes, "{error}");
            assert_eq!(leaving.reason(), Some(&error));
            leaving.note(&Thing::Namespace, Ok(Sight::Gone), NOW);
            leaving.note(&definition(), Ok(Sight::Gone), NOW);
            assert_eq!(leaving.left(), BTreeSet::from([Thing::Node]), "{error}");
        }
    }

    #[test]
    fn a_cluster_that_nobody_may_delete_keeps_its_ground_and_not_the_node() {
        let mut leaving = Leaving::of(&ledger());
        leaving.note(&Thing::Cluster, Err(refused(403)), NOW);
        assert_eq!(leaving.next(), [Thing::Node]);
        leaving.note(&Thing::Node, Ok(Sight::Gone), NOW);
        assert!(leaving.next().is_empty());
        let expected = BTreeSet::from([Thing::Cluster, Thing::Namespace, definition()]);
        assert_eq!(leaving.left(), expected);
    }

    #[test]
    fn what_was_asked_for_without_an_answer_may_still_come() {
        let mut leaving = Leaving::of(&Ledger::from([(Thing::Node, Certainty::Asked)]));
        leaving.note(&Thing::Node, Ok(Sight::Gone), NOW);
        assert_eq!(leaving.next(), [Thing::Node], "it may be on its way");
        leaving.note(&Thing::Node, Ok(Sight::Gone), LATE);
        assert!(leaving.next().is_empty());
        // One that came has come.
        let mut leaving = Leaving::of(&Ledger::from([(Thing::Node, Certainty::Asked)]));
        leaving.note(&Thing::Node, Ok(Sight::Going), NOW);
        leaving.note(&Thing::Node, Ok(Sight::Gone), NOW);
        assert!(leaving.next().is_empty());
    }

    #[test]
    fn what_others_use_stays_and_is_not_left_behind() {
        let mut leaving = Leaving::of(&ledger());
        leaving.note(&Thing::Cluster, Ok(Sight::Gone), NOW);
        let others = vec!["secrets/pull".to_owned()];
        leaving.note(&Thing::Namespace, Ok(Sight::Stays(others.clone())), NOW);
        assert_eq!(leaving.stays().get(&Thing::Namespace), Some(&others));
        assert_eq!(leaving.next(), [Thing::Node, definition()]);
        assert!(!leaving.left().contains(&Thing::Namespace));
    }
}
