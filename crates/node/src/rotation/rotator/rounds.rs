//! What the loop knows and does next: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::OutcomeCode;

use super::told::{Told, Topic, Trouble};
use super::{RotatingVolume, RotatorSettings};
use crate::generation::SCRUB_GRACE;
use crate::provider::{Stamps, Urgency};
use crate::reporter::Notice;
use crate::rotation::decision::{Decision, Look, decide};
use crate::rotation::interval::PollInterval;
use crate::rotation::proof_state::proof_state;
use crate::rotation::wishes::ClassWishes;

/// Namespace and name of a class.
type ClassKey = (String, String);

/// The state of the loop.
#[derive(Debug)]
pub(super) struct Rounds {
    settings: RotatorSettings,
    classes: BTreeMap<ClassKey, SeenClass>,
    /// When the classes are looked at next.
    class_look: Option<Timestamp>,
    scrubs: BTreeMap<PathBuf, Scrubs>,
    /// Volumes that are being rotated, that are being scrubbed, and that were rotated just now.
    busy: BTreeSet<PathBuf>,
    scrubbing: BTreeSet<PathBuf>,
    resting: BTreeMap<PathBuf, Timestamp>,
    /// What could begin, the most urgent first.
    waiting: Vec<Task>,
    /// When the next volume is due that is not.
    next: Option<Timestamp>,
    told: Told,
}

/// A class as it was seen last.
#[derive(Debug)]
struct SeenClass {
    provider: Option<String>,
    parameters: BTreeMap<String, String>,
    wishes: ClassWishes,
    /// When its wish for a refresh was seen first.
    noticed: Option<Timestamp>,
}

/// When the retired generations of a volume are scrubbed.
#[derive(Debug)]
struct Scrubs {
    generation: u64,
    due: Option<Timestamp>,
}

/// Something to be done with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Task {
    Rotate { target: PathBuf, urgency: Urgency, looked: Option<Timestamp> },
    Scrub { target: PathBuf },
}

/// Something that was done.
#[derive(Debug)]
pub(super) enum Done {
    Rotated { target: PathBuf },
    Scrubbed { target: PathBuf, again: Result<Option<Timestamp>, ()> },
}

impl Rounds {
    pub(super) fn new(settings: RotatorSettings) -> Self {
        Self {
            settings,
            classes: BTreeMap::new(),
            class_look: None,
            scrubs: BTreeMap::new(),
            busy: BTreeSet::new(),
            scrubbing: BTreeSet::new(),
            resting: BTreeMap::new(),
            waiting: Vec::new(),
            next: None,
            told: Told::default(),
        }
    }

    /// The classes to look at now: all that are in use from time to time, and at once those that
    /// were never seen.
    pub(super) fn classes_to_look_at(
        &mut self,
        now: Timestamp,
        volumes: &[RotatingVolume],
    ) -> Vec<ClassKey> {
        if self.settings.interval.is_none() {
            return Vec::new();
        }
        let used: BTreeSet<ClassKey> = volumes.iter().map(class_key).collect();
        self.classes.retain(|key, _| used.contains(key));
        let is_time =
            self.class_look.is_none_or(|look| look <= now || look > after(now, CLASS_LOOK));
        if is_time {
            self.class_look = Some(after(now, CLASS_LOOK));
        }
        used.into_iter().filter(|key| is_time || !self.classes.contains_key(key)).collect()
    }

    /// Takes note of a class.
    pub(super) fn see(
        &mut self,
        now: Timestamp,
        namespace: &str,
        name: &str,
        class: &SecretProviderClass,
    ) {
        let key = (namespace.to_owned(), name.to_owned());
        let wishes = ClassWishes::parse(class, self.settings.bounds);
        let before = self.classes.get(&key);
        let noticed = match before.filter(|seen| seen.wishes.refresh == wishes.refresh) {
            Some(seen) => seen.noticed,
            None => wishes.refresh.as_ref().map(|_| now),
        };
        let provider = class.spec.provider.clone();
        let parameters = class.spec.parameters.clone().unwrap_or_default();
        self.classes.insert(key, SeenClass { provider, parameters, wishes, noticed });
    }

    /// Decides about every volume; returns what people have to be told.
    pub(super) fn plan(&mut self, now: Timestamp, volumes: Vec<RotatingVolume>) -> Vec<Notice> {
        self.forget_all_but(&volumes);
        self.resting.retain(|_, until| *until > now && *until <= after(now, REST));
        self.waiting.clear();
        self.next = None;
        let mut troubles = BTreeMap::new();
        let mut due = Vec::new();
        for volume in &volumes {
            self.plan_scrub(now, volume);
            if let Some(interval) = self.settings.interval {
                self.plan_rotation(now, interval, volume, &mut due);
                self.find_troubles(now, interval, volume, &mut troubles);
            }
        }
        due.sort_by_key(|(order, _)| *order);
        self.waiting.extend(due.into_iter().map(|(_, task)| task));
        let targets: BTreeSet<_> = volumes.iter().map(|volume| &volume.target).collect();
        let classes = &self.classes;
        self.told.notices(now, troubles, |topic| match topic {
            Topic::Annotations(namespace, name) => {
                !classes.contains_key(&(namespace.clone(), name.clone()))
            }
            Topic::Proofs(target) | Topic::Expiry(target, _) => !targets.contains(target),
        })
    }

    /// What begins now: every scrub, and rotations as far as there is room.
    pub(super) fn begin(&mut self) -> Vec<Task> {
        let room = &mut self.settings.at_once.get().saturating_sub(self.busy.len());
        let mut begun = Vec::new();
        let mut left = Vec::new();
        for task in std::mem::take(&mut self.waiting) {
            match &task {
                Task::Scrub { target } => {
                    self.scrubbing.insert(target.clone());
                    begun.push(task);
                }
                Task::Rotate { target, .. } if *room > 0 => {
                    *room -= 1;
                    self.busy.insert(target.clone());
                    begun.push(task);
                }
                Task::Rotate { .. } => left.push(task),
            }
        }
        self.waiting = left;
        begun
    }

    /// Takes note of what was done; nothing where a task panicked.
    pub(super) fn end(&mut self, done: Option<Done>, now: Timestamp) {
        match done {
            Some(Done::Rotated { target }) => {
                self.busy.remove(&target);
                self.resting.insert(target, after(now, REST));
            }
            Some(Done::Scrubbed { target, again }) => {
                self.scrubbing.remove(&target);
                let due = again.unwrap_or_else(|()| Some(after(now, SCRUB_RETRY)));
                if let Some(scrubs) = self.scrubs.get_mut(&target) {
                    scrubs.due = due;
                }
            }
            None => {
                tracing::error!("a task of the rotation ended without an outcome");
                self.busy.clear();
                self.scrubbing.clear();
            }
        }
    }

    /// How long there is nothing to do, unless a task ends before.
    pub(super) fn rest(&self, now: Timestamp) -> Duration {
        let next = self.next.into_iter().chain(self.resting.values().copied()).min();
        let until =
            |due: Timestamp| Duration::try_from(due.duration_since(now)).unwrap_or_default();
        let longest = self.settings.interval.map_or(LONGEST_REST, |it| it.duration() / 2);
        next.map_or(LONGEST_REST, until).min(LONGEST_REST).min(longest).max(SHORTEST_REST)
    }

    fn forget_all_but(&mut self, volumes: &[RotatingVolume]) {
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
            .or_insert(Scrubs { generation: *generation, due: Some(now) });
        if scrubs.generation != *generation {
            scrubs.generation = *generation;
            let due = now.saturating_add(SCRUB_GRACE).unwrap_or(Timestamp::MAX);
            let due = after(due, SCRUB_ROUNDING);
            scrubs.due = Some(earlier(scrubs.due, due));
        }
        match scrubs.due {
            Some(_) if self.scrubbing.contains(target) => {}
            Some(due) if due <= now => self.waiting.push(Task::Scrub { target: target.clone() }),
            Some(due) => self.next = Some(earlier(self.next, due)),
            None => {}
        }
    }

    fn plan_rotation(
        &mut self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotatingVolume,
        due: &mut Vec<((Urgency, Timestamp), Task)>,
    ) {
        match self.decide(now, interval, volume) {
            Decision::NotBefore(at) => self.next = Some(earlier(self.next, at)),
            Decision::Due { urgency, since, .. } => {
                let target = volume.target.clone();
                if !self.busy.contains(&target) && !self.resting.contains_key(&target) {
                    let looked = volume.clock.looked();
                    due.push(((urgency, since), Task::Rotate { target, urgency, looked }));
                }
            }
            Decision::AwaitsProofs { .. } => {}
        }
    }

    fn decide(&self, now: Timestamp, interval: PollInterval, volume: &RotatingVolume) -> Decision {
        let seen = self.classes.get(&class_key(volume));
        let of_class = match seen {
            Some(seen) => seen.wishes.interval,
            None => volume.clock.interval(),
        };
        let refresh = seen.and_then(|seen| seen.wishes.refresh.as_ref().zip(seen.noticed));
        let none = BTreeMap::new();
        let provider = seen.and_then(|seen| seen.provider.as_deref());
        let parameters = seen.map_or(&none, |seen| &seen.parameters);
        let stamps: Vec<Stamps> = volume.stamps.values().copied().collect();
        decide(
            now,
            &Look {
                volume_id: &volume.volume_id,
                clock: &volume.clock,
                interval: of_class.unwrap_or(interval),
                stamps: &stamps,
                refresh,
                proofs: proof_state(provider, parameters, volume.proofs.as_ref(), now),
            },
        )
    }

    fn find_troubles(
        &self,
        now: Timestamp,
        interval: PollInterval,
        volume: &RotatingVolume,
        troubles: &mut BTreeMap<Topic, Trouble>,
    ) {
        let key = class_key(volume);
        let mut add = |topic: Topic, code, message| {
            // The first volume speaks for its class.
            troubles.entry(topic).or_insert(Trouble { pod: volume.pod.clone(), code, message });
        };
        if let Some(seen) = self.classes.get(&key).filter(|it| !it.wishes.problems.is_empty()) {
            let topic = Topic::Annotations(key.0.clone(), key.1.clone());
            let message = annotation_message(&key, &seen.wishes);
            add(topic, OutcomeCode::SecretProviderClassInvalid, message);
        }
        if let Decision::AwaitsProofs { since } = self.decide(now, interval, volume)
            && after(since, PROOF_PATIENCE) < now
        {
            let (code, message) = missing_message(since, &key, self.classes.contains_key(&key));
            add(Topic::Proofs(volume.target.clone()), code, message);
        }
        for (id, stamps) in &volume.stamps {
            if let Some(end) = stamps.not_after.filter(|end| *end <= now) {
                let message = format!(
                    "{id} expired at {end}, and the vault has nothing newer: {}",
                    OutcomeCode::ObjectExpired.hint()
                );
                let topic = Topic::Expiry(volume.target.clone(), id.clone());
                add(topic, OutcomeCode::ObjectExpired, message);
            }
        }
    }
}

/// What keeps a volume from being looked at. Where its class was never seen, nobody knows whether
/// it needs a token at all.
fn missing_message(
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

fn annotation_message((namespace, name): &ClassKey, wishes: &ClassWishes) -> String {
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

fn earlier(before: Option<Timestamp>, at: Timestamp) -> Timestamp {
    before.map_or(at, |before| before.min(at))
}

fn after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// How often the annotations of the classes are looked at.
const CLASS_LOOK: Duration = Duration::from_secs(2);

/// A volume that was just rotated is left alone for so long, though nothing came of it.
const REST: Duration = Duration::from_secs(1);

const LONGEST_REST: Duration = Duration::from_secs(2);
const SHORTEST_REST: Duration = Duration::from_millis(50);

const SCRUB_RETRY: Duration = Duration::from_mins(1);

/// The name of a generation tells when it was written to the second.
const SCRUB_ROUNDING: Duration = Duration::from_secs(1);

/// The kubelet publishes every 63 to 82 s by default. So many rounds without one are no delay.
const PROOF_PATIENCE: Duration = Duration::from_mins(5);
