//! Managed HSMs: none exists, and none can be created. Clients list them and check names.

use super::super::access::{
    authorize_call, group_scope, list_reply, require_group, subscription_scope,
};
use super::name_availability::check_managed_hsm_name;
use crate::operation_context::OperationContext;
use crate::operations::ServiceOperation;
use crate::request::ServiceReply;

pub(in super::super) const OPERATIONS: &[ServiceOperation] = &[
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
