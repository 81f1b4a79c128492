//! Steps of a lifecycle and their expected outcomes.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

/// An entry of a lifecycle file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepRow {
    step: String,
    /// The clients that have this step; empty for all.
    #[serde(default)]
    clients: Vec<String>,
    /// Expected values by the names of the facts.
    #[serde(default)]
    facts: Map<String, Value>,
    /// Regular expressions that match whole values, by the names of the facts.
    #[serde(default)]
    matches: BTreeMap<String, String>,
    error: Option<ErrorRow>,
}

/// The expected error of a step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorRow {
    /// `None` if the client library does not report the status of Entra.
    status: Option<u16>,
    code: String,
    /// The code of the inner error of Key Vault.
    #[serde(default)]
    inner: String,
    /// A text that the message contains.
    #[serde(default)]
    message: String,
    /// The types of the client libraries' errors, by client. The libraries of other clients have one type.
    #[serde(default)]
    types: BTreeMap<String, String>,
}

/// The reason why an entry is invalid.
#[derive(Debug, Error)]
enum ExpectedStepErrorKind {
    #[error("it needs either facts or an error")]
    NoOutcome,
    #[error("the variable `{0}` does not exist")]
    UnknownVariable(String),
    #[error("the fact `{name}` has an invalid regular expression")]
    Pattern {
        name: String,
        #[source]
        source: Box<regex::Error>,
    },
}

/// An entry of a lifecycle file is invalid.
#[derive(Debug, Error)]
#[error("the step `{step}` is invalid")]
pub(crate) struct ExpectedStepError {
    step: String,
    #[source]
    source: ExpectedStepErrorKind,
}

/// A step of a lifecycle for one client.
#[derive(Debug)]
pub(super) struct ExpectedStep {
    name: String,
    outcome: ExpectedOutcome,
}

#[derive(Debug)]
enum ExpectedOutcome {
    Facts(BTreeMap<String, ExpectedValue>),
    Error { row: ErrorRow, error_type: Option<String> },
}

#[derive(Debug)]
enum ExpectedValue {
    Equal(Value),
    Match(Regex),
}

/// The outcome of a step, as a client reports it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepOutcome {
    /// The fields of the returned objects, by names that do not depend on the client.
    Facts(Map<String, Value>),
    Error(ReportedError),
}

/// The error of a client library.
#[derive(Debug, Deserialize)]
pub(super) struct ReportedError {
    status: Option<u16>,
    code: Option<String>,
    inner: Option<String>,
    #[serde(default)]
    message: String,
    /// The type of the error, if the library has more than one.
    #[serde(rename = "type")]
    error_type: Option<String>,
}

impl StepRow {
    pub(super) fn is_for(&self, client: &str) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|name| name == client)
    }
}

impl ExpectedStep {
    /// Parses an entry, and replaces each `${name}` by the value of the variable.
    pub(super) fn parse(
        row: StepRow,
        client: &str,
        variables: &Map<String, Value>,
    ) -> Result<Self, ExpectedStepError> {
        let StepRow { step: name, facts, matches, error, .. } = row;
        let outcome = match error {
            Some(row) if facts.is_empty() && matches.is_empty() => {
                let error_type = row.types.get(client).cloned();
                Ok(ExpectedOutcome::Error { row, error_type })
            }
            None if !facts.is_empty() || !matches.is_empty() => {
                expected_facts(facts, matches, variables).map(ExpectedOutcome::Facts)
            }
            _ => Err(ExpectedStepErrorKind::NoOutcome),
        };
        match outcome {
            Ok(outcome) => Ok(Self { name, outcome }),
            Err(source) => Err(ExpectedStepError { step: name, source }),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The differences between the expected and the reported outcome. The reported facts must be exactly the
    /// expected ones.
    pub(super) fn find_problems(&self, reported: &StepOutcome) -> Vec<String> {
        match (&self.outcome, reported) {
            (ExpectedOutcome::Facts(expected), StepOutcome::Facts(facts)) => {
                let unexpected = facts
                    .iter()
                    .filter(|(name, _)| !expected.contains_key(*name))
                    .map(|(name, value)| format!("unexpected fact `{name}`: {value}"));
                let different = expected.iter().filter_map(|(name, expected)| {
                    let found = facts.get(name).unwrap_or(&Value::Null);
                    (!expected.accepts(found) || !facts.contains_key(name))
                        .then(|| format!("`{name}` is {found}, expected {expected}"))
                });
                different.chain(unexpected).collect()
            }
            (ExpectedOutcome::Error { row, error_type }, StepOutcome::Error(error)) => {
                row.find_problems(error_type.as_deref(), error)
            }
            (ExpectedOutcome::Facts(_), StepOutcome::Error(error)) => {
                vec![format!("the call failed: {error:?}")]
            }
            (ExpectedOutcome::Error { row, .. }, StepOutcome::Facts(facts)) => {
                let facts = Value::from(facts.clone());
                vec![format!("the call succeeded, expected `{}`: {facts}", row.code)]
            }
        }
    }
}

impl ErrorRow {
    fn find_problems(&self, error_type: Option<&str>, error: &ReportedError) -> Vec<String> {
        let inner = Some(&*self.inner).filter(|inner| !inner.is_empty());
        let is_same = error.status == self.status
            && error.code.as_deref() == Some(&*self.code)
            && error.inner.as_deref() == inner
            && error.error_type.as_deref() == error_type
            && error.message.contains(&self.message);
        if is_same {
            return Vec::new();
        }
        let status = self.status.map_or_else(|| "an error".to_owned(), |it| it.to_string());
        let mut expected = format!("{status} `{}`", self.code);
        let texts = [("inner", inner), ("type", error_type), ("message", Some(&*self.message))];
        for (name, text) in texts {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                expected.extend([", ", name, " `", text, "`"]);
            }
        }
        vec![format!("the error is {error:?}, expected {expected}")]
    }
}

impl ExpectedValue {
    fn accepts(&self, found: &Value) -> bool {
        match self {
            Self::Equal(value) => value == found,
            Self::Match(pattern) => found.as_str().is_some_and(|text| pattern.is_match(text)),
        }
    }
}

impl std::fmt::Display for ExpectedValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal(value) => value.fmt(formatter),
            Self::Match(pattern) => write!(formatter, "a match of {pattern}"),
        }
    }
}

fn expected_facts(
    facts: Map<String, Value>,
    matches: BTreeMap<String, String>,
    variables: &Map<String, Value>,
) -> Result<BTreeMap<String, ExpectedValue>, ExpectedStepErrorKind> {
    let mut expected = BTreeMap::new();
    for (name, value) in facts {
        expected.insert(name, ExpectedValue::Equal(substitute(value, variables)?));
    }
    for (name, pattern) in matches {
        let pattern = substitute_text(&pattern, variables)?;
        let regex = Regex::new(&format!("^(?:{pattern})$")).map_err(|source| {
            ExpectedStepErrorKind::Pattern { name: name.clone(), source: Box::new(source) }
        })?;
        expected.insert(name, ExpectedValue::Match(regex));
    }
    Ok(expected)
}

/// Replaces the variables in all texts of a value.
fn substitute(
    value: Value,
    variables: &Map<String, Value>,
) -> Result<Value, ExpectedStepErrorKind> {
    Ok(match value {
        Value::String(text) => substitute_text(&text, variables)?.into(),
        Value::Array(items) => {
            items.into_iter().map(|item| substitute(item, variables)).collect::<Result<_, _>>()?
        }
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| Ok((name, substitute(value, variables)?)))
            .collect::<Result<Map<_, _>, _>>()?
            .into(),
        other => other,
    })
}

fn substitute_text(
    text: &str,
    variables: &Map<String, Value>,
) -> Result<String, ExpectedStepErrorKind> {
    let mut parts = text.split("${");
    let mut substituted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = variables.get(name).and_then(Value::as_str);
        let unknown = || ExpectedStepErrorKind::UnknownVariable(name.to_owned());
        substituted.push_str(value.ok_or_else(unknown)?);
        substituted.push_str(rest);
    }
    Ok(substituted)
}
