//! A namespace of its own for each trial, and the administrator's client in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{ControlPlane, SharedControlPlane};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use thiserror::Error;

use super::Stage;

/// A namespace of a trial.
pub(crate) struct World {
    pub(crate) plane: SharedControlPlane,
    pub(crate) namespace: String,
    /// The administrator.
    pub(crate) client: Client,
    /// A complete HostedCluster.
    pub(crate) example: Arc<Value>,
}

/// The API server refuses what every trial needs.
#[derive(Debug, Error)]
pub(crate) enum WorldError {
    #[error("the kubeconfig of the control plane cannot be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("the API server refused")]
    Refused(#[from] kube::Error),
    #[error("after {} s the kind {kind} was not served", patience.as_secs())]
    NotServed { kind: String, patience: Duration },
}

impl World {
    pub(super) async fn make(stage: &Stage) -> Result<Self, Failed> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let client = stage.client.clone();
        let namespace = format!("trial-{number}");
        make_namespace(&client, &namespace).await?;
        let (plane, example) = (Arc::clone(&stage.plane), Arc::clone(&stage.example));
        Ok(Self { plane, namespace, client, example })
    }

    /// The objects of a kind of ours in the namespace of the trial.
    pub(crate) fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, kind.resource())
    }

    /// The example in the namespace of the trial.
    pub(crate) fn hosted_cluster(&self) -> Value {
        let mut cluster = (*self.example).clone();
        cluster["metadata"]["namespace"] = json!(self.namespace);
        cluster
    }
}

/// A kind that is known by its names alone.
#[derive(Debug, Clone)]
pub(crate) struct Kind(ApiResource);

impl Kind {
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
        Self::of("lanyard.dev", "v1alpha1", "HostedClusterIdentities", "hostedclusteridentities")
    }

    fn hypershift(kind: &str, plural: &str) -> Self {
        Self::of("hypershift.openshift.io", "v1beta1", kind, plural)
    }

    pub(crate) fn of(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Self(ApiResource::from_gvk_with_plural(&kind, plural))
    }

    fn of_definition(definition: &CustomResourceDefinition) -> Self {
        let spec = &definition.spec;
        let version = spec.versions.first().map_or("", |version| version.name.as_str());
        Self::of(&spec.group, version, &spec.names.kind, &spec.names.plural)
    }

    pub(crate) const fn resource(&self) -> &ApiResource {
        &self.0
    }
}

/// A client that signs in as a user.
pub(crate) async fn client(plane: &ControlPlane, user: &str) -> Result<Client, WorldError> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(user))?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

pub(crate) async fn make_namespace(client: &Client, name: &str) -> Result<(), kube::Error> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.map(|_namespace| ())
}

/// Makes a namespace unless it is there.
pub(crate) async fn ensure_namespace(client: &Client, name: &str) -> Result<(), kube::Error> {
    match make_namespace(client, name).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        answer => answer,
    }
}

/// Installs definitions, and waits until their kinds are served.
pub(crate) async fn install(
    client: &Client,
    definitions: &[CustomResourceDefinition],
) -> Result<(), WorldError> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in definitions {
        api.create(&PostParams::default(), definition).await?;
    }
    for definition in definitions {
        wait_until_served(client, &Kind::of_definition(definition)).await?;
    }
    Ok(())
}

async fn wait_until_served(client: &Client, kind: &Kind) -> Result<(), WorldError> {
    let api = Api::<DynamicObject>::all_with(client.clone(), kind.resource());
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let one = kube::api::ListParams::default().limit(1);
    while api.list(&one).await.is_err() {
        if clock.monotonic().saturating_sub(began) > PATIENCE {
            let kind = kind.0.kind.clone();
            return Err(WorldError::NotServed { kind, patience: PATIENCE });
        }
        clock.sleep(PACE).await;
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(20);
const PACE: Duration = Duration::from_millis(20);
