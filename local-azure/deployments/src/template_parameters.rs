//! Parameters of templates: their definitions, and the values of a deployment.
//!
//! Reference: "Parameters in ARM templates". Values of secure parameters appear in no reply and no message.

use std::fmt;

use serde_json::{Map, Value, json};

use super::template_error::{JsonPath, TemplateError};
use super::template_value::TemplateValue;

/// The type of a parameter or output. Names are case-insensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateType {
    String,
    SecureString,
    Int,
    Bool,
    Object,
    SecureObject,
    Array,
}

impl TemplateType {
    const ALL: [Self; 7] = [
        Self::String,
        Self::SecureString,
        Self::Int,
        Self::Bool,
        Self::Object,
        Self::SecureObject,
        Self::Array,
    ];

    /// The name in templates and replies.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::String => "String",
            Self::SecureString => "SecureString",
            Self::Int => "Int",
            Self::Bool => "Bool",
            Self::Object => "Object",
            Self::SecureObject => "SecureObject",
            Self::Array => "Array",
        }
    }

    /// Whether values of this type are secret.
    pub(super) const fn is_secure(self) -> bool {
        matches!(self, Self::SecureString | Self::SecureObject)
    }

    /// The name of the JSON type, as in Azure's messages.
    const fn json_type(self) -> &'static str {
        match self {
            Self::String | Self::SecureString => "String, Uri",
            Self::Int => "Integer",
            Self::Bool => "Boolean",
            Self::Object | Self::SecureObject => "Object",
            Self::Array => "Array",
        }
    }

    /// Checks the JSON type of the value of `element`. The error text is a full sentence.
    pub(super) fn check(self, value: &Value, element: &str) -> Result<(), String> {
        let is_valid = match self {
            Self::String | Self::SecureString => value.is_string(),
            Self::Int => value.is_i64(),
            Self::Bool => value.is_boolean(),
            Self::Object | Self::SecureObject => value.is_object(),
            Self::Array => value.is_array(),
        };
        if is_valid {
            return Ok(());
        }
        let (expected, actual) = (self.json_type(), json_type_name(value));
        Err(format!(
            "Template {element} JToken type is not valid. Expected '{expected}'. Actual '{actual}'. Please see https://aka.ms/arm-create-parameter-file for usage details."
        ))
    }

    /// Parses the `type` of a parameter or output definition.
    pub(super) fn parse(value: Option<&Value>, path: &JsonPath) -> Result<Self, TemplateError> {
        let Some(name) = value.and_then(Value::as_str) else {
            return Err(TemplateError::malformed(
                path,
                "Required property 'type' not found in JSON.",
            ));
        };
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            TemplateError::malformed(
                &path.member("type"),
                format!("'{name}' is no type of a template. Types: {names}."),
            )
        })
    }
}

/// Returns the name of a value's JSON type, as in Azure's messages.
fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "Null",
        Value::Bool(_) => "Boolean",
        Value::Number(number) if number.is_f64() => "Float",
        Value::Number(_) => "Integer",
        Value::String(_) => "String",
        Value::Array(_) => "Array",
        Value::Object(_) => "Object",
    }
}

/// The definition of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParameterDefinition {
    pub(super) name: String,
    /// The position of the definition in the template.
    pub(super) path: JsonPath,
    pub(super) kind: TemplateType,
    pub(super) default: Option<TemplateValue>,
    constraints: ParameterConstraints,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct ParameterConstraints {
    allowed_values: Option<Vec<Value>>,
    min_value: Option<i64>,
    max_value: Option<i64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
}

/// The members of a definition that only language version 2.0 has.
const LANGUAGE_VERSION_2_MEMBERS: [&str; 9] = [
    "$ref",
    "additionalproperties",
    "discriminator",
    "items",
    "nullable",
    "pattern",
    "prefixitems",
    "properties",
    "sealed",
];

impl ParameterDefinition {
    /// Parses the definition at `path`.
    pub(super) fn parse(name: &str, value: &Value, path: JsonPath) -> Result<Self, TemplateError> {
        let Value::Object(members) = value else {
            return Err(TemplateError::malformed(&path, "A parameter definition is an object."));
        };
        let kind = member(members, "type");
        let kind = TemplateType::parse(kind, &path)?;
        let mut definition = Self {
            name: name.to_owned(),
            path: path.clone(),
            kind,
            default: None,
            constraints: ParameterConstraints::default(),
        };
        for (member, value) in members {
            definition.set_member(member, value, &path.member(member))?;
        }
        Ok(definition)
    }

    fn set_member(
        &mut self,
        name: &str,
        value: &Value,
        path: &JsonPath,
    ) -> Result<(), TemplateError> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "type" | "metadata" => {}
            "defaultvalue" => self.default = Some(TemplateValue::parse(value, path)?),
            "allowedvalues" => {
                let values =
                    value.as_array().filter(|values| !values.is_empty()).ok_or_else(|| {
                        TemplateError::malformed(path, "'allowedValues' is an array with values.")
                    })?;
                self.constraints.allowed_values = Some(values.clone());
            }
            "minvalue" => self.constraints.min_value = Some(self.value_bound(value, path)?),
            "maxvalue" => self.constraints.max_value = Some(self.value_bound(value, path)?),
            "minlength" => self.constraints.min_length = Some(self.length_bound(value, path)?),
            "maxlength" => self.constraints.max_length = Some(self.length_bound(value, path)?),
            _ if LANGUAGE_VERSION_2_MEMBERS.contains(&lower.as_str()) => {
                return Err(TemplateError::unsupported(
                    path,
                    &format!("the member '{name}' of language version 2.0"),
                    "type, defaultValue, allowedValues, minValue, maxValue, minLength, maxLength, metadata",
                ));
            }
            _ => return Err(TemplateError::unknown_member(path, name, "TemplateInputParameter")),
        }
        Ok(())
    }

    fn value_bound(&self, value: &Value, path: &JsonPath) -> Result<i64, TemplateError> {
        let bound = value.as_i64().filter(|_| self.kind == TemplateType::Int);
        bound.ok_or_else(|| {
            TemplateError::invalid(
                path,
                format!("'{path}' is an integer, and only parameters of type 'Int' have it."),
            )
        })
    }

    fn length_bound(&self, value: &Value, path: &JsonPath) -> Result<u64, TemplateError> {
        let has_length = matches!(
            self.kind,
            TemplateType::String | TemplateType::SecureString | TemplateType::Array
        );
        value.as_u64().filter(|_| has_length).ok_or_else(|| {
            TemplateError::invalid(
                path,
                format!(
                    "'{path}' is a non-negative integer, and only parameters of the types 'String', 'SecureString' and 'Array' have it."
                ),
            )
        })
    }

    /// Checks the type and the constraints of a value. `path` is the position of the value.
    pub(super) fn check_value(&self, value: &Value, path: &JsonPath) -> Result<(), TemplateError> {
        let invalid = |problem: String| TemplateError::invalid(path, problem);
        self.kind.check(value, "parameter").map_err(invalid)?;
        self.check_allowed(value).map_err(invalid)?;
        self.check_bounds(value).map_err(invalid)
    }

    fn check_allowed(&self, value: &Value) -> Result<(), String> {
        let Some(allowed) = &self.constraints.allowed_values else { return Ok(()) };
        let items_allowed =
            value.as_array().is_some_and(|items| items.iter().all(|item| allowed.contains(item)));
        if allowed.contains(value) || items_allowed {
            return Ok(());
        }
        let name = &self.name;
        if self.kind.is_secure() {
            return Err(format!(
                "The provided value for the template parameter '{name}' is not valid. The parameter value is not part of the allowed values."
            ));
        }
        let list: Vec<_> = allowed.iter().map(display_value).collect();
        Err(format!(
            "The provided value '{}' for the template parameter '{name}' is not valid. The parameter value is not part of the allowed value(s): '{}'.",
            display_value(value),
            list.join(","),
        ))
    }

    fn check_bounds(&self, value: &Value) -> Result<(), String> {
        let constraints = &self.constraints;
        let out_of_range = |rule: &str, limit: &dyn fmt::Display| {
            let name = &self.name;
            Err(format!(
                "The provided value for the template parameter '{name}' is not valid. {rule} '{limit}'. Please see https://aka.ms/arm-syntax-parameters for usage details."
            ))
        };
        let least_length = "Length of the value should be greater than or equal to";
        let greatest_length = "Length of the value should be less than or equal to";
        if let Some(number) = value.as_i64() {
            match (constraints.min_value, constraints.max_value) {
                (Some(min), _) if number < min => {
                    return out_of_range("The minimum value is", &min);
                }
                (_, Some(max)) if number > max => {
                    return out_of_range("The maximum value is", &max);
                }
                _ => {}
            }
        }
        let length = match value {
            // .NET counts UTF-16 code units.
            Value::String(text) => u64::try_from(text.encode_utf16().count()).ok(),
            Value::Array(items) => u64::try_from(items.len()).ok(),
            _ => None,
        };
        match (length, constraints.min_length, constraints.max_length) {
            (Some(length), Some(min), _) if length < min => out_of_range(least_length, &min),
            (Some(length), _, Some(max)) if length > max => out_of_range(greatest_length, &max),
            _ => Ok(()),
        }
    }

    /// Renders the parameter as in replies: its type, and its value unless it is secure.
    pub(super) fn to_json(&self, value: &Value) -> Value {
        typed_value_json(self.kind, value)
    }
}

/// Renders a value with its type, as in replies. Omits secure values.
pub(super) fn typed_value_json(kind: TemplateType, value: &Value) -> Value {
    if kind.is_secure() {
        json!({ "type": kind.name() })
    } else {
        json!({ "type": kind.name(), "value": value })
    }
}

fn display_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the member of an object, ignoring case as Azure's deserializer does.
pub(super) fn member<'v>(members: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    members.iter().find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
}

/// Checks the parameter values of a deployment, `{"name": {"value": …}}`. Returns one entry for
/// each definition, in their order: `None` if the deployment has no value.
pub(super) fn parse_parameter_values(
    definitions: &[ParameterDefinition],
    values: &Map<String, Value>,
) -> Result<Vec<Option<Value>>, TemplateError> {
    let base = JsonPath::parameter_values();
    let mut given = vec![None; definitions.len()];
    let mut unknown = Vec::new();
    for (name, entry) in values {
        let path = base.member(name);
        let value = parse_parameter_entry(entry, &path)?;
        let place = definitions.iter().position(|known| known.name.eq_ignore_ascii_case(name));
        match place.and_then(|place| Some((definitions.get(place)?, given.get_mut(place)?))) {
            Some((definition, slot)) => {
                if let Some(value) = value {
                    definition.check_value(&value, &path)?;
                    *slot = Some(value);
                }
            }
            None => unknown.push(name.as_str()),
        }
    }
    if !unknown.is_empty() {
        let known: Vec<_> = definitions.iter().map(|known| known.name.as_str()).collect();
        return Err(TemplateError::invalid(
            &base,
            format!(
                "The template parameters '{}' in the parameters file are not valid; they are not present in the original template and can therefore not be provided at deployment time. The only supported parameters for this template are '{}'. Please see https://aka.ms/arm-pass-parameter-values for usage details.",
                unknown.join(", "),
                known.join(", "),
            ),
        ));
    }
    Ok(given)
}

/// Parses `{"value": …}`. Returns `None` if the value is `null`.
fn parse_parameter_entry(entry: &Value, path: &JsonPath) -> Result<Option<Value>, TemplateError> {
    let Value::Object(members) = entry else {
        return Err(TemplateError::malformed(
            path,
            "A parameter value is an object with the member 'value'.",
        ));
    };
    let mut found = None;
    for (name, value) in members {
        let path = path.member(name);
        match name.to_ascii_lowercase().as_str() {
            "value" => found = Some(value).filter(|value| !value.is_null()),
            "reference" => {
                return Err(TemplateError::unsupported(
                    &path,
                    "the reference to a Key Vault secret",
                    "parameters with a 'value'",
                ));
            }
            "metadata" => {}
            _ => {
                return Err(TemplateError::unknown_member(
                    &path,
                    name,
                    "DeploymentParameterDefinition",
                ));
            }
        }
    }
    Ok(found.cloned())
}

/// The error for a parameter with neither a value nor a default value.
pub(super) fn missing_value_error(definition: &ParameterDefinition) -> TemplateError {
    TemplateError::invalid(
        &definition.path,
        format!(
            "The value for the template parameter '{}' is not provided. Please see https://aka.ms/arm-create-parameter-file for usage details.",
            definition.name
        ),
    )
}
