//! Who leads which shard. Pure.
//!
//! A lease is free when nobody holds it, and when its record has not changed for as long as it
//! lasts: what counts is the time since *this* process saw the last change, so clocks of machines
//! are never compared. A holder counts its own time from before it asked for the renewal, so it
//! stops before anybody else may begin.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a Lease says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    /// `holderIdentity`; nothing where it was released.
    pub(crate) holder: Option<String>,
    /// `leaseDurationSeconds`.
    pub(crate) duration: Duration,
    /// `metadata.resourceVersion`: every renewal has another one.
    pub(crate) version: String,
}

/// A record, and when this process saw it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedLease {
    pub(crate) record: LeaseRecord,
    first_observed: Duration,
}

/// What this process saw of all leases.
#[derive(Debug, Default)]
pub(crate) struct ObservedLeases(BTreeMap<String, ObservedLease>);

/// What to do about the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeaseAction {
    /// It is ours: say that we are still there.
    Renew(u32),
    /// It is ours and another replica has too little: stop writing, then let it go.
    Release(u32),
    /// It is nobody's: try to take it.
    Acquire(u32),
}

/// What the decision is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElectionInputs<'a> {
    /// Our identity.
    pub(crate) identity: &'a str,
    /// How many shards there are.
    pub(crate) shards: u32,
    /// How many replicas live, with this one.
    pub(crate) replicas: u32,
    /// Whether replicas that divide the clusters into another number of shards hold some.
    pub(crate) is_resharding: bool,
    /// The time on this process' clock.
    pub(crate) now: Duration,
}

impl ObservedLeases {
    /// Takes in what all leases say now.
    pub(crate) fn observe_all(&mut self, records: BTreeMap<String, LeaseRecord>, now: Duration) {
        let before = std::mem::take(&mut self.0);
        let kept = |name: &String, record: &LeaseRecord| {
            before.get(name).filter(|it| it.record == *record).map(|it| it.first_observed)
        };
        let sighting = |(name, record): (String, LeaseRecord)| {
            let seen = kept(&name, &record).unwrap_or(now);
            (name, ObservedLease { record, first_observed: seen })
        };
        self.0 = records.into_iter().map(sighting).collect();
    }

    /// Takes in what one lease says, as the answer to a write told it.
    pub(crate) fn observe(&mut self, name: String, record: LeaseRecord, now: Duration) {
        self.0.insert(name, ObservedLease { record, first_observed: now });
    }

    /// The last look at one lease.
    pub(crate) fn latest_record(&self, name: &str) -> Option<&LeaseRecord> {
        self.0.get(name).map(|it| &it.record)
    }

    /// Who holds a lease, as far as can be told.
    fn current_holder(&self, name: &str, now: Duration) -> Option<&str> {
        let sighting = self.0.get(name)?;
        let lasts = now.saturating_sub(sighting.first_observed) <= sighting.record.duration;
        sighting.record.holder.as_deref().filter(|_| lasts)
    }

    /// The leases of these names that somebody holds.
    pub(crate) fn held_leases(&self, prefix: &str, now: Duration) -> Vec<&str> {
        let named = self.0.keys().filter(|name| name.starts_with(prefix));
        named.map(String::as_str).filter(|name| self.current_holder(name, now).is_some()).collect()
    }

    /// The leases of these names that nobody has held for this long.
    pub(crate) fn abandoned_leases(
        &self,
        prefix: &str,
        after: Duration,
        now: Duration,
    ) -> Vec<String> {
        let named = self.0.iter().filter(|(name, _)| name.starts_with(prefix));
        let is_old =
            |it: &ObservedLease| now.saturating_sub(it.first_observed) > it.record.duration + after;
        named.filter(|(_, it)| is_old(it)).map(|(name, _)| name.clone()).collect()
    }
}

/// What to do. Each replica has its share and no more, as long as the others live. Where clusters are
/// divided otherwise, too, a free shard may have a cluster in it that is led: nothing is taken.
pub(crate) fn plan_lease_actions(
    sightings: &ObservedLeases,
    lease_of: impl Fn(u32) -> String,
    situation: ElectionInputs<'_>,
) -> Vec<LeaseAction> {
    let ElectionInputs { identity: me, shards, replicas, is_resharding: has_rivals, now } =
        situation;
    let share = shards.div_ceil(replicas.max(1));
    let (mut acts, mut held) = (Vec::new(), 0);
    let holder = |shard: u32| sightings.current_holder(&lease_of(shard), now);
    for shard in (0..shards).filter(|shard| holder(*shard) == Some(me)) {
        held += 1;
        acts.push(if held > share {
            LeaseAction::Release(shard)
        } else {
            LeaseAction::Renew(shard)
        });
    }
    let free = (0..shards).filter(|shard| !has_rivals && holder(*shard).is_none());
    let room = usize::try_from(share.saturating_sub(held)).unwrap_or_default();
    acts.extend(free.take(room).map(LeaseAction::Acquire));
    acts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LEASE_DURATION: Duration = Duration::from_secs(15);

    fn shard_lease_name(shard: u32) -> String {
        format!("shard-{shard}")
    }

    fn lease_record(holder: Option<&str>, version: u32) -> LeaseRecord {
        let holder = holder.map(str::to_owned);
        LeaseRecord { holder, duration: LEASE_DURATION, version: version.to_string() }
    }

    fn observed_leases(holders: &[Option<&str>], now: Duration) -> ObservedLeases {
        let mut sightings = ObservedLeases::default();
        let records = (0..)
            .zip(holders)
            .map(|(shard, holder)| (shard_lease_name(shard), lease_record(*holder, 1)));
        sightings.observe_all(records.collect(), now);
        sightings
    }

    fn planned_actions(holders: &[Option<&str>], replicas: u32) -> Vec<LeaseAction> {
        let shards = u32::try_from(holders.len()).unwrap();
        let situation =
            ElectionInputs { identity: "me", shards, replicas, is_resharding: false, now: SECOND };
        plan_lease_actions(&observed_leases(holders, SECOND), shard_lease_name, situation)
    }

    #[test]
    fn replicas_share_shards_evenly() {
        assert_eq!(
            planned_actions(&[None, None], 1),
            [LeaseAction::Acquire(0), LeaseAction::Acquire(1)]
        );
        assert_eq!(
            planned_actions(&[Some("me"), Some("me")], 1),
            [LeaseAction::Renew(0), LeaseAction::Renew(1)]
        );
        assert_eq!(
            planned_actions(&[Some("me"), Some("me")], 2),
            [LeaseAction::Renew(0), LeaseAction::Release(1)]
        );
        assert_eq!(planned_actions(&[Some("me"), None], 2), [LeaseAction::Renew(0)]);
        assert_eq!(planned_actions(&[Some("other"), None], 2), [LeaseAction::Acquire(1)]);
        assert_eq!(
            planned_actions(&[Some("me"), None, None], 2),
            [LeaseAction::Renew(0), LeaseAction::Acquire(1)]
        );
        assert_eq!(planned_actions(&[Some("other")], 2), []);
    }

    #[test]
    fn no_shard_is_acquired_while_resharding() {
        let sightings = observed_leases(&[Some("me"), None, Some("me")], SECOND);
        let decide = |replicas, has_rivals| {
            let situation = ElectionInputs {
                identity: "me",
                shards: 3,
                replicas,
                is_resharding: has_rivals,
                now: SECOND,
            };
            plan_lease_actions(&sightings, shard_lease_name, situation)
        };
        let renewed = [LeaseAction::Renew(0), LeaseAction::Renew(2)];
        assert_eq!(decide(1, true), renewed);
        assert_eq!(decide(3, true), [LeaseAction::Renew(0), LeaseAction::Release(2)]);
        assert_eq!(decide(1, false), [&renewed[..], &[LeaseAction::Acquire(1)]].concat());
    }

    #[test]
    fn unrenewed_lease_is_free_after_full_duration() {
        let mut sightings = observed_leases(&[Some("other")], SECOND);
        let decide = |sightings: &ObservedLeases, now| {
            let situation = ElectionInputs {
                identity: "me",
                shards: 1,
                replicas: 1,
                is_resharding: false,
                now,
            };
            plan_lease_actions(sightings, shard_lease_name, situation)
        };
        assert_eq!(decide(&sightings, SECOND + LEASE_DURATION), []);
        assert_eq!(decide(&sightings, SECOND + LEASE_DURATION + SECOND), [LeaseAction::Acquire(0)]);
        // A renewal begins the time anew.
        let renewed = BTreeMap::from([(shard_lease_name(0), lease_record(Some("other"), 2))]);
        sightings.observe_all(renewed.clone(), 10 * SECOND);
        sightings.observe_all(renewed, 20 * SECOND);
        assert_eq!(decide(&sightings, 25 * SECOND), []);
        assert_eq!(decide(&sightings, 26 * SECOND), [LeaseAction::Acquire(0)]);
    }

    #[test]
    fn leases_of_gone_replicas_expire_then_are_abandoned() {
        let sightings = observed_leases(&[Some("a"), Some("b"), None], SECOND);
        assert_eq!(sightings.held_leases("shard-", SECOND).len(), 2);
        assert_eq!(sightings.held_leases("shard-", SECOND + LEASE_DURATION + SECOND).len(), 0);
        let hour = Duration::from_hours(1);
        assert!(
            sightings.abandoned_leases("shard-", hour, SECOND + LEASE_DURATION + SECOND).is_empty()
        );
        assert_eq!(sightings.abandoned_leases("shard-", hour, 2 * hour).len(), 3);
    }

    proptest! {
        /// Replicas that look one after the other, each at what is really there, come to rest with
        /// every shard held once and nobody holding more than a share.
        #[test]
        fn replicas_converge_with_every_shard_held(shards in 1..9_u32, replicas in 1..5_u32) {
            let mut holders: Vec<Option<String>> = vec![None; usize::try_from(shards).unwrap()];
            let mut changed = true;
            let mut rounds = 0;
            while changed {
                changed = false;
                rounds += 1;
                prop_assert!(rounds < 10);
                for replica in 0..replicas {
                    let me = format!("r{replica}");
                    let shown: Vec<_> = holders.iter().map(Option::as_deref).collect();
                    let sightings = observed_leases(&shown, SECOND);
                    let situation =
                        ElectionInputs { identity: &me, shards, replicas, is_resharding: false, now: SECOND };
                    for act in plan_lease_actions(&sightings, shard_lease_name, situation) {
                        let (shard, holder) = match act {
                            LeaseAction::Renew(_) => continue,
                            LeaseAction::Release(shard) => (shard, None),
                            LeaseAction::Acquire(shard) => (shard, Some(me.clone())),
                        };
                        holders[usize::try_from(shard).unwrap()] = holder;
                        changed = true;
                    }
                }
            }
            prop_assert!(holders.iter().all(Option::is_some));
            for replica in 0..replicas {
                let me = format!("r{replica}");
                let held = holders.iter().filter(|it| it.as_deref() == Some(&me)).count();
                prop_assert!(held <= usize::try_from(shards.div_ceil(replicas)).unwrap());
            }
        }
    }
}
