//! `$filter`: parsed into an expression over the properties that a resource can be filtered by.
//!
//! References: `OData` 4.0, 11.2.5.1, and "Advanced query capabilities on Microsoft Entra ID objects", which names
//! the operators that need `ConsistencyLevel: eventual` and `$count=true`. Texts compare ignoring case, as in the
//! directory.

mod lexer;
mod parser;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use self::parser::FilterParser;
use super::error::GraphError;
use super::schema::GraphProperty;

/// The largest number of clauses that `or` and `in` may combine.
const MAX_ALTERNATIVES: usize = 15;

/// A property that a resource can be filtered by.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterableProperty {
    pub(super) name: &'static str,
    pub(super) kind: FilterKind,
    /// Whether every filter on the property is an advanced query.
    pub(super) is_advanced: bool,
}

/// The type of a property in filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterKind {
    Text,
    Boolean,
    Time,
    TextList,
}

impl FilterableProperty {
    pub(super) const fn text(name: &'static str) -> Self {
        Self { name, kind: FilterKind::Text, is_advanced: false }
    }

    pub(super) const fn boolean(name: &'static str) -> Self {
        Self { name, kind: FilterKind::Boolean, is_advanced: false }
    }

    pub(super) const fn time(name: &'static str) -> Self {
        Self { name, kind: FilterKind::Time, is_advanced: false }
    }

    pub(super) const fn text_list(name: &'static str) -> Self {
        Self { name, kind: FilterKind::TextList, is_advanced: false }
    }

    /// Makes every filter on the property an advanced query.
    pub(super) const fn advanced(mut self) -> Self {
        self.is_advanced = true;
        self
    }
}

/// The resource that a filter is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterTarget {
    /// The name in messages of the directory, such as `ServicePrincipal`.
    pub(super) resource: &'static str,
    /// The name of the type, such as `servicePrincipal`.
    pub(super) type_name: &'static str,
    pub(super) properties: &'static [FilterableProperty],
}

/// The value of a property of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FilterValue<'a> {
    Null,
    Text(Cow<'a, str>),
    Boolean(bool),
    Time(Timestamp),
    List(Vec<Cow<'a, str>>),
}

impl<'a> FilterValue<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// The value of a stored property, or the default of the property.
    pub(super) fn stored(
        stored: &'a Map<String, Value>,
        schema: &[GraphProperty],
        name: &str,
    ) -> Self {
        if let Some(value) = stored.get(name) {
            return Self::from(value);
        }
        let property = schema.iter().find(|property| property.name == name);
        property.map_or(Self::Null, |property| Self::from(property.kind.default_value()))
    }
}

impl<'a> From<&'a Value> for FilterValue<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            Value::Bool(value) => Self::Boolean(*value),
            Value::Array(items) => {
                Self::List(items.iter().filter_map(Value::as_str).map(Cow::Borrowed).collect())
            }
            _ => Self::Null,
        }
    }
}

impl From<Value> for FilterValue<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            Value::Bool(value) => Self::Boolean(value),
            Value::Array(items) => {
                let texts = items.into_iter().filter_map(|item| match item {
                    Value::String(text) => Some(Cow::Owned(text)),
                    _ => None,
                });
                Self::List(texts.collect())
            }
            _ => Self::Null,
        }
    }
}

/// An operator that compares a property with a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterOperator {
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    LessOrEqual,
    Less,
    StartsWith,
    EndsWith,
}

/// A literal of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FilterLiteral {
    Null,
    Text(String),
    Boolean(bool),
    Time(Timestamp),
    /// A GUID or a number without quotes, which no property has as its type.
    Other(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FilterExpression {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Compare {
        property: &'static str,
        operator: FilterOperator,
        literal: FilterLiteral,
    },
    /// `property/any(x:x eq 'literal')`.
    Any {
        property: &'static str,
        operator: FilterOperator,
        text: String,
    },
}

/// A parsed `$filter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GraphFilter {
    expression: FilterExpression,
    /// The property for which the filter needs an advanced query, if any.
    advanced_property: Option<&'static str>,
}

impl GraphFilter {
    /// Parses a filter. `is_advanced` tells whether the request is an advanced query.
    pub(super) fn parse(
        text: &str,
        target: FilterTarget,
        is_advanced: bool,
    ) -> Result<Self, GraphError> {
        let filter = FilterParser::new(text, target)?.parse()?;
        match filter.advanced_property {
            Some(property) if !is_advanced => Err(unsupported_clause(property, target.resource)),
            _ => Ok(filter),
        }
    }

    /// Whether an object matches, by the values of its properties.
    pub(super) fn matches<'a>(&self, value_of: &impl Fn(&str) -> FilterValue<'a>) -> bool {
        self.expression.matches(value_of)
    }

    /// The text that a property must have in every match, if the filter determines it.
    pub(super) fn required_text(&self, property: &str) -> Option<&str> {
        self.expression.required_text(property)
    }
}

impl FilterExpression {
    fn matches<'a>(&self, value_of: &impl Fn(&str) -> FilterValue<'a>) -> bool {
        match self {
            Self::And(parts) => parts.iter().all(|part| part.matches(value_of)),
            Self::Or(parts) => parts.iter().any(|part| part.matches(value_of)),
            Self::Not(inner) => !inner.matches(value_of),
            Self::Compare { property, operator, literal } => {
                operator.compare(&value_of(property), literal)
            }
            Self::Any { property, operator, text } => match value_of(property) {
                FilterValue::List(items) => {
                    items.iter().any(|item| operator.compare_texts(item, text))
                }
                _ => false,
            },
        }
    }

    fn required_text(&self, property: &str) -> Option<&str> {
        match self {
            Self::And(parts) => parts.iter().find_map(|part| part.required_text(property)),
            Self::Compare {
                property: known,
                operator: FilterOperator::Equal,
                literal: FilterLiteral::Text(text),
            }
            | Self::Any { property: known, operator: FilterOperator::Equal, text }
                if known.eq_ignore_ascii_case(property) =>
            {
                Some(text)
            }
            _ => None,
        }
    }
}

impl FilterOperator {
    /// The operator of a keyword such as `eq`.
    fn parse(keyword: &str) -> Option<Self> {
        match keyword.to_ascii_lowercase().as_str() {
            "eq" => Some(Self::Equal),
            "ne" => Some(Self::NotEqual),
            "ge" => Some(Self::GreaterOrEqual),
            "gt" => Some(Self::Greater),
            "le" => Some(Self::LessOrEqual),
            "lt" => Some(Self::Less),
            _ => None,
        }
    }

    /// The name in error messages of `OData`.
    const fn odata_name(self) -> &'static str {
        match self {
            Self::Equal | Self::StartsWith | Self::EndsWith => "Equal",
            Self::NotEqual => "NotEqual",
            Self::GreaterOrEqual => "GreaterThanOrEqual",
            Self::Greater => "GreaterThan",
            Self::LessOrEqual => "LessThanOrEqual",
            Self::Less => "LessThan",
        }
    }

    fn compare(self, value: &FilterValue<'_>, literal: &FilterLiteral) -> bool {
        match (value, literal) {
            (FilterValue::Text(text), FilterLiteral::Text(literal)) => {
                self.compare_texts(text, literal)
            }
            (FilterValue::Boolean(value), FilterLiteral::Boolean(literal)) => {
                self.accepts_order(value.cmp(literal))
            }
            (FilterValue::Time(value), FilterLiteral::Time(literal)) => {
                self.accepts_order(value.cmp(literal))
            }
            (FilterValue::Null, FilterLiteral::Null) => self == Self::Equal,
            _ => self == Self::NotEqual,
        }
    }

    fn compare_texts(self, text: &str, literal: &str) -> bool {
        let (text, literal) = (text.to_lowercase(), literal.to_lowercase());
        match self {
            Self::StartsWith => text.starts_with(&literal),
            Self::EndsWith => text.ends_with(&literal),
            _ => self.accepts_order(text.cmp(&literal)),
        }
    }

    const fn accepts_order(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
            Self::LessOrEqual => order.is_le(),
            Self::Less => order.is_lt(),
            Self::StartsWith | Self::EndsWith => false,
        }
    }
}

/// The error for a clause that the directory cannot evaluate.
fn unsupported_clause(property: &str, resource: &str) -> GraphError {
    GraphError::unsupported_query(format!(
        "Unsupported or invalid query filter clause specified for property '{property}' of resource '{resource}'."
    ))
}

#[cfg(test)]
mod tests;
