//! Errors of a cluster, and hints for the user.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::ErrorHint;
use thiserror::Error;

use crate::component::ClusterComponent;

/// A cluster operation failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Paths of sockets below the directory would be longer than the operating system allows.
    #[error(
        "the directory {} has {} bytes, and sockets below it need one of at most {limit}",
        path.display(), path.as_os_str().len()
    )]
    DirectoryTooLong {
        /// The directory of the cluster.
        path: PathBuf,
        /// The longest supported path, in bytes.
        limit: usize,
    },
    /// The directory is not empty and holds no cluster.
    #[error("{} is not empty and does not belong to a cluster", .0.display())]
    NotAClusterDirectory(PathBuf),
    /// The directory holds no cluster.
    #[error("no cluster in {}", .0.display())]
    NoCluster(PathBuf),
    /// The existing cluster was started with other options.
    #[error("the cluster in {} was started with another {option}", path.display())]
    ConflictingOptions {
        /// The directory of the cluster.
        path: PathBuf,
        /// The option that differs.
        option: &'static str,
    },
    /// Another process holds the lock of the cluster.
    #[error("another process is changing the cluster in {}", .0.display())]
    Locked(PathBuf),
    /// The process is not root, which containers, mounts and control groups require.
    #[error("running a node requires root")]
    NotRoot,
    /// A program of the node is missing.
    #[error("program {} not found", .0.display())]
    MissingProgram(PathBuf),
    /// Too few loopback ports were free.
    #[error(transparent)]
    NoFreePorts(#[from] lanyard_apiserver::NoFreePorts),
    /// A file operation failed.
    #[error("could not {action} {}", path.display())]
    File {
        /// The operation that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file or response could not be parsed.
    #[error("{} cannot be read as {what}", path.display())]
    InvalidRecord {
        /// The file or URL.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// A key or certificate could not be generated.
    #[error("could not generate the {what}")]
    CreateCertificate {
        /// The certificate or key.
        what: &'static str,
        /// The error of the generator.
        #[source]
        source: rcgen::Error,
    },
    /// A process could not be started.
    #[error("could not start `{component}`")]
    StartComponent {
        component: ClusterComponent,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A component exited before it was ready.
    #[error("`{component}` exited before it was ready; the end of its log {}:\n{log_tail}", log.display())]
    Exited {
        component: ClusterComponent,
        /// The path of its log.
        log: PathBuf,
        /// The last lines of its log.
        log_tail: String,
    },
    /// A component did not become ready in time.
    #[error(
        "{component} was not ready after {} s ({last_response}); its log is {}",
        timeout.as_secs(), log.display()
    )]
    NotReady {
        component: ClusterComponent,
        /// How long the call waited.
        timeout: Duration,
        /// The last response of its health endpoint.
        last_response: String,
        /// The path of its log.
        log: PathBuf,
    },
    /// A process survived SIGKILL.
    #[error("{process_name} with process id {pid} did not exit after SIGKILL")]
    StillRunning {
        process_name: String,
        /// Its process id.
        pid: i32,
    },
    /// Parts of the cluster could not be removed. Each entry names one.
    #[error("{} parts of the cluster could not be removed:\n  {}", .0.len(), .0.join("\n  "))]
    LeftoversRemain(Vec<String>),
    /// A command of the node's tools failed.
    #[error("`{command}` failed with {exit_status}: {message}")]
    Command {
        /// The command line.
        command: String,
        exit_status: String,
        /// Its standard error.
        message: String,
    },
    /// The HTTP client could not be built.
    #[error("could not build the HTTP client")]
    BuildClient(#[source] reqwest::Error),
    /// The API server did not respond.
    #[error("no response to {path}")]
    Request {
        /// The URL of the request.
        path: String,
        /// The error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// The API server returned an error.
    #[error("{path} returned {status}: {message}")]
    ErrorResponse {
        /// The URL of the request.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The body of the response.
        message: String,
    },
}

impl ClusterError {
    /// Whether the error is in the arguments of the call rather than in the machine or the cluster.
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

    /// Returns a function for `map_err` that adds the failed operation and its path.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }
}

impl ErrorHint for ClusterError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::DirectoryTooLong { .. } => "choose a shorter directory with `--dir`",
            Self::NotAClusterDirectory(_) => {
                "choose another directory with `--dir`, or empty this one"
            }
            Self::NoCluster(_) => "start one with `cargo xtask cluster up`",
            Self::ConflictingOptions { .. } => {
                "remove that cluster first, omit the option, or choose another `--name`"
            }
            Self::Locked(_) => "wait for the other command to end",
            Self::NotRoot => "run the command as root, for example with sudo",
            Self::MissingProgram(_) => "install the programs with `cargo xtask tools`",
            Self::NotReady { .. } | Self::Exited { .. } => {
                "read the log; `cargo xtask cluster down` removes the cluster"
            }
            Self::LeftoversRemain(_) | Self::StillRunning { .. } => {
                "find out which processes use them (`fuser -vm`, `ps`), then repeat `cargo xtask cluster down`"
            }
            Self::InvalidRecord { .. } => "remove the cluster and start it again",
            _ => return None,
        }))
    }
}
