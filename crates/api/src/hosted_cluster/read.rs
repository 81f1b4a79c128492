//! Parsing of a HostedCluster from YAML or JSON.

use std::borrow::Cow;

use serde_json::Value;
use serde_saphyr::granit_parser::{Event, Parser};

use super::HostedCluster;
use crate::yaml_source::{YamlNode, field_path_at, is_unquoted_yaml_string, parse_yaml_node};

/// A text from which no HostedCluster could be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadHostedClusterError {
    /// The text is not YAML.
    #[error("line {line}, column {column}: this is not YAML: {reason}")]
    InvalidYaml {
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
        /// The parser's message.
        reason: String,
    },
    /// A field has another type than the API defines.
    #[error("line {line}, column {column}: {}{reason}", if field.is_empty() { String::new() } else { format!("`{field}`: ") })]
    InvalidField {
        /// The line, from 1; 0 if unknown.
        line: u64,
        /// The column, from 1; 0 if unknown.
        column: u64,
        /// The path of the field; empty if unknown.
        field: String,
        /// The expected type, or the parser's message.
        reason: String,
    },
    /// No document is a HostedCluster.
    #[error("there is no HostedCluster, only: {}", if found.is_empty() { "nothing".to_owned() } else { found.join(", ") })]
    NoHostedCluster {
        /// The `apiVersion` and `kind` of every document.
        found: Vec<String>,
    },
    /// The HostedCluster has an unsupported `apiVersion`.
    #[error("the HostedCluster on line {line} has apiVersion `{api_version}`")]
    UnsupportedVersion {
        /// The first line of the document.
        line: u64,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// More than one document is a HostedCluster.
    #[error("there are {} HostedClusters, on the lines {}", lines.len(), join_line_numbers(lines))]
    MultipleHostedClusters {
        /// The first lines of the documents.
        lines: Vec<u64>,
    },
}

fn join_line_numbers(lines: &[u64]) -> String {
    lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl ReadHostedClusterError {
    /// Returns the next step of the reader, usually to repair the cause; `None` if the error message already says
    /// everything.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::InvalidYaml { .. } | Self::InvalidField { .. } => None,
            Self::NoHostedCluster { .. } => {
                let (version, kind) = (HostedCluster::API_VERSION, HostedCluster::KIND);
                Some(
                    format!("provide a document with `apiVersion: {version}` and `kind: {kind}`")
                        .into(),
                )
            }
            Self::UnsupportedVersion { .. } => {
                Some(format!("convert it to `apiVersion: {}`", HostedCluster::API_VERSION).into())
            }
            Self::MultipleHostedClusters { .. } => Some("provide exactly one HostedCluster".into()),
        }
    }
}

impl HostedCluster {
    /// Parses the only HostedCluster in a YAML or JSON text. Documents of other kinds are skipped,
    /// because tools write them into the same file.
    ///
    /// # Errors
    /// Fails if the text is not YAML, if a field has the wrong type, and if there is not exactly
    /// one HostedCluster of the version `v1beta1`.
    pub fn parse_yaml(text: &str) -> Result<Self, ReadHostedClusterError> {
        deserialize_hosted_cluster(&extract_hosted_cluster_document(text)?)
    }

    /// Returns the string fields of the only HostedCluster in a text that are unquoted and that
    /// YAML reads as another type. [`HostedCluster::parse_yaml`] reads such values as strings; the
    /// API server rejects them.
    ///
    /// # Errors
    /// Fails in the cases of [`HostedCluster::parse_yaml`].
    pub fn unquoted_scalars(text: &str) -> Result<Vec<UnquotedScalar>, ReadHostedClusterError> {
        let document = extract_hosted_cluster_document(text)?;
        let typed =
            serde_json::to_value(deserialize_hosted_cluster(&document)?).unwrap_or_default();
        let mut found = Vec::new();
        // `parse_yaml_node` rejects only aliases in a document that was deserialized before.
        if let Ok(node) = parse_yaml_node(&document) {
            collect_unquoted(&typed, &node, String::new(), &mut found);
        }
        Ok(found)
    }
}

/// A string field whose value is unquoted and that YAML reads as another type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnquotedScalar {
    /// The path of the field.
    pub field: String,
    /// The source text of the value.
    pub text: String,
}

/// Returns the document with the only HostedCluster, at its original line numbers.
fn extract_hosted_cluster_document(text: &str) -> Result<String, ReadHostedClusterError> {
    let heads = document_headers(text)?;
    let is_ours = |head: &&DocumentHeader| head.kind == HostedCluster::KIND;
    let ours: Vec<_> = heads.iter().filter(is_ours).collect();
    let [head] = ours[..] else {
        return Err(if ours.is_empty() {
            let found = heads.iter().map(DocumentHeader::name).collect();
            ReadHostedClusterError::NoHostedCluster { found }
        } else {
            let lines = ours.iter().map(|head| head.line).collect();
            ReadHostedClusterError::MultipleHostedClusters { lines }
        });
    };
    if head.api_version != HostedCluster::API_VERSION {
        let api_version = head.api_version.clone();
        return Err(ReadHostedClusterError::UnsupportedVersion { line: head.line, api_version });
    }
    let next = heads.iter().map(|other| other.line).find(|line| *line > head.line);
    Ok(blank_other_lines(text, head.line, next.unwrap_or(u64::MAX)))
}

fn deserialize_hosted_cluster(document: &str) -> Result<HostedCluster, ReadHostedClusterError> {
    serde_saphyr::from_str(document).map_err(|error| invalid_field_error(&error, document))
}

/// Collects the values that are strings in `typed` and plain scalars of another YAML type in the
/// source.
fn collect_unquoted(
    typed: &Value,
    node: &YamlNode,
    field: String,
    found: &mut Vec<UnquotedScalar>,
) {
    match (typed, node) {
        (Value::String(_), YamlNode::Scalar { text, is_plain: true })
            if !is_unquoted_yaml_string(text) =>
        {
            found.push(UnquotedScalar { field, text: text.clone() });
        }
        (Value::Object(map), YamlNode::Mapping(entries)) => {
            for (key, node) in entries {
                let path = if field.is_empty() { key.clone() } else { format!("{field}.{key}") };
                if let Some(typed) = map.get(key) {
                    collect_unquoted(typed, node, path, found);
                }
            }
        }
        (Value::Array(items), YamlNode::Sequence(nodes)) => {
            for (index, (typed, node)) in items.iter().zip(nodes).enumerate() {
                collect_unquoted(typed, node, format!("{field}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// `apiVersion` and `kind` of a document, and its first line.
#[derive(Debug, Default)]
struct DocumentHeader {
    line: u64,
    api_version: String,
    kind: String,
}

impl DocumentHeader {
    fn name(&self) -> String {
        match (self.api_version.as_str(), self.kind.as_str()) {
            ("", "") => format!("a document without a kind on line {}", self.line),
            ("", kind) => kind.to_owned(),
            (api_version, kind) => format!("{api_version} {kind}"),
        }
    }
}

fn document_headers(text: &str) -> Result<Vec<DocumentHeader>, ReadHostedClusterError> {
    let mut heads: Vec<DocumentHeader> = Vec::new();
    let mut depth = 0_usize;
    // The key at depth 1 whose value is next.
    let mut key: Option<String> = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| ReadHostedClusterError::InvalidYaml {
            line: saturating_u64(error.marker().line()),
            column: saturating_u64(error.marker().col() + 1),
            reason: error.info(),
        })?;
        match event {
            Event::DocumentStart(..) => {
                let line = saturating_u64(span.start.line());
                heads.push(DocumentHeader { line, ..DocumentHeader::default() });
                (depth, key) = (0, None);
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => {
                depth = depth.saturating_sub(1);
                if depth == 1 {
                    key = None;
                }
            }
            Event::Scalar(value, ..) if depth == 1 => match (key.take(), heads.last_mut()) {
                (None, _) => key = Some(value.into_owned()),
                (Some(key), Some(head)) if key == "kind" => head.kind = value.into_owned(),
                (Some(key), Some(head)) if key == "apiVersion" => {
                    head.api_version = value.into_owned();
                }
                _ => {}
            },
            Event::Alias(_) if depth == 1 => key = None,
            _ => {}
        }
    }
    Ok(heads)
}

/// Returns the lines from `first` up to but excluding `end`, preceded by blank lines, so that error
/// positions refer to the whole text.
fn blank_other_lines(text: &str, first: u64, end: u64) -> String {
    let mut retained = String::with_capacity(text.len());
    for (number, line) in (1_u64..).zip(text.split_inclusive('\n')) {
        if number < first {
            retained.push('\n');
        } else if number < end {
            retained.push_str(line);
        }
    }
    retained
}

fn invalid_field_error(error: &serde_saphyr::Error, document: &str) -> ReadHostedClusterError {
    let place = error.location();
    let (line, column) = place.map_or((0, 0), |place| (place.line(), place.column()));
    let field = field_path_at(document, line, column).unwrap_or_default();
    ReadHostedClusterError::InvalidField { line, column, field, reason: error_reason(error) }
}

/// Returns the first line of the message, without the position (which has fields of its own), the
/// source excerpt and the advice for programmers.
fn error_reason(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::Unexpected { expected, .. } => {
            let kind = match *expected {
                "mapping start" => "a mapping",
                "sequence start" => "a list",
                "string scalar" => "a string",
                other => other,
            };
            format!("expected {kind}")
        }
        serde_saphyr::Error::DuplicateMappingKey { .. } => "duplicate key".to_owned(),
        other => {
            let text = other.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.split(" at line ").next().unwrap_or(line).trim_end_matches([',', ':']).to_owned()
        }
    }
}

fn saturating_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
