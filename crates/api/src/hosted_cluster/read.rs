//! Reading a HostedCluster out of a YAML or JSON text.

use serde_saphyr::granit_parser::{Event, Parser};

use super::HostedCluster;

/// A text holds no HostedCluster that could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadHostedClusterError {
    /// The text is not YAML.
    #[error("line {line}, column {column}: this is not YAML: {reason}")]
    NotYaml {
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
        /// What the parser met.
        reason: String,
    },
    /// A field has another type than the API says.
    #[error("line {line}, column {column}: {reason}")]
    Field {
        /// The line, from 1; 0 when it is not known.
        line: u64,
        /// The column, from 1; 0 when it is not known.
        column: u64,
        /// What was expected and what was found.
        reason: String,
    },
    /// No document is a HostedCluster.
    #[error("there is no HostedCluster, only: {}", if found.is_empty() { "nothing".to_owned() } else { found.join(", ") })]
    NoHostedCluster {
        /// `apiVersion` and `kind` of every document.
        found: Vec<String>,
    },
    /// The HostedCluster is of another version of the API.
    #[error("the HostedCluster on line {line} has apiVersion `{api_version}`")]
    Version {
        /// The line of the document.
        line: u64,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// More than one document is a HostedCluster.
    #[error("there are {} HostedClusters, on the lines {}", lines.len(), listed(lines))]
    Several {
        /// The lines of the documents.
        lines: Vec<u64>,
    },
}

fn listed(lines: &[u64]) -> String {
    lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl ReadHostedClusterError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotYaml { .. } | Self::Field { .. } => None,
            Self::NoHostedCluster { .. } => Some(format!(
                "give a document with `apiVersion: {}` and `kind: {}`",
                HostedCluster::API_VERSION,
                HostedCluster::KIND
            )),
            Self::Version { .. } => {
                Some(format!("convert it to `apiVersion: {}`", HostedCluster::API_VERSION))
            }
            Self::Several { .. } => Some("give them one by one".to_owned()),
        }
    }
}

impl HostedCluster {
    /// Reads the one HostedCluster of a text in YAML or JSON. Documents of other kinds are passed
    /// over, because tools write them into the same file.
    ///
    /// # Errors
    /// When the text is not YAML, when a field has the wrong type, and when there is not exactly
    /// one HostedCluster of the version `v1beta1`.
    pub fn parse_yaml(text: &str) -> Result<Self, ReadHostedClusterError> {
        let heads = document_heads(text)?;
        let mut ours = heads.iter().enumerate().filter(|(_, head)| head.kind == Self::KIND);
        let Some((position, head)) = ours.next() else {
            let found = heads.iter().map(DocumentHead::name).collect();
            return Err(ReadHostedClusterError::NoHostedCluster { found });
        };
        let others: Vec<_> = ours.map(|(_, head)| head.line).collect();
        if !others.is_empty() {
            let lines = std::iter::once(head.line).chain(others).collect();
            return Err(ReadHostedClusterError::Several { lines });
        }
        if head.api_version != Self::API_VERSION {
            let api_version = head.api_version.clone();
            return Err(ReadHostedClusterError::Version { line: head.line, api_version });
        }
        let end = heads.get(position + 1).map_or(u64::MAX, |next| next.line);
        serde_saphyr::from_str(&only_lines(text, head.line, end)).map_err(|error| of_type(&error))
    }
}

/// What a document says it is, and the line on which it begins.
#[derive(Debug, Default)]
struct DocumentHead {
    line: u64,
    api_version: String,
    kind: String,
}

impl DocumentHead {
    fn name(&self) -> String {
        match (self.api_version.as_str(), self.kind.as_str()) {
            ("", "") => format!("a document without a kind on line {}", self.line),
            ("", kind) => kind.to_owned(),
            (api_version, kind) => format!("{api_version} {kind}"),
        }
    }
}

fn document_heads(text: &str) -> Result<Vec<DocumentHead>, ReadHostedClusterError> {
    let mut heads: Vec<DocumentHead> = Vec::new();
    let mut depth = 0_usize;
    // The key at depth 1 that waits for its value.
    let mut key: Option<String> = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| ReadHostedClusterError::NotYaml {
            line: of_size(error.marker().line()),
            column: of_size(error.marker().col() + 1),
            reason: error.info(),
        })?;
        match event {
            Event::DocumentStart(..) => {
                let line = of_size(span.start.line());
                heads.push(DocumentHead { line, ..DocumentHead::default() });
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

/// The lines from `first` to before `end`, with empty lines before them so that places in errors
/// stay those of the whole text.
fn only_lines(text: &str, first: u64, end: u64) -> String {
    let mut kept = String::with_capacity(text.len());
    for (number, line) in (1_u64..).zip(text.split_inclusive('\n')) {
        if number < first {
            kept.push('\n');
        } else if number < end {
            kept.push_str(line);
        }
    }
    kept
}

fn of_type(error: &serde_saphyr::Error) -> ReadHostedClusterError {
    let place = error.location();
    ReadHostedClusterError::Field {
        line: place.map_or(0, |place| place.line()),
        column: place.map_or(0, |place| place.column()),
        reason: reason_of(error),
    }
}

/// The message alone: its place is in fields of its own, and a picture of the source has no room
/// in one line.
fn reason_of(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.split(" at line ").next().unwrap_or(line).trim_end_matches([',', ':']).to_owned()
}

fn of_size(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
