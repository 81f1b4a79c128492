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

use crate::cluster_key::ClusterKey;

/// What is written about a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WriteTarget<'a> {
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

impl WriteTarget<'_> {
    /// What is told of something at a cluster that is written again and again.
    pub(crate) fn describe_conflict(self, key: &ClusterKey) -> ChangedObject {
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
pub(crate) struct ConflictBackoff(HashMap<ClusterKey, Vec<WriteHistory>>);

/// One thing that was written with one wish.
#[derive(Debug)]
struct WriteHistory {
    /// The digest of what is written.
    target: u64,
    /// The digest of what it was to be.
    desired_digest: u64,
    write_count: u32,
    last_write: Duration,
    /// What is told of it, once it is contested.
    conflict: Option<Box<ChangedObject>>,
}

impl ConflictBackoff {
    /// Until when something is left as it is; nothing where it may be written now.
    pub(crate) fn backoff_until(
        &self,
        key: &ClusterKey,
        subject: WriteTarget<'_>,
        wish: u64,
        now: Duration,
    ) -> Option<Duration> {
        let subject = hash_digest(&subject);
        let mut bouts = self.0.get(key).into_iter().flatten();
        let bout = bouts.find(|bout| bout.target == subject && bout.desired_digest == wish)?;
        let again = bout.last_write.saturating_add(bout.write_delay());
        (again > now && !bout.is_expired(now)).then_some(again)
    }

    /// Something was written. `told` says of what, should it be contested.
    pub(crate) fn record_write(
        &mut self,
        key: &ClusterKey,
        subject: WriteTarget<'_>,
        wish: u64,
        now: Duration,
        told: impl FnOnce() -> ChangedObject,
    ) {
        let subject = hash_digest(&subject);
        let bouts = self.0.entry(key.clone()).or_default();
        bouts.retain(|bout| !bout.is_expired(now));
        let Some(bout) = bouts.iter_mut().find(|bout| bout.target == subject) else {
            bouts.push(WriteHistory {
                target: subject,
                desired_digest: wish,
                write_count: 1,
                last_write: now,
                conflict: None,
            });
            return;
        };
        // Another wish is written at once. What is told stays: it may be what changed the wish.
        bout.write_count =
            if bout.desired_digest == wish { bout.write_count.saturating_add(1) } else { 1 };
        (bout.desired_digest, bout.last_write) = (wish, now);
        if bout.is_conflicting() && bout.conflict.is_none() {
            bout.conflict = Some(Box::new(told()));
        }
    }

    /// What is contested about a cluster: until nobody has changed it for a while, so that what is
    /// told of it does not flap.
    pub(crate) fn conflicts(&mut self, key: &ClusterKey, now: Duration) -> Vec<ChangedObject> {
        let Some(bouts) = self.0.get_mut(key) else { return Vec::new() };
        bouts.retain(|bout| !bout.is_expired(now));
        let told = bouts.iter().filter_map(|bout| bout.conflict.as_deref().cloned()).collect();
        if bouts.is_empty() {
            self.0.remove(key);
        }
        told
    }

    /// When the first of what is left as it is may be written again.
    pub(crate) fn next_write_due(&self, key: &ClusterKey, now: Duration) -> Option<Duration> {
        let bouts = self.0.get(key).into_iter().flatten().filter(|bout| !bout.is_expired(now));
        bouts
            .map(|bout| bout.last_write.saturating_add(bout.write_delay()))
            .filter(|due| *due > now)
            .min()
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

impl WriteHistory {
    const fn is_conflicting(&self) -> bool {
        self.write_count > WRITES_WITHOUT_DELAY
    }

    fn is_expired(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_write) > CONFLICT_EXPIRY
    }

    fn write_delay(&self) -> Duration {
        match self.write_count.checked_sub(WRITES_WITHOUT_DELAY) {
            None | Some(0) => Duration::ZERO,
            Some(beyond) => backoff(beyond, MIN_DELAY, MAX_DELAY, 0.0),
        }
    }
}

/// The digest of what is to be told. Since when it is so depends on what was told before, and that
/// is what somebody else writes.
pub(crate) fn digest_without_timestamps(told: &impl Serialize) -> u64 {
    let mut told = serde_json::to_value(told).unwrap_or_default();
    remove_timestamps(&mut told);
    hash_digest(&told.to_string())
}

fn remove_timestamps(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !["since", "lastTransitionTime"].contains(&key.as_str()));
            map.values_mut().for_each(remove_timestamps);
        }
        Value::Array(all) => all.iter_mut().for_each(remove_timestamps),
        _ => {}
    }
}

fn hash_digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// How often the same is written without a pause: to make it, and to set it back.
const WRITES_WITHOUT_DELAY: u32 = 4;
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(2);
/// After how long without a write nobody contests something any more.
const CONFLICT_EXPIRY: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> ClusterKey {
        ClusterKey::of("clusters", name)
    }

    fn changed_object() -> ChangedObject {
        ChangedObject { object: "x".to_owned(), paths: vec!["spec".to_owned()] }
    }

    /// Writes whenever it may while somebody changes it all the time; returns when it wrote.
    fn write_under_conflict(
        contests: &mut ConflictBackoff,
        wish: u64,
        lasting: Duration,
    ) -> Vec<u64> {
        let mut wrote = Vec::new();
        for second in 0..lasting.as_secs() {
            let now = Duration::from_secs(second);
            if contests.backoff_until(&key("a"), WriteTarget::Conditions, wish, now).is_none() {
                contests.record_write(
                    &key("a"),
                    WriteTarget::Conditions,
                    wish,
                    now,
                    changed_object,
                );
                wrote.push(second);
            }
        }
        wrote
    }

    #[test]
    fn conflicting_writes_back_off() {
        let wrote =
            write_under_conflict(&mut ConflictBackoff::default(), 1, Duration::from_hours(1));
        assert_eq!(wrote[..8], [0, 1, 2, 3, 4, 5, 7, 11]);
        assert!(wrote.len() <= 42, "{} writes in an hour", wrote.len());
        assert!(wrote.windows(2).all(|pair| pair[1] - pair[0] <= 120), "and never given up");
    }

    #[test]
    fn conflict_is_reported_until_it_expires() {
        let mut contests = ConflictBackoff::default();
        let written = write_under_conflict(&mut contests, 1, 4 * SECOND);
        assert_eq!(written.len(), 4);
        assert_eq!(contests.conflicts(&key("a"), 4 * SECOND), []);
        contests.record_write(&key("a"), WriteTarget::Conditions, 1, 5 * SECOND, changed_object);
        assert_eq!(contests.conflicts(&key("a"), 300 * SECOND), [changed_object()]);
        assert_eq!(contests.conflicts(&key("a"), 306 * SECOND), []);
        assert!(contests.0.is_empty(), "nothing is kept of what is calm");
        assert_eq!(
            contests.backoff_until(&key("a"), WriteTarget::Conditions, 1, 306 * SECOND),
            None
        );
    }

    #[test]
    fn conflict_stays_reported_when_desired_state_changes() {
        let mut contests = ConflictBackoff::default();
        write_under_conflict(&mut contests, 1, 10 * SECOND);
        contests.record_write(&key("a"), WriteTarget::Conditions, 2, 10 * SECOND, changed_object);
        assert_eq!(
            contests.backoff_until(&key("a"), WriteTarget::Conditions, 2, 10 * SECOND),
            None
        );
        assert_eq!(contests.conflicts(&key("a"), 11 * SECOND), [changed_object()]);
    }

    #[test]
    fn next_write_due_is_earliest_backoff() {
        let mut contests = ConflictBackoff::default();
        let due = |contests: &ConflictBackoff, now| contests.next_write_due(&key("a"), now);
        assert_eq!(due(&contests, Duration::ZERO), None);
        for subject in [WriteTarget::Conditions, WriteTarget::EncryptionKey] {
            for second in 0..6 {
                contests.record_write(&key("a"), subject, 1, second * SECOND, changed_object);
            }
        }
        contests.record_write(&key("a"), WriteTarget::EncryptionKey, 1, 6 * SECOND, changed_object);
        assert_eq!(due(&contests, 6 * SECOND), Some(7 * SECOND));
        assert_eq!(due(&contests, 7 * SECOND), Some(10 * SECOND));
        assert_eq!(due(&contests, 10 * SECOND), None);
    }

    #[test]
    fn backoff_applies_per_cluster_target_and_digest() {
        let mut contests = ConflictBackoff::default();
        write_under_conflict(&mut contests, 1, Duration::from_mins(10));
        let now = Duration::from_mins(10);
        let due = |cluster: &str, subject: WriteTarget<'_>, wish: u64| {
            contests.backoff_until(&key(cluster), subject, wish, now).is_some()
        };
        assert!(due("a", WriteTarget::Conditions, 1));
        assert!(!due("a", WriteTarget::Conditions, 2));
        assert!(!due("a", WriteTarget::Finalizer, 1));
        assert!(!due("b", WriteTarget::Conditions, 1));
    }

    #[test]
    fn digest_ignores_timestamps() {
        let told = |reason: &str, since: &str| {
            digest_without_timestamps(&json!({"identities": [{"reason": reason, "since": since}],
                "conditions": [{"reason": reason, "lastTransitionTime": since}]}))
        };
        assert_eq!(told("Good", "2026-01-01T00:00:00Z"), told("Good", "2026-01-01T00:00:09Z"));
        assert_ne!(told("Good", "2026-01-01T00:00:00Z"), told("Bad", "2026-01-01T00:00:00Z"));
    }

    proptest! {
        #[test]
        fn writes_per_hour_are_bounded(
            pauses in prop::collection::vec(0_u64..30, 1..400),
        ) {
            let (mut contests, mut now, mut wrote) = (ConflictBackoff::default(), Duration::ZERO, Vec::new());
            for pause in pauses {
                now += Duration::from_secs(pause);
                if contests.backoff_until(&key("a"), WriteTarget::Identities, 1, now).is_none() {
                    contests.record_write(&key("a"), WriteTarget::Identities, 1, now, changed_object);
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
