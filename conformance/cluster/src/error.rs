//! What can go wrong with a cluster, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::component::ClusterComponent;

/// A cluster did not do what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Sockets below the directory would have longer names than the system allows.
    #[error(
        "the directory {} has {} bytes, and sockets below it need one of at most {limit}",
        path.display(), path.as_os_str().len()
    )]
    DirectoryTooLong {
        /// The directory of the cluster.
        path: PathBuf,
        /// The longest that works, in bytes.
        limit: usize,
    },
    /// The directory holds something else.
    #[error("{} is not empty and holds no cluster", .0.display())]
    NotAClusterDirectory(PathBuf),
    /// There is no cluster to act on.
    #[error("there is no cluster in {}", .0.display())]
    NoCluster(PathBuf),
    /// A running cluster was planned with other options.
    #[error("the cluster in {} was started with another {option}", path.display())]
    ConflictingOptions {
        /// The directory of the cluster.
        path: PathBuf,
        /// The option that differs.
        option: &'static str,
    },
    /// Another process is changing the cluster.
    #[error("another process is changing the cluster in {}", .0.display())]
    Locked(PathBuf),
    /// Containers, mounts and control groups need root.
    #[error("a node can only be run by root")]
    NotRoot,
    /// A program of the node is missing.
    #[error("there is no program {}", .0.display())]
    MissingProgram(PathBuf),
    /// No port was free.
    #[error(transparent)]
    NoFreePorts(#[from] lanyard_apiserver::NoFreePorts),
    /// A file could not be used.
    #[error("could not {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file of the cluster is not what we wrote.
    #[error("{} cannot be read as {what}", path.display())]
    InvalidRecord {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Where reading stopped.
        #[source]
        source: serde_json::Error,
    },
    /// A key or certificate could not be made.
    #[error("could not make the {what}")]
    CreateCertificate {
        /// The certificate or key.
        what: &'static str,
        /// The reason.
        #[source]
        source: rcgen::Error,
    },
    /// A process could not be started.
    #[error("could not start {component}")]
    StartComponent {
        /// The component.
        component: ClusterComponent,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A process ended by itself.
    #[error("{component} ended while it was waited for; its last words in {}:\n{last_words}", log.display())]
    Exited {
        /// The component.
        component: ClusterComponent,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        last_words: String,
    },
    /// A component did not become ready in time.
    #[error(
        "{component} was not ready after {} s ({last_answer}); its log is {}",
        patience.as_secs(), log.display()
    )]
    NotReady {
        /// The component.
        component: ClusterComponent,
        /// How long it was waited for.
        patience: Duration,
        /// What it said last.
        last_answer: String,
        /// Its log.
        log: PathBuf,
    },
    /// A process did not end.
    #[error("{what} with process id {pid} did not end after SIGKILL")]
    StillRunning {
        /// The name of the process.
        what: String,
        /// Its id.
        pid: i32,
    },
    /// Something of the cluster could not be taken away.
    #[error("{} things of the cluster remain:\n  {}", .0.len(), .0.join("\n  "))]
    LeftoversRemain(Vec<String>),
    /// A command of the node's tools failed.
    #[error("`{command}` ended with {outcome}: {message}")]
    Command {
        /// The command line.
        command: String,
        /// Its status.
        outcome: String,
        /// What it wrote to its standard error.
        message: String,
    },
    /// The client of the API server could not be built.
    #[error("could not build a client of the API server")]
    BuildClient(#[source] reqwest::Error),
    /// The API server could not be asked.
    #[error("the API server did not answer {path}")]
    Request {
        /// The path of the request.
        path: String,
        /// The reason.
        #[source]
        source: reqwest::Error,
    },
    /// The API server refused.
    #[error("the API server answered {path} with {status}: {message}")]
    ErrorResponse {
        /// The path of the request.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The answer.
        message: String,
    },
}

impl ClusterError {
    /// What the person at the keyboard can do next.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::DirectoryTooLong { .. } => "name a shorter one with --dir",
            Self::NotAClusterDirectory(_) => "name another one with --dir, or empty it",
            Self::NoCluster(_) => "start one with `cargo xtask cluster up`",
            Self::ConflictingOptions { .. } => {
                "take it down first, leave the option out, or give another --name"
            }
            Self::Locked(_) => "wait for the other command to end",
            Self::NotRoot => "run the command as root, for example with sudo",
            Self::MissingProgram(_) => "install the programs with `cargo xtask tools`",
            Self::NotReady { .. } | Self::Exited { .. } => {
                "the log says why; `cargo xtask cluster down` takes the rest away"
            }
            Self::LeftoversRemain(_) | Self::StillRunning { .. } => {
                "look who uses them (`fuser -vm`, `ps`), then repeat `cargo xtask cluster down`"
            }
            Self::InvalidRecord { .. } => "take the cluster down and start it again",
            _ => return None,
        })
    }

    /// Whether the call has to change, rather than the machine or the cluster.
    pub const fn is_usage_error(&self) -> bool {
        matches!(
            self,
            Self::DirectoryTooLong { .. }
                | Self::NotAClusterDirectory(_)
                | Self::NoCluster(_)
                | Self::ConflictingOptions { .. }
                | Self::NotRoot
                | Self::MissingProgram(_)
        )
    }

    /// For `map_err`: an error of the file system with what was tried.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }
}
