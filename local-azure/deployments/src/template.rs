//! The document of an ARM template, language version 1.0.
//!
//! Reference: "Understand the structure and syntax of ARM templates". The parser rejects what Azure
//! rejects. Its errors also name elements that the emulator does not implement.

use serde_json::{Map, Value};

use super::evaluation::MAX_TEMPLATE_BYTES;
use super::template_error::{JsonPath, TemplateError};
use super::template_parameters::{ParameterDefinition, TemplateType};
use super::template_resource::TemplateResource;
use super::template_value::{TemplateValue, copy_loop_error};

/// The maximum numbers of elements of a template. Reference: "ARM template best practices",
/// template limits.
const MAX_PARAMETERS: usize = 256;
const MAX_VARIABLES: usize = 512;
const MAX_RESOURCES: usize = 800;
const MAX_OUTPUTS: usize = 64;

/// The scope to which a template can be deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateScope {
    ResourceGroup,
    Subscription,
}

/// A parsed template.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DeploymentTemplate {
    pub(super) scope: TemplateScope,
    pub(super) content_version: String,
    pub(super) parameters: Vec<ParameterDefinition>,
    pub(super) variables: Vec<VariableDefinition>,
    /// The resources in the order of the document; nested resources follow their parent.
    pub(super) resources: Vec<TemplateResource>,
    pub(super) outputs: Vec<OutputDefinition>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct VariableDefinition {
    pub(super) name: String,
    pub(super) path: JsonPath,
    pub(super) value: TemplateValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct OutputDefinition {
    pub(super) name: String,
    /// The position of the output's value in the template.
    pub(super) path: JsonPath,
    pub(super) kind: TemplateType,
    pub(super) condition: Option<TemplateValue>,
    pub(super) value: TemplateValue,
}

impl DeploymentTemplate {
    /// Parses `properties.template` of a deployment.
    pub(super) fn parse(document: &Value) -> Result<Self, TemplateError> {
        let path = JsonPath::template();
        let Value::Object(members) = document else {
            return Err(TemplateError::malformed(&path, "The template is not an object."));
        };
        let bytes = document.to_string().len();
        if bytes > MAX_TEMPLATE_BYTES {
            let problem = format!(
                "The size of the template exceeds the limit. Limit: '{MAX_TEMPLATE_BYTES}' bytes and actual: '{bytes}'."
            );
            return Err(TemplateError::invalid(&path, problem));
        }
        check_members(members, &path)?;
        Ok(Self {
            scope: parse_schema(required_text(members, "$schema", &path)?, &path)?,
            content_version: parse_content_version(
                required_text(members, "contentVersion", &path)?,
                &path,
            )?,
            parameters: parse_parameters(members, &path)?,
            variables: parse_variables(members, &path)?,
            resources: parse_resources(members, &path)?,
            outputs: parse_outputs(members, &path)?,
        })
    }
}

/// Rejects unknown members of a template, and elements that the emulator does not implement.
fn check_members(members: &Map<String, Value>, path: &JsonPath) -> Result<(), TemplateError> {
    for (name, value) in members {
        let path = path.member(name);
        match name.as_str() {
            "functions" if value.as_array().is_none_or(|functions| !functions.is_empty()) => {
                return Err(TemplateError::unsupported(
                    &path,
                    "user-defined functions",
                    &super::expression::implemented_functions(),
                ));
            }
            "$schema" | "contentVersion" | "metadata" | "parameters" | "variables"
            | "resources" | "outputs" | "functions" => {}
            "languageVersion" | "definitions" | "imports" | "extensions" => {
                return Err(TemplateError::unsupported(
                    &path,
                    &format!("'{name}', which belongs to a newer language version,"),
                    "templates of language version 1.0",
                ));
            }
            "apiProfile" => {
                return Err(TemplateError::unsupported(
                    &path,
                    "API profiles",
                    "resources with an 'apiVersion'",
                ));
            }
            _ => return Err(TemplateError::unknown_member(&path, name, "Template")),
        }
    }
    Ok(())
}

fn required_text<'v>(
    members: &'v Map<String, Value>,
    name: &str,
    path: &JsonPath,
) -> Result<&'v str, TemplateError> {
    members.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).ok_or_else(|| {
        TemplateError::malformed(path, format!("Required property '{name}' not found in JSON."))
    })
}

/// Parses `https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#`.
fn parse_schema(schema: &str, path: &JsonPath) -> Result<TemplateScope, TemplateError> {
    let name = schema.trim_end_matches('#').rsplit('/').next().unwrap_or_default();
    if name.eq_ignore_ascii_case("deploymentTemplate.json") {
        return Ok(TemplateScope::ResourceGroup);
    }
    if name.eq_ignore_ascii_case("subscriptionDeploymentTemplate.json") {
        return Ok(TemplateScope::Subscription);
    }
    Err(TemplateError::invalid(
        &path.member("$schema"),
        format!(
            "The template schema '{schema}' is not supported. Supported schemas are 'deploymentTemplate.json' and 'subscriptionDeploymentTemplate.json'. Please see https://aka.ms/arm-template for usage details."
        ),
    ))
}

/// Parses a version such as `1.0.0.0`.
fn parse_content_version(text: &str, path: &JsonPath) -> Result<String, TemplateError> {
    let parts: Vec<_> = text.split('.').collect();
    let is_number = |part: &&str| part.parse::<u32>().is_ok();
    if (2..=4).contains(&parts.len()) && parts.iter().all(is_number) {
        return Ok(text.to_owned());
    }
    let path = path.member("contentVersion");
    let problem =
        format!("The value '{text}' of 'contentVersion' is no version such as '1.0.0.0'.");
    Err(TemplateError::malformed(&path, problem))
}

/// Returns the members of the object `name`, if any: at most `limit`, unique ignoring case.
fn named_elements<'v>(
    members: &'v Map<String, Value>,
    name: &str,
    limit: usize,
    path: &JsonPath,
) -> Result<Vec<(&'v String, &'v Value, JsonPath)>, TemplateError> {
    let path = path.member(name);
    let elements = match members.get(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(elements)) => elements,
        Some(_) => {
            return Err(TemplateError::malformed(&path, format!("'{name}' is not an object.")));
        }
    };
    if elements.len() > limit {
        return Err(TemplateError::limit(&path, name, limit, elements.len()));
    }
    let mut names: Vec<_> = elements.keys().map(|name| name.to_lowercase()).collect();
    names.sort_unstable();
    if let Some([twin, ..]) = names.windows(2).find(|pair| pair.first() == pair.last()) {
        let problem = format!("The name '{twin}' is defined more than once in '{name}'.");
        return Err(TemplateError::invalid(&path, problem));
    }
    let with_path = |(name, value): (&'v String, &'v Value)| (name, value, path.member(name));
    Ok(elements.iter().map(with_path).collect())
}

fn parse_parameters(
    members: &Map<String, Value>,
    path: &JsonPath,
) -> Result<Vec<ParameterDefinition>, TemplateError> {
    named_elements(members, "parameters", MAX_PARAMETERS, path)?
        .into_iter()
        .map(|(name, value, path)| ParameterDefinition::parse(name, value, path))
        .collect()
}

fn parse_variables(
    members: &Map<String, Value>,
    path: &JsonPath,
) -> Result<Vec<VariableDefinition>, TemplateError> {
    named_elements(members, "variables", MAX_VARIABLES, path)?
        .into_iter()
        .map(|(name, value, path)| {
            if name.eq_ignore_ascii_case("copy") && value.is_array() {
                return Err(copy_loop_error(&path));
            }
            let value = TemplateValue::parse(value, &path)?;
            Ok(VariableDefinition { name: name.clone(), path, value })
        })
        .collect()
}

fn parse_resources(
    members: &Map<String, Value>,
    path: &JsonPath,
) -> Result<Vec<TemplateResource>, TemplateError> {
    let path = path.member("resources");
    let items = match members.get("resources") {
        Some(Value::Array(items)) => items,
        Some(Value::Object(_)) => {
            return Err(TemplateError::unsupported(
                &path,
                "symbolic names of resources, which belong to language version 2.0,",
                "an array of resources",
            ));
        }
        Some(_) => {
            return Err(TemplateError::malformed(&path, "'resources' is not an array."));
        }
        None => {
            return Err(TemplateError::malformed(
                &path,
                "Required property 'resources' not found in JSON.",
            ));
        }
    };
    let mut resources = Vec::new();
    TemplateResource::parse_all(items, &path, None, &mut resources)?;
    if resources.len() > MAX_RESOURCES {
        return Err(TemplateError::limit(&path, "resources", MAX_RESOURCES, resources.len()));
    }
    Ok(resources)
}

fn parse_outputs(
    members: &Map<String, Value>,
    path: &JsonPath,
) -> Result<Vec<OutputDefinition>, TemplateError> {
    named_elements(members, "outputs", MAX_OUTPUTS, path)?
        .into_iter()
        .map(|(name, value, path)| parse_output(name, value, &path))
        .collect()
}

fn parse_output(
    name: &str,
    value: &Value,
    path: &JsonPath,
) -> Result<OutputDefinition, TemplateError> {
    let Value::Object(members) = value else {
        return Err(TemplateError::malformed(path, "An output is an object."));
    };
    let kind = TemplateType::parse(members.get("type"), path)?;
    let (mut output, mut condition) = (None, None);
    for (member, value) in members {
        let path = path.member(member);
        match member.as_str() {
            "type" | "metadata" => {}
            "value" => output = Some(TemplateValue::parse(value, &path)?),
            "condition" => condition = Some(TemplateValue::parse(value, &path)?),
            "copy" => return Err(copy_loop_error(&path)),
            _ => {
                return Err(TemplateError::unknown_member(
                    &path,
                    member,
                    "TemplateOutputParameter",
                ));
            }
        }
    }
    let Some(value) = output else {
        return Err(TemplateError::malformed(path, "Required property 'value' not found in JSON."));
    };
    Ok(OutputDefinition {
        name: name.to_owned(),
        path: path.member("value"),
        kind,
        condition,
        value,
    })
}

#[cfg(test)]
pub(super) mod tests;
