//! The removal of resources, with its side effects on the rest of the state.

use jiff::Timestamp;
use lanyard_emulator_core::emulated_service::ServiceSet;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::resources::resource_store::ArmResource;

use super::resource_type::USER_ASSIGNED_IDENTITIES;
use super::resource_types::find_resource_type;

/// Removes a resource with everything below it, and applies the side effects.
pub fn remove_resource(call: &mut OperationContext<'_>, id: &AccessScope) {
    let now = call.now;
    let removed = call.azure_mut().resources.remove(id);
    let services = call.services;
    remove_dependent_state(services, call.azure_mut(), &removed, now);
}

/// Applies the side effects of removing resources: managed identities leave the directory, resource
/// types release their other state, and role assignments on removed scopes are deleted.
fn remove_dependent_state(
    services: &ServiceSet,
    azure: &mut AzureState,
    removed: &[ArmResource],
    now: Timestamp,
) {
    azure.resources.record_deleted(removed, now);
    for resource in removed {
        let registered = find_resource_type(services, &resource.kind);
        // Clients write the properties of other types, which may name the principal of another resource.
        let is_user_assigned = resource.kind.eq_ignore_ascii_case(USER_ASSIGNED_IDENTITIES);
        let user_assigned = resource.property("principalId").filter(|_| is_user_assigned);
        let identity = resource.body.get("identity").filter(|_| registered.is_some());
        let system_assigned = identity.and_then(|it| it.get("principalId"));
        for principal in user_assigned.into_iter().chain(system_assigned) {
            let object = principal.as_str().and_then(|id| id.parse::<uuid::Uuid>().ok());
            if let Some(object) = object {
                azure.directory.remove_service_principal(object);
            }
        }
        azure.authorization.remove_within(&resource.id);
        let Some(kind) = registered else { continue };
        for id in (kind.release)(azure, resource, now) {
            let removed = azure.resources.remove(&id);
            remove_dependent_state(services, azure, &removed, now);
        }
    }
}
