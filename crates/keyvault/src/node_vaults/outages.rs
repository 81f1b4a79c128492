//! Tracks vault outages for each reader.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::reader::VaultReader;

/// The current outages. They are tracked per reader, because the cause may be a reader's token.
#[derive(Debug, Default)]
pub(super) struct VaultOutages(Mutex<HashMap<OutageKey, ReaderOutage>>);

/// The reader and the vault host.
type OutageKey = (Arc<VaultReader>, Arc<str>);

#[derive(Debug, Clone, Copy)]
struct ReaderOutage {
    since: Timestamp,
    /// The time of the last failed read.
    last_failure: Timestamp,
    /// Whether the sealed cache served a value during the outage.
    served_stale: bool,
}

impl VaultOutages {
    /// Records a read that failed because the vault is unavailable. Returns the start of the outage.
    pub(super) fn record_failure(
        &self,
        reader: &Arc<VaultReader>,
        host: &Arc<str>,
        now: Timestamp,
    ) -> Timestamp {
        let mut outages = self.0.lock();
        // An outage without recent failures may have ended unobserved.
        outages.retain(|_, outage| now.duration_since(outage.last_failure) < OUTAGE_EXPIRY);
        let new = ReaderOutage { since: now, last_failure: now, served_stale: false };
        let outage = outages.entry((Arc::clone(reader), Arc::clone(host))).or_insert(new);
        outage.last_failure = outage.last_failure.max(now);
        outage.since
    }

    /// Records that the sealed cache served a value. Returns whether it is the first one of this outage.
    pub(super) fn record_stale_response(&self, reader: &Arc<VaultReader>, host: &Arc<str>) -> bool {
        let key = (Arc::clone(reader), Arc::clone(host));
        let mut outages = self.0.lock();
        outages
            .get_mut(&key)
            .is_none_or(|outage| !std::mem::replace(&mut outage.served_stale, true))
    }

    /// Records a successful read at `read_at`. Returns whether it ends an outage during which the sealed
    /// cache served a value.
    pub(super) fn record_success(
        &self,
        reader: &Arc<VaultReader>,
        host: &Arc<str>,
        read_at: Timestamp,
    ) -> bool {
        let mut outages = self.0.lock();
        if outages.is_empty() {
            return false;
        }
        let key = (Arc::clone(reader), Arc::clone(host));
        // A read from before the outage does not end it.
        if outages.get(&key).is_none_or(|outage| read_at < outage.since) {
            return false;
        }
        outages.remove(&key).is_some_and(|outage| outage.served_stale)
    }
}

/// How long an outage lasts without further failures: longer than the retry interval of any volume.
const OUTAGE_EXPIRY: SignedDuration = SignedDuration::from_hours(1);

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;
    use crate::cloud::VaultCloud;
    use crate::reader::ReaderIdentity;

    fn managed_identity_reader(tenant: &str) -> Arc<VaultReader> {
        let authority = "https://login.example".parse().unwrap();
        let cloud = VaultCloud { authority, vault_suffix: "vault.example".to_owned() };
        let mode = ReaderIdentity::ManagedIdentity { client_id: None };
        Arc::new(VaultReader { cloud, tenant: tenant.parse().unwrap(), identity: mode })
    }

    fn unix_time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000_000 + seconds).unwrap()
    }

    #[test]
    fn outage_is_ended_only_by_the_same_reader() {
        let (outages, host) = (VaultOutages::default(), Arc::from("kv1.vault.example"));
        let (one, other) = (managed_identity_reader("one"), managed_identity_reader("other"));
        assert_eq!(outages.record_failure(&one, &host, unix_time(0)), unix_time(0));
        assert!(!outages.record_success(&other, &host, unix_time(5)));
        assert_eq!(outages.record_failure(&one, &host, unix_time(10)), unix_time(0));
        assert_eq!(outages.record_failure(&other, &host, unix_time(10)), unix_time(10));
        outages.record_success(&one, &host, unix_time(11));
        assert_eq!(outages.record_failure(&one, &host, unix_time(12)), unix_time(12));
    }

    #[test]
    fn read_started_before_an_outage_does_not_end_it() {
        let (outages, host, reader) =
            (VaultOutages::default(), Arc::from("kv1"), managed_identity_reader("one"));
        outages.record_failure(&reader, &host, unix_time(60));
        outages.record_success(&reader, &host, unix_time(30));
        assert_eq!(outages.record_failure(&reader, &host, unix_time(90)), unix_time(60));
    }

    #[test]
    fn outage_without_recent_failures_starts_over() {
        let (outages, host, reader) =
            (VaultOutages::default(), Arc::from("kv1"), managed_identity_reader("one"));
        outages.record_failure(&reader, &host, unix_time(0));
        let much_later = unix_time(0) + 5_000.hours();
        assert_eq!(outages.record_failure(&reader, &host, much_later), much_later);
    }

    #[test]
    fn stale_response_is_reported_once_per_outage() {
        let (outages, host, reader) =
            (VaultOutages::default(), Arc::from("kv1"), managed_identity_reader("one"));
        for _ in 0..2 {
            outages.record_failure(&reader, &host, unix_time(0));
            assert!(outages.record_stale_response(&reader, &host));
            assert!(!outages.record_stale_response(&reader, &host));
            assert!(outages.record_success(&reader, &host, unix_time(1)));
            assert!(!outages.record_success(&reader, &host, unix_time(1)));
        }
    }
}
