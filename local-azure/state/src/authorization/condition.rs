//! Conditions of role assignments and of permissions.
//!
//! The language is that of "Azure role assignment condition format and syntax". The emulator
//! evaluates the attributes of role assignments (for roles that delegate access management) and the
//! names of storage accounts and containers. It rejects a role assignment whose condition needs
//! another attribute. In a built-in role, such a condition is never met, so that no role grants
//! more than intended.

mod parser;

use lanyard_vocabulary::RoleDefinitionId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::access_scope::AccessScope;
use super::pattern::ActionPattern;

/// A condition with its parsed expression.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "ConditionText", into = "ConditionText")]
pub struct Condition {
    text: ConditionText,
    /// `None` for a condition of a built-in role that cannot be evaluated.
    expression: Option<Expression>,
}

/// A condition as in requests and replies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ConditionText {
    version: String,
    expression: String,
}

/// The maximum length of a condition in bytes. Source: "Azure RBAC limits", size of role assignment conditions.
const MAX_CONDITION_BYTES: usize = 8 << 10;

/// The condition of a role assignment is invalid, or the emulator cannot evaluate it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The version is not 2.0, the only one.
    #[error("the condition version `{0}` is not `2.0`")]
    Version(String),
    /// The text is longer than Azure's limit.
    #[error("the condition has {length} bytes, and at most {most} are allowed")]
    TooLong { length: usize, most: usize },
    /// The text does not have the syntax of conditions.
    #[error("the condition is invalid at character {position}: {problem}")]
    Syntax {
        /// The position in the text, from 0, in bytes.
        position: usize,
        problem: &'static str,
    },
    /// The syntax is valid, but the emulator cannot evaluate this attribute or operator.
    #[error("the emulator does not evaluate `{0}`")]
    NotEvaluated(String),
}

/// The facts of an access request that conditions refer to.
#[derive(Debug, Clone, Copy)]
pub struct ConditionContext<'a> {
    /// The action, in lower case.
    pub action: &'a str,
    pub scope: &'a AccessScope,
    /// The role assignment that the request writes or deletes; `None` for other requests.
    pub role_assignment: Option<AssignmentAttributes<'a>>,
}

/// The attributes of a role assignment that a request writes or deletes.
#[derive(Debug, Clone, Copy)]
pub struct AssignmentAttributes<'a> {
    /// `@Request` if the assignment is written, `@Resource` if it is deleted.
    pub source: AttributeSource,
    pub role: RoleDefinitionId,
    pub principal_id: Uuid,
    pub principal_type: &'a str,
}

/// The source of an attribute in a condition: `@Request` or `@Resource`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeSource {
    Request,
    Resource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expression {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    ActionMatches(ActionPattern),
    Exists(AttributeReference),
    Comparison(Comparison),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparison {
    left: Operand,
    quantifier: Quantifier,
    operator: ComparisonOperator,
    right: Operand,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operand {
    Attribute(AttributeReference),
    Literals(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AttributeReference {
    source: AttributeSource,
    kind: AttributeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttributeKind {
    RoleDefinitionId,
    PrincipalId,
    PrincipalType,
    StorageAccountName,
    ContainerName,
}

/// How the values of both sides are combined: `For<Left>Of<Right>Values`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quantifier {
    /// Whether every value of the left side must satisfy the comparison, or any.
    all_left: bool,
    /// Whether it is compared to every value of the right side, or to any.
    all_right: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ComparisonOperator {
    kind: ComparisonKind,
    negated: bool,
    ignores_case: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ComparisonKind {
    Equal,
    StartsWith,
    /// Matches the wildcards `*` and `?`; a backslash escapes them.
    Like,
    /// Two GUIDs, with or without dashes.
    EqualGuid,
}

impl Condition {
    /// Parses the condition of a role assignment.
    pub fn parse(version: &str, text: &str) -> Result<Self, ConditionError> {
        if version != "2.0" {
            return Err(ConditionError::Version(version.to_owned()));
        }
        if text.len() > MAX_CONDITION_BYTES {
            let (length, most) = (text.len(), MAX_CONDITION_BYTES);
            return Err(ConditionError::TooLong { length, most });
        }
        let expression = Some(parser::parse(text)?);
        Ok(Self { text: ConditionText::new(version, text), expression })
    }

    /// The condition of a permission of a built-in role. One that cannot be evaluated is never met.
    pub(crate) fn of_built_in_role(version: &str, text: &str) -> Self {
        let expression = parser::parse(text).ok();
        Self { text: ConditionText::new(version, text), expression }
    }

    /// The text of the condition.
    pub fn text(&self) -> &str {
        &self.text.expression
    }

    /// The version of the condition's syntax.
    pub fn version(&self) -> &str {
        &self.text.version
    }

    /// Whether the condition is met. It is not met if it needs an attribute that the request does not have.
    pub fn is_met(&self, context: &ConditionContext<'_>) -> bool {
        self.expression.as_ref().and_then(|expression| expression.evaluate(context)) == Some(true)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Condition {}

impl ConditionText {
    fn new(version: &str, expression: &str) -> Self {
        Self { version: version.to_owned(), expression: expression.to_owned() }
    }
}

impl TryFrom<ConditionText> for Condition {
    type Error = ConditionError;

    fn try_from(text: ConditionText) -> Result<Self, Self::Error> {
        Self::parse(&text.version, &text.expression)
    }
}

impl From<Condition> for ConditionText {
    fn from(condition: Condition) -> Self {
        condition.text
    }
}

impl Expression {
    /// The value of the expression; `None` if it depends on an attribute that the request does not
    /// have. The negation of `None` is `None`.
    fn evaluate(&self, context: &ConditionContext<'_>) -> Option<bool> {
        match self {
            Self::All(parts) => combine(parts, context, false),
            Self::Any(parts) => combine(parts, context, true),
            Self::Not(inner) => inner.evaluate(context).map(|value| !value),
            Self::ActionMatches(pattern) => Some(pattern.covers(context.action)),
            Self::Exists(attribute) => Some(attribute.value(context).is_some()),
            Self::Comparison(comparison) => comparison.evaluate(context),
        }
    }
}

/// Combines the parts of an `&&` (`decisive` is false) or an `||` (`decisive` is true). A part with
/// the value `decisive` decides; otherwise the result is `None` if a part is `None`.
fn combine(parts: &[Expression], context: &ConditionContext<'_>, decisive: bool) -> Option<bool> {
    let mut missing = false;
    for part in parts {
        match part.evaluate(context) {
            Some(value) if value == decisive => return Some(decisive),
            Some(_) => {}
            None => missing = true,
        }
    }
    (!missing).then_some(!decisive)
}

impl Comparison {
    fn evaluate(&self, context: &ConditionContext<'_>) -> Option<bool> {
        let (left, right) = (self.left.values(context)?, self.right.values(context)?);
        let matches = |value: &String| {
            let mut against = right.iter().map(|other| self.operator.compare(value, other));
            if self.quantifier.all_right { against.all(|met| met) } else { against.any(|met| met) }
        };
        let met = if self.quantifier.all_left {
            left.iter().all(matches)
        } else {
            left.iter().any(matches)
        };
        Some(met)
    }
}

impl Operand {
    fn values(&self, context: &ConditionContext<'_>) -> Option<Vec<String>> {
        match self {
            Self::Attribute(attribute) => attribute.value(context).map(|value| vec![value]),
            Self::Literals(values) => Some(values.clone()),
        }
    }
}

impl AttributeReference {
    fn value(&self, context: &ConditionContext<'_>) -> Option<String> {
        let assignment = context.role_assignment.filter(|given| given.source == self.source);
        let name = |keyword| context.scope.segment_after(keyword).map(str::to_owned);
        match self.kind {
            AttributeKind::RoleDefinitionId => assignment.map(|given| given.role.0.to_string()),
            AttributeKind::PrincipalId => assignment.map(|given| given.principal_id.to_string()),
            AttributeKind::PrincipalType => assignment.map(|given| given.principal_type.to_owned()),
            AttributeKind::StorageAccountName => name("storageAccounts"),
            AttributeKind::ContainerName => name("containers"),
        }
    }
}

impl ComparisonOperator {
    fn compare(self, left: &str, right: &str) -> bool {
        let matches = match self.kind {
            ComparisonKind::EqualGuid => {
                matches!((Uuid::try_parse(left), Uuid::try_parse(right)), (Ok(l), Ok(r)) if l == r)
            }
            _ if self.ignores_case => {
                self.compare_text(&left.to_lowercase(), &right.to_lowercase())
            }
            _ => self.compare_text(left, right),
        };
        matches != self.negated
    }

    fn compare_text(self, left: &str, right: &str) -> bool {
        match self.kind {
            ComparisonKind::StartsWith => left.starts_with(right),
            ComparisonKind::Like => {
                let text: Vec<_> = left.chars().collect();
                is_like(&text, &parse_like_pattern(right))
            }
            ComparisonKind::Equal | ComparisonKind::EqualGuid => left == right,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LikeToken {
    AnyText,
    AnyCharacter,
    Character(char),
}

fn parse_like_pattern(pattern: &str) -> Vec<LikeToken> {
    let mut tokens = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        tokens.push(match character {
            '*' => LikeToken::AnyText,
            '?' => LikeToken::AnyCharacter,
            '\\' => LikeToken::Character(characters.next().unwrap_or('\\')),
            other => LikeToken::Character(other),
        });
    }
    tokens
}

/// Matches a pattern in time proportional to the product of both lengths.
fn is_like(text: &[char], pattern: &[LikeToken]) -> bool {
    // The prefixes of `text` that the pattern matches so far, by length.
    let mut reachable = vec![false; text.len() + 1];
    reachable[0] = true;
    for token in pattern {
        let mut next = vec![false; text.len() + 1];
        for length in 0..=text.len() {
            let extends = |fits: &dyn Fn(char) -> bool| {
                length > 0 && reachable[length - 1] && fits(text[length - 1])
            };
            next[length] = match token {
                LikeToken::AnyText => reachable[length] || (length > 0 && next[length - 1]),
                LikeToken::AnyCharacter => extends(&|_| true),
                LikeToken::Character(wanted) => extends(&|found| found == *wanted),
            };
        }
        reachable = next;
    }
    reachable[text.len()]
}

#[cfg(test)]
mod tests;
