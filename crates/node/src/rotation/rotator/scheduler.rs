//! The state of the rotator and its next tasks. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_clock::ErrorHint as _;
use lanyard_provider::{ObjectTimestamps, PollInterval, RotationPolicy, Urgency};
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::SCRUB_GRACE;

use super::event_history::{RotationEventHistory, RotationEventTopic, RotationProblem};
use super::{RotationTarget, RotatorSettings};
use crate::reporter::PodEvent;
use crate::rotation::decision::{PollDecision, PollInputs, decide_poll};
use crate::rotation::pod_token_state::pod_token_state;

/// Namespace and name of a class.
type ClassKey = (String, String);

/// The state of the rotator.
#[derive(Debug)]
pub(super) struct RotationScheduler {
    settings: RotatorSettings,
    classes: BTreeMap<ClassKey, ObservedClass>,
    /// When to read the classes next.
    next_class_poll: Option<Timestamp>,
    scrubs: BTreeMap<PathBuf, ScrubSchedule>,
    /// Targets that are being rotated, that are being scrubbed, and that were rotated just now.
    rotating: BTreeSet<PathBuf>,
    scrubbing: BTreeSet<PathBuf>,
    cooling_down: BTreeMap<PathBuf, Timestamp>,
    /// Tasks that are ready to start, the most urgent first.
    ready: Vec<RotationTask>,
    /// When the next volume becomes due.
    next_due: Option<Timestamp>,
    event_history: RotationEventHistory,
}

/// A class as it was last read.
#[derive(Debug)]
struct ObservedClass {
    provider: Option<String>,
    parameters: BTreeMap<String, String>,
    policy: RotationPolicy,
    /// When its refresh request was first seen.
    refresh_first_seen: Option<Timestamp>,
}

/// When to scrub the retired generations of a volume.
#[derive(Debug)]
struct ScrubSchedule {
    generation: u64,
    due: Option<Timestamp>,
}

/// A task on a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RotationTask {
    Rotate { target: PathBuf, urgency: Urgency, last_attempt: Option<Timestamp> },
    Scrub { target: PathBuf },
}

/// The outcome of a finished task.
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

    /// The classes to read now: all classes in use at regular intervals, and unknown ones at once.
    pub(super) fn classes_to_poll(
        &mut self,
        now: Timestamp,
        volumes: &[RotationTarget],
    ) -> Vec<ClassKey> {
        if self.settings.interval.is_none() {
            return Vec::new();
        }
        let used: BTreeSet<ClassKey> = volumes.iter().map(class_key).collect();
        self.classes.retain(|key, _| used.contains(key));
        let is_time = self
            .next_class_poll
            .is_none_or(|poll| poll <= now || poll > saturating_after(now, CLASS_POLL_INTERVAL));
        if is_time {
            self.next_class_poll = Some(saturating_after(now, CLASS_POLL_INTERVAL));
        }
        used.into_iter().filter(|key| is_time || !self.classes.contains_key(key)).collect()
    }

    pub(super) fn record_class(
        &mut self,
        now: Timestamp,
        namespace: &str,
        name: &str,
        class: &SecretProviderClass,
    ) {
        let key = (namespace.to_owned(), name.to_owned());
        let policy = RotationPolicy::parse(class, self.settings.interval_bounds);
        let before = self.classes.get(&key);
        let first_seen = match before.filter(|class| class.policy.refresh == policy.refresh) {
            Some(class) => class.refresh_first_seen,
            None => policy.refresh.as_ref().map(|_| now),
        };
        let provider = class.spec.provider.clone();
        let parameters = class.spec.parameters.clone().unwrap_or_default();
        self.classes.insert(
            key,
            ObservedClass { provider, parameters, policy, refresh_first_seen: first_seen },
        );
    }

    /// Plans the tasks of all volumes. Returns the events to emit.
    pub(super) fn plan_tasks(
        &mut self,
        now: Timestamp,
        volumes: Vec<RotationTarget>,
    ) -> Vec<PodEvent> {
        self.retain_volumes(&volumes);
        self.cooling_down
            .retain(|_, until| *until > now && *until <= saturating_after(now, COOL_DOWN));
        self.ready.clear();
        self.next_due = None;
        let mut problems = BTreeMap::new();
        let mut due = Vec::new();
        for volume in &volumes {
            self.plan_scrub(now, volume);
            if let Some(interval) = self.settings.interval {
                self.plan_rotation(now, interval, volume, &mut due);
                self.find_problems(now, interval, volume, &mut problems);
            }
        }
        due.sort_by_key(|(order, _)| *order);
        self.ready.extend(due.into_iter().map(|(_, task)| task));
        let targets: BTreeSet<_> = volumes.iter().map(|volume| &volume.target).collect();
        let classes = &self.classes;
        self.event_history.new_events(now, problems, |topic| match topic {
            RotationEventTopic::Annotations(namespace, name) => {
                !classes.contains_key(&(namespace.clone(), name.clone()))
            }
            RotationEventTopic::Proofs(target) | RotationEventTopic::Expiry(target, _) => {
                !targets.contains(target)
            }
        })
    }

    /// The tasks to start now: every scrub, and rotations up to the concurrency limit.
    pub(super) fn start_tasks(&mut self) -> Vec<RotationTask> {
        let free_slots =
            &mut self.settings.max_concurrent.get().saturating_sub(self.rotating.len());
        let mut started = Vec::new();
        let mut waiting = Vec::new();
        for task in std::mem::take(&mut self.ready) {
            match &task {
                RotationTask::Scrub { target } => {
                    self.scrubbing.insert(target.clone());
                    started.push(task);
                }
                RotationTask::Rotate { target, .. } if *free_slots > 0 => {
                    *free_slots -= 1;
                    self.rotating.insert(target.clone());
                    started.push(task);
                }
                RotationTask::Rotate { .. } => waiting.push(task),
            }
        }
        self.ready = waiting;
        started
    }

    /// Records the outcome of a task; `None` if the task panicked.
    pub(super) fn finish_task(&mut self, done: Option<RotationTaskOutcome>, now: Timestamp) {
        match done {
            Some(RotationTaskOutcome::Rotated { target }) => {
                self.rotating.remove(&target);
                self.cooling_down.insert(target, saturating_after(now, COOL_DOWN));
            }
            Some(RotationTaskOutcome::Scrubbed { target, next_scrub }) => {
                self.scrubbing.remove(&target);
                let due = next_scrub.unwrap_or_else(|()| Some(saturating_after(now, SCRUB_RETRY)));
                if let Some(scrubs) = self.scrubs.get_mut(&target) {
                    scrubs.due = due;
                }
            }
            None => {
                tracing::error!("a rotation task panicked");
                self.rotating.clear();
                self.scrubbing.clear();
            }
        }
    }

    /// How long to sleep, unless a task ends earlier.
    pub(super) fn sleep_duration(&self, now: Timestamp) -> Duration {
        let next = self.next_due.into_iter().chain(self.cooling_down.values().copied()).min();
        let until =
            |due: Timestamp| Duration::try_from(due.duration_since(now)).unwrap_or_default();
        let longest = self.settings.interval.map_or(MAX_SLEEP, |it| it.duration() / 2);
        next.map_or(MAX_SLEEP, until).min(MAX_SLEEP).min(longest).max(MIN_SLEEP)
    }

    fn retain_volumes(&mut self, volumes: &[RotationTarget]) {
        let targets: BTreeSet<_> = volumes.iter().map(|volume| &volume.target).collect();
        self.scrubs.retain(|target, _| targets.contains(target));
    }

    /// A new volume is scrubbed at once: an earlier process may have mounted it.
    fn plan_scrub(&mut self, now: Timestamp, volume: &RotationTarget) {
        let RotationTarget { target, generation, .. } = volume;
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
                self.ready.push(RotationTask::Scrub { target: target.clone() });
            }
            Some(due) => self.next_due = Some(earliest(self.next_due, due)),
            None => {}
        }
    }

    fn plan_rotation(
        &mut self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotationTarget,
        due: &mut Vec<((Urgency, Timestamp), RotationTask)>,
    ) {
        match self.decide_rotation(now, interval, volume) {
            PollDecision::NotBefore(at) => self.next_due = Some(earliest(self.next_due, at)),
            PollDecision::Due { urgency, since, .. } => {
                let target = volume.target.clone();
                if !self.rotating.contains(&target) && !self.cooling_down.contains_key(&target) {
                    let last_attempt = volume.history.last_attempt();
                    due.push((
                        (urgency, since),
                        RotationTask::Rotate { target, urgency, last_attempt },
                    ));
                }
            }
            PollDecision::AwaitsPublish { .. } => {}
        }
    }

    fn decide_rotation(
        &self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotationTarget,
    ) -> PollDecision {
        let class = self.classes.get(&class_key(volume));
        let of_class = match class {
            Some(class) => class.policy.interval,
            None => volume.history.interval(),
        };
        let refresh =
            class.and_then(|class| class.policy.refresh.as_ref().zip(class.refresh_first_seen));
        let none = BTreeMap::new();
        let provider = class.and_then(|class| class.provider.as_deref());
        let parameters = class.map_or(&none, |class| &class.parameters);
        let stamps: Vec<ObjectTimestamps> = volume.timestamps.values().copied().collect();
        decide_poll(
            now,
            &PollInputs {
                volume_id: &volume.volume_id,
                history: &volume.history,
                interval: of_class.unwrap_or(interval),
                timestamps: &stamps,
                refresh,
                pod_tokens: pod_token_state(
                    provider,
                    parameters,
                    volume.pod_credentials.as_ref(),
                    now,
                ),
            },
        )
    }

    fn find_problems(
        &self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotationTarget,
        problems: &mut BTreeMap<RotationEventTopic, RotationProblem>,
    ) {
        let key = class_key(volume);
        let mut add = |topic: RotationEventTopic, code, message| {
            // The event goes to the pod of the first volume of a class.
            problems.entry(topic).or_insert(RotationProblem {
                pod: volume.pod.clone(),
                code,
                message,
            });
        };
        if let Some(class) = self.classes.get(&key).filter(|it| !it.policy.problems.is_empty()) {
            let topic = RotationEventTopic::Annotations(key.0.clone(), key.1.clone());
            let message = annotation_message(&key, &class.policy);
            add(topic, OutcomeCode::SecretProviderClassInvalid, message);
        }
        if let PollDecision::AwaitsPublish { since } = self.decide_rotation(now, interval, volume)
            && saturating_after(since, PROOF_TIMEOUT) < now
        {
            let (code, message) = overdue_message(since, &key, self.classes.contains_key(&key));
            add(RotationEventTopic::Proofs(volume.target.clone()), code, message);
        }
        for (id, stamps) in &volume.timestamps {
            if let Some(end) = stamps.not_after.filter(|end| *end <= now) {
                let message = format!(
                    "{id} expired at {end}, and the vault has no newer version: {}",
                    OutcomeCode::ObjectExpired.hint()
                );
                let topic = RotationEventTopic::Expiry(volume.target.clone(), id.clone());
                add(topic, OutcomeCode::ObjectExpired, message);
            }
        }
    }
}

/// The event for an overdue volume. If its class was never read, it is unknown whether the volume
/// needs a token.
fn overdue_message(
    since: Timestamp,
    (namespace, name): &ClassKey,
    is_class_known: bool,
) -> (OutcomeCode, String) {
    if is_class_known {
        let message = format!(
            "a poll of the volume is due since {since}, and the kubelet has sent no valid \
             ServiceAccount token: set `requiresRepublish: true` on the CSIDriver object"
        );
        return (OutcomeCode::TokenNotFound, message);
    }
    let code = OutcomeCode::ClassSourceUnavailable;
    let message = format!(
        "a poll of the volume is due since {since}, and SecretProviderClass {namespace}/{name} could \
         not be read since the node plugin started: check that it exists; {}",
        code.hint()
    );
    (code, message)
}

fn annotation_message((namespace, name): &ClassKey, policy: &RotationPolicy) -> String {
    let problems = policy.problems.iter().map(|problem| {
        let cause = std::error::Error::source(problem).map(ToString::to_string).unwrap_or_default();
        format!("{problem}: {cause}: {}", problem.hint().unwrap_or_default())
    });
    let problems: Vec<_> = problems.collect();
    format!("SecretProviderClass {namespace}/{name}: {}", problems.join("; "))
}

fn class_key(volume: &RotationTarget) -> ClassKey {
    (volume.pod.namespace.clone(), volume.class_name.clone())
}

fn earliest(before: Option<Timestamp>, at: Timestamp) -> Timestamp {
    before.map_or(at, |before| before.min(at))
}

fn saturating_after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// How often the classes are read.
const CLASS_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The pause after a rotation of a volume, whatever its outcome.
const COOL_DOWN: Duration = Duration::from_secs(1);

const MAX_SLEEP: Duration = Duration::from_secs(2);
const MIN_SLEEP: Duration = Duration::from_millis(50);

const SCRUB_RETRY: Duration = Duration::from_mins(1);

/// The name of a generation contains its time in whole seconds.
const SCRUB_ROUNDING: Duration = Duration::from_secs(1);

/// The kubelet publishes every 63 to 82 s by default. Several missed rounds are tolerated.
const PROOF_TIMEOUT: Duration = Duration::from_mins(5);
