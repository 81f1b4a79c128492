//! Renders the properties of a deployment that its plan determines.

use lanyard_emulator_state::resources::deployment_store::{NO_DURATION, TargetResource};
use serde_json::{Map, Value, json};

use super::deployment_plan::DeploymentPlan;
use super::planned_resource::PlannedResource;

/// Returns the properties of a deployment that its plan determines, as in replies.
pub(super) fn planned_properties(plan: &DeploymentPlan) -> Map<String, Value> {
    let properties = [
        ("parameters", json!(plan.parameters())),
        ("mode", json!("Incremental")),
        ("duration", json!(NO_DURATION)),
        ("providers", providers_json(plan)),
        ("dependencies", dependencies_json(plan)),
    ];
    properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn providers_json(plan: &DeploymentPlan) -> Value {
    let mut providers: Vec<(&str, Vec<Value>)> = Vec::new();
    for resource in plan.resources() {
        let (namespace, kind) = resource.resource_type.split_once('/').unwrap_or_default();
        let location = resource.members.get("location").cloned().unwrap_or_default();
        let kind = json!({ "resourceType": kind, "locations": [location] });
        match providers.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(namespace)) {
            Some((_, kinds)) if kinds.contains(&kind) => {}
            Some((_, kinds)) => kinds.push(kind),
            None => providers.push((namespace, vec![kind])),
        }
    }
    let json = |(namespace, kinds)| json!({ "namespace": namespace, "resourceTypes": kinds });
    providers.into_iter().map(json).collect()
}

fn dependencies_json(plan: &DeploymentPlan) -> Value {
    let target = |resource: &PlannedResource| target_resource(resource).to_json();
    let dependent = plan.resources().iter().filter(|resource| !resource.dependencies.is_empty());
    let json = |resource: &PlannedResource| {
        let places = resource.dependencies.iter();
        let depends_on: Vec<_> =
            places.filter_map(|place| plan.resources().get(*place)).map(target).collect();
        let mut wire = target(resource);
        wire["dependsOn"] = json!(depends_on);
        wire
    };
    dependent.map(json).collect()
}

/// Returns a planned resource as the operations of its deployment name it.
pub(super) fn target_resource(resource: &PlannedResource) -> TargetResource {
    TargetResource {
        id: resource.id.clone(),
        resource_type: resource.resource_type.clone(),
        name: resource.name.clone(),
    }
}
