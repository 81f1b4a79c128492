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
pub(crate) struct Record {
    /// `holderIdentity`; nothing where it was released.
    pub(crate) holder: Option<String>,
    /// `leaseDurationSeconds`.
    pub(crate) duration: Duration,
    /// `metadata.resourceVersion`: every renewal has another one.
    pub(crate) version: String,
}

/// A record, and when this process saw it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) record: Record,
    seen: Duration,
}

/// What this process saw of all leases.
#[derive(Debug, Default)]
pub(crate) struct Sightings(BTreeMap<String, Sighting>);

/// What to do about the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// It is ours: say that we are still there.
    Renew(u32),
    /// It is ours and another replica has too little: stop writing, then let it go.
    Release(u32),
    /// It is nobody's: try to take it.
    Take(u32),
}

/// What the decision is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation<'a> {
    /// Our identity.
    pub(crate) me: &'a str,
    /// How many shards there are.
    pub(crate) shards: u32,
    /// How many replicas live, with this one.
    pub(crate) replicas: u32,
    /// Whether replicas that divide the clusters into another number of shards hold some.
    pub(crate) has_rivals: bool,
    /// The time on this process' clock.
    pub(crate) now: Duration,
}

impl Sightings {
    /// Takes in what all leases say now.
    pub(crate) fn look(&mut self, records: BTreeMap<String, Record>, now: Duration) {
        let before = std::mem::take(&mut self.0);
        let kept = |name: &String, record: &Record| {
            before.get(name).filter(|it| it.record == *record).map(|it| it.seen)
        };
        let sighting = |(name, record): (String, Record)| {
            let seen = kept(&name, &record).unwrap_or(now);
            (name, Sighting { record, seen })
        };
        self.0 = records.into_iter().map(sighting).collect();
    }

    /// Takes in what one lease says, as the answer to a write told it.
    pub(crate) fn note(&mut self, name: String, record: Record, now: Duration) {
        self.0.insert(name, Sighting { record, seen: now });
    }

    /// The last look at one lease.
    pub(crate) fn record(&self, name: &str) -> Option<&Record> {
        self.0.get(name).map(|it| &it.record)
    }

    /// Who holds a lease, as far as can be told.
    fn holder(&self, name: &str, now: Duration) -> Option<&str> {
        let sighting = self.0.get(name)?;
        let lasts = now.saturating_sub(sighting.seen) <= sighting.record.duration;
        sighting.record.holder.as_deref().filter(|_| lasts)
    }

    /// The leases of these names that somebody holds.
    pub(crate) fn held(&self, prefix: &str, now: Duration) -> Vec<&str> {
        let named = self.0.keys().filter(|name| name.starts_with(prefix));
        named.map(String::as_str).filter(|name| self.holder(name, now).is_some()).collect()
    }

    /// The leases of these names that nobody has held for this long.
    pub(crate) fn abandoned(&self, prefix: &str, after: Duration, now: Duration) -> Vec<String> {
        let named = self.0.iter().filter(|(name, _)| name.starts_with(prefix));
        let is_old = |it: &Sighting| now.saturating_sub(it.seen) > it.record.duration + after;
        named.filter(|(_, it)| is_old(it)).map(|(name, _)| name.clone()).collect()
    }
}

/// What to do. Each replica has its share and no more, as long as the others live. Where clusters are
/// divided otherwise, too, a free shard may have a cluster in it that is led: nothing is taken.
pub(crate) fn decide(
    sightings: &Sightings,
    lease_of: impl Fn(u32) -> String,
    situation: Situation<'_>,
) -> Vec<Act> {
    let Situation { me, shards, replicas, has_rivals, now } = situation;
    let share = shards.div_ceil(replicas.max(1));
    let (mut acts, mut held) = (Vec::new(), 0);
    let holder = |shard: u32| sightings.holder(&lease_of(shard), now);
    for shard in (0..shards).filter(|shard| holder(*shard) == Some(me)) {
        held += 1;
        acts.push(if held > share { Act::Release(shard) } else { Act::Renew(shard) });
    }
    let free = (0..shards).filter(|shard| !has_rivals && holder(*shard).is_none());
    let room = usize::try_from(share.saturating_sub(held)).unwrap_or_default();
    acts.extend(free.take(room).map(Act::Take));
    acts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LASTS: Duration = Duration::from_secs(15);

    fn name(shard: u32) -> String {
        format!("shard-{shard}")
    }

    fn record(holder: Option<&str>, version: u32) -> Record {
        let holder = holder.map(str::to_owned);
        Record { holder, duration: LASTS, version: version.to_string() }
    }

    fn seen(holders: &[Option<&str>], now: Duration) -> Sightings {
        let mut sightings = Sightings::default();
        let records = (0..).zip(holders).map(|(shard, holder)| (name(shard), record(*holder, 1)));
        sightings.look(records.collect(), now);
        sightings
    }

    fn acts(holders: &[Option<&str>], replicas: u32) -> Vec<Act> {
        let shards = u32::try_from(holders.len()).unwrap();
        let situation = Situation { me: "me", shards, replicas, has_rivals: false, now: SECOND };
        decide(&seen(holders, SECOND), name, situation)
    }

    #[test]
    fn one_replica_takes_everything_and_two_share() {
        assert_eq!(acts(&[None, None], 1), [Act::Take(0), Act::Take(1)]);
        assert_eq!(acts(&[Some("me"), Some("me")], 1), [Act::Renew(0), Act::Renew(1)]);
        assert_eq!(acts(&[Some("me"), Some("me")], 2), [Act::Renew(0), Act::Release(1)]);
        assert_eq!(acts(&[Some("me"), None], 2), [Act::Renew(0)]);
        assert_eq!(acts(&[Some("other"), None], 2), [Act::Take(1)]);
        assert_eq!(acts(&[Some("me"), None, None], 2), [Act::Renew(0), Act::Take(1)]);
        assert_eq!(acts(&[Some("other")], 2), []);
    }

    #[test]
    fn nothing_is_taken_while_clusters_are_divided_otherwise_too() {
        let sightings = seen(&[Some("me"), None, Some("me")], SECOND);
        let decide = |replicas, has_rivals| {
            let situation = Situation { me: "me", shards: 3, replicas, has_rivals, now: SECOND };
            decide(&sightings, name, situation)
        };
        let renewed = [Act::Renew(0), Act::Renew(2)];
        assert_eq!(decide(1, true), renewed);
        assert_eq!(decide(3, true), [Act::Renew(0), Act::Release(2)]);
        assert_eq!(decide(1, false), [&renewed[..], &[Act::Take(1)]].concat());
    }

    #[test]
    fn a_lease_that_nobody_renews_is_free_only_after_its_whole_time_was_watched() {
        let mut sightings = seen(&[Some("other")], SECOND);
        let decide = |sightings: &Sightings, now| {
            let situation = Situation { me: "me", shards: 1, replicas: 1, has_rivals: false, now };
            decide(sightings, name, situation)
        };
        assert_eq!(decide(&sightings, SECOND + LASTS), []);
        assert_eq!(decide(&sightings, SECOND + LASTS + SECOND), [Act::Take(0)]);
        // A renewal begins the time anew.
        let renewed = BTreeMap::from([(name(0), record(Some("other"), 2))]);
        sightings.look(renewed.clone(), 10 * SECOND);
        sightings.look(renewed, 20 * SECOND);
        assert_eq!(decide(&sightings, 25 * SECOND), []);
        assert_eq!(decide(&sightings, 26 * SECOND), [Act::Take(0)]);
    }

    #[test]
    fn replicas_that_are_gone_do_not_count_and_are_swept_later() {
        let sightings = seen(&[Some("a"), Some("b"), None], SECOND);
        assert_eq!(sightings.held("shard-", SECOND).len(), 2);
        assert_eq!(sightings.held("shard-", SECOND + LASTS + SECOND).len(), 0);
        let hour = Duration::from_hours(1);
        assert!(sightings.abandoned("shard-", hour, SECOND + LASTS + SECOND).is_empty());
        assert_eq!(sightings.abandoned("shard-", hour, 2 * hour).len(), 3);
    }

    proptest! {
        /// Replicas that look one after the other, each at what is really there, come to rest with
        /// every shard held once and nobody holding more than a share.
        #[test]
        fn replicas_come_to_rest_with_every_shard_held(shards in 1..9_u32, replicas in 1..5_u32) {
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
                    let sightings = seen(&shown, SECOND);
                    let situation =
                        Situation { me: &me, shards, replicas, has_rivals: false, now: SECOND };
                    for act in decide(&sightings, name, situation) {
                        let (shard, holder) = match act {
                            Act::Renew(_) => continue,
                            Act::Release(shard) => (shard, None),
                            Act::Take(shard) => (shard, Some(me.clone())),
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
