//! The fixture of a trial: a namespace, and clients that count their requests.

use std::path::PathBuf;
use std::sync::Arc;

use kube::api::{Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::{Api, Client, Resource};
use lanyard_api::SecretProviderClass;
use lanyard_clock::SystemClock;
use lanyard_cluster::{ControlPlane, SharedControlPlane};
use lanyard_kubernetes::KubernetesApi;
use lanyard_node::NodeKubernetesApi;
use libtest_mimic::Failed;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::util::MapRequestLayer;

use super::{ChartPermissions, KubernetesSuiteFixture};
use crate::api_server::{client_config, create_trial_namespace, user_client};

/// A namespace for one trial, with the clients for it.
pub(super) struct KubernetesTrialFixture {
    pub(super) plane: SharedControlPlane,
    pub(super) namespace: String,
    /// The client of the administrator.
    pub(super) client: Client,
    /// The permissions that the chart grants to the node plugin.
    pub(super) permissions: Arc<ChartPermissions>,
    /// The program `helm`.
    pub(super) helm: PathBuf,
}

/// A client that records its requests.
pub(super) struct CountingNodeApi {
    pub(super) api: NodeKubernetesApi,
    requests: Arc<Mutex<Vec<String>>>,
}

impl KubernetesTrialFixture {
    pub(super) async fn create(suite: &KubernetesSuiteFixture) -> Result<Self, Failed> {
        let client = user_client(&suite.plane, ControlPlane::ADMINISTRATOR).await?;
        let namespace = create_trial_namespace(&client).await?;
        let (plane, rights) = (Arc::clone(&suite.plane), Arc::clone(&suite.permissions));
        Ok(Self { plane, namespace, client, permissions: rights, helm: suite.helm.clone() })
    }

    /// Creates a client that records its requests.
    pub(super) async fn counting_api(&self, user: &str) -> Result<CountingNodeApi, Failed> {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&requests);
        let count = move |request: http::Request<kube::client::Body>| {
            let uri = request.uri();
            let watch = uri.query().is_some_and(|query| query.contains("watch=true"));
            let asked = match uri.path_and_query() {
                Some(_) if watch => format!("WATCH {}", uri.path()),
                Some(asked) => format!("{} {asked}", request.method()),
                None => String::new(),
            };
            written.lock().push(asked);
            request
        };
        let mut config = client_config(&self.plane, user).await?;
        config.default_retry = false;
        let builder = ClientBuilder::try_from(config)?;
        let client = builder.with_layer(&MapRequestLayer::new(count)).build();
        let api = NodeKubernetesApi::new(KubernetesApi::from_client(client, SystemClock::shared()));
        Ok(CountingNodeApi { api, requests })
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) async fn create_object<K>(&self, object: Value) -> Result<K, Failed>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let object = serde_json::from_value(object)?;
        Ok(self.api::<K>().create(&PostParams::default(), &object).await?)
    }

    /// Patches an object as a user with kubectl would.
    pub(super) async fn merge_patch<K>(&self, name: &str, patch: Value) -> Result<K, Failed>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let parameters =
            PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
        Ok(self.api::<K>().patch(name, &parameters, &Patch::Merge(patch)).await?)
    }

    pub(super) async fn create_class(&self, name: &str, spec: Value) -> Result<(), Failed> {
        let class = json!({
            "apiVersion": SecretProviderClass::API_VERSION,
            "kind": SecretProviderClass::KIND,
            "metadata": {"name": name},
            "spec": spec,
        });
        self.create_object::<SecretProviderClass>(class).await.map(|_class| ())
    }
}

impl CountingNodeApi {
    /// Returns and clears the recorded requests.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// The recorded requests, which stay recorded.
    pub(super) fn peek_requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// Returns the recorded requests that write, and clears all.
    pub(super) fn take_writes(&self) -> Vec<String> {
        let reads = |request: &String| request.starts_with("GET ") || request.starts_with("WATCH ");
        self.take_requests().into_iter().filter(|request| !reads(request)).collect()
    }
}
