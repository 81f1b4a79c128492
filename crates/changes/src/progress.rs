//! Progress events of apply and destroy, and the critical path of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::resource_key::ResourceKey;

/// A change in the progress of one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressEvent {
    /// The time since the run began.
    #[serde(serialize_with = "serialize_seconds", rename = "seconds")]
    pub elapsed: Duration,
    /// The key of the resource.
    pub key: ResourceKey,
    /// What happens.
    #[serde(flatten)]
    pub phase: ProgressPhase,
}

/// What happens to a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "phase", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ProgressPhase {
    /// The first request for the resource is sent.
    Started {
        /// The write: `create`, `update`, `replace` or `delete`.
        write: &'static str,
    },
    /// Azure accepted the write and works on it.
    Accepted,
    /// Azure rejected the write for now; it is sent again after a pause.
    Waiting {
        /// The error of Azure.
        reason: String,
        /// The pause in seconds.
        #[serde(serialize_with = "serialize_seconds")]
        pause: Duration,
    },
    /// The resource is as desired.
    Succeeded,
    /// The write failed.
    Failed {
        /// The error.
        reason: String,
    },
}

/// Receives progress events. Calls come from one task at a time.
pub trait ProgressObserver: std::fmt::Debug + Send + Sync {
    /// Called for each event.
    fn observe(&self, event: &ProgressEvent);
}

/// Ignores all events.
#[derive(Debug, Clone, Copy)]
pub struct NoProgress;

impl ProgressObserver for NoProgress {
    fn observe(&self, _event: &ProgressEvent) {}
}

fn serialize_seconds<S: serde::Serializer>(
    time: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1_000.0).round() / 1_000.0)
}

/// When the work on a resource began and ended, since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceTiming {
    /// The beginning.
    pub started: Duration,
    /// The end.
    pub finished: Duration,
}

/// One step of the critical path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriticalStep {
    /// The key of the resource.
    pub key: ResourceKey,
    /// How long the work on the resource took.
    pub duration: Duration,
}

/// The chain of dependent resources with the longest total duration. More parallelism does not make a run
/// shorter than this chain.
pub fn critical_path(
    timings: &BTreeMap<ResourceKey, ResourceTiming>,
    dependencies: &BTreeMap<ResourceKey, Vec<ResourceKey>>,
) -> Vec<CriticalStep> {
    let mut longest: BTreeMap<ResourceKey, (Duration, Option<ResourceKey>)> = BTreeMap::new();
    // Each pass settles at least the resources whose dependencies are settled.
    for _ in 0..timings.len() {
        for (key, timing) in timings {
            let before = dependencies.get(key).into_iter().flatten();
            let best = before
                .filter_map(|dependency| longest.get(dependency).map(|it| (it.0, dependency)))
                .max();
            let own = timing.finished.saturating_sub(timing.started);
            let (sum, previous) =
                best.map_or((own, None), |(sum, from)| (sum + own, Some(from.clone())));
            longest.insert(key.clone(), (sum, previous));
        }
    }
    let end = longest.iter().max_by_key(|(_, (sum, _))| *sum).map(|(key, _)| key.clone());
    let mut path: Vec<_> = std::iter::successors(end, |key| longest.get(key)?.1.clone())
        .take(timings.len())
        .filter_map(|key| {
            let timing = timings.get(&key)?;
            Some(CriticalStep { key, duration: timing.finished.saturating_sub(timing.started) })
        })
        .collect();
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_path_is_the_longest_chain() {
        let key = |text: &str| ResourceKey::new(text);
        let timing = |started, finished| ResourceTiming {
            started: Duration::from_secs(started),
            finished: Duration::from_secs(finished),
        };
        let timings = BTreeMap::from([
            (key("group"), timing(0, 2)),
            (key("vnet"), timing(2, 8)),
            (key("address"), timing(2, 4)),
            (key("balancer"), timing(4, 9)),
            (key("link"), timing(9, 19)),
        ]);
        let dependencies = BTreeMap::from([
            (key("vnet"), vec![key("group")]),
            (key("address"), vec![key("group")]),
            (key("balancer"), vec![key("address")]),
            (key("link"), vec![key("vnet")]),
        ]);
        let path = critical_path(&timings, &dependencies);
        let names: Vec<_> = path.iter().map(|step| step.key.as_str()).collect();
        assert_eq!(names, ["group", "vnet", "link"]);
        assert_eq!(path.iter().map(|step| step.duration.as_secs()).sum::<u64>(), 18);
        assert!(critical_path(&BTreeMap::new(), &dependencies).is_empty());
    }
}
