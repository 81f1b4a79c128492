//! The test cases of accepted and rejected HostedClusters in
//! `conformance/cases/hosted_cluster.yaml`.
//!
//! Two validators run the cases: [`validate_schema`] with [`validate_update`], and a real API
//! server with the CRDs of `lanyard_api::crd_definitions`. The header of the file describes its format.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_api::HostedCluster;
use serde::Deserialize;
use serde_json::Value;

use crate::problem::ProblemSeverity;
use crate::{validate_schema, validate_update};

mod patch;
#[cfg(test)]
mod tests;

pub use self::patch::JsonPointerPatchError;
use self::patch::{JsonPointerPatch, expand_each};

/// A HostedCluster, an optional change of it, and the expected result.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaCase {
    /// The name of the case: one sentence.
    pub name: String,
    /// The initial object. If the case has a change, the initial object must be accepted.
    pub initial: Value,
    /// The object after the change, if the case has one.
    pub updated: Option<Value>,
    /// The result that both validators must return for the last object.
    pub expected: ExpectedValidation,
}

/// The expected result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedValidation {
    /// The object is accepted.
    Accepted,
    /// The object is rejected.
    Rejected {
        /// Messages that the API server must return; it may return more.
        server_messages: Vec<String>,
        /// Messages that lanyard's validation must return; it may return more.
        lanyard_messages: Vec<String>,
    },
}

/// The file of cases is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaCasesError {
    /// The file is not YAML in the format that its header describes.
    #[error("the file of cases cannot be read")]
    Yaml(#[from] serde_saphyr::Error),
    /// A case has an invalid format.
    #[error("a case of `{topic}` cannot be read")]
    InvalidCase {
        topic: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A base is missing, or is derived from itself.
    #[error("`{user}` begins with the base `{base}`, which there is not")]
    UnknownBase {
        /// The case or base that refers to it.
        user: String,
        /// The name of the base.
        base: String,
    },
    /// A patch of a case cannot be applied.
    #[error("`{case}` cannot be made")]
    PatchFailed {
        case: String,
        /// The cause.
        #[source]
        source: JsonPointerPatchError,
    },
    /// A case has neither `accept` nor `reject`, or both.
    #[error("`{0}` needs either `accept: true` or `reject`")]
    MissingExpectation(String),
    /// Two cases have one name.
    #[error("two cases are called `{0}`")]
    DuplicateName(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaCaseFile {
    bases: BTreeMap<String, SchemaCaseBase>,
    topics: Vec<SchemaCaseTopic>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaCaseBase {
    from: Option<String>,
    object: Option<Value>,
    #[serde(default)]
    change: JsonPointerPatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaCaseTopic {
    #[serde(rename = "topic")]
    subject: String,
    base: String,
    #[serde(default)]
    at: String,
    cases: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaCaseSpec {
    name: String,
    base: Option<String>,
    #[serde(default)]
    accept: bool,
    reject: Option<Value>,
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default)]
    remove: Vec<String>,
    update: Option<JsonPointerPatch>,
}

/// Parses the file of cases.
///
/// # Errors
/// Fails if the format is invalid, if a change refers to a missing field, if a base is missing, and
/// if two cases have the same name.
pub fn parse_cases(text: &str) -> Result<Vec<SchemaCase>, SchemaCasesError> {
    let file: SchemaCaseFile = serde_saphyr::from_str(text)?;
    let mut cases: Vec<SchemaCase> = Vec::new();
    for topic in &file.topics {
        for template in &topic.cases {
            for value in expand_each(template) {
                cases.push(build_case(&file, topic, value)?);
            }
        }
    }
    let mut names = BTreeSet::new();
    match cases.iter().find(|case| !names.insert(case.name.as_str())) {
        Some(twice) => Err(SchemaCasesError::DuplicateName(twice.name.clone())),
        None => Ok(cases),
    }
}

/// Returns the errors of lanyard's validation for a HostedCluster, or for a change from `old` to
/// `new`; empty if it is accepted.
pub fn validation_errors(old: Option<&Value>, new: &Value) -> Vec<String> {
    let read = |value: &Value| HostedCluster::deserialize(value).map_err(|error| error.to_string());
    let new = match read(new) {
        Ok(new) => new,
        Err(error) => return vec![error],
    };
    let mut found = validate_schema(&new);
    if let Some(Ok(old)) = old.map(read) {
        found = found.into_iter().chain(validate_update(&old, &new)).collect();
    }
    let errors = found.iter().filter(|problem| problem.severity == ProblemSeverity::Error);
    errors.map(ToString::to_string).collect()
}

fn build_case(
    file: &SchemaCaseFile,
    topic: &SchemaCaseTopic,
    value: Value,
) -> Result<SchemaCase, SchemaCasesError> {
    let case: SchemaCaseSpec = serde_json::from_value(value)
        .map_err(|source| SchemaCasesError::InvalidCase { topic: topic.subject.clone(), source })?;
    let name = format!("{}: {}", topic.subject, case.name);
    let failed = |source| SchemaCasesError::PatchFailed { case: name.clone(), source };
    let mut initial = resolve_base(file, &name, case.base.as_ref().unwrap_or(&topic.base), 0)?;
    let patch = JsonPointerPatch { set: case.set, remove: case.remove };
    patch.apply(&topic.at, &mut initial).map_err(failed)?;
    let updated = match &case.update {
        None => None,
        Some(patch) => {
            let mut updated = initial.clone();
            patch.apply(&topic.at, &mut updated).map_err(failed)?;
            Some(updated)
        }
    };
    let verdict = parse_expectation(case.accept, case.reject.as_ref())
        .ok_or_else(|| SchemaCasesError::MissingExpectation(name.clone()))?;
    Ok(SchemaCase { name, initial, updated, expected: verdict })
}

fn resolve_base(
    file: &SchemaCaseFile,
    user: &str,
    name: &str,
    depth: usize,
) -> Result<Value, SchemaCasesError> {
    let missing = || SchemaCasesError::UnknownBase { user: user.to_owned(), base: name.to_owned() };
    let found = file.bases.get(name).filter(|_| depth <= file.bases.len()).ok_or_else(missing)?;
    let mut object = match (&found.from, &found.object) {
        (Some(from), None) => resolve_base(file, name, from, depth + 1)?,
        (None, Some(object)) => object.clone(),
        _ => return Err(missing()),
    };
    let failed = |source| SchemaCasesError::PatchFailed { case: name.to_owned(), source };
    found.change.apply("", &mut object).map_err(failed)?;
    Ok(object)
}

fn parse_expectation(accept: bool, reject: Option<&Value>) -> Option<ExpectedValidation> {
    let texts = |value: &Value| -> Option<Vec<String>> {
        match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(texts) => texts.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
            _ => None,
        }
    };
    match reject {
        None => accept.then_some(ExpectedValidation::Accepted),
        Some(_) if accept => None,
        Some(Value::Object(sides)) => Some(ExpectedValidation::Rejected {
            server_messages: texts(sides.get("server")?)?,
            lanyard_messages: texts(sides.get("ours")?)?,
        }),
        Some(both) => Some(ExpectedValidation::Rejected {
            server_messages: texts(both)?,
            lanyard_messages: texts(both)?,
        }),
    }
}
