//! Resource groups. Reference: Microsoft.Resources, resource groups, 2021-04-01.

use http::{Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{
    ArmResource, RESOURCE_GROUP_TYPE, UpsertOutcome,
};
use serde_json::{Value, json};

use super::access::{authorize_call, empty_reply, json_body, json_reply};
use super::error::{ArmServiceError, bad_request};
use super::locations::{normalize_region, regions_of_cloud};
use super::odata_filter::ODataFilter;
use super::request_scopes::{group_scope, subscription_scope};
use super::resource_change::ResourceDeletion;
use super::resource_lists::has_filtered_tag;
use super::resource_reads::list_readable;
use super::resource_removal::remove_resource;
use super::tags::require_valid_tags;
use crate::resource_types::find_resource_type;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "ResourceGroups_List",
        method: Method::GET,
        path: "/subscriptions/{subscription}/resourceGroups",
        support: OperationSupport::Full,
        handler: list_groups,
    },
    resource_group_operation(
        "ResourceGroups_CheckExistence",
        Method::HEAD,
        OperationSupport::Full,
        check_group_exists,
    ),
    resource_group_operation("ResourceGroups_Get", Method::GET, OperationSupport::Full, get_group),
    resource_group_operation(
        "ResourceGroups_CreateOrUpdate",
        Method::PUT,
        OperationSupport::Full,
        create_group,
    ),
    resource_group_operation(
        "ResourceGroups_Update",
        Method::PATCH,
        OperationSupport::Full,
        update_group,
    ),
    resource_group_operation(
        "ResourceGroups_Delete",
        Method::DELETE,
        OperationSupport::Partial("everything is gone at once: there is nothing to poll"),
        delete_group,
    ),
];

const READ_ACTION: &str = "Microsoft.Resources/subscriptions/resourceGroups/read";
const WRITE_ACTION: &str = "Microsoft.Resources/subscriptions/resourceGroups/write";
const DELETE_ACTION: &str = "Microsoft.Resources/subscriptions/resourceGroups/delete";

const fn resource_group_operation(
    id: &'static str,
    method: Method,
    support: OperationSupport,
    handler: lanyard_emulator_core::operations::OperationHandler,
) -> ServiceOperation {
    let path = "/subscriptions/{subscription}/resourceGroups/{group}";
    ServiceOperation { id, method, path, support, handler }
}

fn list_groups(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let whole = subscription_scope(call)?;
    let filter = ODataFilter::from_request(call, &["tagName", "tagValue"])?;
    list_readable(call, &whole, RESOURCE_GROUP_TYPE, READ_ACTION, |group| {
        has_filtered_tag(&filter, group)
    })
}

fn get_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = group_scope(call)?;
    authorize_call(call, READ_ACTION, &id)?;
    match call.azure().resources.resource(&id).map(ArmResource::to_json) {
        Some(found) => Ok(json_reply(call, StatusCode::OK, &found)),
        None => {
            Err(ArmServiceError::ResourceGroupNotFound(call.path_parameter("group")).to_reply())
        }
    }
}

fn check_group_exists(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = group_scope(call)?;
    authorize_call(call, READ_ACTION, &id)?;
    let found = call.azure().resources.resource(&id).is_some();
    let status = if found { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND };
    Ok(empty_reply(call, status))
}

fn create_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = group_scope(call)?;
    authorize_call(call, WRITE_ACTION, &id)?;
    let given = json_body(call)?;
    let location = given.get("location").and_then(Value::as_str).map(normalize_region);
    let Some(location) = location.filter(|location| !location.is_empty()) else {
        return Err(bad_request("LocationRequired", "The body has no `location`."));
    };
    require_valid_group_name(call.path_parameter("group"))?;
    require_group_region(call, &location)?;
    require_valid_tags(given.get("tags"))?;
    if let Some(held) = call.azure().resources.resource(&id) {
        let place = held.body.get("location").and_then(Value::as_str).unwrap_or_default();
        if normalize_region(place) != location {
            return Err(super::error::conflict(
                "InvalidResourceGroupLocation",
                format!(
                    "Invalid resource group location '{location}'. The Resource group already exists \
                     in location '{place}'."
                ),
            ));
        }
    }
    let mut given = given;
    given["location"] = json!(location);
    given["properties"] = json!({ "provisioningState": "Succeeded" });
    let now = call.now;
    let resources = &mut call.azure_mut().resources;
    let stored = resources.upsert(ArmResource::new(id.clone(), RESOURCE_GROUP_TYPE, given, now));
    let status =
        if stored == UpsertOutcome::Created { StatusCode::CREATED } else { StatusCode::OK };
    let wire = call.azure().resources.resource(&id).map(ArmResource::to_json).unwrap_or_default();
    Ok(json_reply(call, status, &wire))
}

/// `PATCH`: replaces the tags.
fn update_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = group_scope(call)?;
    authorize_call(call, WRITE_ACTION, &id)?;
    let given = json_body(call)?;
    require_valid_tags(given.get("tags"))?;
    let now = call.now;
    let Some(held) = call.azure_mut().resources.resource_mut(&id) else {
        return Err(ArmServiceError::ResourceGroupNotFound(call.path_parameter("group")).to_reply());
    };
    if let Some(tags) = given.get("tags") {
        held.body.insert("tags".to_owned(), tags.clone());
    }
    held.changed = now;
    let wire = held.to_json();
    Ok(json_reply(call, StatusCode::OK, &wire))
}

fn delete_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = group_scope(call)?;
    authorize_call(call, DELETE_ACTION, &id)?;
    if call.azure().resources.resource(&id).is_none() {
        return Err(ArmServiceError::ResourceGroupNotFound(call.path_parameter("group")).to_reply());
    }
    require_deletable_content(call, &id)?;
    remove_resource(call, &id);
    Ok(empty_reply(call, StatusCode::OK))
}

/// Rejects the deletion of a resource group if resources outside of it use one of its resources.
fn require_deletable_content(
    call: &OperationContext<'_>,
    group: &AccessScope,
) -> Result<(), ServiceReply> {
    let resources = &call.azure().resources;
    for resource in resources.within(group) {
        if let Some(kind) = find_resource_type(call.services, &resource.kind) {
            (kind.check_deletion)(&ResourceDeletion { resources, resource, scope: group })?;
        }
    }
    Ok(())
}

/// Reference: "Naming rules and restrictions for Azure resources", Microsoft.Resources.
fn require_valid_group_name(name: &str) -> Result<(), ServiceReply> {
    const MOST_CHARACTERS: usize = 90;
    let invalid: String =
        name.chars().filter(|c| !c.is_alphanumeric() && !"-_.()".contains(*c)).collect();
    if !invalid.is_empty() {
        return Err(bad_request(
            "InvalidResourceGroup",
            format!(
                "The provided resource group name '{name}' has these invalid characters: \
                 '{invalid}'. The name can only be a letter, digit, '-', '.', '(', ')' or '_'."
            ),
        ));
    }
    if name.chars().count() > MOST_CHARACTERS || name.ends_with('.') {
        return Err(bad_request(
            "InvalidResourceGroup",
            format!(
                "The provided resource group name '{name}' is invalid. It has at most \
                 {MOST_CHARACTERS} characters and does not end with '.'."
            ),
        ));
    }
    Ok(())
}

fn require_group_region(call: &OperationContext<'_>, region: &str) -> Result<(), ServiceReply> {
    let regions = regions_of_cloud(call.endpoint.cloud.name);
    if regions.iter().any(|known| known.name == region) {
        return Ok(());
    }
    let names: Vec<_> = regions.iter().map(|known| known.name).collect();
    Err(bad_request(
        "LocationNotAvailableForResourceGroup",
        format!(
            "The provided location '{region}' is not available for resource group. List of available \
             regions is '{}'.",
            names.join(",")
        ),
    ))
}
