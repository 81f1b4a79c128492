//! JSON values of templates: literals and expressions.

use serde_json::Value;

use super::expression::{FunctionCall, TemplateExpression, TemplateFunction, TemplateText};
use super::template_error::{JsonPath, TemplateError};

/// A JSON value of a template, with parsed expressions.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateValue {
    /// A value without expressions.
    Literal(Value),
    Expression(TemplateExpression),
    /// An array that contains an expression.
    Array(Vec<Self>),
    /// An object that contains an expression.
    Object(Vec<(TemplateKey, Self)>),
}

/// The name of an object's member. It can be an expression: `userAssignedIdentities` has resource ids as names.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateKey {
    Literal(String),
    Expression {
        expression: TemplateExpression,
        /// The source text of the expression.
        text: String,
    },
}

impl TemplateKey {
    /// The name as written in the template.
    pub(super) fn as_written(&self) -> &str {
        match self {
            Self::Literal(text) | Self::Expression { text, .. } => text,
        }
    }
}

impl TemplateValue {
    /// Parses a value and the expressions in it. Rejects property and variable loops.
    pub(super) fn parse(value: &Value, path: &JsonPath) -> Result<Self, TemplateError> {
        let parsed = match value {
            Value::String(text) => match parse_text(text, path)? {
                TemplateText::Literal(text) => Self::Literal(Value::String(text)),
                TemplateText::Expression(expression) => Self::Expression(expression),
            },
            Value::Array(items) => Self::parse_array(items, path)?,
            Value::Object(members) => Self::parse_object(members, path)?,
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Literal(value.clone()),
        };
        Ok(parsed)
    }

    fn parse_array(items: &[Value], path: &JsonPath) -> Result<Self, TemplateError> {
        let items = items
            .iter()
            .enumerate()
            .map(|(index, item)| Self::parse(item, &path.index(index)))
            .collect::<Result<Vec<_>, _>>()?;
        if items.iter().all(|item| matches!(item, Self::Literal(_))) {
            let literals = items.into_iter().filter_map(Self::into_literal).collect();
            return Ok(Self::Literal(Value::Array(literals)));
        }
        Ok(Self::Array(items))
    }

    fn parse_object(
        members: &serde_json::Map<String, Value>,
        path: &JsonPath,
    ) -> Result<Self, TemplateError> {
        let mut parsed = Vec::with_capacity(members.len());
        for (name, value) in members {
            let path = path.member(name);
            if name.eq_ignore_ascii_case("copy") && value.is_array() {
                return Err(copy_loop_error(&path));
            }
            let key = match parse_text(name, &path)? {
                TemplateText::Literal(name) => TemplateKey::Literal(name),
                TemplateText::Expression(expression) => {
                    TemplateKey::Expression { expression, text: name.clone() }
                }
            };
            parsed.push((key, Self::parse(value, &path)?));
        }
        let is_literal = |(key, value): &(TemplateKey, Self)| {
            matches!((key, value), (TemplateKey::Literal(_), Self::Literal(_)))
        };
        if parsed.iter().all(is_literal) {
            let literals = parsed.into_iter().filter_map(|(key, value)| {
                Some((key.as_written().to_owned(), value.into_literal()?))
            });
            return Ok(Self::Literal(Value::Object(literals.collect())));
        }
        Ok(Self::Object(parsed))
    }

    /// Returns the value, or `None` if it contains expressions.
    pub(super) fn into_literal(self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value),
            Self::Expression(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// Returns the value with the source text of its expressions.
    pub(super) fn to_source(&self) -> Value {
        match self {
            Self::Literal(value) => value.clone(),
            Self::Expression(expression) => Value::from(format!("[{expression}]")),
            Self::Array(items) => items.iter().map(Self::to_source).collect(),
            Self::Object(members) => {
                let members = members.iter();
                members.map(|(key, value)| (key.as_written(), value.to_source())).collect()
            }
        }
    }

    /// Returns every call of `reference` in this value, with the position of its expression.
    pub(super) fn reference_calls(&self, path: &JsonPath) -> Vec<(JsonPath, &FunctionCall)> {
        let mut calls = Vec::new();
        self.add_reference_calls(path, &mut calls);
        calls
    }

    fn add_reference_calls<'v>(
        &'v self,
        path: &JsonPath,
        calls: &mut Vec<(JsonPath, &'v FunctionCall)>,
    ) {
        match self {
            Self::Literal(_) => {}
            Self::Expression(expression) => {
                expression.visit_calls(TemplateFunction::Reference, &mut |call| {
                    calls.push((path.clone(), call));
                });
            }
            Self::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.add_reference_calls(&path.index(index), calls);
                }
            }
            Self::Object(members) => {
                for (key, value) in members {
                    value.add_reference_calls(&path.member(key.as_written()), calls);
                }
            }
        }
    }
}

fn parse_text(text: &str, path: &JsonPath) -> Result<TemplateText, TemplateError> {
    TemplateText::parse(text)
        .map_err(|error| TemplateError::malformed_expression(path, format!("{error} At '{path}'.")))
}

/// The error for a copy loop at `path`.
pub(super) fn copy_loop_error(path: &JsonPath) -> TemplateError {
    TemplateError::unsupported(
        path,
        "the loop 'copy'",
        "resources, properties, variables and outputs without loops",
    )
}
