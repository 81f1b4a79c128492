//! Property tests that simulate vault, rotator, node and observer on a virtual clock: every missed
//! renewal raises an alarm in time, and no renewal in time raises one.

use proptest::prelude::*;

use super::*;

/// The validity start, renewal time and expiry of a credential, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SimulatedCredential {
    written_at: i64,
    renew_after: i64,
    not_after: i64,
}

/// The random parameters of a simulation.
#[derive(Debug, Clone)]
struct SimulatedRotation {
    /// The lifetime of a credential, and the fraction of it (in thousandths) after which the
    /// credential should be renewed.
    lifetime: i64,
    renewal_permille: i64,
    /// The poll interval of the node.
    poll_interval: i64,
    /// For each generation: the delays of the rotator and of the node, in thousandths of their
    /// maximum.
    generations: Vec<(i64, i64)>,
    /// The generation from which the rotator stops.
    stops_at_generation: Option<usize>,
    /// Start and duration of a vault outage.
    outage: Option<(i64, i64)>,
}

impl SimulatedRotation {
    fn renewal_policy(&self) -> RenewalPolicy {
        let interval = Duration::from_secs(u64::try_from(self.poll_interval).unwrap());
        RenewalPolicy {
            propagation_delay: PropagationDelay::for_node_plugin(interval),
            ..RenewalPolicy::default()
        }
    }

    fn propagation_seconds(&self) -> i64 {
        i64::try_from(self.renewal_policy().propagation_delay.total().as_secs()).unwrap()
    }

    fn credential_written_at(&self, written: i64) -> SimulatedCredential {
        let renewal = written + self.lifetime * self.renewal_permille / 1000;
        SimulatedCredential {
            written_at: written,
            renew_after: renewal,
            not_after: written + self.lifetime,
        }
    }

    fn forecast(&self, version: SimulatedCredential, now: i64) -> RenewalForecast {
        let stamps = ForecastTimestamps {
            not_before: Some(timestamp(version.written_at)),
            renew_after: Some(timestamp(version.renew_after)),
            cannot_renew_after: Some(timestamp(version.not_after)),
            not_after: Some(timestamp(version.not_after)),
        };
        forecast_renewal(stamps, &self.renewal_policy(), timestamp(now))
    }

    /// Returns the credentials that the pod uses, each with its start time.
    fn simulate(&self) -> Vec<(i64, SimulatedCredential)> {
        let mut used = vec![(0, self.credential_written_at(0))];
        for (generation, (soon, late)) in self.generations.iter().enumerate() {
            if self.stops_at_generation.is_some_and(|stops| generation >= stops) {
                break;
            }
            let (_, last) = used[used.len() - 1];
            let renew_by = seconds(self.forecast(last, 0).renew_by.unwrap());
            let written = last.renew_after + (renew_by - last.renew_after) * soon / 1000;
            used.push((self.in_use_at(written, *late), self.credential_written_at(written)));
        }
        used
    }

    /// Returns the time at which a written version is in use. After an outage, the node polls again
    /// within 1.2 intervals.
    fn in_use_at(&self, written: i64, late: i64) -> i64 {
        let arrival = written + self.propagation_seconds() * late / 1000;
        match self.outage {
            Some((from, length)) if from < arrival && written < from + length => {
                arrival.max(from + length + self.poll_interval * 12 / 10 * late / 1000)
            }
            _ => arrival,
        }
    }

    /// Returns whether an outage delayed a version beyond the propagation delay.
    fn is_delayed_by_outage(&self, arrival: i64, version: SimulatedCredential) -> bool {
        arrival > version.written_at + self.propagation_seconds()
    }
}

/// Returns every renewal state that an observer sees while a version is in use, sampled at each
/// milestone and between milestones.
fn observed_states(
    plan: &SimulatedRotation,
    version: SimulatedCredential,
    from: i64,
    until: i64,
) -> Vec<(i64, RenewalState)> {
    let forecast = plan.forecast(version, from);
    let moments = forecast.milestones().into_iter().map(|(at, _)| seconds(at));
    let around = moments.flat_map(|moment| [moment - 1, moment, moment + 1]);
    let steps = (0..=64).map(|step| from + (until - from) * step / 64);
    let mut times: Vec<_> =
        around.chain(steps).filter(|time| (from..until).contains(time)).collect();
    times.sort_unstable();
    times.into_iter().map(|time| (time, plan.forecast(version, time).verdict)).collect()
}

fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn seconds(at: Timestamp) -> i64 {
    at.as_second() - 1_800_000_000
}

fn any_rotation() -> impl Strategy<Value = SimulatedRotation> {
    let hours = 3_600_i64;
    (
        12 * hours..90 * 24 * hours,
        300_i64..800,
        (1_i64..=360).prop_map(|tens| tens * 10),
        prop::collection::vec((0_i64..=1000, 0_i64..=1000), 3..8),
    )
        .prop_map(|(life, renewal, interval, generations)| SimulatedRotation {
            lifetime: life,
            renewal_permille: renewal,
            poll_interval: interval,
            generations,
            stops_at_generation: None,
            outage: None,
        })
        // The lifetime must leave time for both the renewal and the alarm: see the parent module.
        .prop_filter("time for a rotator and for an alarm", |plan| {
            plan.lifetime - plan.lifetime * plan.renewal_permille / 1000
                > 2 * plan.propagation_seconds() + 2
        })
}

proptest! {
    #[test]
    fn renewals_on_time_raise_no_alarm(plan in any_rotation()) {
        let used = plan.simulate();
        for pair in used.windows(2) {
            let ((from, version), (until, _)) = (pair[0], pair[1]);
            prop_assert!(until < version.not_after, "no gap");
            for (time, verdict) in observed_states(&plan, version, from, until) {
                prop_assert!(!verdict.requires_action(), "{verdict} at {time}");
            }
        }
    }

    #[test]
    fn stopped_rotator_is_reported_before_the_last_useful_write(
        (plan, stops) in (any_rotation(), 0_usize..3),
    ) {
        let plan = SimulatedRotation { stops_at_generation: Some(stops), ..plan };
        let used = plan.simulate();
        let (from, last) = used[used.len() - 1];
        let observed = observed_states(&plan, last, from, last.not_after + 10);
        let announced = observed.iter().find(|(_, verdict)| verdict.requires_action());
        let (time, verdict) = announced.copied().unwrap();
        prop_assert_eq!(verdict, RenewalState::Overdue);
        // A write at the time of the first alarm is in use before the expiry, even with the maximum
        // node delay.
        prop_assert!(plan.in_use_at(time, 1000) <= last.not_after);
        prop_assert!(observed.iter().all(|(time, verdict)| (*verdict == RenewalState::Expired) == (*time >= last.not_after)));
        prop_assert!(observed.iter().map(|(_, verdict)| verdict).is_sorted());
    }

    #[test]
    fn outage_is_reported_only_if_it_delays_a_renewal(
        (plan, from, length) in (any_rotation(), 0_i64..1000, 0_i64..500),
    ) {
        let outage = (plan.lifetime * 3 * from / 1000, plan.lifetime * length / 1000);
        let plan = SimulatedRotation { outage: Some(outage), ..plan };
        let used = plan.simulate();
        for pair in used.windows(2) {
            let ((from, version), (until, next)) = (pair[0], pair[1]);
            if until <= from {
                // The outage was so long that two versions arrive together.
                continue;
            }
            let observed = observed_states(&plan, version, from, until);
            let alarm = observed.iter().find(|(_, verdict)| verdict.requires_action());
            // A version that arrives late may already be close to its own renewal.
            prop_assert!(alarm.is_none() || plan.is_delayed_by_outage(until, next), "{alarm:?}");
            let expired = observed.iter().find(|(_, verdict)| *verdict == RenewalState::Expired);
            if let Some((end, _)) = expired {
                prop_assert!(*end >= version.not_after);
                let before = observed.iter().any(|(time, verdict)| *time < *end && *verdict == RenewalState::Overdue);
                prop_assert!(before || from >= seconds(plan.forecast(version, 0).last_write_at.unwrap()));
            }
        }
    }

    #[test]
    fn write_is_useful_until_last_write_at(plan in any_rotation()) {
        let version = plan.credential_written_at(0);
        let last = seconds(plan.forecast(version, 0).last_write_at.unwrap());
        prop_assert!(plan.in_use_at(last, 1000) <= version.not_after);
        prop_assert!(plan.in_use_at(last + 1, 1000) > version.not_after);
    }
}
