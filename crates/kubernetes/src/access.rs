//! How the Kubernetes API is reached.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::UserAgent;
use crate::connections::ApiConnections;

/// How the Kubernetes API is reached.
///
/// Never through a proxy: the API server is as near as the kubelet's, and the environment's
/// `HTTPS_PROXY` is meant for Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiAccess {
    /// As a pod: with the mounted token and CA of its ServiceAccount, which are read again when
    /// the kubelet renews them.
    InCluster {
        /// The name or address of the API server: `KUBERNETES_SERVICE_HOST`.
        host: String,
        /// Its port: `KUBERNETES_SERVICE_PORT`.
        port: u16,
        /// Where the ServiceAccount is mounted: [`ApiAccess::SERVICE_ACCOUNT`].
        service_account: PathBuf,
    },
    /// As the current context of a kubeconfig file says.
    Kubeconfig(PathBuf),
}

impl ApiAccess {
    /// Where every pod finds its ServiceAccount.
    pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

    /// The connections. Nothing is asked yet.
    pub(crate) async fn connections(
        &self,
        user_agent: UserAgent,
    ) -> Result<ApiConnections, AccessError> {
        let mut config = match self {
            Self::InCluster { host, port, service_account } => {
                in_cluster_config(host, *port, service_account)?
            }
            Self::Kubeconfig(path) => load_kubeconfig(path).await?,
        };
        config.proxy_url = None;
        // Calls have their own deadlines and their own retries, and a watch is silent for minutes.
        config.read_timeout = None;
        config.headers.push((http::header::USER_AGENT, user_agent));
        ApiConnections::of(&config)
    }
}

/// How a person reaches a Kubernetes API: as `kubectl` does, through the same files, contexts,
/// credential plugins and proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubectlAccess {
    /// The kubeconfig files, merged in this order; those that are not there are left out, as
    /// `KUBECONFIG` means it.
    pub files: Vec<PathBuf>,
    /// The context; nothing for the current one.
    pub context: Option<String>,
}

impl KubectlAccess {
    /// The connections, which are opened on the first request, and the namespace of the context.
    pub(crate) async fn connections(
        &self,
        user_agent: UserAgent,
    ) -> Result<(ApiConnections, String), AccessError> {
        let mut config = self.load_config().await?;
        let namespace = config.default_namespace.clone();
        config.headers.push((http::header::USER_AGENT, user_agent));
        if config.proxy_url.is_none() {
            return Ok((ApiConnections::of(&config)?, namespace));
        }
        config.default_retry = false;
        let client = Client::try_from(config)
            .map_err(|source| AccessError::Client { source: Box::new(source) })?;
        Ok((ApiConnections::with_client(client), namespace))
    }

    /// Reads the files: the server, its proxy, the user and the namespace of the context.
    async fn load_config(&self) -> Result<Config, AccessError> {
        let mut merged: Option<Kubeconfig> = None;
        let mut read_from = self.files.first();
        for path in self.files.iter().filter(|path| path.exists()) {
            let read = Kubeconfig::read_from(path).map_err(kubeconfig_error(path))?;
            merged = Some(match merged {
                None => {
                    read_from = Some(path);
                    read
                }
                Some(before) => before.merge(read).map_err(kubeconfig_error(path))?,
            });
        }
        let (Some(kubeconfig), Some(path)) = (merged, read_from) else {
            return Err(AccessError::NoKubeconfig { paths: self.files.clone() });
        };
        let proxy = kubeconfig_proxy(&kubeconfig, self.context.as_deref()).map(str::to_owned);
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(kubeconfig_error(path))?;
        // As kubectl does: the file's proxy is for this server, whatever `NO_PROXY` says, and the
        // environment's knows no server on loopback.
        if let Some(proxy) = proxy {
            config.proxy_url = proxy.parse().ok();
        } else if config.cluster_url.host().is_some_and(is_loopback) {
            config.proxy_url = None;
        }
        // Calls have their own deadlines and their own retries, and a watch is silent for minutes.
        config.read_timeout = None;
        Ok(config)
    }
}

/// There is no way to the Kubernetes API.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The address is none.
    #[error("`{address}` is not the address of an API server")]
    Address {
        /// The address as it was given.
        address: String,
        /// What is wrong with it.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// The pod has no ServiceAccount token.
    #[error("there is no ServiceAccount token in {}", path.display())]
    NoServiceAccount {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The kubeconfig file cannot be used.
    #[error("could not use the kubeconfig file {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No kubeconfig file is there.
    #[error("there is no kubeconfig file: {}", join_paths(paths))]
    NoKubeconfig {
        /// Where they were looked for.
        paths: Vec<PathBuf>,
    },
    /// The kubeconfig expects a certificate of something that has no such name.
    #[error("`{name}` is not the name of a server")]
    ServerName {
        /// `tls-server-name`.
        name: String,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::InvalidDnsNameError,
    },
    /// The settings make no client: a certificate or a key that cannot be read.
    #[error("could not make a client for the Kubernetes API")]
    Client {
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
}

impl AccessError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Address { .. } => {
                "set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to the API server"
            }
            Self::NoServiceAccount { .. } => {
                "run as a pod with `automountServiceAccountToken`, or give --kubeconfig"
            }
            Self::NoKubeconfig { .. } => "give --kubeconfig, or set KUBECONFIG",
            Self::Kubeconfig { .. } => "try the same file with `kubectl --kubeconfig`",
            Self::ServerName { .. } => "set `tls-server-name` to a DNS name or an address",
            Self::Client { .. } => "see that the CA, certificate and key that are named are PEM",
        }
    }
}

fn in_cluster_config(host: &str, port: u16, service_account: &Path) -> Result<Config, AccessError> {
    let token = service_account.join("token");
    if !token.is_file() {
        return Err(AccessError::NoServiceAccount { path: service_account.to_owned() });
    }
    let address = server_url(host, port);
    let url = address.parse().map_err(|source| AccessError::Address { address, source })?;
    let mut config = Config::new(url);
    config.root_cert_file = Some(service_account.join("ca.crt"));
    let token_file = Some(token.to_string_lossy().into_owned());
    config.auth_info = AuthInfo { token_file, ..AuthInfo::default() };
    Ok(config)
}

async fn load_kubeconfig(path: &Path) -> Result<Config, AccessError> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(kubeconfig_error(path))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(kubeconfig_error(path))
}

/// The proxy that the file itself names.
fn kubeconfig_proxy<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a str> {
    let context = context.or(kubeconfig.current_context.as_deref());
    let context = kubeconfig.contexts.iter().find(|it| Some(&*it.name) == context)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == *cluster)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.as_deref();
    proxy.filter(|proxy| !proxy.is_empty())
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn kubeconfig_error(path: &Path) -> impl FnOnce(KubeconfigError) -> AccessError {
    |source| AccessError::Kubeconfig { path: path.to_owned(), source: Box::new(source) }
}

fn join_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.is_empty() { "none was named".to_owned() } else { paths.join(", ") }
}

fn server_url(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

#[cfg(test)]
mod tests;
