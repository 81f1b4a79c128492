//! A namespace of its own for each trial, and clients that count what they ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_clock::{Clock, SystemClock};
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
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let client = Client::try_from(config(&stage.plane, ControlPlane::ADMINISTRATOR).await?)?;
        let namespace = format!("trial-{number}");
        let (plane, rights) = (Arc::clone(&stage.plane), Arc::clone(&stage.rights));
        let world = Self { plane, namespace, client, rights };
        if number == 0 {
            world.install(&stage.definitions).await?;
        }
        let name = world.namespace.clone();
        let namespaces = Api::<Namespace>::all(world.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        Ok(world)
    }

    async fn install(&self, definitions: &[String]) -> Result<(), Failed> {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        for text in definitions {
            let definition: CustomResourceDefinition =
                serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
            api.create(&PostParams::default(), &definition).await?;
        }
        let classes = Api::<SecretProviderClass>::all(self.client.clone());
        let statuses = Api::<SecretProviderClassPodStatus>::all(self.client.clone());
        eventually("the kinds are served", async || {
            let parameters = kube::api::ListParams::default().limit(1);
            Ok(classes.list(&parameters).await.is_ok() && statuses.list(&parameters).await.is_ok())
        })
        .await
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
        let mut config = config(&self.plane, user).await?;
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

async fn config(plane: &ControlPlane, user: &str) -> Result<Config, Failed> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(user))?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(config)
}

/// Waits until something is so.
pub(super) async fn eventually(
    what: &str,
    mut is_so: impl AsyncFnMut() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    while !is_so().await? {
        if clock.monotonic().saturating_sub(began) > PATIENCE {
            return Err(format!("after {} s it is not so that {what}", PATIENCE.as_secs()).into());
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Gives what happens in the background the time to happen.
pub(super) async fn pause(duration: Duration) {
    SystemClock::new().sleep(duration).await;
}

const PATIENCE: Duration = Duration::from_secs(20);
