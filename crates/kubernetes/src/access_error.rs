//! Errors of the access to the Kubernetes API.

use std::borrow::Cow;
use std::path::PathBuf;

use kube::config::KubeconfigError;
use lanyard_clock::ErrorHint;

/// The access to the Kubernetes API cannot be set up: a setting is missing or invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The address of the API server is invalid.
    #[error("`{address}` is not a valid API server address")]
    Address {
        /// The configured address.
        address: String,
        /// The parse error.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// The pod has no ServiceAccount token.
    #[error("no ServiceAccount token in {}", path.display())]
    NoServiceAccount {
        /// The directory that should contain the token.
        path: PathBuf,
    },
    /// The kubeconfig file is invalid.
    #[error("could not use the kubeconfig file {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No kubeconfig file exists.
    #[error("no kubeconfig file found: {}", join_paths(paths))]
    NoKubeconfig {
        /// The paths that were tried.
        paths: Vec<PathBuf>,
    },
    /// The `tls-server-name` of the kubeconfig is not a valid server name.
    #[error("`{name}` is not a valid server name")]
    ServerName {
        /// `tls-server-name`.
        name: String,
        /// The parse error.
        #[source]
        source: rustls_pki_types::InvalidDnsNameError,
    },
    /// The client could not be built, for example from an unreadable certificate or key.
    #[error("could not build a client for the Kubernetes API")]
    Client {
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

impl ErrorHint for AccessError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Address { .. } => {
                "set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to the API server"
            }
            Self::NoServiceAccount { .. } => {
                "run as a pod with `automountServiceAccountToken`, or give --kubeconfig"
            }
            Self::NoKubeconfig { .. } => "give --kubeconfig, or set KUBECONFIG",
            Self::Kubeconfig { .. } => "try the same file with `kubectl --kubeconfig`",
            Self::ServerName { .. } => "set `tls-server-name` to a DNS name or an address",
            Self::Client { .. } => {
                "check that the configured CA, certificate and key are PEM files"
            }
        }))
    }
}

fn join_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.is_empty() { "no path was given".to_owned() } else { paths.join(", ") }
}
