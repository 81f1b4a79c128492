//! The API server on the road, and how each part reaches it.

use std::path::{Path, PathBuf};

use lanyard_apiserver::{ControlPlane, ControlPlaneOptions, Programs};
use lanyard_clock::SharedClock;
use lanyard_kubernetes::{
    ApiAccess, KubernetesApi, Patience, PersonalAccess, PersonalServer, UserAgent,
};

use super::ServerChoice;
use super::error::KubernetesRoadError;

/// The API server on the road.
#[derive(Debug)]
pub(super) struct ApiServer {
    /// Ends with this.
    own: Option<ControlPlane>,
    access: Access,
    kubeconfig: PathBuf,
    url: String,
    version: String,
}

/// How the parts reach it.
#[derive(Debug)]
enum Access {
    Own(ApiAccess),
    /// As the person does, and as it was checked: what becomes of the file meanwhile counts no more.
    Given(PersonalServer),
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
                let files = vec![kubeconfig.clone()];
                let server = PersonalAccess { files, context: None }.resolve().await?;
                if !server.is_on_this_machine() && !may_be_remote {
                    let (proxy, wanted) = (server.proxy(), wanted());
                    let server = server.url();
                    return Err(KubernetesRoadError::Remote { server, proxy, wanted });
                }
                Ok(Place::Given { kubeconfig: kubeconfig.clone(), server })
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
                let kubeconfig = plane.kubeconfig(ControlPlane::ADMINISTRATOR);
                Self {
                    access: Access::Own(ApiAccess::Kubeconfig(kubeconfig.clone())),
                    kubeconfig,
                    url: plane.url(),
                    own: Some(plane),
                    version: String::new(),
                }
            }
            Place::Given { kubeconfig, server } => Self {
                own: None,
                kubeconfig,
                url: server.url(),
                access: Access::Given(server),
                version: String::new(),
            },
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
        let clock = SharedClock::clone(clock);
        Ok(match &self.access {
            Access::Own(access) => KubernetesApi::connect(access, agent, clock).await?,
            Access::Given(server) => KubernetesApi::connect_to(server, agent, clock)?,
        })
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
        /// The file that named it.
        kubeconfig: PathBuf,
        /// How it is reached.
        server: PersonalServer,
    },
}

/// As whom `up` itself asks.
pub(super) const UP: UserAgent =
    UserAgent::from_static(concat!("lanyard-up/", env!("CARGO_PKG_VERSION")));

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(directory: &Path, server: &str, proxy: &str) -> PathBuf {
        let path = directory.join("kubeconfig");
        let text = format!(
            r#"{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}],
                clusters: [{{name: c, cluster: {{server: "{server}", proxy-url: "{proxy}"}}}}],
                users: [{{name: u, user: {{token: t}}}}]}}"#
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    #[tokio::test]
    async fn a_server_on_another_machine_is_used_only_where_that_was_said() {
        let directory = tempfile::tempdir().unwrap();
        let check = async |server: &str, may_be_remote| {
            let kubeconfig = kubeconfig(directory.path(), server, "");
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
    async fn a_server_behind_a_proxy_is_on_another_machine_whatever_it_is_called() {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig =
            kubeconfig(directory.path(), "https://localhost:6443", "socks5://me:x@bastion:1080");
        let choice = ServerChoice::Given { kubeconfig, may_be_remote: false };
        let error = ApiServer::check(&choice, || "a namespace".to_owned()).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("https://localhost:6443 by way of socks5://bastion:1080,"), "{told}");
        assert!(error.is_invalid_input());
    }

    #[tokio::test]
    async fn the_server_that_was_checked_is_the_one_that_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let file = kubeconfig(directory.path(), "https://127.0.0.1:1", "");
        let choice = ServerChoice::Given { kubeconfig: file, may_be_remote: false };
        let place = ApiServer::check(&choice, String::new).await.unwrap();
        kubeconfig(directory.path(), "https://prod.example.com", "");
        let Place::Given { server, .. } = place else { panic!("{place:?}") };
        assert_eq!(server.url(), "https://127.0.0.1:1");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let choice = ServerChoice::Given { kubeconfig: "/nonexistent".into(), may_be_remote: true };
        let error = ApiServer::check(&choice, String::new).await.unwrap_err();
        let told = lanyard_vocabulary::causes(&error);
        assert!(told.contains("there is no kubeconfig file: /nonexistent"), "{told}");
        assert!(error.is_invalid_input());
    }
}
