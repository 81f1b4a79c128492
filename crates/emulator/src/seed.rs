//! The world that the emulator starts with.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::call::Ids;
use crate::world::World;

/// What the world shall contain.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorldPlan {}

/// The world could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeedError {}

/// Puts what `plan` says into the world.
pub(crate) fn apply_plan(
    plan: &WorldPlan,
    world: &mut World,
    ids: &mut Ids,
    now: Timestamp,
) -> Result<(), SeedError> {
    let _ = (plan, world, ids, now);
    Ok(())
}
