//! The parser of template expressions such as `[concat(parameters('name'), '-vnet')]`.
//!
//! Reference: "Syntax and expressions in ARM templates". Only the functions in [`TemplateFunction`] are
//! implemented; the parser names any other function in its error.

use std::fmt;
use std::ops::RangeInclusive;

/// The maximum length of an expression in characters. Reference: "ARM template best practices", template
/// limits.
const MAX_EXPRESSION_CHARS: usize = 24_576;

/// The maximum number of nested calls and brackets, which bounds the parser's stack.
const MAX_NESTING: usize = 100;

/// A function of the template language. Names are case-insensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateFunction {
    Concat,
    Format,
    Guid,
    Parameters,
    Reference,
    ResourceGroup,
    ResourceId,
    Subscription,
    SubscriptionResourceId,
    Variables,
}

impl TemplateFunction {
    /// Every implemented function.
    pub(super) const ALL: [Self; 10] = [
        Self::Concat,
        Self::Format,
        Self::Guid,
        Self::Parameters,
        Self::Reference,
        Self::ResourceGroup,
        Self::ResourceId,
        Self::Subscription,
        Self::SubscriptionResourceId,
        Self::Variables,
    ];

    /// The name in templates.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Concat => "concat",
            Self::Format => "format",
            Self::Guid => "guid",
            Self::Parameters => "parameters",
            Self::Reference => "reference",
            Self::ResourceGroup => "resourceGroup",
            Self::ResourceId => "resourceId",
            Self::Subscription => "subscription",
            Self::SubscriptionResourceId => "subscriptionResourceId",
            Self::Variables => "variables",
        }
    }

    const fn argument_count(self) -> RangeInclusive<usize> {
        match self {
            Self::Concat | Self::Guid => 1..=usize::MAX,
            Self::Format | Self::ResourceId | Self::SubscriptionResourceId => 2..=usize::MAX,
            Self::Parameters | Self::Variables => 1..=1,
            Self::Reference => 1..=3,
            Self::ResourceGroup | Self::Subscription => 0..=0,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name().eq_ignore_ascii_case(name))
    }
}

/// The implemented functions, for messages.
pub(super) fn implemented_functions() -> String {
    TemplateFunction::ALL.map(TemplateFunction::name).join(", ")
}

/// A parsed expression: an operand, and accesses to members of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TemplateExpression {
    pub(super) operand: TemplateOperand,
    /// The accesses to members, from left to right.
    pub(super) accesses: Vec<MemberAccess>,
}

/// The operand at the start of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplateOperand {
    Text(String),
    Integer(i64),
    Call(FunctionCall),
}

/// A call of a template function. The number of arguments has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FunctionCall {
    pub(super) function: TemplateFunction,
    pub(super) arguments: Vec<TemplateExpression>,
}

/// An access to a member of an object or array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemberAccess {
    /// `.name`
    Property(String),
    /// `[0]` or `['name']`
    Index(TemplateExpression),
}

impl TemplateExpression {
    /// Calls `visit` with every call of `function` in this expression.
    pub(super) fn visit_calls<'e>(
        &'e self,
        function: TemplateFunction,
        visit: &mut dyn FnMut(&'e FunctionCall),
    ) {
        if let TemplateOperand::Call(call) = &self.operand {
            if call.function == function {
                visit(call);
            }
            for argument in &call.arguments {
                argument.visit_calls(function, visit);
            }
        }
        for access in &self.accesses {
            if let MemberAccess::Index(index) = access {
                index.visit_calls(function, visit);
            }
        }
    }

    /// Whether this expression calls `function`.
    pub(super) fn calls(&self, function: TemplateFunction) -> bool {
        let mut found = false;
        self.visit_calls(function, &mut |_| found = true);
        found
    }
}

impl fmt::Display for TemplateExpression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operand {
            TemplateOperand::Text(text) => write!(formatter, "'{}'", text.replace('\'', "''"))?,
            TemplateOperand::Integer(number) => write!(formatter, "{number}")?,
            TemplateOperand::Call(call) => {
                let arguments: Vec<_> = call.arguments.iter().map(Self::to_string).collect();
                write!(formatter, "{}({})", call.function.name(), arguments.join(", "))?;
            }
        }
        for access in &self.accesses {
            match access {
                MemberAccess::Property(name) => write!(formatter, ".{name}")?,
                MemberAccess::Index(index) => write!(formatter, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A string of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplateText {
    /// A literal, without the escape `[[`.
    Literal(String),
    Expression(TemplateExpression),
}

impl TemplateText {
    /// Parses a string: `[…]` is an expression, `[[…]` a literal that starts with one bracket.
    pub(super) fn parse(text: &str) -> Result<Self, ParseExpressionError> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let Some(inner) = inner else { return Ok(Self::Literal(text.to_owned())) };
        if inner.starts_with('[') {
            return Ok(Self::Literal(format!("{inner}]")));
        }
        let length = text.chars().count();
        if length > MAX_EXPRESSION_CHARS {
            return Err(ParseExpressionError::TooLong(length));
        }
        ExpressionParser::new(inner)?.parse_whole().map(Self::Expression)
    }
}

/// A text is not a template language expression that the local Azure can evaluate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseExpressionError {
    #[error("Unable to parse language expression '{expression}': {problem}.")]
    Syntax {
        /// The expression without its brackets.
        expression: String,
        problem: String,
    },
    #[error(
        "The template function '{0}' is not implemented by the local Azure. Implemented functions: {list}.",
        list = implemented_functions()
    )]
    UnsupportedFunction(String),
    #[error(
        "The user-defined function '{0}' is not implemented by the local Azure. Implemented functions: {list}.",
        list = implemented_functions()
    )]
    UserFunction(String),
    #[error(
        "Unable to evaluate template language function '{name}': function requires {required} argument(s) while '{actual}' were provided. Please see https://aka.ms/arm-functions for usage details."
    )]
    ArgumentCount { name: &'static str, required: String, actual: usize },
    #[error(
        "The language expression length limit exceeded. Limit: '{MAX_EXPRESSION_CHARS}' and actual: '{0}'."
    )]
    TooLong(usize),
    #[error("The language expression has more than {MAX_NESTING} nested calls.")]
    TooDeep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ExpressionToken {
    LeftParenthesis,
    RightParenthesis,
    LeftSquareBracket,
    RightSquareBracket,
    Comma,
    Dot,
    Identifier(String),
    StringLiteral(String),
    Integer(i64),
    EndOfData,
}

impl ExpressionToken {
    /// The name of the token in messages, as Azure spells it.
    const fn name(&self) -> &'static str {
        match self {
            Self::LeftParenthesis => "LeftParenthesis",
            Self::RightParenthesis => "RightParenthesis",
            Self::LeftSquareBracket => "LeftSquareBracket",
            Self::RightSquareBracket => "RightSquareBracket",
            Self::Comma => "Comma",
            Self::Dot => "Dot",
            Self::Identifier(_) => "Identifier",
            Self::StringLiteral(_) => "StringLiteral",
            Self::Integer(_) => "Integer",
            Self::EndOfData => "EndOfData",
        }
    }
}

/// Returns the first token of `text` and the rest of the text. The error is the problem as text.
fn next_token(text: &str) -> Result<(ExpressionToken, &str), String> {
    let text = text.trim_start();
    let Some(first) = text.chars().next() else { return Ok((ExpressionToken::EndOfData, text)) };
    let punctuation = match first {
        '(' => Some(ExpressionToken::LeftParenthesis),
        ')' => Some(ExpressionToken::RightParenthesis),
        '[' => Some(ExpressionToken::LeftSquareBracket),
        ']' => Some(ExpressionToken::RightSquareBracket),
        ',' => Some(ExpressionToken::Comma),
        '.' => Some(ExpressionToken::Dot),
        _ => None,
    };
    if let Some(token) = punctuation {
        return Ok((token, &text[1..]));
    }
    if let Some(rest) = text.strip_prefix('\'') {
        return string_literal(rest);
    }
    if first.is_ascii_digit() || first == '-' {
        let digits =
            text[1..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |end| end + 1);
        let (number, rest) = text.split_at(digits);
        let number =
            number.parse().map_err(|error| format!("'{number}' is no integer: {error}"))?;
        return Ok((ExpressionToken::Integer(number), rest));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()));
        return Ok((ExpressionToken::Identifier(name.to_owned()), rest));
    }
    Err(format!("unexpected character '{first}'"))
}

/// Like [`next_token`], after the opening quote of a string literal. Two quotes stand for one.
fn string_literal(text: &str) -> Result<(ExpressionToken, &str), String> {
    let mut literal = String::new();
    let mut rest = text;
    while let Some((part, after)) = rest.split_once('\'') {
        literal.push_str(part);
        match after.strip_prefix('\'') {
            Some(next) => {
                literal.push('\'');
                rest = next;
            }
            None => return Ok((ExpressionToken::StringLiteral(literal), after)),
        }
    }
    Err("the string literal has no closing quote".to_owned())
}

/// A recursive descent parser that reads one token ahead.
struct ExpressionParser<'t> {
    expression: &'t str,
    next: ExpressionToken,
    /// The text after `next`.
    rest: &'t str,
    nesting: usize,
}

impl<'t> ExpressionParser<'t> {
    fn new(expression: &'t str) -> Result<Self, ParseExpressionError> {
        let mut parser =
            Self { expression, next: ExpressionToken::EndOfData, rest: expression, nesting: 0 };
        parser.advance()?;
        Ok(parser)
    }

    fn parse_whole(mut self) -> Result<TemplateExpression, ParseExpressionError> {
        let expression = self.parse_expression()?;
        self.expect(&ExpressionToken::EndOfData)?;
        Ok(expression)
    }

    fn parse_expression(&mut self) -> Result<TemplateExpression, ParseExpressionError> {
        if self.nesting == MAX_NESTING {
            return Err(ParseExpressionError::TooDeep);
        }
        self.nesting += 1;
        let operand = match self.advance()? {
            ExpressionToken::StringLiteral(text) => TemplateOperand::Text(text),
            ExpressionToken::Integer(number) => TemplateOperand::Integer(number),
            ExpressionToken::Identifier(name) => TemplateOperand::Call(self.parse_call(name)?),
            actual => return Err(self.unexpected("Identifier", &actual)),
        };
        let accesses = self.parse_accesses()?;
        self.nesting -= 1;
        Ok(TemplateExpression { operand, accesses })
    }

    fn parse_call(&mut self, name: String) -> Result<FunctionCall, ParseExpressionError> {
        if self.next == ExpressionToken::Dot {
            self.advance()?;
            let function = match self.advance()? {
                ExpressionToken::Identifier(function) => function,
                actual => return Err(self.unexpected("Identifier", &actual)),
            };
            return Err(ParseExpressionError::UserFunction(format!("{name}.{function}")));
        }
        self.expect(&ExpressionToken::LeftParenthesis)?;
        let Some(function) = TemplateFunction::from_name(&name) else {
            return Err(ParseExpressionError::UnsupportedFunction(name));
        };
        let mut arguments = Vec::new();
        if self.next != ExpressionToken::RightParenthesis {
            arguments.push(self.parse_expression()?);
            while self.next == ExpressionToken::Comma {
                self.advance()?;
                arguments.push(self.parse_expression()?);
            }
        }
        self.expect(&ExpressionToken::RightParenthesis)?;
        check_argument_count(function, arguments.len())?;
        Ok(FunctionCall { function, arguments })
    }

    fn parse_accesses(&mut self) -> Result<Vec<MemberAccess>, ParseExpressionError> {
        let mut accesses = Vec::new();
        loop {
            match self.next {
                ExpressionToken::Dot => {
                    self.advance()?;
                    match self.advance()? {
                        ExpressionToken::Identifier(name) => {
                            accesses.push(MemberAccess::Property(name));
                        }
                        actual => return Err(self.unexpected("Identifier", &actual)),
                    }
                }
                ExpressionToken::LeftSquareBracket => {
                    self.advance()?;
                    accesses.push(MemberAccess::Index(self.parse_expression()?));
                    self.expect(&ExpressionToken::RightSquareBracket)?;
                }
                _ => return Ok(accesses),
            }
        }
    }

    /// Returns the next token and reads the one after it.
    fn advance(&mut self) -> Result<ExpressionToken, ParseExpressionError> {
        let (token, rest) = next_token(self.rest).map_err(|problem| self.syntax_error(problem))?;
        self.rest = rest;
        Ok(std::mem::replace(&mut self.next, token))
    }

    fn expect(&mut self, expected: &ExpressionToken) -> Result<(), ParseExpressionError> {
        if self.next == *expected {
            self.advance()?;
            return Ok(());
        }
        Err(self.unexpected(expected.name(), &self.next))
    }

    fn unexpected(&self, expected: &str, actual: &ExpressionToken) -> ParseExpressionError {
        let actual = actual.name();
        self.syntax_error(format!("expected token '{expected}' and actual '{actual}'"))
    }

    fn syntax_error(&self, problem: String) -> ParseExpressionError {
        ParseExpressionError::Syntax { expression: self.expression.to_owned(), problem }
    }
}

fn check_argument_count(
    function: TemplateFunction,
    actual: usize,
) -> Result<(), ParseExpressionError> {
    let count = function.argument_count();
    if count.contains(&actual) {
        return Ok(());
    }
    let (least, most) = (count.start(), count.end());
    let required = if least == most {
        format!("'{least}'")
    } else if *most == usize::MAX {
        format!("at least '{least}'")
    } else {
        format!("'{least}' to '{most}'")
    };
    Err(ParseExpressionError::ArgumentCount { name: function.name(), required, actual })
}

#[cfg(test)]
pub(super) mod tests;
