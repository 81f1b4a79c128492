//! `$filter` of lists: clauses joined by `and`, each `field eq 'value'` or `function('argument')`.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;

use super::error::bad_request;

/// The clauses of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ODataFilter(Vec<ODataClause>);

/// One clause of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ODataClause {
    /// `field eq 'value'`: the field and the value.
    Equals(String, String),
    /// `function()` or `function('argument')`: the function, and the argument or an empty text.
    Function(String, String),
}

impl ODataFilter {
    /// Parses the filter of a request. Clauses that are not in `known` are rejected: ignoring one
    /// would return too much.
    pub fn from_request(call: &OperationContext<'_>, known: &[&str]) -> Result<Self, ServiceReply> {
        let Some(text) = call.request.query("$filter").map(str::trim).filter(|t| !t.is_empty())
        else {
            return Ok(Self(Vec::new()));
        };
        let filter = Self::parse(text);
        match filter {
            Some(filter) if filter.0.iter().all(|clause| clause.is_one_of(known)) => Ok(filter),
            _ => Err(bad_request(
                "InvalidFilterInQueryString",
                format!("The filter '{text}' is not one of: {}.", known.join(", ")),
            )),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        text.split(" and ")
            .map(|clause| ODataClause::parse(clause.trim()))
            .collect::<Option<_>>()
            .map(Self)
    }

    /// The value that `field` must have, if the filter constrains it.
    pub fn equals_value(&self, field: &str) -> Option<&str> {
        self.0.iter().find_map(|clause| match clause {
            ODataClause::Equals(name, value) if name.eq_ignore_ascii_case(field) => Some(&**value),
            _ => None,
        })
    }

    /// The argument of `function`, if the filter calls it; empty if the call has no argument.
    pub(super) fn function_argument(&self, function: &str) -> Option<&str> {
        self.0.iter().find_map(|clause| match clause {
            ODataClause::Function(name, value) if name.eq_ignore_ascii_case(function) => {
                Some(&**value)
            }
            _ => None,
        })
    }
}

impl ODataClause {
    fn parse(text: &str) -> Option<Self> {
        if let Some((function, rest)) = text.split_once('(') {
            let argument = rest.strip_suffix(')')?.trim();
            let argument = if argument.is_empty() { "" } else { strip_quotes(argument)? };
            return Some(Self::Function(function.trim().to_owned(), argument.to_owned()));
        }
        let (field, value) = text.split_once(" eq ")?;
        Some(Self::Equals(field.trim().to_owned(), strip_quotes(value.trim())?.to_owned()))
    }

    fn is_one_of(&self, known: &[&str]) -> bool {
        let (Self::Equals(name, _) | Self::Function(name, _)) = self;
        known.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn strip_quotes(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.strip_suffix('\'').filter(|inner| !inner.contains('\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_read_as_clients_write_them() {
        let filter =
            ODataFilter::parse("atScope() and principalId eq 'p' and assignedTo('q')").unwrap();
        assert_eq!(filter.function_argument("atscope"), Some(""));
        assert_eq!(filter.equals_value("PrincipalId"), Some("p"));
        assert_eq!(filter.function_argument("assignedTo"), Some("q"));
        assert_eq!(filter.equals_value("roleName"), None);
    }

    #[test]
    fn malformed_filter_clause_is_rejected() {
        for text in ["x", "a ne 'b'", "a eq b", "f('a'", "f(a)", "a eq 'b' or c eq 'd'"] {
            assert_eq!(ODataFilter::parse(text), None, "{text}");
        }
    }
}
