//! The names of generations and their classification.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The name of one generation of a volume's files: `..YYYY_MM_DD_hh_mm_ss.<suffix>`, in UTC.
///
/// The layout is the kubelet's. The kubelet uses a random suffix; this driver counts, so that names
/// order generations even after a restart or a clock that went back. A suffix of another writer
/// that is not a number counts as zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeGeneration {
    number: u64,
    written_at: Timestamp,
    name: String,
}

impl VolumeGeneration {
    /// The generation `number`, written at `written`.
    pub fn new(number: u64, written: Timestamp) -> Self {
        let stamp = written.to_zoned(TimeZone::UTC).strftime(STAMP_FORMAT);
        Self { number, written_at: floor_to_second(written), name: format!("..{stamp}.{number}") }
    }

    /// The sequence number; newer generations have greater numbers.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// When the generation was written, in whole seconds.
    pub const fn written_at(&self) -> Timestamp {
        self.written_at
    }

    /// The name of the generation's directory.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl FromStr for VolumeGeneration {
    type Err = ParseGenerationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseGenerationError { name: text.to_owned() };
        let (stamp, suffix) = text
            .strip_prefix("..")
            .and_then(|rest| rest.split_once('.'))
            .filter(|(_, suffix)| !suffix.is_empty() && !suffix.contains(['/', '\0']))
            .ok_or_else(invalid)?;
        let civil = DateTime::strptime(STAMP_FORMAT, stamp).map_err(|_malformed| invalid())?;
        let written = civil.to_zoned(TimeZone::UTC).map_err(|_out_of_range| invalid())?.timestamp();
        let number = suffix.parse().unwrap_or(0);
        Ok(Self { number, written_at: written, name: text.to_owned() })
    }
}

impl Ord for VolumeGeneration {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for VolumeGeneration {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for VolumeGeneration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.name)
    }
}

/// The error for text that is not the name of a generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not of the form `..YYYY_MM_DD_hh_mm_ss.<suffix>`")]
pub struct ParseGenerationError {
    /// The rejected name.
    pub name: String,
}

/// How long a retired generation keeps its content, for readers that opened it before the swap.
pub const SCRUB_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// The generations of a volume, by their state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VolumeGenerations {
    /// The target of `..data`.
    pub(crate) current: Option<VolumeGeneration>,
    /// Generations that were current before, oldest first. Their files may be watched.
    pub(crate) retired: Vec<VolumeGeneration>,
    /// Generations that a crash left before they became current. No reader has seen them.
    pub(crate) abandoned: Vec<VolumeGeneration>,
}

impl VolumeGenerations {
    /// Classifies generations. Numbers of this driver increase and only the newest generation ever
    /// becomes current, so a generation newer than the current one was never visible. Other writers
    /// use random numbers, so a generation with an older timestamp counts as retired, whatever its
    /// number.
    pub(crate) fn classify(
        mut all: Vec<VolumeGeneration>,
        current: Option<VolumeGeneration>,
    ) -> Self {
        all.sort();
        let Some(current) = current else {
            return Self { current: None, retired: Vec::new(), abandoned: all };
        };
        all.retain(|generation| *generation != current);
        let was_seen = |it: &VolumeGeneration| *it < current || it.written_at < current.written_at;
        let (retired, abandoned) = all.into_iter().partition(was_seen);
        Self { current: Some(current), retired, abandoned }
    }

    /// The name of the next generation.
    pub(crate) fn next_generation(&self, now: Timestamp) -> VolumeGeneration {
        let all = self.retired.iter().chain(&self.abandoned).chain(&self.current);
        let newest = all.map(VolumeGeneration::number).max().unwrap_or(0);
        VolumeGeneration::new(newest.saturating_add(1), now)
    }

    /// When each retired generation may be scrubbed: [`SCRUB_GRACE`] after its successor was
    /// written, counted from the end of the second in the successor's name.
    ///
    /// The successor is the next by number, unless a clock went back; or the next by timestamp,
    /// unless another writer used random numbers. The later of both is never too early.
    pub(crate) fn scrub_times(&self) -> impl Iterator<Item = (&VolumeGeneration, Timestamp)> {
        let grace = SCRUB_GRACE.saturating_add(SignedDuration::from_secs(1));
        let current = self.current.as_ref();
        let mut by_stamp: Vec<_> = self.retired.iter().chain(current).collect();
        by_stamp.sort_by_key(|generation| (generation.written_at, generation.number));
        let next_by_stamp = move |one: &VolumeGeneration| {
            let upto = by_stamp
                .partition_point(|it| (it.written_at, it.number) <= (one.written_at, one.number));
            by_stamp.get(upto).copied()
        };
        let by_number = self.retired.iter().skip(1).chain(current);
        self.retired.iter().zip(by_number).map(move |(generation, next)| {
            let other = next_by_stamp(generation).or(current);
            let written =
                other.map_or(next.written_at, |other| other.written_at.max(next.written_at));
            (generation, written.saturating_add(grace).unwrap_or(Timestamp::MAX))
        })
    }
}

const STAMP_FORMAT: &str = "%Y_%m_%d_%H_%M_%S";

fn floor_to_second(at: Timestamp) -> Timestamp {
    at.round(jiff::TimestampRound::new().smallest(jiff::Unit::Second).mode(jiff::RoundMode::Floor))
        .unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_generation_is_named_as_the_kubelet_names_it() {
        let written = "2026-11-21T12:17:57.999Z".parse().unwrap();
        let generation = VolumeGeneration::new(42, written);
        assert_eq!(generation.as_str(), "..2026_11_21_12_17_57.42");
        assert_eq!(generation.as_str().parse::<VolumeGeneration>(), Ok(generation));
    }

    #[test]
    fn the_names_of_other_writers_are_read_and_other_names_are_not() {
        let kubelet: VolumeGeneration = "..2026_11_21_12_17_57.3285412978".parse().unwrap();
        assert_eq!(kubelet.number(), 3_285_412_978);
        let foreign: VolumeGeneration = "..2026_11_21_12_17_57.a1b2".parse().unwrap();
        assert_eq!(foreign.number(), 0);
        for name in [
            "..data",
            "..data_tmp",
            "..2026_11_21_12_17_57",
            "..2026_11_21_12_17_57.",
            "..2026_13_21_12_17_57.1",
            "2026_11_21_12_17_57.1",
            "..2026_11_21_12_17_57.1/a",
        ] {
            assert!(name.parse::<VolumeGeneration>().is_err(), "{name}");
        }
    }

    #[test]
    fn generation_newer_than_current_is_abandoned() {
        let [first, second, third, fourth] = [1, 2, 3, 4].map(|n| VolumeGeneration::new(n, at(0)));
        let all = vec![fourth.clone(), second.clone(), first.clone(), third.clone()];
        let generations = VolumeGenerations::classify(all, Some(third.clone()));
        assert_eq!(generations.current, Some(third));
        assert_eq!(generations.retired, [first, second]);
        assert_eq!(generations.abandoned, [fourth]);
        assert_eq!(generations.next_generation(at(0)).number(), 5);
    }

    #[test]
    fn a_retired_generation_is_scrubbed_a_grace_after_its_successor_was_written() {
        let all =
            [(1, 100), (2, 200), (3, 300)].map(|(n, second)| VolumeGeneration::new(n, at(second)));
        let generations = VolumeGenerations::classify(all.to_vec(), Some(all[2].clone()));
        let times: Vec<_> = generations.scrub_times().map(|(g, time)| (g.number(), time)).collect();
        assert_eq!(times, [(1, at(261)), (2, at(361))]);
    }

    #[test]
    fn generation_of_another_writer_is_neither_removed_nor_scrubbed_early() {
        // A generation of this driver, then one of another driver with a random suffix, then this
        // driver's again.
        let ours = [(7, 100), (8, 200)].map(|(n, second)| VolumeGeneration::new(n, at(second)));
        let theirs: VolumeGeneration = "..1970_01_01_00_05_00.3".parse().unwrap();
        let all = ours.iter().cloned().chain([theirs.clone()]).collect();
        let generations = VolumeGenerations::classify(all, Some(theirs.clone()));
        assert_eq!(
            (generations.retired.as_slice(), generations.abandoned.len()),
            (ours.as_slice(), 0)
        );
        let next = generations.next_generation(at(400));
        assert_eq!(next.number(), 9);

        let all = ours.into_iter().chain([theirs, next.clone()]).collect();
        let generations = VolumeGenerations::classify(all, Some(next));
        let mut times: Vec<_> =
            generations.scrub_times().map(|(g, time)| (g.number(), time)).collect();
        times.sort();
        assert_eq!(times, [(3, at(461)), (7, at(261)), (8, at(461))]);
    }

    #[test]
    fn a_clock_that_went_back_scrubs_nothing_early() {
        let all = [(1, 1_000), (2, 900), (3, 1_030), (4, 1_060)];
        let all = all.map(|(n, second)| VolumeGeneration::new(n, at(second)));
        let generations = VolumeGenerations::classify(all.to_vec(), Some(all[3].clone()));
        // Each generation was current until the next by number was written.
        for (generation, time) in generations.scrub_times() {
            let next = all.iter().find(|it| it.number() == generation.number() + 1).unwrap();
            assert!(time >= next.written_at().saturating_add(SCRUB_GRACE).unwrap(), "{generation}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_the_name(name in ".{0,40}") {
            if let Ok(generation) = name.parse::<VolumeGeneration>() {
                prop_assert_eq!(generation.as_str(), name);
            }
        }

        #[test]
        fn every_name_we_write_is_read_back(number: u64, second in 0i64..=4_102_444_800) {
            let generation = VolumeGeneration::new(number, at(second));
            prop_assert_eq!(generation.as_str().parse::<VolumeGeneration>(), Ok(generation));
        }
    }
}
