//! The parser of filters.

use jiff::Timestamp;
use uuid::Uuid;

use super::lexer::{FilterToken, PlacedToken, split_tokens};
use super::{
    FilterExpression, FilterKind, FilterLiteral, FilterOperator, FilterTarget, FilterableProperty,
    GraphFilter, MAX_ALTERNATIVES, unsupported_clause,
};
use crate::error::GraphError;

/// The largest depth of parentheses.
const MAX_DEPTH: usize = 16;

pub(super) struct FilterParser<'t> {
    text: &'t str,
    target: FilterTarget,
    tokens: Vec<PlacedToken>,
    next: usize,
    depth: usize,
    advanced_property: Option<&'static str>,
}

impl<'t> FilterParser<'t> {
    pub(super) fn new(text: &'t str, target: FilterTarget) -> Result<Self, GraphError> {
        let tokens = split_tokens(text).map_err(|position| syntax_error(text, position))?;
        Ok(Self { text, target, tokens, next: 0, depth: 0, advanced_property: None })
    }

    pub(super) fn parse(mut self) -> Result<GraphFilter, GraphError> {
        let expression = self.alternatives()?;
        if self.next < self.tokens.len() {
            return Err(self.syntax_error());
        }
        Ok(GraphFilter { expression, advanced_property: self.advanced_property })
    }

    fn alternatives(&mut self) -> Result<FilterExpression, GraphError> {
        let first = self.conjunction()?;
        let mut parts = vec![first];
        while self.take_keyword("or") {
            parts.push(self.conjunction()?);
        }
        combine(parts, FilterExpression::Or, check_alternatives)
    }

    fn conjunction(&mut self) -> Result<FilterExpression, GraphError> {
        let first = self.negation()?;
        let mut parts = vec![first];
        while self.take_keyword("and") {
            parts.push(self.negation()?);
        }
        combine(parts, FilterExpression::And, |_| Ok(()))
    }

    fn negation(&mut self) -> Result<FilterExpression, GraphError> {
        if !self.take_keyword("not") {
            return self.clause();
        }
        let inner = self.clause()?;
        if let Some(property) = first_property(&inner) {
            self.advanced_property.get_or_insert(property);
        }
        Ok(FilterExpression::Not(Box::new(inner)))
    }

    fn clause(&mut self) -> Result<FilterExpression, GraphError> {
        if self.take_symbol('(') {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(GraphError::malformed(
                    "Invalid filter clause: The node count limit has been exceeded.",
                ));
            }
            let inner = self.alternatives()?;
            self.depth -= 1;
            self.expect_symbol(')')?;
            return Ok(inner);
        }
        let (name, position) = self.expect_word()?;
        if self.take_symbol('(') {
            return self.function(&name);
        }
        let property = self.property(&name)?;
        if self.take_symbol('/') {
            return self.lambda(property);
        }
        self.comparison(property, position)
    }

    /// `startswith(property,'text')` after the opening parenthesis.
    fn function(&mut self, name: &str) -> Result<FilterExpression, GraphError> {
        let operator = text_function(name)?;
        let (property, _) = self.expect_word()?;
        let property = self.property(&property)?;
        self.expect_symbol(',')?;
        let literal = self.literal()?;
        self.expect_symbol(')')?;
        self.compare(property, operator, literal)
    }

    /// `property eq 'literal'` or `property in ('a', 'b')` after the property.
    fn comparison(
        &mut self,
        property: &'static FilterableProperty,
        position: usize,
    ) -> Result<FilterExpression, GraphError> {
        let Ok((keyword, _)) = self.expect_word() else {
            return Err(syntax_error(self.text, position));
        };
        if keyword.eq_ignore_ascii_case("in") {
            self.expect_symbol('(')?;
            let mut parts = Vec::new();
            loop {
                let literal = self.literal()?;
                parts.push(self.compare(property, FilterOperator::Equal, literal)?);
                if !self.take_symbol(',') {
                    break;
                }
            }
            self.expect_symbol(')')?;
            return combine(parts, FilterExpression::Or, check_alternatives);
        }
        let Some(operator) = FilterOperator::parse(&keyword) else {
            self.next -= 1;
            return Err(self.syntax_error());
        };
        let literal = self.literal()?;
        self.compare(property, operator, literal)
    }

    /// `any(x:x eq 'text')` or `any(x:startswith(x,'text'))` after the slash.
    fn lambda(
        &mut self,
        property: &'static FilterableProperty,
    ) -> Result<FilterExpression, GraphError> {
        let unsupported = unsupported_clause(property.name, self.target.resource);
        let (name, _) = self.expect_word()?;
        if !name.eq_ignore_ascii_case("any") || property.kind != FilterKind::TextList {
            return Err(unsupported);
        }
        self.expect_symbol('(')?;
        let (variable, _) = self.expect_word()?;
        self.expect_symbol(':')?;
        let (start, _) = self.expect_word()?;
        let operator = if self.take_symbol('(') {
            let operator = text_function(&start)?;
            self.expect_variable(&variable)?;
            self.expect_symbol(',')?;
            operator
        } else if start == variable && !self.take_symbol('/') {
            let (keyword, _) = self.expect_word()?;
            FilterOperator::parse(&keyword).ok_or_else(|| unsupported.clone())?
        } else {
            return Err(unsupported);
        };
        let FilterLiteral::Text(text) = self.literal()? else { return Err(unsupported) };
        if text.is_empty() {
            return Err(unsupported);
        }
        if matches!(operator, FilterOperator::StartsWith | FilterOperator::EndsWith) {
            self.expect_symbol(')')?;
        }
        self.expect_symbol(')')?;
        self.record_advanced(property, operator);
        Ok(FilterExpression::Any { property: property.name, operator, text })
    }

    fn compare(
        &mut self,
        property: &'static FilterableProperty,
        operator: FilterOperator,
        literal: FilterLiteral,
    ) -> Result<FilterExpression, GraphError> {
        let is_text_function =
            matches!(operator, FilterOperator::StartsWith | FilterOperator::EndsWith);
        let found = match (property.kind, &literal) {
            (FilterKind::TextList, _) => {
                return Err(unsupported_clause(property.name, self.target.resource));
            }
            (FilterKind::Text, FilterLiteral::Text(text)) => {
                if text.is_empty() {
                    return Err(unsupported_clause(property.name, self.target.resource));
                }
                None
            }
            (_, FilterLiteral::Null) if !is_text_function => None,
            (FilterKind::Boolean, FilterLiteral::Boolean(_))
            | (FilterKind::Time, FilterLiteral::Time(_))
                if !is_text_function =>
            {
                None
            }
            (_, literal) => Some(literal.edm_type()),
        };
        if let Some(found) = found {
            return Err(GraphError::malformed(format!(
                "Invalid filter clause: A binary operator with incompatible types was detected. Found operand types '{}' and '{found}' for operator kind '{}'.",
                property.kind.edm_type(),
                operator.odata_name()
            )));
        }
        self.record_advanced(property, operator);
        Ok(FilterExpression::Compare { property: property.name, operator, literal })
    }

    fn record_advanced(&mut self, property: &FilterableProperty, operator: FilterOperator) {
        let is_advanced_operator =
            matches!(operator, FilterOperator::NotEqual | FilterOperator::EndsWith);
        if property.is_advanced || is_advanced_operator {
            self.advanced_property.get_or_insert(property.name);
        }
    }

    fn property(&self, name: &str) -> Result<&'static FilterableProperty, GraphError> {
        let known = self.target.properties.iter();
        known.into_iter().find(|known| known.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            GraphError::malformed(format!(
                "Invalid filter clause: Could not find a property named '{name}' on type 'microsoft.graph.{}'.",
                self.target.type_name
            ))
        })
    }

    fn literal(&mut self) -> Result<FilterLiteral, GraphError> {
        match self.tokens.get(self.next).map(|placed| placed.token.clone()) {
            Some(FilterToken::Text(text)) => {
                self.next += 1;
                Ok(FilterLiteral::Text(text))
            }
            Some(FilterToken::Word(word)) => {
                let literal = FilterLiteral::parse(&word).ok_or_else(|| self.syntax_error())?;
                self.next += 1;
                Ok(literal)
            }
            _ => Err(self.syntax_error()),
        }
    }

    fn expect_word(&mut self) -> Result<(String, usize), GraphError> {
        match self.tokens.get(self.next) {
            Some(PlacedToken { token: FilterToken::Word(word), position }) => {
                let found = (word.clone(), *position);
                self.next += 1;
                Ok(found)
            }
            _ => Err(self.syntax_error()),
        }
    }

    fn expect_variable(&mut self, variable: &str) -> Result<(), GraphError> {
        let (found, position) = self.expect_word()?;
        if found == variable { Ok(()) } else { Err(syntax_error(self.text, position)) }
    }

    fn expect_symbol(&mut self, symbol: char) -> Result<(), GraphError> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.syntax_error()) }
    }

    fn take_symbol(&mut self, symbol: char) -> bool {
        let is_next = self
            .tokens
            .get(self.next)
            .is_some_and(|placed| placed.token == FilterToken::Symbol(symbol));
        self.next += usize::from(is_next);
        is_next
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let is_next = self.tokens.get(self.next).is_some_and(
            |placed| matches!(&placed.token, FilterToken::Word(word) if word.eq_ignore_ascii_case(keyword)),
        );
        self.next += usize::from(is_next);
        is_next
    }

    fn syntax_error(&self) -> GraphError {
        let position = self.tokens.get(self.next).map_or(self.text.len(), |placed| placed.position);
        syntax_error(self.text, position)
    }
}

impl FilterLiteral {
    /// Parses a literal without quotes.
    fn parse(word: &str) -> Option<Self> {
        match word {
            "null" => return Some(Self::Null),
            "true" => return Some(Self::Boolean(true)),
            "false" => return Some(Self::Boolean(false)),
            _ => {}
        }
        if let Ok(time) = word.parse::<Timestamp>() {
            return Some(Self::Time(time));
        }
        if Uuid::try_parse(word).is_ok() {
            return Some(Self::Other("Edm.Guid"));
        }
        word.parse::<f64>().is_ok().then_some(Self::Other("Edm.Int32"))
    }

    const fn edm_type(&self) -> &'static str {
        match self {
            Self::Null => "Edm.Untyped",
            Self::Text(_) => "Edm.String",
            Self::Boolean(_) => "Edm.Boolean",
            Self::Time(_) => "Edm.DateTimeOffset",
            Self::Other(name) => name,
        }
    }
}

impl FilterKind {
    const fn edm_type(self) -> &'static str {
        match self {
            Self::Text | Self::TextList => "Edm.String",
            Self::Boolean => "Edm.Boolean",
            Self::Time => "Edm.DateTimeOffset",
        }
    }
}

fn text_function(name: &str) -> Result<FilterOperator, GraphError> {
    match name.to_ascii_lowercase().as_str() {
        "startswith" => Ok(FilterOperator::StartsWith),
        "endswith" => Ok(FilterOperator::EndsWith),
        "contains" | "tolower" | "toupper" => Err(GraphError::unsupported_query(format!(
            "The function '{name}' is not supported by the directory."
        ))),
        _ => Err(GraphError::malformed(format!(
            "Invalid filter clause: An unknown function with name '{name}' was found. This may also be a function import or a key lookup on a navigation property, which is not allowed."
        ))),
    }
}

/// One expression as it is, several joined.
fn combine(
    mut parts: Vec<FilterExpression>,
    join: fn(Vec<FilterExpression>) -> FilterExpression,
    check: fn(usize) -> Result<(), GraphError>,
) -> Result<FilterExpression, GraphError> {
    check(parts.len())?;
    match (parts.len(), parts.pop()) {
        (1, Some(only)) => Ok(only),
        (_, last) => {
            parts.extend(last);
            Ok(join(parts))
        }
    }
}

fn check_alternatives(count: usize) -> Result<(), GraphError> {
    if count <= MAX_ALTERNATIVES {
        return Ok(());
    }
    Err(GraphError::unsupported_query(format!(
        "Too many child clauses specified in search filter expression containing 'OR' operators: {count}. Max allowed: {MAX_ALTERNATIVES}."
    )))
}

/// A property in an expression, to name it in an error.
fn first_property(expression: &FilterExpression) -> Option<&'static str> {
    match expression {
        FilterExpression::And(parts) | FilterExpression::Or(parts) => {
            parts.iter().find_map(first_property)
        }
        FilterExpression::Not(inner) => first_property(inner),
        FilterExpression::Compare { property, .. } | FilterExpression::Any { property, .. } => {
            Some(property)
        }
    }
}

fn syntax_error(text: &str, position: usize) -> GraphError {
    GraphError::malformed(format!(
        "Invalid filter clause: Syntax error at position {position} in '{text}'."
    ))
}
