//! Lists across types: `/resources` of a group or a subscription. `az` finds a vault without its
//! group this way.

use serde_json::Value;

use super::filter::Filter;
use super::gate::{authenticate, group_scope, list, may, require_group, scope};
use super::resources::{RESOURCE_GROUP, Resource};
use crate::authorization::AccessScope;
use crate::call::Call;
use crate::request::Reply;

/// `GET /subscriptions/{id}/resources`: what the caller may read.
pub(super) fn in_subscription(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let whole = scope(&format!("/subscriptions/{}", call.parameter("subscription")))?;
    readable(call, &whole)
}

/// `GET …/resourceGroups/{group}/resources`: what the caller may read.
pub(super) fn in_group(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let group = group_scope(call)?;
    let caller = authenticate(call)?;
    super::gate::authorize(
        call,
        &caller,
        "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
        &group,
    )?;
    require_group(call)?;
    readable(call, &group)
}

fn readable(call: &mut Call<'_>, at: &AccessScope) -> Result<Reply, Reply> {
    let caller = authenticate(call)?;
    let filter = Filter::of(call, &["resourceType", "resourceGroup", "name"])?;
    let items = call
        .world()
        .resources
        .within(at)
        .filter(|resource| resource.kind != RESOURCE_GROUP && is_top_level(resource))
        .filter(|resource| matches(&filter, resource))
        .filter(|resource| may(call, &caller, &format!("{}/read", resource.kind), &resource.id))
        .map(summary)
        .collect();
    list(call, items)
}

fn matches(filter: &Filter, resource: &Resource) -> bool {
    let holds = |field: &str, found: &str| {
        filter.equals(field).is_none_or(|wanted| found.eq_ignore_ascii_case(wanted))
    };
    let group = resource.id.as_str().split('/').nth(4).unwrap_or_default();
    holds("resourceType", &resource.kind)
        && holds("resourceGroup", group)
        && holds("name", resource.name())
}

/// Children such as subnets are not in these lists.
fn is_top_level(resource: &Resource) -> bool {
    resource.kind.matches('/').count() == 1
}

/// The resource without its properties, as these lists show it.
fn summary(resource: &Resource) -> Value {
    let mut wire = resource.wire();
    if let Value::Object(fields) = &mut wire {
        fields.remove("properties");
        fields.remove("systemData");
    }
    wire
}
