//! When each hop of each component was seen to be good: pure.

use std::collections::BTreeMap;
use std::time::Duration;

use lanyard_vocabulary::{Component, Hop};

use super::told::Account;
use crate::report::{ComponentReport, Failure, HopReport};

/// When what was seen first, since the HostedCluster was made.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    began: Duration,
    seen: BTreeMap<Component, Sighted>,
}

/// What was seen of one component.
#[derive(Debug, Default)]
struct Sighted {
    first: BTreeMap<Hop, Duration>,
    account: Account,
    /// When its failure was seen first.
    failed: Option<Duration>,
}

impl Sightings {
    /// Nothing was seen; the HostedCluster was made now.
    pub(super) fn begin(began: Duration) -> Self {
        Self { began, seen: BTreeMap::new() }
    }

    /// Takes in what is told of a component now.
    pub(super) fn see(&mut self, component: Component, account: Account, now: Duration) {
        let sighted = self.seen.entry(component).or_default();
        for (hop, _) in &account.good {
            sighted.first.entry(*hop).or_insert(now);
        }
        match account.failure {
            Some(_) => sighted.failed = sighted.failed.or(Some(now)),
            None => sighted.failed = None,
        }
        sighted.account = account;
    }

    /// Whether nothing more is to be expected of a component.
    pub(super) fn is_settled(&self, component: Component) -> bool {
        self.seen.get(&component).is_some_and(|sighted| sighted.account.is_settled)
    }

    /// What was told of a component last.
    pub(super) fn account(&self, component: Component) -> Account {
        self.seen.get(&component).map(|sighted| sighted.account.clone()).unwrap_or_default()
    }

    /// The report of a component; `last` is the hop that is walked here, where everything else is
    /// good.
    pub(super) fn report(
        &self,
        component: Component,
        failure: Option<(Hop, Failure)>,
        last: Option<HopReport>,
    ) -> ComponentReport {
        let sighted = self.seen.get(&component);
        let mut before = self.began;
        let mut hops = Vec::new();
        let good = sighted.map(|it| it.account.good.as_slice()).unwrap_or_default();
        for (hop, detail) in good {
            let seen = sighted.and_then(|it| it.first.get(hop)).copied().unwrap_or(before);
            let seen = seen.max(before);
            hops.push(HopReport::good(*hop, seen.saturating_sub(before), detail.clone()));
            before = seen;
        }
        if let Some((hop, failure)) = failure {
            let seen = sighted.and_then(|it| it.failed).unwrap_or(before);
            hops.push(HopReport::failed(hop, seen.saturating_sub(before), failure));
        }
        hops.extend(last);
        for hop in Hop::ALL {
            if !hops.iter().any(|walked| walked.name == hop) {
                hops.push(HopReport::not_reached(hop));
            }
        }
        ComponentReport { name: component, hops }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(hops: &[Hop]) -> Vec<(Hop, String)> {
        hops.iter().map(|hop| (*hop, "told".to_owned())).collect()
    }

    #[test]
    fn a_hop_takes_the_time_since_the_hop_before_it_was_seen() {
        let at = Duration::from_millis;
        let mut sightings = Sightings::begin(at(100));
        let first = Account { good: good(&Hop::ALL[..2]), ..Account::default() };
        sightings.see(Component::Disk, first, at(350));
        let failure = (Hop::Volume, Failure::new("broken", "mend it"));
        let second = Account {
            good: good(&Hop::ALL[..2]),
            failure: Some(failure.clone()),
            is_settled: true,
        };
        sightings.see(Component::Disk, second.clone(), at(400));
        sightings.see(Component::Disk, second, at(900));
        assert!(sightings.is_settled(Component::Disk) && !sightings.is_settled(Component::Kms));
        let report = sightings.report(Component::Disk, Some(failure), None);
        let millis: Vec<_> = report.hops.iter().take(4).map(|hop| hop.millis).collect();
        assert_eq!(millis, [250.0, 0.0, 50.0, 0.0]);
        assert_eq!(report.hops.len(), Hop::ALL.len());
        assert_eq!(report.blamed().map(|hop| hop.name), Some(Hop::Volume));
    }
}
