//! The conventions that commands share with `kubectl`: kubeconfig files, contexts and namespaces.

use std::path::{Path, PathBuf};

use kube::Api;
use kube::api::ListParams;
use lanyard_api::HostedClusterIdentities;
use lanyard_clock::SystemClock;
use lanyard_kubernetes::{
    ApiAccess, ApiError, ApiRetryPolicy, KubectlAccess, KubectlContext, KubernetesApi, UserAgent,
};

use super::{cluster_access, kubectl_input};
use crate::exit::{CommandError, ResultExt as _};
use crate::settings::ProcessEnvironment;

/// Selects an API server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ApiServerArgs {
    /// The kubeconfig file [default: the files of KUBECONFIG, or ~/.kube/config; in a pod without one the
    /// ServiceAccount]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Selects an API server and its namespaces.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct KubectlArgs {
    #[command(flatten)]
    server: ApiServerArgs,
    /// The namespace of the HostedClusters [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// List all namespaces; `--namespace` is then ignored
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Read HostedClusterIdentities from a file as kubectl prints them (YAML or JSON, a list or documents)
    /// instead of from an API server; `-` reads standard input
    #[arg(
        long,
        short = 'f',
        value_name = "FILE",
        conflicts_with_all = ["kubeconfig", "context", "namespace", "all_namespaces"]
    )]
    input: Option<PathBuf>,
}

impl KubectlArgs {
    /// The HostedClusterIdentities of all hosted clusters, or of those named `name`, sorted by namespace and
    /// name.
    pub(crate) async fn fetch_identities(
        &self,
        environment: &ProcessEnvironment,
        name: Option<&str>,
    ) -> Result<Vec<HostedClusterIdentities>, CommandError> {
        let mut found = match &self.input {
            Some(file) => kubectl_input::load_identities(file)?,
            None => self.list_identities(environment).await?,
        };
        found = filter_by_name(found, name)?;
        found.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
        Ok(found)
    }

    async fn list_identities(
        &self,
        environment: &ProcessEnvironment,
    ) -> Result<Vec<HostedClusterIdentities>, CommandError> {
        let (api, context) = self.server.connect(environment).await?;
        let client = api.client().clone();
        let identities: Api<HostedClusterIdentities> = match self.selected_namespace(&context) {
            None => Api::all(client),
            Some(namespace) => Api::namespaced(client, namespace),
        };
        let listed = list_identities(&api, &identities).await;
        let is_unknown_kind = matches!(listed, Err(ApiError::NotServed { .. }));
        let listed = listed.context("the identities cannot be read");
        if is_unknown_kind {
            return listed.hint("install the chart lanyard-operator, which defines the kind");
        }
        listed
    }

    /// The namespace of the flags or of the context; `None` for all namespaces.
    fn selected_namespace<'a>(&'a self, context: &'a KubectlContext) -> Option<&'a str> {
        let namespace = self.namespace.as_deref().unwrap_or(&context.namespace);
        (!self.all_namespaces).then_some(namespace)
    }
}

impl ApiServerArgs {
    /// Connects with the kubeconfig, or with the pod's ServiceAccount if there is no kubeconfig, as `kubectl`
    /// does. Returns the client and the context.
    pub(in crate::commands) async fn connect(
        &self,
        environment: &ProcessEnvironment,
    ) -> Result<(KubernetesApi, KubectlContext), CommandError> {
        let agent = UserAgent::from_static(concat!("lanyard/", env!("CARGO_PKG_VERSION")));
        let clock = SystemClock::shared();
        let files = self.kubeconfig_files(environment);
        let is_selected = self.kubeconfig.is_some() || self.context.is_some();
        let in_pod = if is_selected || files.iter().any(|file| file.exists()) {
            None
        } else {
            cluster_access::api_access(None, environment)?
        };
        let connected = if let Some(access) = in_pod {
            let namespace = Path::new(ApiAccess::SERVICE_ACCOUNT).join("namespace");
            let namespace =
                std::fs::read_to_string(namespace).unwrap_or_else(|_| "default".to_owned());
            let api = KubernetesApi::connect(&access, agent, clock).await;
            let namespace = namespace.trim().to_owned();
            api.map(|api| (api, KubectlContext { name: None, namespace }))
        } else {
            let access = KubectlAccess { files, context: self.context.clone() };
            KubernetesApi::connect_as_kubectl(&access, agent, clock).await
        };
        connected.context("cannot connect to the Kubernetes API")
    }

    fn kubeconfig_files(&self, environment: &ProcessEnvironment) -> Vec<PathBuf> {
        self.kubeconfig.clone().map_or_else(|| environment.kubeconfigs.clone(), |file| vec![file])
    }
}

/// The message for an empty list.
pub(super) const NO_IDENTITIES_FOUND: &str = "no identities found: no HostedCluster in this namespace (-A selects all namespaces), or no operator reports them";

/// Keeps the objects named `name`, or all if `name` is `None`. An unknown name is an error, because an empty
/// result could be mistaken for a healthy cluster.
fn filter_by_name(
    mut found: Vec<HostedClusterIdentities>,
    name: Option<&str>,
) -> Result<Vec<HostedClusterIdentities>, CommandError> {
    let Some(name) = name else { return Ok(found) };
    found.retain(|it| it.metadata.name.as_deref() == Some(name));
    if found.is_empty() {
        return Err(CommandError::invalid_input(format!(
            "there are no HostedClusterIdentities `{name}` here"
        ))
        .with_hint(
            "leave the name out to see all, and give the namespace with -n, or -A for all",
        ));
    }
    Ok(found)
}

fn sort_key(it: &HostedClusterIdentities) -> (Option<&str>, Option<&str>) {
    (it.metadata.namespace.as_deref(), it.metadata.name.as_deref())
}

/// Lists in pages, because a fleet may have thousands of objects.
async fn list_identities(
    api: &KubernetesApi,
    identities: &Api<HostedClusterIdentities>,
) -> Result<Vec<HostedClusterIdentities>, ApiError> {
    let mut everything = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    loop {
        let read = || identities.list(&parameters);
        let page = api.call(ApiRetryPolicy::STANDARD, "list HostedClusterIdentities", read).await?;
        everything.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(everything),
        }
    }
}

const PAGE_SIZE: u32 = 500;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCli {
        #[command(flatten)]
        kubectl: KubectlArgs,
    }

    #[test]
    fn all_namespaces_takes_precedence_over_a_namespace() {
        let context = KubectlContext { name: None, namespace: "of-the-context".to_owned() };
        for (arguments, expected) in [
            (&["-n", "x"][..], Some("x")),
            (&[], Some("of-the-context")),
            (&["-A"], None),
            (&["-A", "-n", "x"], None),
        ] {
            let arguments = ["test"].iter().chain(arguments);
            let cli = TestCli::try_parse_from(arguments).unwrap();
            assert_eq!(cli.kubectl.selected_namespace(&context), expected);
        }
    }
}
