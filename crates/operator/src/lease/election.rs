//! Decides which replica leads which shard. Pure.
//!
//! A lease is free if it has no holder, or if its record has not changed for the duration of the lease.
//! That time counts from when *this* process observed the last change, so the clocks of machines are never
//! compared. A holder counts its own term from before its renewal request, so it stops before another
//! replica may start.

use std::collections::BTreeMap;
use std::time::Duration;

/// The relevant fields of a Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    /// `holderIdentity`; `None` if the lease was released.
    pub(crate) holder: Option<String>,
    /// `leaseDurationSeconds`.
    pub(crate) duration: Duration,
    /// `metadata.resourceVersion`, which changes with every renewal.
    pub(crate) version: String,
}

/// A lease record, and when this process observed it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedLease {
    pub(crate) record: LeaseRecord,
    first_observed: Duration,
}

/// The observed leases, by name.
#[derive(Debug, Default)]
pub(crate) struct ObservedLeases(BTreeMap<String, ObservedLease>);

/// An action on a shard's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeaseAction {
    /// Renew a lease that this replica holds.
    Renew(u32),
    /// Release a lease beyond this replica's share: stop the writes first.
    Release(u32),
    /// Try to acquire a free lease.
    Acquire(u32),
}

/// The inputs of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElectionInputs<'a> {
    /// The identity of this replica.
    pub(crate) identity: &'a str,
    /// The number of shards.
    pub(crate) shards: u32,
    /// The number of live replicas, this one included.
    pub(crate) replicas: u32,
    /// Whether replicas with another number of shards hold leases.
    pub(crate) is_resharding: bool,
    /// The current time on this process's clock.
    pub(crate) now: Duration,
}

impl ObservedLeases {
    /// Records the listed leases.
    pub(crate) fn observe_all(&mut self, records: BTreeMap<String, LeaseRecord>, now: Duration) {
        let before = std::mem::take(&mut self.0);
        let retained = |name: &String, record: &LeaseRecord| {
            before.get(name).filter(|it| it.record == *record).map(|it| it.first_observed)
        };
        let to_observed = |(name, record): (String, LeaseRecord)| {
            let first_observed = retained(&name, &record).unwrap_or(now);
            (name, ObservedLease { record, first_observed })
        };
        self.0 = records.into_iter().map(to_observed).collect();
    }

    /// Records one lease from the response to a write.
    pub(crate) fn observe(&mut self, name: String, record: LeaseRecord, now: Duration) {
        self.0.insert(name, ObservedLease { record, first_observed: now });
    }

    /// The last observed record of a lease.
    pub(crate) fn latest_record(&self, name: &str) -> Option<&LeaseRecord> {
        self.0.get(name).map(|it| &it.record)
    }

    /// The current holder of a lease, as far as this process knows.
    fn current_holder(&self, name: &str, now: Duration) -> Option<&str> {
        let lease = self.0.get(name)?;
        let is_valid = now.saturating_sub(lease.first_observed) <= lease.record.duration;
        lease.record.holder.as_deref().filter(|_| is_valid)
    }

    /// The held leases whose names have this prefix.
    pub(crate) fn held_leases(&self, prefix: &str, now: Duration) -> Vec<&str> {
        let named = self.0.keys().filter(|name| name.starts_with(prefix));
        named.map(String::as_str).filter(|name| self.current_holder(name, now).is_some()).collect()
    }

    /// The names of the leases with this prefix that have had no holder for `unheld_for`: the lease duration has
    /// passed since the last observed change, and this time after it. The caller deletes those of exited
    /// replicas and of shards of another shard count.
    pub(crate) fn stale_leases(
        &self,
        prefix: &str,
        unheld_for: Duration,
        now: Duration,
    ) -> Vec<String> {
        let named = self.0.iter().filter(|(name, _)| name.starts_with(prefix));
        let is_old = |it: &ObservedLease| {
            now.saturating_sub(it.first_observed) > it.record.duration + unheld_for
        };
        named.filter(|(_, it)| is_old(it)).map(|(name, _)| name.clone()).collect()
    }
}

/// Plans the actions of one round. Each replica holds at most its share while the others are live. While
/// replicas with another shard count hold leases, a cluster of a free shard may still be led: this
/// replica then acquires nothing.
pub(crate) fn plan_lease_actions(
    leases: &ObservedLeases,
    lease_of: impl Fn(u32) -> String,
    inputs: ElectionInputs<'_>,
) -> Vec<LeaseAction> {
    let ElectionInputs { identity, shards, replicas, is_resharding, now } = inputs;
    let share = shards.div_ceil(replicas.max(1));
    let (mut actions, mut held) = (Vec::new(), 0);
    let holder = |shard: u32| leases.current_holder(&lease_of(shard), now);
    for shard in (0..shards).filter(|shard| holder(*shard) == Some(identity)) {
        held += 1;
        actions.push(if held > share {
            LeaseAction::Release(shard)
        } else {
            LeaseAction::Renew(shard)
        });
    }
    let free = (0..shards).filter(|shard| !is_resharding && holder(*shard).is_none());
    let capacity = usize::try_from(share.saturating_sub(held)).unwrap_or_default();
    actions.extend(free.take(capacity).map(LeaseAction::Acquire));
    actions
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
        let mut leases = ObservedLeases::default();
        let records = (0..)
            .zip(holders)
            .map(|(shard, holder)| (shard_lease_name(shard), lease_record(*holder, 1)));
        leases.observe_all(records.collect(), now);
        leases
    }

    fn planned_actions(holders: &[Option<&str>], replicas: u32) -> Vec<LeaseAction> {
        let shards = u32::try_from(holders.len()).unwrap();
        let inputs =
            ElectionInputs { identity: "me", shards, replicas, is_resharding: false, now: SECOND };
        plan_lease_actions(&observed_leases(holders, SECOND), shard_lease_name, inputs)
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
        let leases = observed_leases(&[Some("me"), None, Some("me")], SECOND);
        let decide = |replicas, is_resharding| {
            let inputs =
                ElectionInputs { identity: "me", shards: 3, replicas, is_resharding, now: SECOND };
            plan_lease_actions(&leases, shard_lease_name, inputs)
        };
        let renewed = [LeaseAction::Renew(0), LeaseAction::Renew(2)];
        assert_eq!(decide(1, true), renewed);
        assert_eq!(decide(3, true), [LeaseAction::Renew(0), LeaseAction::Release(2)]);
        assert_eq!(decide(1, false), [&renewed[..], &[LeaseAction::Acquire(1)]].concat());
    }

    #[test]
    fn unrenewed_lease_is_free_after_full_duration() {
        let mut leases = observed_leases(&[Some("other")], SECOND);
        let decide = |leases: &ObservedLeases, now| {
            let inputs = ElectionInputs {
                identity: "me",
                shards: 1,
                replicas: 1,
                is_resharding: false,
                now,
            };
            plan_lease_actions(leases, shard_lease_name, inputs)
        };
        assert_eq!(decide(&leases, SECOND + LEASE_DURATION), []);
        assert_eq!(decide(&leases, SECOND + LEASE_DURATION + SECOND), [LeaseAction::Acquire(0)]);
        // A renewal restarts the duration.
        let renewed = BTreeMap::from([(shard_lease_name(0), lease_record(Some("other"), 2))]);
        leases.observe_all(renewed.clone(), 10 * SECOND);
        leases.observe_all(renewed, 20 * SECOND);
        assert_eq!(decide(&leases, 25 * SECOND), []);
        assert_eq!(decide(&leases, 26 * SECOND), [LeaseAction::Acquire(0)]);
    }

    #[test]
    fn leases_of_exited_replicas_expire_then_are_stale() {
        let leases = observed_leases(&[Some("a"), Some("b"), None], SECOND);
        assert_eq!(leases.held_leases("shard-", SECOND).len(), 2);
        assert_eq!(leases.held_leases("shard-", SECOND + LEASE_DURATION + SECOND).len(), 0);
        let hour = Duration::from_hours(1);
        assert!(leases.stale_leases("shard-", hour, SECOND + LEASE_DURATION + SECOND).is_empty());
        assert_eq!(leases.stale_leases("shard-", hour, 2 * hour).len(), 3);
    }

    proptest! {
        /// Replicas that act one after the other on the current leases converge: every shard is held once,
        /// and no replica holds more than its share.
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
                    let current: Vec<_> = holders.iter().map(Option::as_deref).collect();
                    let leases = observed_leases(&current, SECOND);
                    let inputs =
                        ElectionInputs { identity: &me, shards, replicas, is_resharding: false, now: SECOND };
                    for action in plan_lease_actions(&leases, shard_lease_name, inputs) {
                        let (shard, holder) = match action {
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
