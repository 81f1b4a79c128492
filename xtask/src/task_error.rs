//! The errors of tasks and their hints.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum TaskError {
    #[error("could not start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("`{command}` ended with {outcome}")]
    Failed { command: String, outcome: String },
    #[error("{check}: {} found\n  {}", .findings.len(), .findings.join("\n  "))]
    Findings { check: &'static str, findings: Vec<String> },
    #[error("{program} is missing")]
    Missing { program: &'static str, hint: &'static str },
    #[error("could not {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not parse the output of `{command}`")]
    Answer {
        command: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("could not compile the .proto files")]
    ProtobufCompile(#[source] Box<protox::Error>),
    #[error("could not generate code from the .proto files")]
    ProtobufGenerate(#[source] io::Error),
    #[error("could not write {} as YAML", path.display())]
    Yaml {
        path: PathBuf,
        #[source]
        source: serde_saphyr::SerializeError,
    },
    #[error("could not write {what} as JSON")]
    Json {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("unknown {what} `{name}`; known: {known}")]
    Unknown { what: &'static str, name: String, known: String },
    #[error("{failed} of {total} {what} failed: {names}")]
    Several { what: &'static str, failed: usize, total: usize, names: String },
    #[error("CARGO_MANIFEST_DIR is not set")]
    NotThroughCargo,
    #[error("{0} is not set, and neither is any directory that could replace it")]
    Environment(&'static str),
}

impl TaskError {
    /// The next step for the user.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing { hint, .. } => Some(hint),
            Self::Start { .. } => Some("install the program or put it on the PATH"),
            Self::NotThroughCargo => Some("run it as `cargo xtask`"),
            Self::Environment(_) => Some("set HOME, or name the directory explicitly"),
            _ => None,
        }
    }

    /// 1 for a failed check, 2 if the command line or the machine must be changed first.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unknown { .. }
            | Self::Environment(_)
            | Self::NotThroughCargo
            | Self::Missing { .. } => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}
