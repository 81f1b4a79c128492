//! Configuration of the access to the Kubernetes API.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::UserAgent;
use crate::access_error::AccessError;
use crate::connections::ApiConnections;

/// The access of a program to the Kubernetes API.
///
/// It never uses a proxy: the API server is in the cluster's network, and the environment's
/// `HTTPS_PROXY` is meant for Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiAccess {
    /// As a pod: with the mounted token and CA of its ServiceAccount. The token is read again when the
    /// kubelet renews it.
    InCluster {
        /// The name or address of the API server: `KUBERNETES_SERVICE_HOST`.
        host: String,
        /// Its port: `KUBERNETES_SERVICE_PORT`.
        port: u16,
        /// The directory of the ServiceAccount volume: [`ApiAccess::SERVICE_ACCOUNT`].
        service_account: PathBuf,
    },
    /// With the current context of a kubeconfig file.
    Kubeconfig(PathBuf),
}

impl ApiAccess {
    /// The directory where the kubelet mounts the ServiceAccount.
    pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

    /// Builds the connections. Sends no request.
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
        // Calls have their own timeouts and retries, and a watch may be silent for minutes.
        config.read_timeout = None;
        config.headers.push((http::header::USER_AGENT, user_agent));
        ApiConnections::of(&config)
    }
}

/// The access of a user to the Kubernetes API, as with `kubectl`: the same kubeconfig files, contexts,
/// credential plugins and proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubectlAccess {
    /// The kubeconfig files, merged in this order. Missing files are skipped, as with `KUBECONFIG`.
    pub files: Vec<PathBuf>,
    /// The context; `None` for the current one.
    pub context: Option<String>,
}

/// The context of a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubectlContext {
    /// The name of the context; `None` in a pod without a kubeconfig.
    pub name: Option<String>,
    /// The default namespace.
    pub namespace: String,
}

impl KubectlAccess {
    /// Builds the connections, which open on the first request, and returns the selected context.
    pub(crate) async fn connections(
        &self,
        user_agent: UserAgent,
    ) -> Result<(ApiConnections, KubectlContext), AccessError> {
        let (mut config, context) = self.load_config().await?;
        config.headers.push((http::header::USER_AGENT, user_agent));
        if config.proxy_url.is_none() {
            return Ok((ApiConnections::of(&config)?, context));
        }
        config.default_retry = false;
        let client = Client::try_from(config)
            .map_err(|source| AccessError::Client { source: Box::new(source) })?;
        Ok((ApiConnections::with_client(client), context))
    }

    /// Reads and merges the kubeconfig files: server, proxy, user, name and namespace of the context.
    async fn load_config(&self) -> Result<(Config, KubectlContext), AccessError> {
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
        let name = self.context.clone().or_else(|| kubeconfig.current_context.clone());
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(kubeconfig_error(path))?;
        // As kubectl does: the proxy of the file applies whatever `NO_PROXY` says, and the proxy of the
        // environment does not apply to a server on loopback.
        if let Some(proxy) = proxy {
            config.proxy_url = proxy.parse().ok();
        } else if config.cluster_url.host().is_some_and(is_loopback) {
            config.proxy_url = None;
        }
        // Calls have their own timeouts and retries, and a watch may be silent for minutes.
        config.read_timeout = None;
        let namespace = config.default_namespace.clone();
        Ok((config, KubectlContext { name, namespace }))
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

/// The `proxy-url` of the context's cluster.
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

fn server_url(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

#[cfg(test)]
mod tests;
