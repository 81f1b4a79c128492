//! Reads the live resources of a graph. Sends no writes.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _};

use crate::effect::{Effect, EffectAccess as _};
use crate::effect_error::EffectError;
use crate::live_state::LiveState;
use crate::resource_graph::{DesiredResource, ResourceGraph};
use crate::resource_key::ResourceKey;

/// The number of concurrent reads.
const PARALLEL_READS: usize = 16;

/// A resource cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("reading {key} failed")]
pub struct ReadError {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The error of the request.
    #[source]
    pub source: EffectError,
}

/// Reads all resources of the graph.
///
/// # Errors
///
/// The errors of all reads that failed.
pub async fn read_live<E: Effect>(
    access: &E::Access,
    graph: &ResourceGraph<E>,
) -> Result<LiveState, Vec<ReadError>> {
    let mut live = LiveState::default();
    let mut errors = Vec::new();
    let (listed, single): (Vec<_>, Vec<_>) =
        graph.resources().iter().partition(|it| it.effect.collection().is_some());
    let read = async |resource: &DesiredResource<E>| {
        let found = resource.effect.read(access, &resource.id).await;
        (resource.key.clone(), found)
    };
    let mut results = stream::iter(single).map(read).buffer_unordered(PARALLEL_READS);
    while let Some((key, result)) = results.next().await {
        match result {
            Ok(found) => live.set(key, found),
            Err(source) => errors.push(ReadError { key, source }),
        }
    }
    read_collections(access, &listed, &mut live, &mut errors).await;
    errors.sort_by(|one, other| one.key.cmp(&other.key));
    if errors.is_empty() { Ok(live) } else { Err(errors) }
}

/// Reads each collection once. Its error is reported once, for its first resource.
async fn read_collections<E: Effect>(
    access: &E::Access,
    resources: &[&DesiredResource<E>],
    live: &mut LiveState,
    errors: &mut Vec<ReadError>,
) {
    let names: BTreeSet<_> = resources.iter().filter_map(|it| it.effect.collection()).collect();
    let list = async |name: String| {
        let listed = access.list(&name).await;
        (name, listed)
    };
    let listed = stream::iter(names).map(list).buffer_unordered(PARALLEL_READS);
    let mut listed: BTreeMap<_, _> = listed.collect().await;
    for resource in resources {
        let Some(name) = resource.effect.collection() else { continue };
        match listed.remove(&name) {
            Some(Ok(members)) => {
                let found = resource.effect.find(&resource.id, &members, live);
                live.set(resource.key.clone(), found);
                listed.insert(name, Ok(members));
            }
            Some(Err(source)) => errors.push(ReadError { key: resource.key.clone(), source }),
            None => {}
        }
    }
}
