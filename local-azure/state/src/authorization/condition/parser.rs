//! Parser of conditions.

use super::{
    AttributeKind, AttributeReference, AttributeSource, Comparison, ComparisonKind,
    ComparisonOperator, ConditionError, Expression, Operand, Quantifier,
};
use crate::authorization::pattern::ActionPattern;

/// The maximum depth of parentheses and negations.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    And,
    Or,
    Not,
    /// A text in single quotes.
    Text(String),
    /// An operator, a function, a GUID, a number or a Boolean.
    Word(String),
    /// `@Source[name]`.
    Attribute(String, String),
}

/// Parses the text of a condition.
pub(super) fn parse(text: &str) -> Result<Expression, ConditionError> {
    let tokens = tokenize(text)?;
    let mut parser = Parser { tokens: &tokens, next: 0, length: text.len() };
    let expression = parser.expression(0)?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.problem("the expression continues without an operator")),
    }
}

fn tokenize(text: &str) -> Result<Vec<(usize, Token)>, ConditionError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let position = text.len() - rest.len();
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '{' => (Token::OpenList, 1),
            '}' => (Token::CloseList, 1),
            ',' => (Token::Comma, 1),
            '!' => (Token::Not, 1),
            '&' if rest.starts_with("&&") => (Token::And, 2),
            '|' if rest.starts_with("||") => (Token::Or, 2),
            '\'' => quoted_text(rest, position)?,
            '@' => attribute(rest, position)?,
            _ => word(rest, position)?,
        };
        tokens.push((position, token));
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    Ok(tokens)
}

fn quoted_text(rest: &str, position: usize) -> Result<(Token, usize), ConditionError> {
    let inner = rest.get(1..).unwrap_or_default();
    match inner.split_once('\'') {
        Some((inner, _)) => Ok((Token::Text(inner.to_owned()), inner.len() + 2)),
        None => Err(ConditionError::Syntax { position, problem: "the quote is not closed" }),
    }
}

fn attribute(rest: &str, position: usize) -> Result<(Token, usize), ConditionError> {
    let named = rest.get(1..).and_then(|rest| rest.split_once(']')).map(|(named, _)| named);
    let parts = named.and_then(|named| Some((named.len(), named.split_once('[')?)));
    let Some((length, (source, name))) = parts else {
        let problem = "an attribute has the form `@Source[name]`";
        return Err(ConditionError::Syntax { position, problem });
    };
    Ok((Token::Attribute(source.trim().to_owned(), name.trim().to_owned()), length + 2))
}

fn word(rest: &str, position: usize) -> Result<(Token, usize), ConditionError> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '.');
    let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let word = rest.get(..length).unwrap_or_default();
    let token = match word.to_ascii_lowercase().as_str() {
        "" => {
            let problem = "this character begins no part of a condition";
            return Err(ConditionError::Syntax { position, problem });
        }
        "and" => Token::And,
        "or" => Token::Or,
        "not" => Token::Not,
        _ => Token::Word(word.to_owned()),
    };
    Ok((token, length))
}

struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    next: usize,
    /// The length of the text.
    length: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    fn expect(&mut self, expected: &Token, problem: &'static str) -> Result<(), ConditionError> {
        if self.peek() == Some(expected) {
            self.next += 1;
            return Ok(());
        }
        Err(self.problem(problem))
    }

    fn problem(&self, problem: &'static str) -> ConditionError {
        let position = self.tokens.get(self.next).map_or(self.length, |(position, _)| *position);
        ConditionError::Syntax { position, problem }
    }

    /// Terms that are joined by one operator. Azure requires parentheses between different ones.
    fn expression(&mut self, depth: usize) -> Result<Expression, ConditionError> {
        let first = self.term(depth)?;
        let Some(operator @ (Token::And | Token::Or)) = self.peek().cloned() else {
            return Ok(first);
        };
        let mut parts = vec![first];
        while self.peek() == Some(&operator) {
            self.next += 1;
            parts.push(self.term(depth)?);
        }
        if matches!(self.peek(), Some(Token::And | Token::Or)) {
            return Err(self.problem("AND and OR are mixed without parentheses"));
        }
        Ok(match operator {
            Token::And => Expression::All(parts),
            _ => Expression::Any(parts),
        })
    }

    fn term(&mut self, depth: usize) -> Result<Expression, ConditionError> {
        if depth > MAX_DEPTH {
            return Err(self.problem("the parentheses are nested too deeply"));
        }
        match self.peek() {
            Some(Token::Not) => {
                self.next += 1;
                Ok(Expression::Not(Box::new(self.term(depth + 1)?)))
            }
            Some(Token::Open) => {
                self.next += 1;
                let inner = self.expression(depth + 1)?;
                self.expect(&Token::Close, "a parenthesis is not closed")?;
                Ok(inner)
            }
            Some(Token::Word(name)) if name.eq_ignore_ascii_case("ActionMatches") => {
                self.next += 1;
                let pattern = self.function_argument()?;
                Ok(Expression::ActionMatches(ActionPattern::compile(&pattern)))
            }
            Some(Token::Word(name)) if name.eq_ignore_ascii_case("SubOperationMatches") => {
                Err(ConditionError::NotEvaluated(name.clone()))
            }
            Some(Token::Word(name)) if name.eq_ignore_ascii_case("Exists") => {
                self.next += 1;
                match self.take() {
                    Some(Token::Attribute(source, name)) => {
                        Ok(Expression::Exists(resolve_attribute(&source, &name)?))
                    }
                    _ => Err(self.problem("`Exists` needs an attribute")),
                }
            }
            _ => self.comparison(),
        }
    }

    fn function_argument(&mut self) -> Result<String, ConditionError> {
        let problem = "a function has one argument: `{'text'}`";
        self.expect(&Token::OpenList, problem)?;
        let Some(Token::Text(text)) = self.take() else { return Err(self.problem(problem)) };
        self.expect(&Token::CloseList, problem)?;
        Ok(text)
    }

    fn comparison(&mut self) -> Result<Expression, ConditionError> {
        let left = self.operand()?;
        let Some(Token::Word(operator)) = self.take() else {
            return Err(self.problem("an operator is missing"));
        };
        let (quantifier, operator) = parse_operator(&operator)?;
        let right = self.operand()?;
        let single =
            |operand: &Operand| !matches!(operand, Operand::Literals(values) if values.len() != 1);
        if quantifier.is_none() && !(single(&left) && single(&right)) {
            return Err(self.problem("several values need `ForAnyOfAnyValues:` or the like"));
        }
        let quantifier = quantifier.unwrap_or(Quantifier { all_left: false, all_right: false });
        Ok(Expression::Comparison(Comparison { left, quantifier, operator, right }))
    }

    fn operand(&mut self) -> Result<Operand, ConditionError> {
        match self.take() {
            Some(Token::Attribute(source, name)) => {
                Ok(Operand::Attribute(resolve_attribute(&source, &name)?))
            }
            Some(Token::Text(value) | Token::Word(value)) => Ok(Operand::Literals(vec![value])),
            Some(Token::OpenList) => {
                let mut values = Vec::new();
                while let Some(Token::Text(value) | Token::Word(value)) = self.peek() {
                    values.push(value.clone());
                    self.next += 1;
                    if self.peek() != Some(&Token::Comma) {
                        break;
                    }
                    self.next += 1;
                }
                self.expect(&Token::CloseList, "a list of values is not closed")?;
                if values.is_empty() {
                    return Err(self.problem("a list of values is empty"));
                }
                Ok(Operand::Literals(values))
            }
            _ => {
                self.next -= 1;
                Err(self.problem("an attribute or a value is missing"))
            }
        }
    }
}

fn resolve_attribute(source: &str, name: &str) -> Result<AttributeReference, ConditionError> {
    const ASSIGNMENT: &str = "Microsoft.Authorization/roleAssignments";
    const CONTAINER: &str = "Microsoft.Storage/storageAccounts/blobServices/containers";
    let not_evaluated = || ConditionError::NotEvaluated(format!("@{source}[{name}]"));
    let source_kind = match source.to_ascii_lowercase().as_str() {
        "request" => AttributeSource::Request,
        "resource" => AttributeSource::Resource,
        _ => return Err(not_evaluated()),
    };
    let (resource_type, attribute) = name.rsplit_once(':').ok_or_else(not_evaluated)?;
    let is = |kind: &str, field: &str| {
        resource_type.eq_ignore_ascii_case(kind) && attribute.eq_ignore_ascii_case(field)
    };
    let of_resource = source_kind == AttributeSource::Resource;
    let kind = if is(ASSIGNMENT, "RoleDefinitionId") {
        AttributeKind::RoleDefinitionId
    } else if is(ASSIGNMENT, "PrincipalId") {
        AttributeKind::PrincipalId
    } else if is(ASSIGNMENT, "PrincipalType") {
        AttributeKind::PrincipalType
    } else if of_resource && is("Microsoft.Storage/storageAccounts", "name") {
        AttributeKind::StorageAccountName
    } else if of_resource && is(CONTAINER, "name") {
        AttributeKind::ContainerName
    } else {
        return Err(not_evaluated());
    };
    Ok(AttributeReference { source: source_kind, kind })
}

/// Parses an operator such as `ForAnyOfAnyValues:StringNotEqualsIgnoreCase`.
fn parse_operator(text: &str) -> Result<(Option<Quantifier>, ComparisonOperator), ConditionError> {
    let not_evaluated = || ConditionError::NotEvaluated(text.to_owned());
    let lower = text.to_ascii_lowercase();
    let (quantifier, name) = match lower.split_once(':') {
        None => (None, lower.as_str()),
        Some((quantifier, name)) => {
            let (all_left, all_right) = match quantifier {
                "foranyofanyvalues" => (false, false),
                "foranyofallvalues" => (false, true),
                "forallofanyvalues" => (true, false),
                "forallofallvalues" => (true, true),
                _ => return Err(not_evaluated()),
            };
            (Some(Quantifier { all_left, all_right }), name)
        }
    };
    let (name, ignores_case) = match name.strip_suffix("ignorecase") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let (kind, negated) = match name {
        "stringequals" | "boolequals" => (ComparisonKind::Equal, false),
        "stringnotequals" | "boolnotequals" => (ComparisonKind::Equal, true),
        "stringstartswith" => (ComparisonKind::StartsWith, false),
        "stringnotstartswith" => (ComparisonKind::StartsWith, true),
        "stringlike" => (ComparisonKind::Like, false),
        "stringnotlike" => (ComparisonKind::Like, true),
        "guidequals" => (ComparisonKind::EqualGuid, false),
        "guidnotequals" => (ComparisonKind::EqualGuid, true),
        _ => return Err(not_evaluated()),
    };
    Ok((quantifier, ComparisonOperator { kind, negated, ignores_case }))
}
