//! Managed HSMs, which the emulator cannot create: clients get empty lists and can check names.

use lanyard_emulator_arm::access::{authorize_call, list_reply, require_group};
use lanyard_emulator_arm::request_scopes::{group_scope, subscription_scope};
use lanyard_emulator_arm::{full, rg, sub};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::request::ServiceReply;

use super::name_availability::check_managed_hsm_name;

pub(crate) const OPERATIONS: &[ServiceOperation] = &[
    full!(
        "ManagedHsms_ListBySubscription",
        GET,
        sub!("Microsoft.KeyVault/managedHSMs"),
        list_in_subscription
    ),
    full!(
        "ManagedHsms_ListByResourceGroup",
        GET,
        rg!("Microsoft.KeyVault/managedHSMs"),
        list_in_group
    ),
    full!(
        "ManagedHsms_ListDeleted",
        GET,
        sub!("Microsoft.KeyVault/deletedManagedHSMs"),
        list_deleted
    ),
    full!(
        "ManagedHsms_CheckMhsmNameAvailability",
        POST,
        sub!("Microsoft.KeyVault/checkMhsmNameAvailability"),
        check_managed_hsm_name
    ),
];

fn list_in_subscription(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authorize_call(call, "Microsoft.KeyVault/managedHSMs/read", &subscription_scope(call)?)?;
    list_reply(call, Vec::new())
}

fn list_in_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authorize_call(call, "Microsoft.KeyVault/managedHSMs/read", &group_scope(call)?)?;
    require_group(call)?;
    list_reply(call, Vec::new())
}

fn list_deleted(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authorize_call(call, "Microsoft.KeyVault/deletedManagedHsms/read", &subscription_scope(call)?)?;
    list_reply(call, Vec::new())
}
