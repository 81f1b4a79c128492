//! The plan of a deployment: its resources in the order of their dependencies, with evaluated expressions.
//!
//! Azure deploys resources that do not depend on each other in parallel. Here they share a stage: the bodies
//! of a stage are evaluated before any of its resources is written, and children are written before parents.
//! A template that lacks a dependency therefore fails in the same way in every run.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

use super::deployment_scope::DeploymentScope;
use super::evaluation::{EvaluationPhase, TemplateEvaluator};
use super::planned_resource::{PlannedResource, declare_resource};
use super::resource_index::{IndexedResource, ResourceReader, TemplateResourceIndex};
use super::template::{DeploymentTemplate, OutputDefinition, TemplateScope};
use super::template_error::{EvaluationError, JsonPath, TemplateError};
use super::template_parameters::{
    TemplateType, missing_value_error, parse_parameter_values, typed_value_json,
};
use super::template_resource::MAX_RESOURCE_BYTES;
use super::template_value::TemplateValue;

/// A validated deployment. `Debug` omits values, which can be those of secure parameters.
pub(super) struct DeploymentPlan {
    evaluator: TemplateEvaluator,
    index: TemplateResourceIndex,
    resources: Vec<PlannedResource>,
    outputs: Vec<PlannedOutput>,
    /// The values of the parameters as in replies.
    parameters: Map<String, Value>,
}

struct PlannedOutput {
    name: String,
    path: JsonPath,
    kind: TemplateType,
    value: TemplateValue,
}

/// The errors of the outputs of a deployment, by the name of the output.
#[derive(Debug)]
pub(super) struct OutputErrors(Vec<(String, TemplateError)>);

impl OutputErrors {
    /// Returns the error object for a reply.
    pub(super) fn to_json(&self) -> Value {
        let names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        let details: Vec<_> = self
            .0
            .iter()
            .map(|(name, error)| {
                json!({ "code": error.code, "target": name, "message": error.message })
            })
            .collect();
        json!({
            "code": OUTPUT_ERROR_CODE,
            "message": format!(
                "Unable to evaluate template outputs: '{}'. Please see error details and deployment operations. Please see https://aka.ms/arm-common-errors for usage details.",
                names.join(",")
            ),
            "details": details,
        })
    }
}

impl fmt::Debug for DeploymentPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("DeploymentPlan");
        debug.field("resources", &self.resources).finish_non_exhaustive()
    }
}

const OUTPUT_ERROR_CODE: &str = "DeploymentOutputEvaluationFailed";

impl DeploymentPlan {
    /// Validates a template with the values of its parameters (`properties.parameters`).
    pub(super) fn new(
        template: &DeploymentTemplate,
        values: &Map<String, Value>,
        scope: DeploymentScope,
    ) -> Result<Self, TemplateError> {
        check_scope(template, &scope)?;
        let mut evaluator = TemplateEvaluator::new(scope);
        let parameters = resolve_parameters(template, values, &mut evaluator)?;
        resolve_variables(template, &mut evaluator)?;
        let mut resources: Vec<PlannedResource> = Vec::with_capacity(template.resources.len());
        for declaration in &template.resources {
            let parent = declaration.parent.and_then(|place| resources.get(place));
            let resource = declare_resource(declaration, parent, &mut evaluator)?;
            resources.push(resource);
        }
        check_unique(&resources)?;
        let indexed = resources.iter().map(PlannedResource::indexed).collect();
        let index = TemplateResourceIndex::new(evaluator.scope().id(), indexed);
        for (resource, declaration) in resources.iter_mut().zip(&template.resources) {
            let mut dependencies = explicit_dependencies(
                &declaration.depends_on,
                &declaration.path.member("dependsOn"),
                (&mut evaluator, &index),
            )?;
            if let Some(properties) = &declaration.properties {
                let path = declaration.path.member("properties");
                let owner = format!("resource '{}'", resource.name);
                let (properties, implicit) =
                    evaluate_ahead(properties, &path, &owner, (&mut evaluator, &index))?;
                resource.properties = Some(properties);
                dependencies.extend(implicit);
            }
            resource.dependencies = dependencies.into_iter().collect();
        }
        remove_dependencies_on_skipped(&mut resources);
        assign_stages(&mut resources)?;
        let mut outputs = Vec::new();
        for output in &template.outputs {
            outputs.extend(plan_output(output, &mut evaluator, &index)?);
        }
        Ok(Self { evaluator, index, resources, outputs, parameters })
    }

    /// The resources in the order of the template.
    pub(super) fn resources(&self) -> &[PlannedResource] {
        &self.resources
    }

    /// The values of the parameters as in replies: with default values, without secure values.
    pub(super) fn parameters(&self) -> &Map<String, Value> {
        &self.parameters
    }

    /// The indexes of the resources by stage, children first. Resources depend only on earlier
    /// stages.
    pub(super) fn stages(&self) -> Vec<Vec<usize>> {
        let last = self.resources.iter().map(|resource| resource.stage).max().unwrap_or(0);
        let mut stages = vec![Vec::new(); last + 1];
        for (place, resource) in self.resources.iter().enumerate() {
            if let Some(stage) = stages.get_mut(resource.stage) {
                stage.push(place);
            }
        }
        let depth = |place: &usize| {
            self.resources.get(*place).map_or(0, |it| it.id.as_str().matches('/').count())
        };
        for stage in &mut stages {
            stage.sort_by_key(|place| std::cmp::Reverse(depth(place)));
        }
        stages
    }

    /// Evaluates the `PUT` body of the resource at the index `place`, whose dependencies are
    /// deployed.
    pub(super) fn evaluate_body(
        &mut self,
        place: usize,
        reader: &mut dyn ResourceReader,
    ) -> Result<Value, TemplateError> {
        let Some(resource) = self.resources.get(place) else {
            let problem = format!("The template has no resource at place '{place}'.");
            return Err(TemplateError::invalid(&JsonPath::template(), problem));
        };
        let mut body = resource.members.clone();
        if let Some(properties) = &resource.properties {
            let phase = &mut EvaluationPhase::Runtime { resources: &self.index, reader };
            let path = resource.path.member("properties");
            let mut properties = self
                .evaluator
                .evaluate(properties, &path, phase)
                .map_err(|error| runtime_error(error, resource))?;
            remove_null_members(&mut properties);
            body.insert("properties".to_owned(), properties);
        }
        let body = Value::Object(body);
        let bytes = body.to_string().len();
        if bytes > MAX_RESOURCE_BYTES {
            let problem = format!(
                "The size of the template resource '{}' exceeds the limit. Limit: '{MAX_RESOURCE_BYTES}' bytes and actual: '{bytes}'.",
                resource.name
            );
            return Err(TemplateError::invalid(&resource.path, problem));
        }
        Ok(body)
    }

    /// Evaluates the outputs as in replies. All resources must be deployed.
    pub(super) fn evaluate_outputs(
        &mut self,
        reader: &mut dyn ResourceReader,
    ) -> Result<Map<String, Value>, OutputErrors> {
        let mut values = Map::new();
        let mut errors = Vec::new();
        for output in &self.outputs {
            let phase = &mut EvaluationPhase::Runtime { resources: &self.index, reader };
            let evaluated = self.evaluator.evaluate(&output.value, &output.path, phase);
            let checked = evaluated.and_then(|value| {
                let problem = output.kind.check(&value, "output");
                problem.map_err(|problem| EvaluationError::at(&output.path, problem))?;
                Ok(value)
            });
            match checked {
                Ok(value) => {
                    values.insert(output.name.clone(), typed_value_json(output.kind, &value));
                }
                Err(error) => errors.push((output.name.clone(), output_error(error, output))),
            }
        }
        if errors.is_empty() { Ok(values) } else { Err(OutputErrors(errors)) }
    }
}

fn check_scope(
    template: &DeploymentTemplate,
    scope: &DeploymentScope,
) -> Result<(), TemplateError> {
    let (schema, target) = match (template.scope, &scope.group) {
        (TemplateScope::ResourceGroup, None) => ("deploymentTemplate.json", "subscription"),
        (TemplateScope::Subscription, Some(_)) => {
            ("subscriptionDeploymentTemplate.json", "resource group")
        }
        (TemplateScope::ResourceGroup, Some(_)) | (TemplateScope::Subscription, None) => {
            return Ok(());
        }
    };
    Err(TemplateError::invalid(
        &JsonPath::template().member("$schema"),
        format!(
            "The template schema '{schema}' is not supported for a deployment to a {target}. Please see https://aka.ms/arm-template for usage details."
        ),
    ))
}

/// Checks the parameters and adds them to the evaluator. Returns their values as in replies.
fn resolve_parameters(
    template: &DeploymentTemplate,
    values: &Map<String, Value>,
    evaluator: &mut TemplateEvaluator,
) -> Result<Map<String, Value>, TemplateError> {
    let given = parse_parameter_values(&template.parameters, values)?;
    for (definition, value) in template.parameters.iter().zip(given) {
        let path = definition.path.member("defaultValue");
        match (value, &definition.default) {
            (Some(value), _) => evaluator.add_parameter(&definition.name, &definition.path, value),
            (None, Some(default)) => {
                evaluator.add_parameter_default(&definition.name, &path, default.clone());
            }
            (None, None) => return Err(missing_value_error(definition)),
        }
    }
    let mut replies = Map::new();
    for definition in &template.parameters {
        let path = definition.path.member("defaultValue");
        let value = evaluator
            .parameter(&definition.name, &path)
            .map_err(|error| error.in_element(format!("parameter '{}'", definition.name)))?;
        definition.check_value(value, &path)?;
        replies.insert(definition.name.clone(), definition.to_json(value));
    }
    Ok(replies)
}

fn resolve_variables(
    template: &DeploymentTemplate,
    evaluator: &mut TemplateEvaluator,
) -> Result<(), TemplateError> {
    for variable in &template.variables {
        evaluator.add_variable(&variable.name, &variable.path, variable.value.clone());
    }
    for variable in &template.variables {
        evaluator
            .variable(&variable.name, &variable.path)
            .map_err(|error| error.in_element(format!("variable '{}'", variable.name)))?;
    }
    Ok(())
}

/// Rejects two deployed resources with the same id.
fn check_unique(resources: &[PlannedResource]) -> Result<(), TemplateError> {
    let mut ids = BTreeSet::new();
    for resource in resources.iter().filter(|resource| resource.is_deployed) {
        if !ids.insert(resource.id.as_str().to_lowercase()) {
            let relative = super::resource_ids::template_relative_id(resource.id.as_str());
            return Err(TemplateError::invalid(
                &resource.path,
                format!(
                    "The resource '{relative}' at '{}' is defined multiple times in a template. Please see https://aka.ms/arm-syntax-resources for usage details.",
                    resource.path
                ),
            ));
        }
    }
    Ok(())
}

/// Returns the indexes of the resources that `dependsOn` names.
fn explicit_dependencies(
    entries: &[TemplateValue],
    path: &JsonPath,
    (evaluator, index): (&mut TemplateEvaluator, &TemplateResourceIndex),
) -> Result<BTreeSet<usize>, TemplateError> {
    let mut dependencies = BTreeSet::new();
    for (place, entry) in entries.iter().enumerate() {
        let path = path.index(place);
        let value = evaluator
            .evaluate(entry, &path, &mut EvaluationPhase::Declaration)
            .map_err(|error| error.in_element("dependency"))?;
        // One entry can be an expression that returns several dependencies.
        let texts = match value {
            Value::Array(items) => items,
            other => vec![other],
        };
        for text in texts {
            let Value::String(text) = text else {
                let problem =
                    "An entry of 'dependsOn' is the name or the resource ID of a resource.";
                return Err(TemplateError::invalid(&path, problem));
            };
            let found = index.resolve_dependency(&text);
            dependencies.insert(found.map_err(|problem| TemplateError::invalid(&path, problem))?);
        }
    }
    Ok(dependencies)
}

/// Evaluates expressions without `reference`. Returns the value and the indexes of the resources
/// that the calls of `reference` name.
fn evaluate_ahead(
    value: &TemplateValue,
    path: &JsonPath,
    owner: &str,
    (evaluator, index): (&mut TemplateEvaluator, &TemplateResourceIndex),
) -> Result<(TemplateValue, Vec<usize>), TemplateError> {
    let value = evaluator.evaluate_ahead(value, path).map_err(|error| error.in_element(owner))?;
    let mut dependencies = Vec::new();
    for (path, call) in value.reference_calls(path) {
        let target = call
            .arguments
            .iter()
            .map(|argument| evaluator.evaluate_text(argument, &path, call.function))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|arguments| {
                let target = index.resolve_reference(&arguments);
                target.map_err(|problem| EvaluationError::at(&path, problem))
            })
            .map_err(|error| error.in_element(owner))?;
        dependencies.extend(target.implicit_dependency());
    }
    Ok((value, dependencies))
}

/// Removes the dependencies on resources whose condition is false, as Azure does.
fn remove_dependencies_on_skipped(resources: &mut [PlannedResource]) {
    let skipped: BTreeSet<_> = resources
        .iter()
        .enumerate()
        .filter_map(|(place, resource)| (!resource.is_deployed).then_some(place))
        .collect();
    for resource in resources {
        resource.dependencies.retain(|place| !skipped.contains(place));
    }
}

/// Sets the stage of each resource: one more than the last stage of its dependencies.
fn assign_stages(resources: &mut [PlannedResource]) -> Result<(), TemplateError> {
    let mut stages: Vec<Option<usize>> = vec![None; resources.len()];
    let stage_after = |stages: &[Option<usize>], dependencies: &[usize]| {
        dependencies.iter().try_fold(0, |stage, place| {
            let dependency = stages.get(*place).copied().flatten()?;
            Some(stage.max(dependency + 1))
        })
    };
    loop {
        let mut is_changed = false;
        for (place, resource) in resources.iter().enumerate() {
            if stages.get(place).copied().flatten().is_some() {
                continue;
            }
            let stage = stage_after(&stages, &resource.dependencies);
            is_changed |= stage.is_some();
            if let Some(slot) = stages.get_mut(place) {
                *slot = stage;
            }
        }
        if !is_changed {
            break;
        }
    }
    let is_unordered = |place: &usize| stages.get(*place).copied().flatten().is_none();
    if let Some(first) = (0..resources.len()).find(is_unordered) {
        return Err(circular_dependency_error(resources, first, is_unordered));
    }
    for (resource, stage) in resources.iter_mut().zip(stages) {
        resource.stage = stage.unwrap_or(0);
    }
    Ok(())
}

/// Returns the error for a cycle, found by following unordered resources from the index `first`.
fn circular_dependency_error(
    resources: &[PlannedResource],
    first: usize,
    is_unordered: impl Fn(&usize) -> bool,
) -> TemplateError {
    let mut visited = Vec::new();
    let mut place = first;
    while !visited.contains(&place) {
        visited.push(place);
        let dependencies = resources.get(place).map(|it| it.dependencies.as_slice());
        let next = dependencies.unwrap_or_default().iter().find(|place| is_unordered(place));
        place = next.copied().unwrap_or(place);
    }
    let cycle = visited.iter().skip_while(|visited| **visited != place);
    let on_cycle = cycle.min().and_then(|place| resources.get(*place));
    let (id, path) = match on_cycle {
        Some(resource) => (resource.id.as_str(), resource.path.clone()),
        None => ("", JsonPath::template()),
    };
    TemplateError::invalid(
        &path,
        format!(
            "Circular dependency detected on resource: '{id}'. Please see https://aka.ms/arm-syntax-resources for usage details."
        ),
    )
}

/// Validates an output. Returns `None` if the condition of the output is false.
fn plan_output(
    output: &OutputDefinition,
    evaluator: &mut TemplateEvaluator,
    index: &TemplateResourceIndex,
) -> Result<Option<PlannedOutput>, TemplateError> {
    let owner = format!("output '{}'", output.name);
    if let Some(condition) = &output.condition {
        let value = evaluator
            .evaluate(condition, &output.path, &mut EvaluationPhase::Declaration)
            .map_err(|error| error.in_element(&owner))?;
        match value {
            Value::Bool(true) => {}
            Value::Bool(false) => return Ok(None),
            _ => {
                let error = EvaluationError::at(&output.path, "The condition is not a boolean.");
                return Err(error.in_element(&owner));
            }
        }
    }
    let (value, _) = evaluate_ahead(&output.value, &output.path, &owner, (evaluator, index))?;
    Ok(Some(PlannedOutput {
        name: output.name.clone(),
        path: output.path.clone(),
        kind: output.kind,
        value,
    }))
}

/// Returns the error for an expression that is evaluated while the deployment runs.
fn runtime_error(error: EvaluationError, resource: &PlannedResource) -> TemplateError {
    match error {
        EvaluationError::Expression { path, message } => TemplateError {
            code: "InvalidTemplate".into(),
            message: format!(
                "Unable to process template language expressions for resource '{}' at '{path}'. '{message}'",
                resource.id
            ),
            path,
        },
        EvaluationError::Template(error) => error,
    }
}

fn output_error(error: EvaluationError, output: &PlannedOutput) -> TemplateError {
    let (code, message) = match error {
        EvaluationError::Expression { message, .. } => (
            OUTPUT_ERROR_CODE.into(),
            format!("The template output '{}' is not valid: {message}", output.name),
        ),
        EvaluationError::Template(error) => (error.code, error.message),
    };
    TemplateError { code, message, path: output.path.clone() }
}

/// Removes members whose value is `null`: a template uses them for absent properties.
fn remove_null_members(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(remove_null_members);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_null_members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl PlannedResource {
    /// Returns the entry of the resource in the [`TemplateResourceIndex`].
    fn indexed(&self) -> IndexedResource {
        IndexedResource {
            id: self.id.clone(),
            name: self.name.clone(),
            api_version: self.api_version.clone(),
            is_deployed: self.is_deployed,
        }
    }
}

#[cfg(test)]
mod tests;
