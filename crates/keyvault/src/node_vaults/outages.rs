//! Since when which vault is not there, for whom.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::reader::Reader;

/// The vaults that are not there. By reader as well: what one of them misses may be its token.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<HashMap<Missing, Outage>>);

/// Who misses which host.
type Missing = (Arc<Reader>, Arc<str>);

#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Timestamp,
    /// When it was met last.
    met: Timestamp,
    /// Whether the sealed cache has helped in it.
    helped: bool,
}

impl Outages {
    /// A read failed because the vault is not there. Since when it is not.
    pub(super) fn meet(&self, reader: &Arc<Reader>, host: &Arc<str>, now: Timestamp) -> Timestamp {
        let mut outages = self.0.lock();
        // One that nobody has met for so long may have ended unseen.
        outages.retain(|_, outage| now.duration_since(outage.met) < FORGOTTEN);
        let new = Outage { since: now, met: now, helped: false };
        let outage = outages.entry((Arc::clone(reader), Arc::clone(host))).or_insert(new);
        outage.met = outage.met.max(now);
        outage.since
    }

    /// The sealed cache helps. Whether for the first time in this outage.
    pub(super) fn help(&self, reader: &Arc<Reader>, host: &Arc<str>) -> bool {
        let key = (Arc::clone(reader), Arc::clone(host));
        let mut outages = self.0.lock();
        outages.get_mut(&key).is_none_or(|outage| !std::mem::replace(&mut outage.helped, true))
    }

    /// The vault gave what was asked for at `read_at`. Whether this ends an outage in which the
    /// sealed cache had to help.
    pub(super) fn end(&self, reader: &Arc<Reader>, host: &Arc<str>, read_at: Timestamp) -> bool {
        let mut outages = self.0.lock();
        if outages.is_empty() {
            return false;
        }
        let key = (Arc::clone(reader), Arc::clone(host));
        // What was read before it began says nothing.
        if outages.get(&key).is_none_or(|outage| read_at < outage.since) {
            return false;
        }
        outages.remove(&key).is_some_and(|outage| outage.helped)
    }
}

/// How long an outage may go unmet: longer than any volume waits until it asks again.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(1);

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;
    use crate::cloud::VaultCloud;
    use crate::reader::ReaderMode;

    fn reader(tenant: &str) -> Arc<Reader> {
        let authority = "https://login.example".parse().unwrap();
        let cloud = VaultCloud { authority, vault_suffix: "vault.example".to_owned() };
        let mode = ReaderMode::ManagedIdentity { client_id: None };
        Arc::new(Reader { cloud, tenant: tenant.parse().unwrap(), mode })
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000_000 + seconds).unwrap()
    }

    #[test]
    fn an_outage_of_one_reader_is_not_ended_by_another() {
        let (outages, host) = (Outages::default(), Arc::from("kv1.vault.example"));
        let (one, other) = (reader("one"), reader("other"));
        assert_eq!(outages.meet(&one, &host, at(0)), at(0));
        assert!(!outages.end(&other, &host, at(5)));
        assert_eq!(outages.meet(&one, &host, at(10)), at(0));
        assert_eq!(outages.meet(&other, &host, at(10)), at(10));
        outages.end(&one, &host, at(11));
        assert_eq!(outages.meet(&one, &host, at(12)), at(12));
    }

    #[test]
    fn what_was_read_before_an_outage_does_not_end_it() {
        let (outages, host, reader) = (Outages::default(), Arc::from("kv1"), reader("one"));
        outages.meet(&reader, &host, at(60));
        outages.end(&reader, &host, at(30));
        assert_eq!(outages.meet(&reader, &host, at(90)), at(60));
    }

    #[test]
    fn an_outage_that_nobody_has_met_for_long_is_another_one() {
        let (outages, host, reader) = (Outages::default(), Arc::from("kv1"), reader("one"));
        outages.meet(&reader, &host, at(0));
        let much_later = at(0) + 5_000.hours();
        assert_eq!(outages.meet(&reader, &host, much_later), much_later);
    }

    #[test]
    fn that_the_cache_helps_is_told_once_for_each_outage() {
        let (outages, host, reader) = (Outages::default(), Arc::from("kv1"), reader("one"));
        for _ in 0..2 {
            outages.meet(&reader, &host, at(0));
            assert!(outages.help(&reader, &host));
            assert!(!outages.help(&reader, &host));
            assert!(outages.end(&reader, &host, at(1)));
            assert!(!outages.end(&reader, &host, at(1)));
        }
    }
}
