//! What is made on the API server for this road, and how it is taken away again.
//!
//! Everything carries a label with a name that only this run has. Who clears away trusts that label
//! and nothing it remembers: whenever the run was interrupted, what it made is found, and what
//! others made is never touched.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use lanyard_api::{HostedCluster, HostedClusterIdentities, definitions, whole_second};
use lanyard_desired::ValidatedHostedCluster;
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::KubernetesRoadError;

/// Says that `lanyard up` made the object.
pub(super) const MADE_BY: (&str, &str) = ("lanyard.dev/made-by", "up");
/// Says in which run.
pub(super) const RUN: &str = "lanyard.dev/run";

/// The definitions of the Secrets Store CSI driver, as the node plugin's chart has them.
const WRITTEN: [&str; 2] = [
    include_str!("../../../../charts/lanyard-node/files/crds/secretproviderclasses.yaml"),
    include_str!("../../../../charts/lanyard-node/files/crds/secretproviderclasspodstatuses.yaml"),
];

/// What is made on the API server.
#[derive(Debug, Clone)]
pub(super) struct Site {
    api: KubernetesApi,
    run: String,
    namespace: String,
    cluster: String,
    hosted_cluster: Value,
}

impl Site {
    pub(super) fn new(
        api: KubernetesApi,
        cluster: &ValidatedHostedCluster,
        wire: &HostedCluster,
    ) -> Result<Self, KubernetesRoadError> {
        let object = |source| KubernetesRoadError::Object { what: "the HostedCluster", source };
        let mut run = Uuid::new_v4().simple().to_string();
        run.truncate(8);
        let written = serde_json::to_value(wire).map_err(object)?;
        Ok(Self {
            api,
            hosted_cluster: as_written(&written, cluster),
            namespace: cluster.namespace.clone(),
            cluster: cluster.name.clone(),
            run,
        })
    }

    /// What is made, for a person who has to agree.
    pub(super) fn wanted(cluster: &ValidatedHostedCluster) -> String {
        format!(
            "the definitions of HostedCluster, HostedControlPlane, HostedClusterIdentities, \
             SecretProviderClass and its pod status where they are absent, the namespace {0} where \
             it is absent, HostedCluster {0}/{1} with everything that the operator makes for it, \
             and a node `lanyard-up-…` with a pod of each of its Deployments",
            cluster.namespace, cluster.name
        )
    }

    /// The name of this run, which is the value of its label.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// The name of our node.
    pub(super) fn node(&self) -> String {
        format!("lanyard-up-{}", self.run)
    }

    /// Makes what is absent and waits until every kind is served. What is there stays as it is.
    pub(super) async fn make_ground(&self) -> Result<(), KubernetesRoadError> {
        let definitions = self.definitions()?;
        for definition in &definitions {
            self.make(&Api::<CustomResourceDefinition>::all(self.client()), definition).await?;
        }
        for definition in &definitions {
            self.until_served(definition).await?;
        }
        let namespace: Namespace = object(
            "the namespace",
            json!({"metadata": {"name": self.namespace, "labels": self.labels()}}),
        )?;
        self.make(&Api::all(self.client()), &namespace).await?;
        Ok(())
    }

    /// Makes our node, where the pods are. A real scheduler puts nothing there, and real controllers
    /// take its pods for those of a node that lives.
    pub(super) async fn make_node(&self) -> Result<(), KubernetesRoadError> {
        let node: Node = object(
            "the node",
            json!({
                "metadata": {"name": self.node(), "labels": self.labels()},
                "spec": {
                    "unschedulable": true,
                    "taints": [{"key": MADE_BY.0, "value": MADE_BY.1, "effect": "NoExecute"}],
                },
            }),
        )?;
        self.make(&Api::all(self.client()), &node).await?;
        Ok(())
    }

    /// Says that our node lives, as a kubelet does.
    pub(super) async fn beat(&self) -> Result<(), ApiError> {
        let now = whole_second(self.api.clock().now()).to_string();
        let node = self.node();
        let status = json!({"status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "StandInReady",
            "message": "a stand-in of `lanyard up` serves the pods",
            "lastHeartbeatTime": now,
        }]}});
        let nodes: Api<Node> = Api::all(self.client());
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(status));
        let beat = || nodes.patch_status(&node, &parameters, &patch);
        let action = format!("say that node {node} lives");
        self.api.call(Patience::ONE_TRY, action, beat).await.map(|_node| ())
    }

    /// Makes the HostedCluster, as a person would.
    pub(super) async fn make_cluster(&self, server: &str) -> Result<(), KubernetesRoadError> {
        let mut value = self.hosted_cluster.clone();
        value["metadata"]["labels"][MADE_BY.0] = json!(MADE_BY.1);
        value["metadata"]["labels"][RUN] = json!(self.run);
        let cluster: DynamicObject = object("the HostedCluster", value)?;
        if self.make(&self.clusters(), &cluster).await? {
            return Ok(());
        }
        let name = format!("{}/{}", self.namespace, self.cluster);
        Err(KubernetesRoadError::Exists { name, server: server.to_owned() })
    }

    /// Deletes the HostedCluster, if it is of this run; returns whether it was still there.
    pub(super) async fn delete_cluster(&self) -> Result<bool, ApiError> {
        self.take_away(&self.clusters(), &self.cluster).await
    }

    /// Takes the rest away, once the HostedCluster is gone. A definition stays where others have
    /// made objects of its kind meanwhile. Returns what is to go and is still there.
    pub(super) async fn take_ground_away(&self) -> Result<Vec<String>, ApiError> {
        self.take_orphan_away().await?;
        let mut left = Vec::new();
        let nodes: Api<Node> = Api::all(self.client());
        left.extend(self.going(&nodes, &self.node(), "Node").await?);
        let namespaces: Api<Namespace> = Api::all(self.client());
        left.extend(self.going(&namespaces, &self.namespace, "Namespace").await?);
        let all: Api<CustomResourceDefinition> = Api::all(self.client());
        for definition in self.definitions().unwrap_or_default() {
            let name = definition.name_any();
            if self.find_ours(&all, &name).await?.is_none() {
                continue;
            }
            if self.is_in_use(&definition).await? {
                tracing::warn!(name, "the definition stays: others have objects of the kind");
                continue;
            }
            left.extend(self.going(&all, &name, "definition").await?);
        }
        Ok(left)
    }

    /// Deletes what the operator told of a HostedCluster that is gone, where nobody collects garbage.
    async fn take_orphan_away(&self) -> Result<(), ApiError> {
        let (clusters, name) = (self.clusters(), &self.cluster);
        let get = || clusters.get(name);
        match self.api.find(Patience::USUAL, format!("read HostedCluster {name}"), get).await {
            Ok(None) => {}
            Ok(Some(_)) | Err(ApiError::NotServed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        let kind = kind_of(
            HostedClusterIdentities::API_VERSION,
            HostedClusterIdentities::KIND,
            HostedClusterIdentities::PLURAL,
        );
        let told: Api<DynamicObject> = Api::namespaced_with(self.client(), &self.namespace, &kind);
        let parameters = DeleteParams::default();
        let delete = || told.delete(name, &parameters);
        let action = format!("delete HostedClusterIdentities {name}");
        match self.api.find(Patience::USUAL, action, delete).await {
            Ok(_) | Err(ApiError::NotServed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn going<K>(
        &self,
        api: &Api<K>,
        name: &str,
        kind: &str,
    ) -> Result<Option<String>, ApiError>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let was_there = self.take_away(api, name).await?;
        Ok(was_there.then(|| format!("{kind} {name}")))
    }

    fn client(&self) -> kube::Client {
        self.api.client().clone()
    }

    fn clusters(&self) -> Api<DynamicObject> {
        let kind = kind_of(HostedCluster::API_VERSION, HostedCluster::KIND, "hostedclusters");
        Api::namespaced_with(self.client(), &self.namespace, &kind)
    }

    fn labels(&self) -> Value {
        json!({MADE_BY.0: MADE_BY.1, RUN: self.run})
    }

    fn definitions(&self) -> Result<Vec<CustomResourceDefinition>, KubernetesRoadError> {
        let ours = definitions::all().map(|definition| definition.value);
        // They are in the program, and a test reads them.
        let written = WRITTEN.into_iter().filter_map(|text| serde_saphyr::from_str(text).ok());
        let all = ours.into_iter().chain(written);
        all.map(|mut value: Value| {
            value["metadata"]["labels"] = self.labels();
            object("a definition", value)
        })
        .collect()
    }

    /// Makes an object; returns whether it was absent.
    async fn make<K>(&self, api: &Api<K>, object: &K) -> Result<bool, ApiError>
    where
        K: kube::Resource
            + Clone
            + serde::de::DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let name = object.name_any();
        let parameters =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let create = || api.create(&parameters, object);
        match self.api.call(Patience::USUAL, format!("make {name}"), create).await {
            Ok(_made) => Ok(true),
            // Ours, where an earlier try arrived after all.
            Err(ApiError::Refused { status: 409, .. }) => {
                Ok(self.find_ours(api, &name).await?.is_some())
            }
            Err(error) => Err(error),
        }
    }

    /// The object of this name, if it is of this run. A kind that is not served has none.
    async fn find_ours<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, ApiError>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let get = || api.get(name);
        let found = match self.api.find(Patience::USUAL, format!("read {name}"), get).await {
            Err(ApiError::NotServed { .. }) => None,
            other => other?,
        };
        Ok(found.filter(|it: &K| it.labels().get(RUN) == Some(&self.run)))
    }

    /// Deletes the object of this name, if it is of this run; returns whether it was there.
    async fn take_away<K>(&self, api: &Api<K>, name: &str) -> Result<bool, ApiError>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let Some(found) = self.find_ours(api, name).await? else { return Ok(false) };
        if found.meta().deletion_timestamp.is_none() {
            let preconditions = Preconditions { uid: found.uid(), resource_version: None };
            let parameters =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            let delete = || api.delete(name, &parameters);
            let action = format!("delete {name}");
            self.api.find(Patience::USUAL, action, delete).await?;
        }
        Ok(true)
    }

    async fn is_in_use(&self, definition: &CustomResourceDefinition) -> Result<bool, ApiError> {
        let all: Api<DynamicObject> = Api::all_with(self.client(), &kind_of_definition(definition));
        let one = ListParams::default().limit(1);
        let list = || all.list(&one);
        let action = format!("list {}", definition.name_any());
        match self.api.find(Patience::USUAL, action, list).await {
            Err(ApiError::NotServed { .. }) | Ok(None) => Ok(false),
            Ok(Some(found)) => Ok(!found.items.is_empty()),
            Err(error) => Err(error),
        }
    }

    async fn until_served(
        &self,
        definition: &CustomResourceDefinition,
    ) -> Result<(), KubernetesRoadError> {
        let all: Api<DynamicObject> = Api::all_with(self.client(), &kind_of_definition(definition));
        let one = ListParams::default().limit(1);
        let clock = self.api.clock();
        let began = clock.monotonic();
        loop {
            let list = || all.list(&one);
            match self.api.call(Patience::ONE_TRY, "list a new kind", list).await {
                Ok(_served) => return Ok(()),
                Err(error)
                    if !(error.is_absence() || matches!(error, ApiError::NotServed { .. })) =>
                {
                    return Err(error.into());
                }
                Err(_not_yet) => {}
            }
            if clock.monotonic().saturating_sub(began) > SERVED {
                let kind = definition.name_any();
                return Err(KubernetesRoadError::NotServed { kind, patience: SERVED });
            }
            clock.sleep(LOOK_EVERY).await;
        }
    }
}

/// The HostedCluster as a person would write it: without what a server adds.
fn as_written(wire: &Value, cluster: &ValidatedHostedCluster) -> Value {
    let kept = |field: &str| wire.pointer("/metadata").and_then(|it| it.get(field)).cloned();
    let mut object = wire.clone();
    object["apiVersion"] = json!(HostedCluster::API_VERSION);
    object["kind"] = json!(HostedCluster::KIND);
    object["metadata"] = json!({
        "name": cluster.name,
        "namespace": cluster.namespace,
        "labels": kept("labels").unwrap_or_else(|| json!({})),
        "annotations": kept("annotations").unwrap_or_else(|| json!({})),
    });
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    object
}

fn object<T: serde::de::DeserializeOwned>(
    what: &'static str,
    value: Value,
) -> Result<T, KubernetesRoadError> {
    serde_json::from_value(value).map_err(|source| KubernetesRoadError::Object { what, source })
}

fn kind_of(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn kind_of_definition(definition: &CustomResourceDefinition) -> ApiResource {
    let spec = &definition.spec;
    let version = spec.versions.first().map_or("", |version| version.name.as_str());
    let kind = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
    ApiResource::from_gvk_with_plural(&kind, &spec.names.plural)
}

const MANAGER: &str = "lanyard-up";
const SERVED: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_definitions_can_be_read() {
        for text in WRITTEN {
            let value: Value = serde_saphyr::from_str(text).unwrap();
            let definition: CustomResourceDefinition = serde_json::from_value(value).unwrap();
            assert_eq!(definition.spec.group, "secrets-store.csi.x-k8s.io");
        }
    }
}
