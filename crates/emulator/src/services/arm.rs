//! Azure Resource Manager.
//!
//! Resources are stored as they were given and ids keep the case of their creator. A request's
//! right is decided before anything is looked up. Everything completes at once: there are no
//! long-running operations to poll.

/// The path of something in a resource group.
macro_rules! rg {
    ($rest:literal) => {
        concat!("/subscriptions/{subscription}/resourceGroups/{group}/providers/", $rest)
    };
}

/// The path of something in a subscription.
macro_rules! sub {
    ($rest:literal) => {
        concat!("/subscriptions/{subscription}/providers/", $rest)
    };
}

mod account;
mod compute;
mod filter;
mod gate;
mod inventory;
mod key_vault;
mod managed_identity;
mod network;
mod reading;
mod refusal;
mod resource_groups;
mod resources;
mod role_assignments;
mod storage;

use http::Method;
use jiff::Timestamp;

pub(crate) use resources::{RESOURCE_GROUP, Resource, Resources, Subscription};

use crate::operations::{Operation, Support};
use crate::world::World;

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[
    ACCOUNT,
    resource_groups::OPERATIONS,
    managed_identity::OPERATIONS,
    key_vault::OPERATIONS,
    network::OPERATIONS,
    compute::OPERATIONS,
    storage::OPERATIONS,
    // Extension resources last: their scope is any path.
    role_assignments::OPERATIONS,
];

const ACCOUNT: &[Operation] = &[
    account("Metadata_Endpoints", "/metadata/endpoints", account::endpoints),
    account("Tenants_List", "/tenants", account::tenants),
    account("Subscriptions_List", "/subscriptions", account::subscriptions),
    account("Subscriptions_Get", "/subscriptions/{subscription}", account::subscription),
    account(
        "Subscriptions_ListLocations",
        "/subscriptions/{subscription}/locations",
        account::locations,
    ),
    account(
        "Resources_List",
        "/subscriptions/{subscription}/resources",
        inventory::in_subscription,
    ),
    account(
        "Resources_ListByResourceGroup",
        "/subscriptions/{subscription}/resourceGroups/{group}/resources",
        inventory::in_group,
    ),
];

const fn account(
    id: &'static str,
    path: &'static str,
    handler: crate::operations::Handler,
) -> Operation {
    Operation { id, method: Method::GET, path, support: Support::Full, handler }
}

/// The three ways to read stored resources.
#[derive(Clone, Copy)]
enum Reads {
    /// One resource.
    One,
    /// A collection in a resource group or below a resource.
    Below,
    /// A collection in a subscription.
    Subscription,
}

/// A read of a type that nothing writes.
const fn reads(id: &'static str, what: Reads, path: &'static str) -> Operation {
    let support = Support::Partial("shows what the world was seeded with: nothing writes it");
    read_row(id, what, path, support)
}

/// A read of a type that has its writes.
const fn reads_back(id: &'static str, what: Reads, path: &'static str) -> Operation {
    read_row(id, what, path, Support::Full)
}

const fn read_row(
    id: &'static str,
    what: Reads,
    path: &'static str,
    support: Support,
) -> Operation {
    let handler: crate::operations::Handler = match what {
        Reads::One => reading::read,
        Reads::Below => reading::list_below,
        Reads::Subscription => reading::list_in_subscription,
    };
    Operation { id, method: Method::GET, path, support, handler }
}

/// Does what the removal of resources means elsewhere: identities leave the directory, vaults
/// leave the data plane and can be recovered, assignments at what is gone are gone.
fn forget(world: &mut World, removed: &[Resource], now: Timestamp) {
    for resource in removed {
        let principal = resource.property("principalId").and_then(serde_json::Value::as_str);
        if let Some(object) = principal.and_then(|id| id.parse::<uuid::Uuid>().ok()) {
            world.directory.principals.retain(|known| known.object_id != object);
        }
        key_vault::bury(world, resource, now);
        world.authorization.revoke(|held| resource.id.contains(&held.scope));
    }
}

#[cfg(test)]
mod tests;
