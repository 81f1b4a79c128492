//! Back-off for writes that another manager keeps reverting. Pure.
//!
//! The operator reverts a single external change immediately. A client that repeats the change after each
//! revert would keep the operator, the API server and all watchers of the object busy. The operator
//! therefore writes the same desired content to the same target a few times without delay and then with
//! exponential back-off, and reports the conflict in the cluster's status. Other writes for the cluster
//! are not delayed.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use lanyard_clock::Backoff;
use lanyard_desired::ObjectKey;
use lanyard_desired::drift::ChangedObject;
use serde::Serialize;
use serde_json::Value;

use crate::cluster_key::ClusterKey;

/// The target of a write for a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WriteTarget<'a> {
    /// An object of the control plane.
    Object(&'a ObjectKey),
    /// The operator's conditions on the HostedCluster.
    Conditions,
    /// The operator's finalizer on the HostedCluster.
    Finalizer,
    /// The status of the identities.
    Identities,
    /// The operator's record of the active encryption key on the HostedCluster.
    EncryptionKey,
}

impl WriteTarget<'_> {
    /// The object to report when writes to this target conflict.
    pub(crate) fn describe_conflict(self, key: &ClusterKey) -> ChangedObject {
        let (object, path) = match self {
            Self::Object(object) => (object.to_string(), "written"),
            Self::Conditions => (format!("HostedCluster {key}"), "status.conditions"),
            Self::Finalizer => (format!("HostedCluster {key}"), "metadata.finalizers"),
            Self::Identities => (format!("HostedClusterIdentities {key}"), "status"),
            Self::EncryptionKey => (format!("HostedCluster {key}"), "status.secretEncryption"),
        };
        let path = format!("{path} (repeatedly changed by another client)");
        ChangedObject { object, paths: vec![path] }
    }
}

/// The recent writes, by cluster.
#[derive(Debug, Default)]
pub(crate) struct ConflictBackoff(HashMap<ClusterKey, Vec<WriteHistory>>);

/// The recent writes to one target.
#[derive(Debug)]
struct WriteHistory {
    /// The digest of the target.
    target: u64,
    /// The digest of the desired content.
    desired_digest: u64,
    write_count: u32,
    last_write: Duration,
    /// The object to report, once the writes conflict.
    conflict: Option<Box<ChangedObject>>,
}

impl ConflictBackoff {
    /// Until when a write is held back; `None` if it may be sent now.
    pub(crate) fn backoff_until(
        &self,
        key: &ClusterKey,
        target: WriteTarget<'_>,
        desired_digest: u64,
        now: Duration,
    ) -> Option<Duration> {
        let target = hash_digest(&target);
        let mut histories = self.0.get(key).into_iter().flatten();
        let history = histories
            .find(|history| history.target == target && history.desired_digest == desired_digest)?;
        let due = history.last_write.saturating_add(history.write_delay());
        (due > now && !history.is_expired(now)).then_some(due)
    }

    /// Records a write. `describe_object` returns the object to report if the writes conflict.
    pub(crate) fn record_write(
        &mut self,
        key: &ClusterKey,
        target: WriteTarget<'_>,
        desired_digest: u64,
        now: Duration,
        describe_object: impl FnOnce() -> ChangedObject,
    ) {
        let target_digest = hash_digest(&target);
        let histories = self.0.entry(key.clone()).or_default();
        histories.retain(|history| !history.is_expired(now));
        let Some(history) = histories.iter_mut().find(|history| history.target == target_digest)
        else {
            histories.push(WriteHistory {
                target: target_digest,
                desired_digest,
                write_count: 1,
                last_write: now,
                conflict: None,
            });
            return;
        };
        // New desired content is written without delay. The conflict stays reported, because the other
        // manager may have caused the new content.
        history.write_count = if history.desired_digest == desired_digest {
            history.write_count.saturating_add(1)
        } else {
            1
        };
        (history.desired_digest, history.last_write) = (desired_digest, now);
        if history.is_conflicting() && history.conflict.is_none() {
            history.conflict = Some(Box::new(describe_object()));
        }
    }

    /// The conflicts of a cluster. A conflict stays listed until there was no write for a while, so that
    /// the status does not flap.
    pub(crate) fn conflicts(&mut self, key: &ClusterKey, now: Duration) -> Vec<ChangedObject> {
        let Some(histories) = self.0.get_mut(key) else { return Vec::new() };
        histories.retain(|history| !history.is_expired(now));
        let conflicts =
            histories.iter().filter_map(|history| history.conflict.as_deref().cloned()).collect();
        if histories.is_empty() {
            self.0.remove(key);
        }
        conflicts
    }

    /// When the first write in back-off is due.
    pub(crate) fn next_write_due(&self, key: &ClusterKey, now: Duration) -> Option<Duration> {
        let histories =
            self.0.get(key).into_iter().flatten().filter(|history| !history.is_expired(now));
        histories
            .map(|history| history.last_write.saturating_add(history.write_delay()))
            .filter(|due| *due > now)
            .min()
    }

    /// Forgets all clusters except these.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&ClusterKey) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }

    /// Forgets a deleted cluster.
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
            Some(beyond) => BACKOFF.delay(beyond),
        }
    }
}

/// The digest of reported content without its timestamps, which depend on the previous content, and the
/// other manager changes that.
pub(crate) fn digest_without_timestamps(value: &impl Serialize) -> u64 {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    remove_timestamps(&mut value);
    hash_digest(&value.to_string())
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

/// The number of writes of the same content without delay: the initial one and some reverts.
const WRITES_WITHOUT_DELAY: u32 = 4;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(2));
/// A conflict ends when there was no write for this long.
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

    /// Writes as often as the back-off allows during a lasting conflict; returns the seconds of the writes.
    fn write_under_conflict(
        conflict_backoff: &mut ConflictBackoff,
        desired_digest: u64,
        total: Duration,
    ) -> Vec<u64> {
        let mut written_at = Vec::new();
        for second in 0..total.as_secs() {
            let now = Duration::from_secs(second);
            if conflict_backoff
                .backoff_until(&key("a"), WriteTarget::Conditions, desired_digest, now)
                .is_none()
            {
                conflict_backoff.record_write(
                    &key("a"),
                    WriteTarget::Conditions,
                    desired_digest,
                    now,
                    changed_object,
                );
                written_at.push(second);
            }
        }
        written_at
    }

    #[test]
    fn conflicting_writes_back_off() {
        let written_at =
            write_under_conflict(&mut ConflictBackoff::default(), 1, Duration::from_hours(1));
        assert_eq!(written_at[..8], [0, 1, 2, 3, 4, 5, 7, 11]);
        assert!(written_at.len() <= 42, "{} writes in an hour", written_at.len());
        assert!(
            written_at.windows(2).all(|pair| pair[1] - pair[0] <= 120),
            "and the writes never stop"
        );
    }

    #[test]
    fn conflict_is_reported_until_it_expires() {
        let mut conflict_backoff = ConflictBackoff::default();
        let written = write_under_conflict(&mut conflict_backoff, 1, 4 * SECOND);
        assert_eq!(written.len(), 4);
        assert_eq!(conflict_backoff.conflicts(&key("a"), 4 * SECOND), []);
        conflict_backoff.record_write(
            &key("a"),
            WriteTarget::Conditions,
            1,
            5 * SECOND,
            changed_object,
        );
        assert_eq!(conflict_backoff.conflicts(&key("a"), 300 * SECOND), [changed_object()]);
        assert_eq!(conflict_backoff.conflicts(&key("a"), 306 * SECOND), []);
        assert!(conflict_backoff.0.is_empty(), "ended conflicts are forgotten");
        assert_eq!(
            conflict_backoff.backoff_until(&key("a"), WriteTarget::Conditions, 1, 306 * SECOND),
            None
        );
    }

    #[test]
    fn conflict_stays_reported_when_desired_state_changes() {
        let mut conflict_backoff = ConflictBackoff::default();
        write_under_conflict(&mut conflict_backoff, 1, 10 * SECOND);
        conflict_backoff.record_write(
            &key("a"),
            WriteTarget::Conditions,
            2,
            10 * SECOND,
            changed_object,
        );
        assert_eq!(
            conflict_backoff.backoff_until(&key("a"), WriteTarget::Conditions, 2, 10 * SECOND),
            None
        );
        assert_eq!(conflict_backoff.conflicts(&key("a"), 11 * SECOND), [changed_object()]);
    }

    #[test]
    fn next_write_due_is_earliest_backoff() {
        let mut conflict_backoff = ConflictBackoff::default();
        let due = |conflict_backoff: &ConflictBackoff, now| {
            conflict_backoff.next_write_due(&key("a"), now)
        };
        assert_eq!(due(&conflict_backoff, Duration::ZERO), None);
        for subject in [WriteTarget::Conditions, WriteTarget::EncryptionKey] {
            for second in 0..6 {
                conflict_backoff.record_write(
                    &key("a"),
                    subject,
                    1,
                    second * SECOND,
                    changed_object,
                );
            }
        }
        conflict_backoff.record_write(
            &key("a"),
            WriteTarget::EncryptionKey,
            1,
            6 * SECOND,
            changed_object,
        );
        assert_eq!(due(&conflict_backoff, 6 * SECOND), Some(7 * SECOND));
        assert_eq!(due(&conflict_backoff, 7 * SECOND), Some(10 * SECOND));
        assert_eq!(due(&conflict_backoff, 10 * SECOND), None);
    }

    #[test]
    fn backoff_applies_per_cluster_target_and_digest() {
        let mut conflict_backoff = ConflictBackoff::default();
        write_under_conflict(&mut conflict_backoff, 1, Duration::from_mins(10));
        let now = Duration::from_mins(10);
        let due = |cluster: &str, subject: WriteTarget<'_>, desired_digest: u64| {
            conflict_backoff.backoff_until(&key(cluster), subject, desired_digest, now).is_some()
        };
        assert!(due("a", WriteTarget::Conditions, 1));
        assert!(!due("a", WriteTarget::Conditions, 2));
        assert!(!due("a", WriteTarget::Finalizer, 1));
        assert!(!due("b", WriteTarget::Conditions, 1));
    }

    #[test]
    fn digest_ignores_timestamps() {
        let digest = |reason: &str, since: &str| {
            digest_without_timestamps(&json!({"identities": [{"reason": reason, "since": since}],
                "conditions": [{"reason": reason, "lastTransitionTime": since}]}))
        };
        assert_eq!(digest("Good", "2026-01-01T00:00:00Z"), digest("Good", "2026-01-01T00:00:09Z"));
        assert_ne!(digest("Good", "2026-01-01T00:00:00Z"), digest("Bad", "2026-01-01T00:00:00Z"));
    }

    proptest! {
        #[test]
        fn writes_per_hour_are_bounded(
            pauses in prop::collection::vec(0_u64..30, 1..400),
        ) {
            let (mut conflict_backoff, mut written_at) = (ConflictBackoff::default(), Vec::new());
            let mut now = Duration::ZERO;
            for pause in pauses {
                now += Duration::from_secs(pause);
                let (key, target) = (key("a"), WriteTarget::Identities);
                if conflict_backoff.backoff_until(&key, target, 1, now).is_none() {
                    conflict_backoff.record_write(&key, target, 1, now, changed_object);
                    written_at.push(now);
                }
            }
            for begin in &written_at {
                let end = *begin + Duration::from_hours(1);
                let count = written_at.iter().filter(|at| *begin <= **at && **at < end).count();
                prop_assert!(count <= 42, "{}", count);
            }
        }
    }
}
