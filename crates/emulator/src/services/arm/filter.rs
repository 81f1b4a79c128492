//! `$filter` of lists: clauses joined by `and`, each `field eq 'value'` or `function('argument')`.

use super::refusal::bad_request;
use crate::call::Call;
use crate::request::Reply;

/// The clauses of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter(Vec<Clause>);

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Clause {
    /// `field eq 'value'`.
    Equals(String, String),
    /// `function()` or `function('argument')`.
    Function(String, String),
}

impl Filter {
    /// The filter of a request. A clause that is none of `known` is refused: a filter that is
    /// ignored would answer with too much.
    pub(super) fn of(call: &Call<'_>, known: &[&str]) -> Result<Self, Reply> {
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
            .map(|clause| Clause::parse(clause.trim()))
            .collect::<Option<_>>()
            .map(Self)
    }

    /// The value that `field` must have, if the filter says so.
    pub(super) fn equals(&self, field: &str) -> Option<&str> {
        self.0.iter().find_map(|clause| match clause {
            Clause::Equals(name, value) if name.eq_ignore_ascii_case(field) => Some(&**value),
            _ => None,
        })
    }

    /// The argument of `function`, if the filter has it.
    pub(super) fn function(&self, function: &str) -> Option<&str> {
        self.0.iter().find_map(|clause| match clause {
            Clause::Function(name, value) if name.eq_ignore_ascii_case(function) => Some(&**value),
            _ => None,
        })
    }
}

impl Clause {
    fn parse(text: &str) -> Option<Self> {
        if let Some((function, rest)) = text.split_once('(') {
            let argument = rest.strip_suffix(')')?.trim();
            let argument = if argument.is_empty() { "" } else { unquoted(argument)? };
            return Some(Self::Function(function.trim().to_owned(), argument.to_owned()));
        }
        let (field, value) = text.split_once(" eq ")?;
        Some(Self::Equals(field.trim().to_owned(), unquoted(value.trim())?.to_owned()))
    }

    fn is_one_of(&self, known: &[&str]) -> bool {
        let (Self::Equals(name, _) | Self::Function(name, _)) = self;
        known.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn unquoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.strip_suffix('\'').filter(|inner| !inner.contains('\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_read_as_clients_write_them() {
        let filter = Filter::parse("atScope() and principalId eq 'p' and assignedTo('q')").unwrap();
        assert_eq!(filter.function("atscope"), Some(""));
        assert_eq!(filter.equals("PrincipalId"), Some("p"));
        assert_eq!(filter.function("assignedTo"), Some("q"));
        assert_eq!(filter.equals("roleName"), None);
    }

    #[test]
    fn what_is_no_clause_is_no_filter() {
        for text in ["x", "a ne 'b'", "a eq b", "f('a'", "f(a)", "a eq 'b' or c eq 'd'"] {
            assert_eq!(Filter::parse(text), None, "{text}");
        }
    }
}
