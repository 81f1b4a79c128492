//! What commands for people at a terminal share with `kubectl`: its files, contexts and namespaces.

use std::path::PathBuf;

use kube::Api;
use kube::api::ListParams;
use lanyard_api::HostedClusterIdentities;
use lanyard_clock::SystemClock;
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience, PersonalAccess, UserAgent};

use crate::exit::CommandError;
use crate::settings::Environment;

/// Which API server, and which namespaces of it.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct KubectlArgs {
    /// The kubeconfig file [default: those of KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The namespace of the HostedClusters [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// All namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
}

impl KubectlArgs {
    /// How the identities of hosted clusters are: of all, or of the one of that name. They are
    /// sorted by namespace and name.
    pub(crate) async fn fetch_identities(
        &self,
        environment: &Environment,
        name: Option<&str>,
    ) -> Result<Vec<HostedClusterIdentities>, CommandError> {
        let access =
            PersonalAccess { files: self.files(environment), context: self.context.clone() };
        let agent = UserAgent::from_static(concat!("lanyard/", env!("CARGO_PKG_VERSION")));
        let connected =
            KubernetesApi::connect_as_person(&access, agent, SystemClock::shared()).await;
        let (api, namespace) = connected.map_err(|error| {
            CommandError::unavailable("there is no way to the Kubernetes API")
                .because(&error)
                .hint(error.hint())
        })?;
        let client = api.client().clone();
        let identities: Api<HostedClusterIdentities> = match &self.namespace {
            _ if self.all_namespaces => Api::all(client),
            Some(chosen) => Api::namespaced(client, chosen),
            None => Api::namespaced(client, &namespace),
        };
        let mut everything = list(&api, &identities).await.map_err(|error| explain(&error))?;
        everything.retain(|it| name.is_none_or(|name| it.metadata.name.as_deref() == Some(name)));
        everything.sort_by(|one, other| place(one).cmp(&place(other)));
        Ok(everything)
    }

    fn files(&self, environment: &Environment) -> Vec<PathBuf> {
        self.kubeconfig.clone().map_or_else(|| environment.kubeconfigs.clone(), |file| vec![file])
    }
}

fn place(it: &HostedClusterIdentities) -> (Option<&str>, Option<&str>) {
    (it.metadata.namespace.as_deref(), it.metadata.name.as_deref())
}

/// A page at a time: a fleet has thousands.
async fn list(
    api: &KubernetesApi,
    identities: &Api<HostedClusterIdentities>,
) -> Result<Vec<HostedClusterIdentities>, ApiError> {
    let mut everything = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let read = || identities.list(&parameters);
        let page = api.call(Patience::USUAL, "list HostedClusterIdentities", read).await?;
        everything.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(everything),
        }
    }
}

fn explain(error: &ApiError) -> CommandError {
    let hint = match error {
        ApiError::NotServed { .. } => "install the chart lanyard-operator, which defines the kind",
        error => error.hint(),
    };
    CommandError::unavailable("the identities cannot be read").because(error).hint(hint)
}

const PAGE: u32 = 500;
