//! What the loop knows and does next: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::OutcomeCode;

use super::event_history::{RotationEventHistory, RotationEventTopic, RotationProblem};
use super::{RotatingVolume, RotatorSettings};
use crate::generation::SCRUB_GRACE;
use crate::provider::{ObjectTimestamps, Urgency};
use crate::reporter::PodEvent;
use crate::rotation::decision::{PollDecision, PollInputs, decide_poll};
use crate::rotation::interval::PollInterval;
use crate::rotation::proof_state::proof_state;
use crate::rotation::rotation_policy::RotationPolicy;

/// Namespace and name of a class.
type ClassKey = (String, String);

/// The state of the loop.
#[derive(Debug)]
pub(super) struct RotationScheduler {
    settings: RotatorSettings,
    classes: BTreeMap<ClassKey, ObservedClass>,
    /// When the classes are looked at next.
    next_class_poll: Option<Timestamp>,
    scrubs: BTreeMap<PathBuf, ScrubSchedule>,
    /// Volumes that are being rotated, that are being scrubbed, and that were rotated just now.
    rotating: BTreeSet<PathBuf>,
    scrubbing: BTreeSet<PathBuf>,
    cooling_down: BTreeMap<PathBuf, Timestamp>,
    /// What could begin, the most urgent first.
    ready: Vec<RotationTask>,
    /// When the next volume is due that is not.
    next_due: Option<Timestamp>,
    event_history: RotationEventHistory,
}

/// A class as it was seen last.
#[derive(Debug)]
struct ObservedClass {
    provider: Option<String>,
    parameters: BTreeMap<String, String>,
    policy: RotationPolicy,
    /// When its wish for a refresh was seen first.
    refresh_first_seen: Option<Timestamp>,
}

/// When the retired generations of a volume are scrubbed.
#[derive(Debug)]
struct ScrubSchedule {
    generation: u64,
    due: Option<Timestamp>,
}

/// Something to be done with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RotationTask {
    Rotate { target: PathBuf, urgency: Urgency, looked: Option<Timestamp> },
    Scrub { target: PathBuf },
}

/// Something that was done.
#[derive(Debug)]
pub(super) enum RotationTaskOutcome {
    Rotated { target: PathBuf },
    Scrubbed { target: PathBuf, next_scrub: Result<Option<Timestamp>, ()> },
}

impl RotationScheduler {
    pub(super) fn new(settings: RotatorSettings) -> Self {
        Self {
            settings,
            classes: BTreeMap::new(),
            next_class_poll: None,
            scrubs: BTreeMap::new(),
            rotating: BTreeSet::new(),
            scrubbing: BTreeSet::new(),
            cooling_down: BTreeMap::new(),
            ready: Vec::new(),
            next_due: None,
            event_history: RotationEventHistory::default(),
        }
    }

    /// The classes to look at now: all that are in use from time to time, and at once those that
    /// were never seen.
    pub(super) fn classes_to_poll(
        &mut self,
        now: Timestamp,
        volumes: &[RotatingVolume],
    ) -> Vec<ClassKey> {
        if self.settings.interval.is_none() {
            return Vec::new();
        }
        let used: BTreeSet<ClassKey> = volumes.iter().map(class_key).collect();
        self.classes.retain(|key, _| used.contains(key));
        let is_time = self
            .next_class_poll
            .is_none_or(|look| look <= now || look > saturating_after(now, CLASS_POLL_INTERVAL));
        if is_time {
            self.next_class_poll = Some(saturating_after(now, CLASS_POLL_INTERVAL));
        }
        used.into_iter().filter(|key| is_time || !self.classes.contains_key(key)).collect()
    }

    /// Takes note of a class.
    pub(super) fn record_class(
        &mut self,
        now: Timestamp,
        namespace: &str,
        name: &str,
        class: &SecretProviderClass,
    ) {
        let key = (namespace.to_owned(), name.to_owned());
        let wishes = RotationPolicy::parse(class, self.settings.interval_bounds);
        let before = self.classes.get(&key);
        let noticed = match before.filter(|seen| seen.policy.refresh == wishes.refresh) {
            Some(seen) => seen.refresh_first_seen,
            None => wishes.refresh.as_ref().map(|_| now),
        };
        let provider = class.spec.provider.clone();
        let parameters = class.spec.parameters.clone().unwrap_or_default();
        self.classes.insert(
            key,
            ObservedClass { provider, parameters, policy: wishes, refresh_first_seen: noticed },
        );
    }

    /// Decides about every volume; returns what people have to be told.
    pub(super) fn plan_tasks(
        &mut self,
        now: Timestamp,
        volumes: Vec<RotatingVolume>,
    ) -> Vec<PodEvent> {
        self.retain_volumes(&volumes);
        self.cooling_down
            .retain(|_, until| *until > now && *until <= saturating_after(now, COOL_DOWN));
        self.ready.clear();
        self.next_due = None;
        let mut troubles = BTreeMap::new();
        let mut due = Vec::new();
        for volume in &volumes {
            self.plan_scrub(now, volume);
            if let Some(interval) = self.settings.interval {
                self.plan_rotation(now, interval, volume, &mut due);
                self.find_problems(now, interval, volume, &mut troubles);
            }
        }
        due.sort_by_key(|(order, _)| *order);
        self.ready.extend(due.into_iter().map(|(_, task)| task));
        let targets: BTreeSet<_> = volumes.iter().map(|volume| &volume.target).collect();
        let classes = &self.classes;
        self.event_history.new_events(now, troubles, |topic| match topic {
            RotationEventTopic::Annotations(namespace, name) => {
                !classes.contains_key(&(namespace.clone(), name.clone()))
            }
            RotationEventTopic::Proofs(target) | RotationEventTopic::Expiry(target, _) => {
                !targets.contains(target)
            }
        })
    }

    /// What begins now: every scrub, and rotations as far as there is room.
    pub(super) fn start_tasks(&mut self) -> Vec<RotationTask> {
        let room = &mut self.settings.max_concurrent.get().saturating_sub(self.rotating.len());
        let mut begun = Vec::new();
        let mut left = Vec::new();
        for task in std::mem::take(&mut self.ready) {
            match &task {
                RotationTask::Scrub { target } => {
                    self.scrubbing.insert(target.clone());
                    begun.push(task);
                }
                RotationTask::Rotate { target, .. } if *room > 0 => {
                    *room -= 1;
                    self.rotating.insert(target.clone());
                    begun.push(task);
                }
                RotationTask::Rotate { .. } => left.push(task),
            }
        }
        self.ready = left;
        begun
    }

    /// Takes note of what was done; nothing where a task panicked.
    pub(super) fn finish_task(&mut self, done: Option<RotationTaskOutcome>, now: Timestamp) {
        match done {
            Some(RotationTaskOutcome::Rotated { target }) => {
                self.rotating.remove(&target);
                self.cooling_down.insert(target, saturating_after(now, COOL_DOWN));
            }
            Some(RotationTaskOutcome::Scrubbed { target, next_scrub: again }) => {
                self.scrubbing.remove(&target);
                let due = again.unwrap_or_else(|()| Some(saturating_after(now, SCRUB_RETRY)));
                if let Some(scrubs) = self.scrubs.get_mut(&target) {
                    scrubs.due = due;
                }
            }
            None => {
                tracing::error!("a task of the rotation ended without an outcome");
                self.rotating.clear();
                self.scrubbing.clear();
            }
        }
    }

    /// How long there is nothing to do, unless a task ends before.
    pub(super) fn sleep_duration(&self, now: Timestamp) -> Duration {
        let next = self.next_due.into_iter().chain(self.cooling_down.values().copied()).min();
        let until =
            |due: Timestamp| Duration::try_from(due.duration_since(now)).unwrap_or_default();
        let longest = self.settings.interval.map_or(MAX_SLEEP, |it| it.duration() / 2);
        next.map_or(MAX_SLEEP, until).min(MAX_SLEEP).min(longest).max(MIN_SLEEP)
    }

    fn retain_volumes(&mut self, volumes: &[RotatingVolume]) {
        let targets: BTreeSet<_> = volumes.iter().map(|volume| &volume.target).collect();
        self.scrubs.retain(|target, _| targets.contains(target));
    }

    /// A volume that is seen for the first time is scrubbed at once: it may have been mounted by
    /// an earlier process.
    fn plan_scrub(&mut self, now: Timestamp, volume: &RotatingVolume) {
        let RotatingVolume { target, generation, .. } = volume;
        let scrubs = self
            .scrubs
            .entry(target.clone())
            .or_insert(ScrubSchedule { generation: *generation, due: Some(now) });
        if scrubs.generation != *generation {
            scrubs.generation = *generation;
            let due = now.saturating_add(SCRUB_GRACE).unwrap_or(Timestamp::MAX);
            let due = saturating_after(due, SCRUB_ROUNDING);
            scrubs.due = Some(earliest(scrubs.due, due));
        }
        match scrubs.due {
            Some(_) if self.scrubbing.contains(target) => {}
            Some(due) if due <= now => {
                self.ready.push(RotationTask::Scrub { target: target.clone() })
            }
            Some(due) => self.next_due = Some(earliest(self.next_due, due)),
            None => {}
        }
    }

    fn plan_rotation(
        &mut self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotatingVolume,
        due: &mut Vec<((Urgency, Timestamp), RotationTask)>,
    ) {
        match self.decide_rotation(now, interval, volume) {
            PollDecision::NotBefore(at) => self.next_due = Some(earliest(self.next_due, at)),
            PollDecision::Due { urgency, since, .. } => {
                let target = volume.target.clone();
                if !self.rotating.contains(&target) && !self.cooling_down.contains_key(&target) {
                    let looked = volume.history.last_attempt();
                    due.push(((urgency, since), RotationTask::Rotate { target, urgency, looked }));
                }
            }
            PollDecision::AwaitsProofs { .. } => {}
        }
    }

    fn decide_rotation(
        &self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotatingVolume,
    ) -> PollDecision {
        let seen = self.classes.get(&class_key(volume));
        let of_class = match seen {
            Some(seen) => seen.policy.interval,
            None => volume.history.interval(),
        };
        let refresh =
            seen.and_then(|seen| seen.policy.refresh.as_ref().zip(seen.refresh_first_seen));
        let none = BTreeMap::new();
        let provider = seen.and_then(|seen| seen.provider.as_deref());
        let parameters = seen.map_or(&none, |seen| &seen.parameters);
        let stamps: Vec<ObjectTimestamps> = volume.timestamps.values().copied().collect();
        decide_poll(
            now,
            &PollInputs {
                volume_id: &volume.volume_id,
                history: &volume.history,
                interval: of_class.unwrap_or(interval),
                timestamps: &stamps,
                refresh,
                proofs: proof_state(provider, parameters, volume.proofs.as_ref(), now),
            },
        )
    }

    fn find_problems(
        &self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotatingVolume,
        troubles: &mut BTreeMap<RotationEventTopic, RotationProblem>,
    ) {
        let key = class_key(volume);
        let mut add = |topic: RotationEventTopic, code, message| {
            // The first volume speaks for its class.
            troubles.entry(topic).or_insert(RotationProblem {
                pod: volume.pod.clone(),
                code,
                message,
            });
        };
        if let Some(seen) = self.classes.get(&key).filter(|it| !it.policy.problems.is_empty()) {
            let topic = RotationEventTopic::Annotations(key.0.clone(), key.1.clone());
            let message = annotation_message(&key, &seen.policy);
            add(topic, OutcomeCode::SecretProviderClassInvalid, message);
        }
        if let PollDecision::AwaitsProofs { since } = self.decide_rotation(now, interval, volume)
            && saturating_after(since, PROOF_TIMEOUT) < now
        {
            let (code, message) = overdue_message(since, &key, self.classes.contains_key(&key));
            add(RotationEventTopic::Proofs(volume.target.clone()), code, message);
        }
        for (id, stamps) in &volume.timestamps {
            if let Some(end) = stamps.not_after.filter(|end| *end <= now) {
                let message = format!(
                    "{id} expired at {end}, and the vault has nothing newer: {}",
                    OutcomeCode::ObjectExpired.hint()
                );
                let topic = RotationEventTopic::Expiry(volume.target.clone(), id.clone());
                add(topic, OutcomeCode::ObjectExpired, message);
            }
        }
    }
}

/// What keeps a volume from being looked at. Where its class was never seen, nobody knows whether
/// it needs a token at all.
fn overdue_message(
    since: Timestamp,
    (namespace, name): &ClassKey,
    is_class_known: bool,
) -> (OutcomeCode, String) {
    if is_class_known {
        let message = format!(
            "the volume is due since {since}, and the kubelet has brought no ServiceAccount token \
             that is still valid: set `requiresRepublish: true` on the CSIDriver object"
        );
        return (OutcomeCode::TokenNotFound, message);
    }
    let code = OutcomeCode::ClassSourceUnavailable;
    let message = format!(
        "the volume is due since {since}, and SecretProviderClass {namespace}/{name} was not to be \
         had since the node plugin began: see that it is there; {}",
        code.hint()
    );
    (code, message)
}

fn annotation_message((namespace, name): &ClassKey, wishes: &RotationPolicy) -> String {
    let problems = wishes.problems.iter().map(|problem| {
        let cause = std::error::Error::source(problem).map(ToString::to_string).unwrap_or_default();
        format!("{problem}: {cause}: {}", problem.hint())
    });
    let problems: Vec<_> = problems.collect();
    format!("SecretProviderClass {namespace}/{name}: {}", problems.join("; "))
}

fn class_key(volume: &RotatingVolume) -> ClassKey {
    (volume.pod.namespace.clone(), volume.class_name.clone())
}

fn earliest(before: Option<Timestamp>, at: Timestamp) -> Timestamp {
    before.map_or(at, |before| before.min(at))
}

fn saturating_after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// How often the annotations of the classes are looked at.
const CLASS_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A volume that was just rotated is left alone for so long, though nothing came of it.
const COOL_DOWN: Duration = Duration::from_secs(1);

const MAX_SLEEP: Duration = Duration::from_secs(2);
const MIN_SLEEP: Duration = Duration::from_millis(50);

const SCRUB_RETRY: Duration = Duration::from_mins(1);

/// The name of a generation tells when it was written to the second.
const SCRUB_ROUNDING: Duration = Duration::from_secs(1);

/// The kubelet publishes every 63 to 82 s by default. So many rounds without one are no delay.
const PROOF_TIMEOUT: Duration = Duration::from_mins(5);
