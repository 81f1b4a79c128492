//! Helpers of suites on a real API server: clients, namespaces and custom resource definitions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::ControlPlane;
use thiserror::Error;

/// The API server could not be used for the trials.
#[derive(Debug, Error)]
pub(crate) enum ApiServerError {
    #[error("the kubeconfig of the control plane cannot be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("a request to the API server failed")]
    Refused(#[from] kube::Error),
    #[error("the API server did not serve the kind `{kind}` within {} s", timeout.as_secs())]
    KindNotServed { kind: String, timeout: Duration },
}

/// A kind without a Rust type, for dynamic objects.
#[derive(Debug, Clone)]
pub(crate) struct DynamicKind(ApiResource);

impl DynamicKind {
    /// `HostedCluster`.
    pub(crate) fn hosted_cluster() -> Self {
        Self::hypershift("HostedCluster", "hostedclusters")
    }

    /// `HostedControlPlane`.
    pub(crate) fn hosted_control_plane() -> Self {
        Self::hypershift("HostedControlPlane", "hostedcontrolplanes")
    }

    /// `HostedClusterIdentities`.
    pub(crate) fn hosted_cluster_identities() -> Self {
        Self::from_names(
            "lanyard.dev",
            "v1alpha1",
            "HostedClusterIdentities",
            "hostedclusteridentities",
        )
    }

    fn hypershift(kind: &str, plural: &str) -> Self {
        Self::from_names("hypershift.openshift.io", "v1beta1", kind, plural)
    }

    pub(crate) fn from_names(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Self(ApiResource::from_gvk_with_plural(&kind, plural))
    }

    fn from_definition(definition: &CustomResourceDefinition) -> Self {
        let spec = &definition.spec;
        let version = spec.versions.first().map_or("", |version| version.name.as_str());
        Self::from_names(&spec.group, version, &spec.names.kind, &spec.names.plural)
    }

    pub(crate) const fn api_resource(&self) -> &ApiResource {
        &self.0
    }
}

/// The configuration of a client that authenticates as a user.
pub(crate) async fn client_config(
    plane: &ControlPlane,
    user: &str,
) -> Result<Config, ApiServerError> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig_path(user))?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(config)
}

/// A client that authenticates as a user.
pub(crate) async fn user_client(
    plane: &ControlPlane,
    user: &str,
) -> Result<Client, ApiServerError> {
    Ok(Client::try_from(client_config(plane, user).await?)?)
}

/// Creates a namespace for one trial and returns its unique name.
pub(crate) async fn create_trial_namespace(client: &Client) -> Result<String, kube::Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("trial-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    create_namespace(client, &name).await?;
    Ok(name)
}

pub(crate) async fn create_namespace(client: &Client, name: &str) -> Result<(), kube::Error> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.map(|_namespace| ())
}

/// Creates a namespace unless it exists.
pub(crate) async fn ensure_namespace_exists(
    client: &Client,
    name: &str,
) -> Result<(), kube::Error> {
    match create_namespace(client, name).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        answer => answer,
    }
}

/// Installs custom resource definitions and waits until the API server serves their kinds.
pub(crate) async fn install_definitions(
    client: &Client,
    definitions: &[CustomResourceDefinition],
) -> Result<(), ApiServerError> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in definitions {
        api.create(&PostParams::default(), definition).await?;
    }
    for definition in definitions {
        wait_until_served(client, &DynamicKind::from_definition(definition)).await?;
    }
    Ok(())
}

async fn wait_until_served(client: &Client, kind: &DynamicKind) -> Result<(), ApiServerError> {
    let api = Api::<DynamicObject>::all_with(client.clone(), kind.api_resource());
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let one = kube::api::ListParams::default().limit(1);
    while api.list(&one).await.is_err() {
        if clock.monotonic().saturating_sub(began) > SERVED_TIMEOUT {
            let kind = kind.0.kind.clone();
            return Err(ApiServerError::KindNotServed { kind, timeout: SERVED_TIMEOUT });
        }
        clock.sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

const SERVED_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
