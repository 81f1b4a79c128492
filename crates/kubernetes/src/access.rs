//! How the Kubernetes API is reached.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::UserAgent;
use crate::connections::Connections;

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
    ) -> Result<Connections, AccessError> {
        let mut config = match self {
            Self::InCluster { host, port, service_account } => {
                in_cluster(host, *port, service_account)?
            }
            Self::Kubeconfig(path) => of_kubeconfig(path).await?,
        };
        config.proxy_url = None;
        // Calls have their own deadlines and their own retries, and a watch is silent for minutes.
        config.read_timeout = None;
        config.headers.push((http::header::USER_AGENT, user_agent));
        Connections::of(&config)
    }
}

/// How a person reaches a Kubernetes API: as `kubectl` does, through the same files, contexts,
/// credential plugins and proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonalAccess {
    /// The kubeconfig files, merged in this order; those that are not there are left out, as
    /// `KUBECONFIG` means it.
    pub files: Vec<PathBuf>,
    /// The context; nothing for the current one.
    pub context: Option<String>,
}

impl PersonalAccess {
    /// A client, and the namespace of the context.
    pub(crate) async fn client(
        &self,
        user_agent: UserAgent,
    ) -> Result<(Client, String), AccessError> {
        let mut merged: Option<Kubeconfig> = None;
        let mut read_from = self.files.first();
        for path in self.files.iter().filter(|path| path.exists()) {
            let read = Kubeconfig::read_from(path).map_err(refused(path))?;
            merged = Some(match merged {
                None => {
                    read_from = Some(path);
                    read
                }
                Some(before) => before.merge(read).map_err(refused(path))?,
            });
        }
        let (Some(kubeconfig), Some(path)) = (merged, read_from) else {
            return Err(AccessError::NoKubeconfig { paths: self.files.clone() });
        };
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(refused(path))?;
        config.headers.push((http::header::USER_AGENT, user_agent));
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config)
            .map_err(|source| AccessError::Client { source: Box::new(source) })?;
        Ok((client, namespace))
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
    #[error("there is no kubeconfig file: {}", list(paths))]
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

fn in_cluster(host: &str, port: u16, service_account: &Path) -> Result<Config, AccessError> {
    let token = service_account.join("token");
    if !token.is_file() {
        return Err(AccessError::NoServiceAccount { path: service_account.to_owned() });
    }
    let address = address_of(host, port);
    let url = address.parse().map_err(|source| AccessError::Address { address, source })?;
    let mut config = Config::new(url);
    config.root_cert_file = Some(service_account.join("ca.crt"));
    let token_file = Some(token.to_string_lossy().into_owned());
    config.auth_info = AuthInfo { token_file, ..AuthInfo::default() };
    Ok(config)
}

async fn of_kubeconfig(path: &Path) -> Result<Config, AccessError> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(refused(path))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(refused(path))
}

fn refused(path: &Path) -> impl FnOnce(KubeconfigError) -> AccessError {
    |source| AccessError::Kubeconfig { path: path.to_owned(), source: Box::new(source) }
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.is_empty() { "none was named".to_owned() } else { paths.join(", ") }
}

fn address_of(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: UserAgent = UserAgent::from_static("lanyard-test/1.0");

    #[test]
    fn addresses_of_every_family_become_urls() {
        assert_eq!(address_of("10.0.0.1", 443), "https://10.0.0.1:443");
        assert_eq!(address_of("fd00::1", 6443), "https://[fd00::1]:6443");
        assert_eq!(address_of("api.example", 443), "https://api.example:443");
    }

    #[tokio::test]
    async fn a_pod_without_a_service_account_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let access = ApiAccess::InCluster {
            host: "10.0.0.1".to_owned(),
            port: 443,
            service_account: directory.path().to_owned(),
        };
        let error = access.connections(AGENT).await.err().unwrap();
        assert!(matches!(error, AccessError::NoServiceAccount { .. }), "{error}");
        assert!(error.hint().contains("--kubeconfig"));
    }

    const KUBECONFIG: &str = r#"
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: clusters}}, {name: there, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
"#;
    const USERS: &str = r#"users: [{name: u, user: {token: "t"}}]"#;

    #[tokio::test]
    async fn a_persons_files_are_merged_and_the_context_says_the_namespace() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["absent", "contexts", "users"].map(|name| directory.path().join(name));
        std::fs::write(&files[1], KUBECONFIG).unwrap();
        std::fs::write(&files[2], USERS).unwrap();
        let namespace_of = async |context: Option<&str>| {
            let context = context.map(str::to_owned);
            let access = PersonalAccess { files: files.to_vec(), context };
            access.client(UserAgent::from_static("test/1")).await.map(|(_, namespace)| namespace)
        };
        assert_eq!(namespace_of(None).await.unwrap(), "clusters");
        assert_eq!(namespace_of(Some("there")).await.unwrap(), "default");
        let error = namespace_of(Some("nowhere")).await.unwrap_err();
        assert!(matches!(error, AccessError::Kubeconfig { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_person_without_any_file_is_told_where_they_were_looked_for() {
        let files = vec![PathBuf::from("/nonexistent/a"), PathBuf::from("/nonexistent/b")];
        let access = PersonalAccess { files, context: None };
        let error = access.client(UserAgent::from_static("test/1")).await.err().unwrap();
        let told = "there is no kubeconfig file: /nonexistent/a, /nonexistent/b";
        assert_eq!(error.to_string(), told);
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let path = PathBuf::from("/nonexistent/kubeconfig");
        let error = ApiAccess::Kubeconfig(path).connections(AGENT).await.err().unwrap();
        assert_eq!(error.to_string(), "could not use the kubeconfig file /nonexistent/kubeconfig");
    }
}
