//! Lists across types: `/resources` of a resource group or a subscription. `az` uses it to find a
//! vault without knowing its resource group.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{
    ArmResource, LOCK_TYPE, RESOURCE_GROUP_TYPE,
};
use serde_json::Value;

use super::access::{authenticate, is_authorized, list_reply, require_group};
use super::odata_filter::ODataFilter;
use super::request_scopes::{group_scope, subscription_scope};

/// The fields that a filter can compare.
const FILTER_FIELDS: [&str; 6] =
    ["resourceType", "resourceGroup", "name", "location", "tagName", "tagValue"];

/// `GET /subscriptions/{id}/resources`: the resources that the caller may read.
pub(super) fn list_subscription_resources(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let whole = subscription_scope(call)?;
    list_readable_at_scope(call, &whole)
}

/// `GET …/resourceGroups/{group}/resources`: the resources that the caller may read.
pub(super) fn list_group_resources(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let group = group_scope(call)?;
    let caller = authenticate(call)?;
    super::access::authorize(
        call,
        &caller,
        "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
        &group,
    )?;
    require_group(call)?;
    list_readable_at_scope(call, &group)
}

fn list_readable_at_scope(
    call: &mut OperationContext<'_>,
    at: &AccessScope,
) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let filter = ODataFilter::from_request(call, &FILTER_FIELDS)?;
    let resources = &call.azure().resources;
    let items = resources
        .within(at)
        .chain(resources.listed_deleted_within(at, call.now))
        .filter(|resource| resource.kind != RESOURCE_GROUP_TYPE && is_listed(resource))
        .filter(|resource| matches_filter(&filter, resource))
        .filter(|resource| {
            is_authorized(call, &caller, &format!("{}/read", resource.kind), &resource.id)
        })
        .map(resource_summary_json)
        .collect();
    list_reply(call, items)
}

fn matches_filter(filter: &ODataFilter, resource: &ArmResource) -> bool {
    let holds = |field: &str, found: &str| {
        filter.equals_value(field).is_none_or(|wanted| found.eq_ignore_ascii_case(wanted))
    };
    let group = resource.id.as_str().split('/').nth(4).unwrap_or_default();
    let location = resource.body.get("location").and_then(Value::as_str).unwrap_or_default();
    holds("resourceType", &resource.kind)
        && holds("resourceGroup", group)
        && filter
            .equals_value("name")
            .is_none_or(|wanted| listed_name(resource).eq_ignore_ascii_case(wanted))
        && holds("location", location)
        && has_filtered_tag(filter, resource)
}

/// Whether a resource has the tag in a filter; true if the filter has none. Tag names are
/// case-insensitive.
pub(super) fn has_filtered_tag(filter: &ODataFilter, resource: &ArmResource) -> bool {
    let Some(wanted) = filter.equals_value("tagName") else { return true };
    let tags = resource.body.get("tags").and_then(Value::as_object);
    tags.into_iter().flatten().any(|(name, value)| {
        name.eq_ignore_ascii_case(wanted)
            && filter.equals_value("tagValue").is_none_or(|wanted| value.as_str() == Some(wanted))
    })
}

/// Whether lists across types contain the resource: child resources only if they have a location,
/// such as the virtual network links of a private DNS zone. Azure lists locks only as locks.
fn is_listed(resource: &ArmResource) -> bool {
    let is_lock = resource.kind.eq_ignore_ascii_case(LOCK_TYPE);
    let is_top_level = resource.kind.matches('/').count() == 1;
    !is_lock && (is_top_level || resource.body.get("location").is_some())
}

/// Returns the name in lists across types. That of a child resource starts with the names of its
/// parents.
fn listed_name(resource: &ArmResource) -> String {
    let types = resource.kind.matches('/').count();
    let mut names: Vec<_> = resource.id.as_str().rsplit('/').step_by(2).take(types).collect();
    names.reverse();
    names.join("/")
}

/// Renders a resource as in lists across types: without its properties.
fn resource_summary_json(resource: &ArmResource) -> Value {
    let mut wire = resource.to_json();
    if let Value::Object(fields) = &mut wire {
        fields.insert("name".to_owned(), listed_name(resource).into());
        fields.remove("properties");
        fields.remove("systemData");
    }
    wire
}
