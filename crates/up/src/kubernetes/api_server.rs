//! The API server on the road, and how each part reaches it.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use lanyard_apiserver::{ControlPlane, ControlPlaneOptions, Programs};
use lanyard_clock::SharedClock;
use lanyard_kubernetes::{ApiAccess, KubernetesApi, Patience, UserAgent};

use super::ServerChoice;
use super::error::KubernetesRoadError;

/// The API server on the road.
#[derive(Debug)]
pub(super) struct ApiServer {
    /// Ends with this.
    own: Option<ControlPlane>,
    kubeconfig: PathBuf,
    url: String,
    version: String,
}

impl ApiServer {
    /// Says whether the choice can be: before anything is started or made.
    pub(super) async fn check(
        choice: &ServerChoice,
        wanted: impl FnOnce() -> String,
    ) -> Result<Place, KubernetesRoadError> {
        match choice {
            ServerChoice::Own(places) => Ok(Place::Own(Programs::find(places)?)),
            ServerChoice::Given { kubeconfig, may_be_remote } => {
                let config = load(kubeconfig).await?;
                let is_here = config.cluster_url.host().is_some_and(is_loopback);
                let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
                if !is_here && !may_be_remote {
                    return Err(KubernetesRoadError::Remote { server, wanted: wanted() });
                }
                Ok(Place::Given { kubeconfig: kubeconfig.clone(), url: server })
            }
        }
    }

    /// Starts it, or finds it, and asks for its version.
    pub(super) async fn open(
        place: Place,
        clock: &SharedClock,
    ) -> Result<Self, KubernetesRoadError> {
        let mut server = match place {
            Place::Own(Programs { etcd, kube_apiserver }) => {
                // Ctrl-C in a terminal is not meant for them: they are needed to clear away.
                let options = ControlPlaneOptions::new(etcd, kube_apiserver).in_own_group();
                let plane = ControlPlane::start(options).await?;
                Self {
                    kubeconfig: plane.kubeconfig(ControlPlane::ADMINISTRATOR),
                    url: plane.url(),
                    own: Some(plane),
                    version: String::new(),
                }
            }
            Place::Given { kubeconfig, url } => {
                Self { own: None, kubeconfig, url, version: String::new() }
            }
        };
        let api = server.connect(UP, clock).await?;
        let ask = || api.client().apiserver_version();
        let version = api.call(Patience::USUAL, "ask for the version of the API", ask).await?;
        server.version = version.git_version;
        Ok(server)
    }

    /// The API as one of the parts reaches it.
    pub(super) async fn connect(
        &self,
        agent: UserAgent,
        clock: &SharedClock,
    ) -> Result<KubernetesApi, KubernetesRoadError> {
        let access = ApiAccess::Kubeconfig(self.kubeconfig.clone());
        Ok(KubernetesApi::connect(&access, agent, SharedClock::clone(clock)).await?)
    }

    /// Whether it was started for this road, and ends with it.
    pub(super) const fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Where it answers.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Its version.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The file with which people reach it.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Where the API server is, or will be.
#[derive(Debug)]
pub(super) enum Place {
    /// It is started with these programs.
    Own(Programs),
    /// It is there.
    Given {
        /// How it is reached.
        kubeconfig: PathBuf,
        /// Where it answers.
        url: String,
    },
}

async fn load(path: &Path) -> Result<Config, KubernetesRoadError> {
    let refused = |source| KubernetesRoadError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(refused)?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(refused)
}

/// Whether a host is this machine for sure. Names are not looked up: what they mean may change.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// As whom `up` itself asks.
pub(super) const UP: UserAgent =
    UserAgent::from_static(concat!("lanyard-up/", env!("CARGO_PKG_VERSION")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_loopback_are_this_machine() {
        for host in ["127.0.0.1", "127.8.0.1", "[::1]", "::1", "localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "example.com", "localhost.example.com", "0.0.0.0", "[fe80::1]"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    fn kubeconfig(directory: &Path, server: &str) -> PathBuf {
        let path = directory.join("kubeconfig");
        let text = format!(
            r#"{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}],
                clusters: [{{name: c, cluster: {{server: "{server}"}}}}],
                users: [{{name: u, user: {{token: t}}}}]}}"#
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    #[tokio::test]
    async fn a_server_on_another_machine_is_used_only_where_that_was_said() {
        let directory = tempfile::tempdir().unwrap();
        let check = async |server: &str, may_be_remote| {
            let kubeconfig = kubeconfig(directory.path(), server);
            let choice = ServerChoice::Given { kubeconfig, may_be_remote };
            ApiServer::check(&choice, || "a namespace".to_owned()).await
        };
        let error = check("https://prod.example.com:6443", false).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("https://prod.example.com:6443"), "{told}");
        assert!(told.contains("a namespace"), "{told}");
        assert!(error.is_invalid_input() && error.hint().contains("--yes"));
        assert!(check("https://prod.example.com:6443", true).await.is_ok());
        assert!(check("https://127.0.0.1:6443", false).await.is_ok());
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let choice = ServerChoice::Given { kubeconfig: "/nonexistent".into(), may_be_remote: true };
        let error = ApiServer::check(&choice, String::new).await.unwrap_err();
        assert_eq!(error.to_string(), "the kubeconfig /nonexistent cannot be used");
    }
}
