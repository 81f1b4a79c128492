//! Vault, rotator, node and observer on a virtual clock: no expiry is missed, and nobody is woken
//! without need.

use proptest::prelude::*;

use super::*;

/// A credential: when it begins, is to be renewed and ends, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    written: i64,
    renewal: i64,
    end: i64,
}

/// A fleet's weather.
#[derive(Debug, Clone)]
struct Plan {
    /// The life of a credential, and after which part of it (of 1000) it is to be renewed.
    life: i64,
    renewal: i64,
    /// The poll interval of the node.
    interval: i64,
    /// For each generation: how soon the rotator writes, and how late the node is; parts of 1000 of
    /// what each of them may take.
    generations: Vec<(i64, i64)>,
    /// From which generation on nobody writes.
    stops: Option<usize>,
    /// When and how long the node cannot read the vault.
    outage: Option<(i64, i64)>,
}

impl Plan {
    fn policy(&self) -> Policy {
        let interval = Duration::from_secs(u64::try_from(self.interval).unwrap());
        Policy { reach: Reach::of_node_plugin(interval), ..Policy::default() }
    }

    fn reach(&self) -> i64 {
        i64::try_from(self.policy().reach.longest().as_secs()).unwrap()
    }

    fn version(&self, written: i64) -> Version {
        let renewal = written + self.life * self.renewal / 1000;
        Version { written, renewal, end: written + self.life }
    }

    fn forecast(&self, version: Version, now: i64) -> Forecast {
        let stamps = Stamps {
            not_before: Some(at(version.written)),
            renew_after: Some(at(version.renewal)),
            cannot_renew_after: Some(at(version.end)),
            not_after: Some(at(version.end)),
        };
        forecast(stamps, &self.policy(), at(now))
    }

    /// What the pod uses from when on.
    fn run(&self) -> Vec<(i64, Version)> {
        let mut used = vec![(0, self.version(0))];
        for (generation, (soon, late)) in self.generations.iter().enumerate() {
            if self.stops.is_some_and(|stops| generation >= stops) {
                break;
            }
            let (_, last) = used[used.len() - 1];
            let renew_by = second(self.forecast(last, 0).renew_by.unwrap());
            let written = last.renewal + (renew_by - last.renewal) * soon / 1000;
            used.push((self.arrival(written, *late), self.version(written)));
        }
        used
    }

    /// When what is written is in use. A node that could not read looks again within 1.2 intervals
    /// of the end of an outage.
    fn arrival(&self, written: i64, late: i64) -> i64 {
        let arrival = written + self.reach() * late / 1000;
        match self.outage {
            Some((from, length)) if from < arrival && written < from + length => {
                arrival.max(from + length + self.interval * 12 / 10 * late / 1000)
            }
            _ => arrival,
        }
    }

    /// Whether an outage kept a version longer than it would have taken.
    fn is_late(&self, arrival: i64, version: Version) -> bool {
        arrival > version.written + self.reach()
    }
}

/// Every verdict that an observer sees while a version is in use, looking at each moment that
/// matters and between them.
fn verdicts(plan: &Plan, version: Version, from: i64, until: i64) -> Vec<(i64, Verdict)> {
    let forecast = plan.forecast(version, from);
    let moments = forecast.moments().into_iter().map(|(at, _)| second(at));
    let around = moments.flat_map(|moment| [moment - 1, moment, moment + 1]);
    let steps = (0..=64).map(|step| from + (until - from) * step / 64);
    let mut looks: Vec<_> =
        around.chain(steps).filter(|look| (from..until).contains(look)).collect();
    looks.sort_unstable();
    looks.into_iter().map(|look| (look, plan.forecast(version, look).verdict)).collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn second(at: Timestamp) -> i64 {
    at.as_second() - 1_800_000_000
}

fn plan() -> impl Strategy<Value = Plan> {
    let hours = 3_600_i64;
    (
        12 * hours..90 * 24 * hours,
        300_i64..800,
        (1_i64..=360).prop_map(|tens| tens * 10),
        prop::collection::vec((0_i64..=1000, 0_i64..=1000), 3..8),
    )
        .prop_map(|(life, renewal, interval, generations)| Plan {
            life,
            renewal,
            interval,
            generations,
            stops: None,
            outage: None,
        })
        // There is time for both: see the documentation of the module above.
        .prop_filter("time for a rotator and for an alarm", |plan| {
            plan.life - plan.life * plan.renewal / 1000 > 2 * plan.reach() + 2
        })
}

proptest! {
    #[test]
    fn a_rotator_that_does_its_work_never_raises_an_alarm(plan in plan()) {
        let used = plan.run();
        for pair in used.windows(2) {
            let ((from, version), (until, _)) = (pair[0], pair[1]);
            prop_assert!(until < version.end, "no gap");
            for (look, verdict) in verdicts(&plan, version, from, until) {
                prop_assert!(!verdict.is_alarming(), "{verdict} at {look}");
            }
        }
    }

    #[test]
    fn a_rotator_that_stops_is_announced_while_a_write_still_helps(
        (plan, stops) in (plan(), 0_usize..3),
    ) {
        let plan = Plan { stops: Some(stops), ..plan };
        let used = plan.run();
        let (from, last) = used[used.len() - 1];
        let seen = verdicts(&plan, last, from, last.end + 10);
        let announced = seen.iter().find(|(_, verdict)| verdict.is_alarming());
        let (look, verdict) = announced.copied().unwrap();
        prop_assert_eq!(verdict, Verdict::Overdue);
        // Somebody who writes at the first word of it is in time, however late the node is.
        prop_assert!(plan.arrival(look, 1000) <= last.end);
        prop_assert!(seen.iter().all(|(look, verdict)| (*verdict == Verdict::Expired) == (*look >= last.end)));
        prop_assert!(seen.iter().map(|(_, verdict)| verdict).is_sorted());
    }

    #[test]
    fn an_outage_is_told_only_if_it_kept_a_renewal_away_and_no_end_comes_unannounced(
        (plan, from, length) in (plan(), 0_i64..1000, 0_i64..500),
    ) {
        let outage = (plan.life * 3 * from / 1000, plan.life * length / 1000);
        let plan = Plan { outage: Some(outage), ..plan };
        let used = plan.run();
        for pair in used.windows(2) {
            let ((from, version), (until, next)) = (pair[0], pair[1]);
            if until <= from {
                // An outage so long that two versions arrive together.
                continue;
            }
            let seen = verdicts(&plan, version, from, until);
            let alarm = seen.iter().find(|(_, verdict)| verdict.is_alarming());
            // A version that came late itself may be near its own renewal when it comes.
            prop_assert!(alarm.is_none() || plan.is_late(until, next), "{alarm:?}");
            let expired = seen.iter().find(|(_, verdict)| *verdict == Verdict::Expired);
            if let Some((end, _)) = expired {
                prop_assert!(*end >= version.end);
                let before = seen.iter().any(|(look, verdict)| *look < *end && *verdict == Verdict::Overdue);
                prop_assert!(before || from >= second(plan.forecast(version, 0).last_write_at.unwrap()));
            }
        }
    }

    #[test]
    fn a_write_until_the_last_moment_helps_and_one_after_it_may_not(plan in plan()) {
        let version = plan.version(0);
        let last = second(plan.forecast(version, 0).last_write_at.unwrap());
        prop_assert!(plan.arrival(last, 1000) <= version.end);
        prop_assert!(plan.arrival(last + 1, 1000) > version.end);
    }
}
