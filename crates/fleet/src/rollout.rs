//! Changes the clusters of a fleet in waves.

use futures::StreamExt as _;
use lanyard_clock::SharedClock;

use crate::fleet::FleetCluster;
use crate::waves::Wave;

/// What happened to the clusters of a fleet.
#[derive(Debug)]
pub struct Rollout<'a, T> {
    /// The results, in the order in which the clusters ended.
    pub ended: Vec<(&'a FleetCluster, T)>,
    /// The clusters that were not started, because too many failed.
    pub not_started: Vec<&'a FleetCluster>,
}

/// Changes the clusters of each wave, and waits before the next wave.
///
/// A wave in which more clusters fail than it allows starts no further one, and no later wave begins. Clusters that have
/// begun are not interrupted.
pub async fn run_waves<'a, T>(
    waves: &[Wave<'a>],
    clock: &SharedClock,
    change: impl AsyncFn(&'a FleetCluster) -> T,
    has_failed: impl Fn(&T) -> bool,
) -> Rollout<'a, T> {
    let mut rollout = Rollout { ended: Vec::new(), not_started: Vec::new() };
    for (index, wave) in waves.iter().enumerate() {
        let stops = run_wave(wave, &mut rollout, &change, &has_failed).await;
        let later = waves.get(index + 1..).unwrap_or_default();
        if stops {
            rollout.not_started.extend(later.iter().flat_map(|wave| &wave.clusters));
            break;
        }
        if !later.is_empty() && !wave.pause_after.is_zero() {
            clock.sleep(wave.pause_after).await;
        }
    }
    rollout
}

/// Changes the clusters of a wave. Returns whether too many failed.
async fn run_wave<'a, T>(
    wave: &Wave<'a>,
    rollout: &mut Rollout<'a, T>,
    change: &impl AsyncFn(&'a FleetCluster) -> T,
    has_failed: &impl Fn(&T) -> bool,
) -> bool {
    let mut waiting = wave.clusters.iter().copied();
    let start = async |cluster| (cluster, change(cluster).await);
    let mut running = futures::stream::FuturesUnordered::new();
    running.extend(waiting.by_ref().take(wave.concurrency).map(start));
    let mut failures = 0;
    while let Some((cluster, result)) = running.next().await {
        failures += usize::from(has_failed(&result));
        rollout.ended.push((cluster, result));
        if failures <= wave.allowed_failures {
            running.extend(waiting.next().map(start));
        }
    }
    rollout.not_started.extend(waiting);
    failures > wave.allowed_failures
}

#[cfg(test)]
mod tests;
