//! What is made on the API server for this road, and how it is taken away again.
//!
//! Everything carries a label with a name that only this run has. Who clears away remembers what to
//! look for, and deletes what it finds by that label alone: whenever the run was interrupted, what it
//! made is found, and what others made is never touched, not even where it was put into what is ours.

mod clearing;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use lanyard_api::{HostedCluster, definitions, whole_second};
use lanyard_desired::ValidatedHostedCluster;
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::KubernetesRoadError;
use super::ledger::{Certainty, Ledger, MADE_BY, Names, RUN, Thing};

/// The definitions of the Secrets Store CSI driver, as the node plugin's chart has them.
const WRITTEN: [&str; 2] = [
    include_str!("../../../../charts/lanyard-node/files/crds/secretproviderclasses.yaml"),
    include_str!("../../../../charts/lanyard-node/files/crds/secretproviderclasspodstatuses.yaml"),
];

/// What is made on the API server.
#[derive(Debug, Clone)]
pub(super) struct Site {
    api: KubernetesApi,
    names: Names,
    hosted_cluster: Value,
    ledger: Ledger,
    /// The uid of the HostedCluster, once it is made.
    cluster_uid: Option<String>,
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
            names: Names {
                run,
                namespace: cluster.namespace.clone(),
                cluster: cluster.name.clone(),
                control_plane: cluster.control_plane_namespace(),
            },
            hosted_cluster: as_written(&written, cluster),
            ledger: Ledger::new(),
            cluster_uid: None,
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
        &self.names.run
    }

    /// The name of our node.
    pub(super) fn node(&self) -> String {
        self.names.node()
    }

    /// Makes what is absent and waits until every kind is served. What is there stays as it is.
    pub(super) async fn make_ground(&mut self) -> Result<(), KubernetesRoadError> {
        let definitions = self.definitions()?;
        for definition in &definitions {
            let thing = Thing::Definition(definition.name_any());
            let all = Api::<CustomResourceDefinition>::all(self.client());
            self.make(thing, &all, definition).await?;
        }
        for definition in &definitions {
            self.until_served(definition).await?;
        }
        let namespace: Namespace = object(
            "the namespace",
            json!({"metadata": {"name": self.names.namespace, "labels": self.labels()}}),
        )?;
        self.make(Thing::Namespace, &Api::all(self.client()), &namespace).await?;
        Ok(())
    }

    /// Makes our node, where the pods are. A real scheduler puts nothing there, and real controllers
    /// take its pods for those of a node that lives.
    pub(super) async fn make_node(&mut self) -> Result<(), KubernetesRoadError> {
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
        self.make(Thing::Node, &Api::all(self.client()), &node).await?;
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
    pub(super) async fn make_cluster(&mut self, server: &str) -> Result<(), KubernetesRoadError> {
        let mut value = self.hosted_cluster.clone();
        value["metadata"]["labels"][MADE_BY.0] = json!(MADE_BY.1);
        value["metadata"]["labels"][RUN] = json!(self.names.run);
        let cluster: DynamicObject = object("the HostedCluster", value)?;
        let clusters = self.clusters();
        let is_free = self.find_control_plane(Patience::USUAL).await?.is_none();
        let Some(made) = self.make(Thing::Cluster, &clusters, &cluster).await? else {
            let there = self.find(&clusters, &self.names.cluster).await?;
            return Err(KubernetesRoadError::Exists {
                namespace: self.names.namespace.clone(),
                cluster: self.names.cluster.clone(),
                server: server.to_owned(),
                run: there.and_then(|there| there.labels().get(RUN).cloned()),
            });
        };
        self.cluster_uid = made.uid();
        self.ledger.insert(Thing::Identities, Certainty::Made);
        if is_free {
            self.ledger.insert(Thing::ControlPlane, Certainty::Made);
        }
        Ok(())
    }

    /// What this run made there so far, for a person.
    pub(super) fn made(&self) -> Vec<String> {
        self.names.list(self.ledger.keys())
    }

    async fn find_control_plane(&self, patience: Patience) -> Result<Option<Namespace>, ApiError> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        let name = &self.names.control_plane;
        let get = || namespaces.get(name);
        self.api.find(patience, format!("read namespace {name}"), get).await
    }

    fn client(&self) -> kube::Client {
        self.api.client().clone()
    }

    fn clusters(&self) -> Api<DynamicObject> {
        let kind = kind_of(HostedCluster::API_VERSION, HostedCluster::KIND, "hostedclusters");
        Api::namespaced_with(self.client(), &self.names.namespace, &kind)
    }

    fn labels(&self) -> Value {
        json!({MADE_BY.0: MADE_BY.1, RUN: self.names.run})
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

    /// Makes an object; returns it, unless one that is not of this run was there already.
    async fn make<K>(
        &mut self,
        thing: Thing,
        api: &Api<K>,
        object: &K,
    ) -> Result<Option<K>, ApiError>
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
        self.ledger.insert(thing.clone(), Certainty::Asked);
        let made = match self.api.call(Patience::USUAL, format!("make {name}"), create).await {
            // Ours, where an earlier try arrived after all.
            Err(ApiError::Refused { status: 409, .. }) => self.find_ours(api, &name).await,
            made => made.map(Some),
        };
        match &made {
            Ok(Some(_)) => drop(self.ledger.insert(thing, Certainty::Made)),
            Ok(None) => drop(self.ledger.remove(&thing)),
            Err(error) if is_answer(error) => drop(self.ledger.remove(&thing)),
            Err(_unclear) => {}
        }
        made
    }

    /// The object of this name, if it is of this run.
    async fn find_ours<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, ApiError>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let found = self.find(api, name).await?;
        Ok(found.filter(|it: &K| it.labels().get(RUN) == Some(&self.names.run)))
    }

    /// The object of this name. A kind that is not served has none. Who looks looks again.
    async fn find<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, ApiError>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let get = || api.get(name);
        match self.api.find(Patience::ONE_TRY, format!("read {name}"), get).await {
            Err(ApiError::NotServed { .. }) => Ok(None),
            other => other,
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

/// Whether the server said no for sure: what was asked for was not made.
const fn is_answer(error: &ApiError) -> bool {
    !error.is_transient() && !matches!(error, ApiError::Unreadable { .. })
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
