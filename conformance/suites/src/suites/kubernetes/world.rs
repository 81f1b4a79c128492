//! A namespace of its own for each trial, and clients that count what they ask.

use std::sync::Arc;

use kube::api::{Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::{Api, Client, Resource};
use lanyard_api::SecretProviderClass;
use lanyard_clock::SystemClock;
use lanyard_cluster::{ControlPlane, SharedControlPlane};
use lanyard_kubernetes::KubernetesApi;
use lanyard_node::NodeApi;
use libtest_mimic::Failed;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::util::MapRequestLayer;

use super::{ChartRights, Stage};
use crate::api_server::{client, client_config, make_trial_namespace};

/// A namespace, and who acts in it.
pub(super) struct World {
    pub(super) plane: SharedControlPlane,
    pub(super) namespace: String,
    /// The administrator.
    pub(super) client: Client,
    /// What the chart lets the node plugin do.
    pub(super) rights: Arc<ChartRights>,
}

/// A client that writes down what it asks.
pub(super) struct Counted {
    pub(super) api: NodeApi,
    requests: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub(super) async fn make(stage: &Stage) -> Result<Self, Failed> {
        let client = client(&stage.plane, ControlPlane::ADMINISTRATOR).await?;
        let namespace = make_trial_namespace(&client).await?;
        let (plane, rights) = (Arc::clone(&stage.plane), Arc::clone(&stage.rights));
        Ok(Self { plane, namespace, client, rights })
    }

    /// A counting client.
    pub(super) async fn counted(&self, user: &str) -> Result<Counted, Failed> {
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
        let api = NodeApi::new(KubernetesApi::of_client(client, SystemClock::shared()));
        Ok(Counted { api, requests })
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes an object.
    pub(super) async fn create<K>(&self, object: Value) -> Result<K, Failed>
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

    /// Changes an object as a person with kubectl would.
    pub(super) async fn merge<K>(&self, name: &str, patch: Value) -> Result<K, Failed>
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
        self.create::<SecretProviderClass>(class).await.map(|_class| ())
    }
}

impl Counted {
    /// What was asked since the last time.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// What was asked since the last time, which the next one is told again.
    pub(super) fn peek(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// What was asked since the last time that changes something.
    pub(super) fn take_writes(&self) -> Vec<String> {
        let reads = |request: &String| request.starts_with("GET ") || request.starts_with("WATCH ");
        self.take().into_iter().filter(|request| !reads(request)).collect()
    }
}
