//! Microsoft Graph, version 1.0 and beta: the directory of a tenant.
//!
//! Reference: Microsoft Graph REST API v1.0, "Applications", "Groups", "Users", "Directory management". The
//! emulator has what clients of workload identities use. A request is authenticated, then its permission, its
//! object and its content are checked, in this order; permissions that depend on ownership are checked after
//! the object. Keys in parentheses (`users('ada')`) and in segments (`users/ada`) are equivalent.

mod access;
mod app_role_assignments;
mod application_entity;
mod application_rules;
mod applications;
mod credential_json;
mod credentials;
mod deleted_items;
mod directory_objects;
mod entity;
mod error;
mod federated_credentials;
mod filter;
mod group_entity;
mod groups;
mod key_proof;
mod memberships;
mod object_json;
mod object_list;
mod owners;
mod path;
mod query;
mod replies;
mod rights;
mod schema;
mod service_principal_entity;
mod service_principals;
mod tenant_objects;
mod user_entity;
mod users;

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::{
    EmulatedService, EngineError, MAX_BODY_BYTES, management_error_reply,
};
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

use self::access::respond;
use self::path::odata_segments;

/// Microsoft Graph.
pub const SERVICE: EmulatedService = EmulatedService {
    segments: |request| odata_segments(request.segments()),
    admit_large_body: |call, _| {
        let authenticated = respond(call, |_| Ok(ServiceReply::empty(StatusCode::OK)));
        authenticated.map(|_| MAX_BODY_BYTES)
    },
    error_reply: graph_engine_error,
    ..EmulatedService::new(AzureService::Graph, OPERATIONS)
};

/// The operations of Microsoft Graph.
const OPERATIONS: &[&[ServiceOperation]] =
    &[APPLICATIONS, SERVICE_PRINCIPALS, USERS, GROUPS, DIRECTORY_OBJECTS];

const FULL: OperationSupport = OperationSupport::Full;
const LISTS: OperationSupport =
    OperationSupport::Partial("$search with one clause; $expand without nested options");
const CERTIFICATES_ONLY: OperationSupport =
    OperationSupport::Partial("key credentials are certificates that verify signatures");

/// A row per operation: id, method, path after the version, support, handler.
macro_rules! graph_operations {
    ($($id:literal $method:ident $path:literal $support:ident => $handler:path;)*) => {
        &[$(ServiceOperation {
            id: $id,
            method: Method::$method,
            path: concat!("/{version}/", $path),
            support: $support,
            handler: |context| respond(context, $handler),
        }),*]
    };
}

const APPLICATIONS: &[ServiceOperation] = graph_operations! {
    "Applications_Count" GET "applications/$count" FULL => applications::count_applications;
    "Applications_List" GET "applications" LISTS => applications::list_applications;
    "Applications_Create" POST "applications" CERTIFICATES_ONLY => applications::create_application;
    "Applications_Get" GET "applications/{id}" LISTS => applications::get_application;
    "Applications_Update" PATCH "applications/{id}" CERTIFICATES_ONLY => applications::update_application;
    "Applications_Delete" DELETE "applications/{id}" FULL => applications::delete_application;
    "Applications_AddPassword" POST "applications/{id}/addPassword" FULL => credentials::add_application_password;
    "Applications_RemovePassword" POST "applications/{id}/removePassword" FULL => credentials::remove_application_password;
    "Applications_AddKey" POST "applications/{id}/addKey" CERTIFICATES_ONLY => credentials::add_application_key;
    "Applications_RemoveKey" POST "applications/{id}/removeKey" FULL => credentials::remove_application_key;
    "Applications_ListOwnerReferences" GET "applications/{id}/owners/$ref" FULL => owners::list_owner_references;
    "Applications_ListOwners" GET "applications/{id}/owners" LISTS => owners::list_owners;
    "Applications_AddOwner" POST "applications/{id}/owners/$ref" FULL => owners::add_owner;
    "Applications_RemoveOwner" DELETE "applications/{id}/owners/{child}/$ref" FULL => owners::remove_owner;
    "FederatedIdentityCredentials_List" GET "applications/{id}/federatedIdentityCredentials" LISTS => federated_credentials::list_credentials;
    "FederatedIdentityCredentials_Create" POST "applications/{id}/federatedIdentityCredentials" FULL => federated_credentials::create_credential;
    "FederatedIdentityCredentials_Get" GET "applications/{id}/federatedIdentityCredentials/{child}" FULL => federated_credentials::get_credential;
    "FederatedIdentityCredentials_Update" PATCH "applications/{id}/federatedIdentityCredentials/{child}" FULL => federated_credentials::update_credential;
    "FederatedIdentityCredentials_Delete" DELETE "applications/{id}/federatedIdentityCredentials/{child}" FULL => federated_credentials::delete_credential;
};

const SERVICE_PRINCIPALS: &[ServiceOperation] = graph_operations! {
    "ServicePrincipals_Count" GET "servicePrincipals/$count" FULL => service_principals::count_service_principals;
    "ServicePrincipals_List" GET "servicePrincipals" LISTS => service_principals::list_service_principals;
    "ServicePrincipals_Create" POST "servicePrincipals" FULL => service_principals::create_service_principal;
    "ServicePrincipals_Get" GET "servicePrincipals/{id}" LISTS => service_principals::get_service_principal;
    "ServicePrincipals_Update" PATCH "servicePrincipals/{id}" CERTIFICATES_ONLY => service_principals::update_service_principal;
    "ServicePrincipals_Delete" DELETE "servicePrincipals/{id}" FULL => service_principals::delete_service_principal;
    "ServicePrincipals_AddPassword" POST "servicePrincipals/{id}/addPassword" FULL => credentials::add_service_principal_password;
    "ServicePrincipals_RemovePassword" POST "servicePrincipals/{id}/removePassword" FULL => credentials::remove_service_principal_password;
    "ServicePrincipals_AddKey" POST "servicePrincipals/{id}/addKey" CERTIFICATES_ONLY => credentials::add_service_principal_key;
    "ServicePrincipals_RemoveKey" POST "servicePrincipals/{id}/removeKey" FULL => credentials::remove_service_principal_key;
    "ServicePrincipals_ListOwnerReferences" GET "servicePrincipals/{id}/owners/$ref" FULL => owners::list_owner_references;
    "ServicePrincipals_ListOwners" GET "servicePrincipals/{id}/owners" LISTS => owners::list_owners;
    "ServicePrincipals_AddOwner" POST "servicePrincipals/{id}/owners/$ref" FULL => owners::add_owner;
    "ServicePrincipals_RemoveOwner" DELETE "servicePrincipals/{id}/owners/{child}/$ref" FULL => owners::remove_owner;
    "ServicePrincipals_ListAppRoleAssignments" GET "servicePrincipals/{id}/appRoleAssignments" LISTS => app_role_assignments::list_assignments;
    "ServicePrincipals_CreateAppRoleAssignment" POST "servicePrincipals/{id}/appRoleAssignments" FULL => app_role_assignments::create_assignment;
    "ServicePrincipals_GetAppRoleAssignment" GET "servicePrincipals/{id}/appRoleAssignments/{child}" FULL => app_role_assignments::get_assignment;
    "ServicePrincipals_DeleteAppRoleAssignment" DELETE "servicePrincipals/{id}/appRoleAssignments/{child}" FULL => app_role_assignments::delete_assignment;
    "ServicePrincipals_ListAppRoleAssignedTo" GET "servicePrincipals/{id}/appRoleAssignedTo" LISTS => app_role_assignments::list_assigned_to;
    "ServicePrincipals_CreateAppRoleAssignedTo" POST "servicePrincipals/{id}/appRoleAssignedTo" FULL => app_role_assignments::create_assignment;
    "ServicePrincipals_GetAppRoleAssignedTo" GET "servicePrincipals/{id}/appRoleAssignedTo/{child}" FULL => app_role_assignments::get_assignment;
    "ServicePrincipals_DeleteAppRoleAssignedTo" DELETE "servicePrincipals/{id}/appRoleAssignedTo/{child}" FULL => app_role_assignments::delete_assignment;
    "ServicePrincipals_ListMemberOf" GET "servicePrincipals/{id}/memberOf" LISTS => memberships::list_member_of;
    "ServicePrincipals_ListMemberOfType" GET "servicePrincipals/{id}/memberOf/{child}" LISTS => memberships::list_member_of;
    "ServicePrincipals_ListTransitiveMemberOf" GET "servicePrincipals/{id}/transitiveMemberOf" LISTS => memberships::list_transitive_member_of;
    "ServicePrincipals_ListTransitiveMemberOfType" GET "servicePrincipals/{id}/transitiveMemberOf/{child}" LISTS => memberships::list_transitive_member_of;
    "ServicePrincipals_GetMemberGroups" POST "servicePrincipals/{id}/getMemberGroups" FULL => memberships::get_member_groups;
    "ServicePrincipals_GetMemberObjects" POST "servicePrincipals/{id}/getMemberObjects" FULL => memberships::get_member_groups;
    "ServicePrincipals_CheckMemberGroups" POST "servicePrincipals/{id}/checkMemberGroups" FULL => memberships::check_member_groups;
    "ServicePrincipals_CheckMemberObjects" POST "servicePrincipals/{id}/checkMemberObjects" FULL => memberships::check_member_objects;
};

const USERS: &[ServiceOperation] = graph_operations! {
    "Users_Count" GET "users/$count" FULL => users::count_users;
    "Users_List" GET "users" LISTS => users::list_users;
    "Users_Create" POST "users" FULL => users::create_user;
    "Users_Get" GET "users/{id}" LISTS => users::get_user;
    "Users_Update" PATCH "users/{id}" FULL => users::update_user;
    "Users_Delete" DELETE "users/{id}" FULL => users::delete_user;
    "Users_ListOwnedObjects" GET "users/{id}/ownedObjects" LISTS => users::list_owned_objects;
    "Users_ListOwnedObjectsOfType" GET "users/{id}/ownedObjects/{child}" LISTS => users::list_owned_objects_of_type;
    "Users_ListMemberOf" GET "users/{id}/memberOf" LISTS => memberships::list_member_of;
    "Users_ListMemberOfType" GET "users/{id}/memberOf/{child}" LISTS => memberships::list_member_of;
    "Users_ListTransitiveMemberOf" GET "users/{id}/transitiveMemberOf" LISTS => memberships::list_transitive_member_of;
    "Users_ListTransitiveMemberOfType" GET "users/{id}/transitiveMemberOf/{child}" LISTS => memberships::list_transitive_member_of;
    "Users_GetMemberGroups" POST "users/{id}/getMemberGroups" FULL => memberships::get_member_groups;
    "Users_GetMemberObjects" POST "users/{id}/getMemberObjects" FULL => memberships::get_member_groups;
    "Users_CheckMemberGroups" POST "users/{id}/checkMemberGroups" FULL => memberships::check_member_groups;
    "Users_CheckMemberObjects" POST "users/{id}/checkMemberObjects" FULL => memberships::check_member_objects;
    "Users_ListAppRoleAssignments" GET "users/{id}/appRoleAssignments" LISTS => app_role_assignments::list_assignments;
    "Users_CreateAppRoleAssignment" POST "users/{id}/appRoleAssignments" FULL => app_role_assignments::create_assignment;
    "Users_DeleteAppRoleAssignment" DELETE "users/{id}/appRoleAssignments/{child}" FULL => app_role_assignments::delete_assignment;
    "Me_Get" GET "me" LISTS => users::get_user;
    "Me_ListOwnedObjects" GET "me/ownedObjects" LISTS => users::list_owned_objects;
    "Me_ListOwnedObjectsOfType" GET "me/ownedObjects/{child}" LISTS => users::list_owned_objects_of_type;
    "Me_ListMemberOf" GET "me/memberOf" LISTS => memberships::list_member_of;
    "Me_ListMemberOfType" GET "me/memberOf/{child}" LISTS => memberships::list_member_of;
    "Me_ListTransitiveMemberOf" GET "me/transitiveMemberOf" LISTS => memberships::list_transitive_member_of;
    "Me_ListTransitiveMemberOfType" GET "me/transitiveMemberOf/{child}" LISTS => memberships::list_transitive_member_of;
    "Me_GetMemberGroups" POST "me/getMemberGroups" FULL => memberships::get_member_groups;
    "Me_GetMemberObjects" POST "me/getMemberObjects" FULL => memberships::get_member_groups;
    "Me_CheckMemberGroups" POST "me/checkMemberGroups" FULL => memberships::check_member_groups;
    "Me_CheckMemberObjects" POST "me/checkMemberObjects" FULL => memberships::check_member_objects;
};

const GROUPS: &[ServiceOperation] = graph_operations! {
    "Groups_Count" GET "groups/$count" FULL => groups::count_groups;
    "Groups_List" GET "groups" LISTS => groups::list_groups;
    "Groups_Create" POST "groups" SECURITY_GROUPS => groups::create_group;
    "Groups_Get" GET "groups/{id}" LISTS => groups::get_group;
    "Groups_Update" PATCH "groups/{id}" SECURITY_GROUPS => groups::update_group;
    "Groups_Delete" DELETE "groups/{id}" FULL => groups::delete_group;
    "Groups_ListMemberReferences" GET "groups/{id}/members/$ref" FULL => groups::list_member_references;
    "Groups_ListMembers" GET "groups/{id}/members" LISTS => groups::list_members;
    "Groups_ListMembersOfType" GET "groups/{id}/members/{child}" LISTS => groups::list_members_of_type;
    "Groups_ListTransitiveMembers" GET "groups/{id}/transitiveMembers" LISTS => groups::list_transitive_members;
    "Groups_AddMember" POST "groups/{id}/members/$ref" FULL => groups::add_member;
    "Groups_RemoveMember" DELETE "groups/{id}/members/{child}/$ref" FULL => groups::remove_member;
    "Groups_ListOwnerReferences" GET "groups/{id}/owners/$ref" FULL => owners::list_owner_references;
    "Groups_ListOwners" GET "groups/{id}/owners" LISTS => owners::list_owners;
    "Groups_AddOwner" POST "groups/{id}/owners/$ref" FULL => owners::add_owner;
    "Groups_RemoveOwner" DELETE "groups/{id}/owners/{child}/$ref" FULL => owners::remove_owner;
    "Groups_ListMemberOf" GET "groups/{id}/memberOf" LISTS => memberships::list_member_of;
    "Groups_ListTransitiveMemberOf" GET "groups/{id}/transitiveMemberOf" LISTS => memberships::list_transitive_member_of;
    "Groups_GetMemberGroups" POST "groups/{id}/getMemberGroups" FULL => memberships::get_member_groups;
    "Groups_GetMemberObjects" POST "groups/{id}/getMemberObjects" FULL => memberships::get_member_groups;
    "Groups_CheckMemberGroups" POST "groups/{id}/checkMemberGroups" FULL => memberships::check_member_groups;
    "Groups_CheckMemberObjects" POST "groups/{id}/checkMemberObjects" FULL => memberships::check_member_objects;
    "Groups_ListAppRoleAssignments" GET "groups/{id}/appRoleAssignments" LISTS => app_role_assignments::list_assignments;
    "Groups_CreateAppRoleAssignment" POST "groups/{id}/appRoleAssignments" FULL => app_role_assignments::create_assignment;
    "Groups_DeleteAppRoleAssignment" DELETE "groups/{id}/appRoleAssignments/{child}" FULL => app_role_assignments::delete_assignment;
};

const SECURITY_GROUPS: OperationSupport =
    OperationSupport::Partial("security groups with assigned members");

const DIRECTORY_OBJECTS: &[ServiceOperation] = graph_operations! {
    "DirectoryObjects_GetByIds" POST "directoryObjects/getByIds" FULL => directory_objects::get_by_ids;
    "DirectoryObjects_Get" GET "directoryObjects/{id}" FULL => directory_objects::get_object;
    "DirectoryObjects_GetMemberGroups" POST "directoryObjects/{id}/getMemberGroups" FULL => memberships::get_member_groups;
    "DirectoryObjects_GetMemberObjects" POST "directoryObjects/{id}/getMemberObjects" FULL => memberships::get_member_groups;
    "DirectoryObjects_CheckMemberGroups" POST "directoryObjects/{id}/checkMemberGroups" FULL => memberships::check_member_groups;
    "DirectoryObjects_CheckMemberObjects" POST "directoryObjects/{id}/checkMemberObjects" FULL => memberships::check_member_objects;
    "DeletedItems_ListOrGet" GET "directory/deletedItems/{id}" LISTS => deleted_items::list_or_get_deleted;
    "DeletedItems_Restore" POST "directory/deletedItems/{id}/restore" FULL => deleted_items::restore_deleted;
    "DeletedItems_Delete" DELETE "directory/deletedItems/{id}" FULL => deleted_items::purge_deleted;
};

/// An error of the engine as Microsoft Graph writes it.
fn graph_engine_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::Throttled { .. } => ServiceReply::json(
            StatusCode::TOO_MANY_REQUESTS,
            &json!({
                "error": {
                    "code": "TooManyRequests",
                    "message": "Please retry again later.",
                    "innerError": { "code": "429", "message": "Please retry after", "status": "429" },
                }
            }),
        ),
        other => management_error_reply(other),
    }
}

#[cfg(test)]
mod tests;
