//! A resource in a deployment plan, with the values that are known before the deployment.

use std::fmt;

use lanyard_emulator_state::authorization::AccessScope;
use serde_json::{Map, Value};

use super::evaluation::{EvaluationPhase, TemplateEvaluator};
use super::resource_ids::{parse_template_id, relative_resource_id, resource_id};
use super::template_error::{EvaluationError, JsonPath, TemplateError};
use super::template_resource::TemplateResource;
use super::template_value::TemplateValue;

/// A resource that a deployment writes. The properties can contain calls of `reference`. `Debug` omits the
/// body, which can contain values of secure parameters.
#[derive(Clone)]
pub(super) struct PlannedResource {
    /// The position of the declaration in the template.
    pub(super) path: JsonPath,
    pub(super) id: AccessScope,
    /// The complete type, such as `Microsoft.Network/virtualNetworks/subnets`.
    pub(super) resource_type: String,
    /// The name with all its segments, such as `vnet/default`.
    pub(super) name: String,
    pub(super) api_version: String,
    /// The value of `condition`: a false one skips the resource.
    pub(super) is_deployed: bool,
    /// The id of the scope to which type and name are relative.
    scope: String,
    /// The members of the body other than `properties`.
    pub(super) members: Map<String, Value>,
    pub(super) properties: Option<TemplateValue>,
    /// The indexes of the deployed resources that must be deployed first.
    pub(super) dependencies: Vec<usize>,
    /// The stage in which the resource is deployed; 0 is the first one.
    pub(super) stage: usize,
}

impl fmt::Debug for PlannedResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PlannedResource").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Evaluates the declaration of a resource. `parent` is the resource in which it is nested.
pub(super) fn declare_resource(
    declaration: &TemplateResource,
    parent: Option<&PlannedResource>,
    evaluator: &mut TemplateEvaluator,
) -> Result<PlannedResource, TemplateError> {
    let path = &declaration.path;
    let own_name = evaluate_text(&declaration.name, &path.member("name"), evaluator)?;
    let own_type = declaration.resource_type.trim_end_matches('/');
    let (resource_type, name) = match parent {
        Some(parent) => {
            (format!("{}/{own_type}", parent.resource_type), format!("{}/{own_name}", parent.name))
        }
        None => (own_type.to_owned(), own_name),
    };
    let owner = format!("resource '{name}'");
    let scope = match (&declaration.scope, parent) {
        (Some(scope), _) => {
            let path = path.member("scope");
            let text = evaluate_text(scope, &path, evaluator)?;
            parse_scope(&text, &path, evaluator)?
        }
        (None, Some(parent)) => parent.scope.clone(),
        (None, None) => evaluator.scope().id(),
    };
    let names: Vec<_> = name.split('/').collect();
    let Some(relative_id) = relative_resource_id(&resource_type, &names) else {
        return Err(segment_error(path, &name, &resource_type));
    };
    let id = resource_id(&scope, &relative_id).parse().map_err(|error| {
        TemplateError::invalid(path, format!("The template {owner} is not valid: {error}."))
    })?;
    let mut members = Map::new();
    for (name, value) in &declaration.members {
        let value = evaluate(value, &path.member(name), &owner, evaluator)?;
        if !value.is_null() {
            members.insert(name.clone(), value);
        }
    }
    Ok(PlannedResource {
        path: path.clone(),
        id,
        resource_type,
        api_version: evaluate_text(
            &declaration.api_version,
            &path.member("apiVersion"),
            evaluator,
        )?,
        is_deployed: evaluate_condition(declaration, &owner, evaluator)?,
        name,
        scope,
        members,
        properties: None,
        dependencies: Vec::new(),
        stage: 0,
    })
}

fn evaluate(
    value: &TemplateValue,
    path: &JsonPath,
    owner: &str,
    evaluator: &mut TemplateEvaluator,
) -> Result<Value, TemplateError> {
    evaluator
        .evaluate(value, path, &mut EvaluationPhase::Declaration)
        .map_err(|error| error.in_element(owner))
}

/// Evaluates a member whose value must be a non-empty string.
fn evaluate_text(
    value: &TemplateValue,
    path: &JsonPath,
    evaluator: &mut TemplateEvaluator,
) -> Result<String, TemplateError> {
    match evaluate(value, path, "resource", evaluator)? {
        Value::String(text) if !text.is_empty() => Ok(text),
        _ => Err(EvaluationError::at(path, "The value must be a string that is not empty.")
            .in_element("resource")),
    }
}

fn evaluate_condition(
    declaration: &TemplateResource,
    owner: &str,
    evaluator: &mut TemplateEvaluator,
) -> Result<bool, TemplateError> {
    let Some(condition) = &declaration.condition else { return Ok(true) };
    let path = declaration.path.member("condition");
    match evaluate(condition, &path, owner, evaluator)? {
        Value::Bool(is_deployed) => Ok(is_deployed),
        _ => Err(EvaluationError::at(&path, "The condition is not a boolean.").in_element(owner)),
    }
}

/// Returns the scope of an extension resource, which must be in the scope of the deployment.
fn parse_scope(
    text: &str,
    path: &JsonPath,
    evaluator: &TemplateEvaluator,
) -> Result<String, TemplateError> {
    let invalid = |problem: String| TemplateError::invalid(path, problem);
    let deployment: AccessScope =
        evaluator.scope().id().parse().map_err(|error| {
            invalid(format!("The scope of the deployment is not valid: {error}."))
        })?;
    let scope = parse_template_id(deployment.as_str(), text).map_err(invalid)?;
    if deployment.contains(&scope) {
        return Ok(scope.as_str().to_owned());
    }
    Err(invalid(format!(
        "The scope '{scope}' at '{path}' is not in the scope of the deployment, '{deployment}'."
    )))
}

fn segment_error(path: &JsonPath, name: &str, resource_type: &str) -> TemplateError {
    TemplateError::invalid(
        path,
        format!(
            "The template resource '{name}' for type '{resource_type}' at '{path}' has incorrect segment lengths. A nested resource type must have identical number of segments as its resource name. A root resource type must have segment length one greater than its resource name. Please see https://aka.ms/arm-syntax-resources for usage details."
        ),
    )
}
