//! What-if: the changes that a deployment would make.
//!
//! Reference: "ARM template deployment what-if operation", change types; Microsoft.Resources, Deployments - What
//! If, 2025-04-01.

use lanyard_emulator_arm::locations::normalize_region;
use lanyard_emulator_arm::resource_types::find_resource_type;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use serde_json::{Map, Value, json};

use super::deployment_plan::DeploymentPlan;
use super::deployment_request::WhatIfFormat;
use super::deployment_run::DeploymentRun;
use super::planned_resource::PlannedResource;
use super::resource_index::{ResourceReadError, ResourceReader};

/// Returns the changes of a deployment to `scope`: one for each planned resource, and `Ignore` for
/// each other resource of the resource group.
pub(super) fn predict_changes(
    call: &mut OperationContext<'_>,
    plan: &mut DeploymentPlan,
    scope: &AccessScope,
    format: WhatIfFormat,
) -> Vec<Value> {
    let others = other_resources(call, plan, scope);
    let mut run = DeploymentRun::new(call);
    let mut changes = Vec::new();
    for (place, resource) in plan.resources().to_vec().into_iter().enumerate() {
        if !resource.is_deployed {
            continue;
        }
        let body = match plan.evaluate_body(place, &mut run) {
            Ok(body) => body,
            // `reference` names a resource that the deployment has yet to create.
            Err(_) => unevaluated_body(&resource),
        };
        let before = run.read_resource(&resource.id, &resource.api_version);
        changes.push(predict_change(&resource, body, before));
    }
    for (id, api_version) in others {
        if let Ok(before) = run.read_resource(&id, api_version) {
            let before = with_api_version(before, api_version);
            changes.push(json!({
                "resourceId": id, "changeType": "Ignore", "before": before, "after": before,
            }));
        }
    }
    if format == WhatIfFormat::ResourceIdOnly {
        for change in changes.iter_mut().filter_map(Value::as_object_mut) {
            change.retain(|name, _| !matches!(name.as_str(), "before" | "after" | "delta"));
        }
    }
    changes
}

/// Returns other top-level resources of a resource group, each with an api-version to read it.
fn other_resources(
    call: &OperationContext<'_>,
    plan: &DeploymentPlan,
    scope: &AccessScope,
) -> Vec<(AccessScope, &'static str)> {
    if call.path_parameter("group").is_empty() {
        return Vec::new();
    }
    let is_planned = |id: &AccessScope| {
        let mut deployed = plan.resources().iter().filter(|resource| resource.is_deployed);
        deployed.any(|resource| resource.id == *id)
    };
    let resources = call.azure().resources.within(scope);
    let others = resources
        .filter(|resource| resource.kind.matches('/').count() == 1 && !is_planned(&resource.id));
    others
        .filter_map(|resource| {
            let kind = find_resource_type(call.services, &resource.kind)?;
            Some((resource.id.clone(), kind.oldest_api_version))
        })
        .collect()
}

fn unevaluated_body(resource: &PlannedResource) -> Value {
    let mut body = resource.members.clone();
    if let Some(properties) = &resource.properties {
        body.insert("properties".to_owned(), properties.to_source());
    }
    Value::Object(body)
}

/// Returns the change of one resource. `before` is its current state.
fn predict_change(
    resource: &PlannedResource,
    body: Value,
    before: Result<Value, ResourceReadError>,
) -> Value {
    let before = match before {
        Ok(before) => before,
        Err(error) if error.code.ends_with("NotFound") => {
            let mut after = json!({
                "apiVersion": resource.api_version,
                "id": resource.id,
                "name": resource.name,
                "type": resource.resource_type,
            });
            merge(&mut after, &body);
            return json!({ "resourceId": resource.id, "changeType": "Create", "after": after });
        }
        Err(error) => {
            return json!({
                "resourceId": resource.id,
                "changeType": "Unsupported",
                "unsupportedReason": error.message,
            });
        }
    };
    let delta = property_changes(&before, &body);
    let before = with_api_version(before, &resource.api_version);
    let mut after = before.clone();
    merge(&mut after, &body);
    let change_type = if delta.is_empty() { "NoChange" } else { "Modify" };
    json!({
        "resourceId": resource.id,
        "changeType": change_type,
        "before": before,
        "after": after,
        "delta": delta,
    })
}

fn with_api_version(mut resource: Value, api_version: &str) -> Value {
    resource["apiVersion"] = json!(api_version);
    resource
}

/// Replaces members of `target` by those of `changes`. Objects are merged, except tags.
fn merge(target: &mut Value, changes: &Value) {
    let (Value::Object(members), Value::Object(changes)) = (&mut *target, changes) else {
        target.clone_from(changes);
        return;
    };
    for (name, change) in changes {
        match members.get_mut(name) {
            Some(member) if name != "tags" => merge(member, change),
            _ => drop(members.insert(name.clone(), change.clone())),
        }
    }
}

/// Returns the members of a resource that a write would change. Members that the template omits
/// keep their values, except tags.
fn property_changes(before: &Value, body: &Value) -> Vec<Value> {
    let (Value::Object(before), Value::Object(body)) = (before, body) else { return Vec::new() };
    let mut changes = Vec::new();
    for (name, after) in body {
        match (name.as_str(), before.get(name)) {
            ("location", Some(before)) if is_same_region(before, after) => {}
            ("tags", Some(Value::Object(tags))) => {
                add_changes(&mut changes, name, Some(&Value::Object(tags.clone())), after);
                add_removed_tags(&mut changes, tags, after);
            }
            (_, before) => add_changes(&mut changes, name, before, after),
        }
    }
    changes
}

fn is_same_region(before: &Value, after: &Value) -> bool {
    let region = |value: &Value| value.as_str().map(normalize_region);
    region(before) == region(after)
}

fn add_removed_tags(changes: &mut Vec<Value>, tags: &Map<String, Value>, after: &Value) {
    for (tag, value) in tags.iter().filter(|(tag, _)| after.get(tag.as_str()).is_none()) {
        changes.push(json!({
            "path": format!("tags.{tag}"), "propertyChangeType": "Delete", "before": value,
        }));
    }
}

/// Adds the changes of the member at `path`.
fn add_changes(changes: &mut Vec<Value>, path: &str, before: Option<&Value>, after: &Value) {
    let Some(before) = before else {
        changes.push(json!({ "path": path, "propertyChangeType": "Create", "after": after }));
        return;
    };
    match (before, after) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            for (name, after) in after {
                add_changes(changes, &format!("{path}.{name}"), before.get(name), after);
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            let children = item_changes(before, after);
            if !children.is_empty() {
                changes.push(json!({
                    "path": path, "propertyChangeType": "Array", "children": children,
                }));
            }
        }
        _ => changes.push(json!({
            "path": path, "propertyChangeType": "Modify", "before": before, "after": after,
        })),
    }
}

/// Returns the changes of the items of an array, by index.
fn item_changes(before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut changes = Vec::new();
    for (index, item) in after.iter().enumerate() {
        let path = index.to_string();
        match (before.get(index), item) {
            (Some(before @ Value::Object(_)), Value::Object(_)) => {
                let children = property_changes(before, item);
                if !children.is_empty() {
                    changes.push(json!({
                        "path": path, "propertyChangeType": "Modify", "children": children,
                    }));
                }
            }
            (before, after) => add_changes(&mut changes, &path, before, after),
        }
    }
    for (index, item) in before.iter().enumerate().skip(after.len()) {
        changes.push(json!({
            "path": index.to_string(), "propertyChangeType": "Delete", "before": item,
        }));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_of_the_template_are_compared() {
        let before = json!({
            "location": "westeurope",
            "tags": { "team": "a", "old": "1" },
            "properties": { "size": 1, "state": "on", "list": [{ "name": "a", "id": 1 }, 2] },
        });
        let unchanged = json!({
            "location": "West Europe",
            "tags": { "team": "a", "old": "1" },
            "properties": { "size": 1, "list": [{ "name": "a" }, 2] },
        });
        assert_eq!(property_changes(&before, &unchanged), Vec::<Value>::new());
        let changed = json!({
            "location": "westeurope",
            "tags": { "team": "b" },
            "properties": { "size": 2, "new": true, "list": [{ "name": "b" }] },
        });
        let kinds: Vec<_> = property_changes(&before, &changed)
            .iter()
            .map(|it| format!("{} {}", it["path"], it["propertyChangeType"]).replace('"', ""))
            .collect();
        assert_eq!(
            kinds,
            [
                "properties.list Array",
                "properties.new Create",
                "properties.size Modify",
                "tags.team Modify",
                "tags.old Delete",
            ]
        );
        let list = property_changes(&before, &changed);
        assert_eq!(
            list[0]["children"],
            json!([
                {
                    "path": "0",
                    "propertyChangeType": "Modify",
                    "children": [{
                        "path": "name",
                        "propertyChangeType": "Modify",
                        "before": "a",
                        "after": "b",
                    }],
                },
                { "path": "1", "propertyChangeType": "Delete", "before": 2 },
            ])
        );
    }
}
