//! What is written again and again, because somebody else writes it, too. Pure.
//!
//! What somebody changes once is set back at once. Who changes it as often as it is set back would
//! keep the operator, the API server and everybody who watches the object busy for ever. So the
//! same wish for the same thing is written a few times at once and then ever more seldom, and the
//! cluster's status says of what. Nothing else about the cluster waits.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use lanyard_desired::ObjectKey;
use lanyard_desired::drift::ChangedObject;
use lanyard_kubernetes::backoff;
use serde::Serialize;
use serde_json::Value;

use crate::key::ClusterKey;

/// What is written about a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject<'a> {
    /// An object of its control plane.
    Object(&'a ObjectKey),
    /// Our conditions at the HostedCluster.
    Conditions,
    /// Our finalizer there.
    Finalizer,
    /// How its identities are.
    Identities,
    /// Our record there of the key that encrypts.
    EncryptionKey,
}

impl Subject<'_> {
    /// What is told of something at a cluster that is written again and again.
    pub(crate) fn told(self, key: &ClusterKey) -> ChangedObject {
        let (object, path) = match self {
            Self::Object(object) => (object.to_string(), "written"),
            Self::Conditions => (format!("HostedCluster {key}"), "status.conditions"),
            Self::Finalizer => (format!("HostedCluster {key}"), "metadata.finalizers"),
            Self::Identities => (format!("HostedClusterIdentities {key}"), "status"),
            Self::EncryptionKey => (format!("HostedCluster {key}"), "status.secretEncryption"),
        };
        let path = format!("{path} (written again and again by somebody else)");
        ChangedObject { object, paths: vec![path] }
    }
}

/// What was written of late, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Contests(HashMap<ClusterKey, Vec<Bout>>);

/// One thing that was written with one wish.
#[derive(Debug)]
struct Bout {
    /// The digest of what is written.
    subject: u64,
    /// The digest of what it was to be.
    wish: u64,
    times: u32,
    last: Duration,
    /// What is told of it, once it is contested.
    told: Option<Box<ChangedObject>>,
}

impl Contests {
    /// Until when something is left as it is; nothing where it may be written now.
    pub(crate) fn due(
        &self,
        key: &ClusterKey,
        subject: Subject<'_>,
        wish: u64,
        now: Duration,
    ) -> Option<Duration> {
        let subject = digest(&subject);
        let mut bouts = self.0.get(key).into_iter().flatten();
        let bout = bouts.find(|bout| bout.subject == subject && bout.wish == wish)?;
        let again = bout.last.saturating_add(bout.pause());
        (again > now && !bout.is_over(now)).then_some(again)
    }

    /// Something was written. `told` says of what, should it be contested.
    pub(crate) fn wrote(
        &mut self,
        key: &ClusterKey,
        subject: Subject<'_>,
        wish: u64,
        now: Duration,
        told: impl FnOnce() -> ChangedObject,
    ) {
        let subject = digest(&subject);
        let bouts = self.0.entry(key.clone()).or_default();
        bouts.retain(|bout| !bout.is_over(now));
        let Some(bout) = bouts.iter_mut().find(|bout| bout.subject == subject) else {
            bouts.push(Bout { subject, wish, times: 1, last: now, told: None });
            return;
        };
        // Another wish is written at once. What is told stays: it may be what changed the wish.
        bout.times = if bout.wish == wish { bout.times.saturating_add(1) } else { 1 };
        (bout.wish, bout.last) = (wish, now);
        if bout.is_contested() && bout.told.is_none() {
            bout.told = Some(Box::new(told()));
        }
    }

    /// What is contested about a cluster: until nobody has changed it for a while, so that what is
    /// told of it does not flap.
    pub(crate) fn contested(&mut self, key: &ClusterKey, now: Duration) -> Vec<ChangedObject> {
        let Some(bouts) = self.0.get_mut(key) else { return Vec::new() };
        bouts.retain(|bout| !bout.is_over(now));
        let told = bouts.iter().filter_map(|bout| bout.told.as_deref().cloned()).collect();
        if bouts.is_empty() {
            self.0.remove(key);
        }
        told
    }

    /// When the first of what is left as it is may be written again.
    pub(crate) fn next_due(&self, key: &ClusterKey, now: Duration) -> Option<Duration> {
        let bouts = self.0.get(key).into_iter().flatten().filter(|bout| !bout.is_over(now));
        bouts.map(|bout| bout.last.saturating_add(bout.pause())).filter(|due| *due > now).min()
    }

    /// Forgets all clusters but these.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&ClusterKey) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }

    /// Forgets a cluster that is gone.
    pub(crate) fn forget(&mut self, key: &ClusterKey) {
        self.0.remove(key);
    }
}

impl Bout {
    const fn is_contested(&self) -> bool {
        self.times > AT_ONCE
    }

    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) > CALM
    }

    fn pause(&self) -> Duration {
        match self.times.checked_sub(AT_ONCE) {
            None | Some(0) => Duration::ZERO,
            Some(beyond) => backoff(beyond, FIRST_PAUSE, LONGEST_PAUSE, 0.0),
        }
    }
}

/// The digest of what is to be told. Since when it is so depends on what was told before, and that
/// is what somebody else writes.
pub(crate) fn wish_of(told: &impl Serialize) -> u64 {
    let mut told = serde_json::to_value(told).unwrap_or_default();
    forget_since(&mut told);
    digest(&told.to_string())
}

fn forget_since(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !["since", "lastTransitionTime"].contains(&key.as_str()));
            map.values_mut().for_each(forget_since);
        }
        Value::Array(all) => all.iter_mut().for_each(forget_since),
        _ => {}
    }
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// How often the same is written without a pause: to make it, and to set it back.
const AT_ONCE: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
/// After how long without a write nobody contests something any more.
const CALM: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> ClusterKey {
        ClusterKey::of("clusters", name)
    }

    fn told() -> ChangedObject {
        ChangedObject { object: "x".to_owned(), paths: vec!["spec".to_owned()] }
    }

    /// Writes whenever it may while somebody changes it all the time; returns when it wrote.
    fn fight(contests: &mut Contests, wish: u64, lasting: Duration) -> Vec<u64> {
        let mut wrote = Vec::new();
        for second in 0..lasting.as_secs() {
            let now = Duration::from_secs(second);
            if contests.due(&key("a"), Subject::Conditions, wish, now).is_none() {
                contests.wrote(&key("a"), Subject::Conditions, wish, now, told);
                wrote.push(second);
            }
        }
        wrote
    }

    #[test]
    fn what_somebody_changes_all_the_time_is_set_back_ever_more_seldom() {
        let wrote = fight(&mut Contests::default(), 1, Duration::from_hours(1));
        assert_eq!(wrote[..8], [0, 1, 2, 3, 4, 5, 7, 11]);
        assert!(wrote.len() <= 42, "{} writes in an hour", wrote.len());
        assert!(wrote.windows(2).all(|pair| pair[1] - pair[0] <= 120), "and never given up");
    }

    #[test]
    fn it_is_told_while_it_lasts_and_until_it_was_calm() {
        let mut contests = Contests::default();
        let written = fight(&mut contests, 1, 4 * SECOND);
        assert_eq!(written.len(), 4);
        assert_eq!(contests.contested(&key("a"), 4 * SECOND), []);
        contests.wrote(&key("a"), Subject::Conditions, 1, 5 * SECOND, told);
        assert_eq!(contests.contested(&key("a"), 300 * SECOND), [told()]);
        assert_eq!(contests.contested(&key("a"), 306 * SECOND), []);
        assert!(contests.0.is_empty(), "nothing is kept of what is calm");
        assert_eq!(contests.due(&key("a"), Subject::Conditions, 1, 306 * SECOND), None);
    }

    #[test]
    fn what_is_told_of_a_contest_may_change_the_wish_and_stays_told() {
        let mut contests = Contests::default();
        fight(&mut contests, 1, 10 * SECOND);
        contests.wrote(&key("a"), Subject::Conditions, 2, 10 * SECOND, told);
        assert_eq!(contests.due(&key("a"), Subject::Conditions, 2, 10 * SECOND), None);
        assert_eq!(contests.contested(&key("a"), 11 * SECOND), [told()]);
    }

    #[test]
    fn it_is_known_when_the_first_of_what_waits_may_be_written() {
        let mut contests = Contests::default();
        let due = |contests: &Contests, now| contests.next_due(&key("a"), now);
        assert_eq!(due(&contests, Duration::ZERO), None);
        for subject in [Subject::Conditions, Subject::EncryptionKey] {
            for second in 0..6 {
                contests.wrote(&key("a"), subject, 1, second * SECOND, told);
            }
        }
        contests.wrote(&key("a"), Subject::EncryptionKey, 1, 6 * SECOND, told);
        assert_eq!(due(&contests, 6 * SECOND), Some(7 * SECOND));
        assert_eq!(due(&contests, 7 * SECOND), Some(10 * SECOND));
        assert_eq!(due(&contests, 10 * SECOND), None);
    }

    #[test]
    fn another_wish_another_thing_and_another_cluster_wait_for_nothing() {
        let mut contests = Contests::default();
        fight(&mut contests, 1, Duration::from_mins(10));
        let now = Duration::from_mins(10);
        let due = |cluster: &str, subject: Subject<'_>, wish: u64| {
            contests.due(&key(cluster), subject, wish, now).is_some()
        };
        assert!(due("a", Subject::Conditions, 1));
        assert!(!due("a", Subject::Conditions, 2));
        assert!(!due("a", Subject::Finalizer, 1));
        assert!(!due("b", Subject::Conditions, 1));
    }

    #[test]
    fn what_is_told_is_the_same_wish_whenever_it_became_so() {
        let told = |reason: &str, since: &str| {
            wish_of(&json!({"identities": [{"reason": reason, "since": since}],
                "conditions": [{"reason": reason, "lastTransitionTime": since}]}))
        };
        assert_eq!(told("Good", "2026-01-01T00:00:00Z"), told("Good", "2026-01-01T00:00:09Z"));
        assert_ne!(told("Good", "2026-01-01T00:00:00Z"), told("Bad", "2026-01-01T00:00:00Z"));
    }

    proptest! {
        #[test]
        fn no_hour_has_more_writes_than_that_whoever_changes_what_when(
            pauses in prop::collection::vec(0_u64..30, 1..400),
        ) {
            let (mut contests, mut now, mut wrote) = (Contests::default(), Duration::ZERO, Vec::new());
            for pause in pauses {
                now += Duration::from_secs(pause);
                if contests.due(&key("a"), Subject::Identities, 1, now).is_none() {
                    contests.wrote(&key("a"), Subject::Identities, 1, now, told);
                    wrote.push(now);
                }
            }
            for begin in &wrote {
                let end = *begin + Duration::from_hours(1);
                let count = wrote.iter().filter(|at| *begin <= **at && **at < end).count();
                prop_assert!(count <= 42, "{}", count);
            }
        }
    }
}
