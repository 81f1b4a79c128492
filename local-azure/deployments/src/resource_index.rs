//! The resources of a template by name and id, for `dependsOn` and `reference`.
//!
//! Reference: "Define the order for deploying resources in ARM templates" and "Resource functions for ARM
//! templates".

use lanyard_emulator_state::authorization::AccessScope;
use serde_json::{Value, json};

use super::resource_ids::{parse_template_id, template_relative_id};
use super::template_error::{JsonPath, TemplateError};

/// Reads resources for the template function `reference`.
pub(super) trait ResourceReader {
    /// Returns the resource as in the reply to the client's `GET`.
    fn read_resource(
        &mut self,
        id: &AccessScope,
        api_version: &str,
    ) -> Result<Value, ResourceReadError>;
}

/// A resource that `reference` names cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResourceReadError {
    /// The error code of the resource provider, such as `ResourceNotFound`.
    pub(super) code: String,
    pub(super) message: String,
}

/// The part of a planned resource that `dependsOn` and `reference` need.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IndexedResource {
    pub(super) id: AccessScope,
    /// The name with all its segments, such as `vnet/default`.
    pub(super) name: String,
    pub(super) api_version: String,
    /// The value of `condition`.
    pub(super) is_deployed: bool,
}

/// The resources of one template, in the order of the document.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TemplateResourceIndex {
    /// The id of the scope of the deployment.
    scope: String,
    resources: Vec<IndexedResource>,
}

/// The resource that a call of `reference` names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReferenceTarget {
    id: AccessScope,
    api_version: String,
    /// Whether the call returns the complete resource instead of its properties.
    is_full: bool,
    is_by_name: bool,
    /// The index of the resource in the template, if the template declares it.
    place: Option<usize>,
}

impl ReferenceTarget {
    /// The index of the dependency: only a call by name, not by id, is an implicit dependency.
    pub(super) fn implicit_dependency(&self) -> Option<usize> {
        self.place.filter(|_| self.is_by_name)
    }

    /// Reads the resource, and returns the value of the call of `reference` at `path`.
    pub(super) fn read(
        &self,
        path: &JsonPath,
        reader: &mut dyn ResourceReader,
    ) -> Result<Value, TemplateError> {
        let found = reader.read_resource(&self.id, &self.api_version).map_err(|error| {
            TemplateError { code: error.code.into(), message: error.message, path: path.clone() }
        })?;
        if self.is_full {
            return Ok(full_reference(found, self));
        }
        Ok(found.get("properties").cloned().unwrap_or_else(|| json!({})))
    }
}

impl TemplateResourceIndex {
    pub(super) fn new(scope: String, resources: Vec<IndexedResource>) -> Self {
        Self { scope, resources }
    }

    /// Finds the index of the resource in a `dependsOn` entry. The error text is a full sentence.
    pub(super) fn resolve_dependency(&self, text: &str) -> Result<usize, String> {
        let found = if text.contains('/') {
            let id = parse_template_id(&self.scope, text)?;
            self.find_one(text, |resource| resource.id == id)?
        } else {
            self.find_one(text, |resource| resource.name.eq_ignore_ascii_case(text))?
        };
        found.ok_or_else(|| {
            format!(
                "The resource '{text}' is not defined in the template. Please see https://aka.ms/arm-syntax for usage details."
            )
        })
    }

    /// Finds the resource that a call of `reference` names. The error text is a full sentence.
    pub(super) fn resolve_reference(
        &self,
        arguments: &[String],
    ) -> Result<ReferenceTarget, String> {
        let [text, options @ ..] = arguments else {
            return Err("The function 'reference' requires an argument.".to_owned());
        };
        let is_full = match options.get(1) {
            None => false,
            Some(option) if option.eq_ignore_ascii_case("Full") => true,
            Some(option) => {
                return Err(format!(
                    "Unable to evaluate template language function 'reference': the third parameter is 'Full', not '{option}'. Please see https://aka.ms/arm-function-reference for usage details."
                ));
            }
        };
        let is_by_name = !text.contains('/');
        let (id, place) = if is_by_name {
            let place = self.find_one(text, |it| it.name.eq_ignore_ascii_case(text))?;
            let found = place.and_then(|place| Some((self.resources.get(place)?, place)));
            let Some((resource, place)) = found else {
                return Err(format!(
                    "The template reference '{text}' is not valid: could not find template resource or resource copy with this name. Please see https://aka.ms/arm-function-reference for usage details."
                ));
            };
            (resource.id.clone(), Some(place))
        } else {
            let id = parse_template_id(&self.scope, text)?;
            let place = self.find_one(text, |resource| resource.id == id)?;
            (id, place)
        };
        let declared = place.and_then(|place| self.resources.get(place));
        let api_version = match (options.first(), declared) {
            (Some(version), _) => version.clone(),
            (None, Some(resource)) => resource.api_version.clone(),
            (None, None) => {
                return Err(format!(
                    "The template reference '{text}' requires an API version, because the template does not deploy the resource. Please see https://aka.ms/arm-function-reference for usage details."
                ));
            }
        };
        Ok(ReferenceTarget { id, api_version, is_full, is_by_name, place })
    }

    /// Returns the index of the matching resource. It is an error if several are deployed.
    fn find_one(
        &self,
        text: &str,
        matches: impl Fn(&IndexedResource) -> bool,
    ) -> Result<Option<usize>, String> {
        let places = |deployed: bool| {
            let places = self.resources.iter().enumerate();
            places.filter(move |(_, it)| it.is_deployed == deployed)
        };
        let mut found = places(true).filter(|(_, it)| matches(it)).map(|(place, _)| place);
        match (found.next(), found.next()) {
            (Some(place), None) => Ok(Some(place)),
            (None, _) => Ok(places(false).find(|(_, it)| matches(it)).map(|(place, _)| place)),
            (Some(_), Some(_)) => Err(format!(
                "The name '{text}' is ambiguous: several resources of the template have it. Refer to the resource by its resource ID."
            )),
        }
    }
}

/// Returns the result of `reference(…, 'Full')`: the resource without `id`, `name` and `type`, and
/// the members that describe the reference in Azure.
fn full_reference(mut resource: Value, target: &ReferenceTarget) -> Value {
    let Value::Object(members) = &mut resource else { return resource };
    for name in ["id", "name", "type", "etag", "systemData"] {
        members.remove(name);
    }
    let segments: Vec<_> = target.id.as_str().split('/').collect();
    let segment_after = |keyword: &str| {
        let place = segments.iter().position(|segment| segment.eq_ignore_ascii_case(keyword));
        place.and_then(|place| segments.get(place + 1)).copied().unwrap_or_default()
    };
    let in_template = target.place.is_some();
    let described = [
        ("apiVersion", json!(target.api_version)),
        ("subscriptionId", json!(segment_after("subscriptions"))),
        ("resourceGroupName", json!(segment_after("resourceGroups"))),
        ("resourceId", json!(template_relative_id(target.id.as_str()))),
        ("referenceApiVersion", json!(target.api_version)),
        ("condition", json!(true)),
        ("isConditionTrue", json!(true)),
        ("isTemplateResource", json!(in_template)),
        ("isAction", json!(false)),
        ("provisioningOperation", json!(if in_template { "Create" } else { "Read" })),
    ];
    for (name, value) in described {
        members.insert(name.to_owned(), value);
    }
    resource
}
