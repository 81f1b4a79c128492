//! The declaration of a resource in a template.
//!
//! Reference: "Resource declaration in ARM templates" and "Set name and type for child resources".

use serde_json::{Map, Value};

use super::template_error::{JsonPath, TemplateError};
use super::template_value::{TemplateValue, copy_loop_error};

/// The maximum size of a resource, in bytes. Reference: "ARM template best practices", template limits.
pub(super) const MAX_RESOURCE_BYTES: usize = 1024 * 1024;

/// The resource type of nested and linked deployments.
const DEPLOYMENT_TYPE: &str = "Microsoft.Resources/deployments";

/// The members besides `properties` that the resource provider receives unchanged.
const PROVIDER_MEMBERS: [&str; 10] = [
    "location",
    "tags",
    "identity",
    "sku",
    "kind",
    "plan",
    "zones",
    "extendedLocation",
    "managedBy",
    "placement",
];

/// A resource of a template, or a nested child resource.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TemplateResource {
    /// The position of the declaration in the template.
    pub(super) path: JsonPath,
    /// The index of the resource in whose declaration this one is nested.
    pub(super) parent: Option<usize>,
    /// The type as declared: a nested resource has only the part below its parent's type.
    pub(super) resource_type: String,
    pub(super) name: TemplateValue,
    pub(super) api_version: TemplateValue,
    pub(super) condition: Option<TemplateValue>,
    /// The id of the resource that an extension resource extends.
    pub(super) scope: Option<TemplateValue>,
    pub(super) depends_on: Vec<TemplateValue>,
    /// The members other than `properties` that the resource provider receives.
    pub(super) members: Vec<(String, TemplateValue)>,
    pub(super) properties: Option<TemplateValue>,
}

impl TemplateResource {
    /// Parses an array of resources and their nested resources, and appends them to `resources`.
    pub(super) fn parse_all(
        items: &[Value],
        path: &JsonPath,
        parent: Option<usize>,
        resources: &mut Vec<Self>,
    ) -> Result<(), TemplateError> {
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            let Value::Object(members) = item else {
                return Err(TemplateError::malformed(&path, "A resource is an object."));
            };
            let place = resources.len();
            resources.push(Self::parse(members, &path, parent)?);
            match members.get("resources") {
                None | Some(Value::Null) => {}
                Some(Value::Array(children)) => {
                    let path = path.member("resources");
                    Self::parse_all(children, &path, Some(place), resources)?;
                }
                Some(_) => {
                    let path = path.member("resources");
                    return Err(TemplateError::malformed(&path, "'resources' is not an array."));
                }
            }
        }
        Ok(())
    }

    fn parse(
        members: &Map<String, Value>,
        path: &JsonPath,
        parent: Option<usize>,
    ) -> Result<Self, TemplateError> {
        let mut resource = Self {
            path: path.clone(),
            parent,
            resource_type: parse_type(members, path)?,
            name: required_value(members, "name", path)?,
            api_version: required_value(members, "apiVersion", path)?,
            condition: None,
            scope: None,
            depends_on: Vec::new(),
            members: Vec::new(),
            properties: None,
        };
        for (name, value) in members {
            resource.set_member(name, value, &path.member(name))?;
        }
        Ok(resource)
    }

    fn set_member(
        &mut self,
        name: &str,
        value: &Value,
        path: &JsonPath,
    ) -> Result<(), TemplateError> {
        match name {
            "type" | "name" | "apiVersion" | "resources" | "comments" | "metadata" => {}
            "condition" => self.condition = Some(TemplateValue::parse(value, path)?),
            "scope" => self.scope = Some(TemplateValue::parse(value, path)?),
            "dependsOn" => self.depends_on = parse_depends_on(value, path)?,
            "properties" if value.is_null() => {}
            "properties" => self.properties = Some(TemplateValue::parse(value, path)?),
            "copy" => return Err(copy_loop_error(path)),
            "existing" | "import" | "extension" | "asserts" => {
                return Err(TemplateError::unsupported(
                    path,
                    &format!("the member '{name}' of language version 2.0"),
                    "resources of language version 1.0",
                ));
            }
            "subscriptionId" | "resourceGroup" => {
                return Err(TemplateError::unsupported(
                    path,
                    &format!("'{name}', which belongs to nested deployments,"),
                    "resources in the scope of the deployment",
                ));
            }
            _ if PROVIDER_MEMBERS.contains(&name) => {
                if !value.is_null() {
                    self.members.push((name.to_owned(), TemplateValue::parse(value, path)?));
                }
            }
            _ => return Err(TemplateError::unknown_member(path, name, "TemplateResource")),
        }
        Ok(())
    }
}

fn required_value(
    members: &Map<String, Value>,
    name: &str,
    path: &JsonPath,
) -> Result<TemplateValue, TemplateError> {
    match members.get(name) {
        Some(value) if value.as_str().is_some_and(|text| !text.is_empty()) => {
            TemplateValue::parse(value, &path.member(name))
        }
        Some(_) => {
            let problem = format!("The property '{name}' must be a string that is not empty.");
            Err(TemplateError::malformed(&path.member(name), problem))
        }
        None => Err(TemplateError::malformed(
            path,
            format!("Required property '{name}' not found in JSON."),
        )),
    }
}

/// Parses `type`, which must be a literal.
fn parse_type(members: &Map<String, Value>, path: &JsonPath) -> Result<String, TemplateError> {
    let value = required_value(members, "type", path)?;
    let path = path.member("type");
    let Some(Value::String(resource_type)) = value.into_literal() else {
        return Err(TemplateError::invalid(
            &path,
            format!(
                "The template resource at '{path}' is not valid. The type property cannot be an expression. Please see https://aka.ms/arm-syntax-resources for usage details."
            ),
        ));
    };
    if resource_type.eq_ignore_ascii_case(DEPLOYMENT_TYPE) {
        return Err(TemplateError::unsupported(
            &path,
            &format!("nested and linked deployments ('{DEPLOYMENT_TYPE}')"),
            "templates without them",
        ));
    }
    Ok(resource_type)
}

fn parse_depends_on(value: &Value, path: &JsonPath) -> Result<Vec<TemplateValue>, TemplateError> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => {
            let entries = items.iter().enumerate();
            entries.map(|(index, item)| TemplateValue::parse(item, &path.index(index))).collect()
        }
        // An expression can return the complete array.
        Value::String(_) => Ok(vec![TemplateValue::parse(value, path)?]),
        _ => Err(TemplateError::malformed(path, "'dependsOn' is not an array.")),
    }
}
