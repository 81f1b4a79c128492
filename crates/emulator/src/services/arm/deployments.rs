//! Template deployments (`Microsoft.Resources/deployments`).
//!
//! [`template`] parses a template, [`deployment_plan`] validates it and orders its resources. Both are
//! functions of the template, the parameters and the scope.

mod composite_format;
mod deployment_plan;
mod deployment_scope;
mod evaluation;
mod expression;
mod planned_resource;
mod resource_ids;
mod resource_index;
mod template;
mod template_error;
mod template_functions;
mod template_parameters;
mod template_resource;
mod template_value;

/// Validates a deployment of a template to a resource group. Returns the number of its resources, or `None` if
/// the template is not valid; for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn plan_template(document: &serde_json::Value) -> Option<usize> {
    let scope = deployment_scope::DeploymentScope {
        subscription_id: "11111111-1111-1111-1111-111111111111".to_owned(),
        tenant_id: "22222222-2222-2222-2222-222222222222".to_owned(),
        subscription_name: "fuzzing".to_owned(),
        group: Some(deployment_scope::DeploymentGroup {
            name: "group".to_owned(),
            resource: serde_json::json!({ "name": "group", "location": "westeurope" }),
        }),
    };
    let template = template::DeploymentTemplate::parse(document).ok()?;
    let plan = deployment_plan::DeploymentPlan::new(&template, &serde_json::Map::new(), scope);
    Some(plan.ok()?.resources().len())
}
