//! The stand-in for the Deployment controller and the kubelet: a pod of each Deployment, on a node
//! of our own, whose volumes are mounted and whose canary runs in this process.

mod keeper;
mod maker;

use std::path::PathBuf;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use lanyard_azure::Transport;
use lanyard_credential::TokenTransport;
use lanyard_desired::objects::{CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL};
use lanyard_kubelet::Kubelet;
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};
use tokio::sync::watch;

use super::ReadCanary;
use super::board::Board;
use super::ledger::RUN;
use keeper::Keeper;
use maker::Maker;

/// What the stand-in works with.
#[derive(Debug, Clone)]
pub(super) struct PodsParts {
    /// The API as the stand-in reaches it.
    pub(super) api: KubernetesApi,
    /// The API as canaries reach it.
    pub(super) canary_api: KubernetesApi,
    pub(super) board: Board,
    pub(super) kubelet: Kubelet,
    /// The kubelet's directory.
    pub(super) directory: PathBuf,
    /// The namespace of the control plane.
    pub(super) namespace: String,
    pub(super) marks: Marks,
    /// The canaries' way to Azure.
    pub(super) transport: Transport,
    /// The canaries' way to Entra.
    pub(super) token_transport: TokenTransport,
    pub(super) read_canary: ReadCanary,
}

/// By what our pods and our Deployments are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marks {
    /// What the operator's objects for the HostedCluster are labelled with.
    pub(super) cluster: String,
    /// What this run's objects are labelled with.
    pub(super) run: String,
    /// The name of our node.
    pub(super) node: String,
}

impl Marks {
    /// Whether the operator made a Deployment for our HostedCluster.
    fn has_deployment(&self, deployment: &Deployment) -> bool {
        let label = |key: &str| deployment.labels().get(key).map(String::as_str);
        label(MANAGED_BY_LABEL) == Some(MANAGED_BY) && label(CLUSTER_LABEL) == Some(&self.cluster)
    }

    /// Whether a pod is on our node, whoever made it.
    fn has_node_of(&self, pod: &Pod) -> bool {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&self.node)
    }

    /// Whether this run made a pod.
    fn has_pod(&self, pod: &Pod) -> bool {
        self.has_node_of(pod) && pod.labels().get(RUN) == Some(&self.run)
    }

    /// Whether this run made a pod of one of these Deployments, and that is one of ours. Nobody
    /// else's is served, wherever it says that it is to run.
    fn serves<'a>(&self, pod: &Pod, deployments: impl IntoIterator<Item = &'a Deployment>) -> bool {
        let mut deployments = deployments.into_iter();
        self.has_pod(pod) && deployments.any(|it| self.has_deployment(it) && is_of(pod, it))
    }
}

impl PodsParts {
    /// Works until the end begins. Then canaries end; volumes are the kubelet's.
    pub(super) async fn run(self, end: watch::Receiver<bool>) {
        // A call of one never delays the other.
        tokio::join!(Maker::new(self.clone()).run(end.clone()), Keeper::new(self).run(end));
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api.client().clone(), &self.namespace)
    }

    async fn delete(&self, pod: &Pod, grace: Option<u32>) -> Result<(), ApiError> {
        let name = pod.name_any();
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams {
            preconditions: Some(preconditions),
            grace_period_seconds: grace,
            ..DeleteParams::background()
        };
        let pods = self.pods();
        let delete = || pods.delete(&name, &parameters);
        self.api.find(Patience::ONE_TRY, format!("delete pod {name}"), delete).await?;
        Ok(())
    }
}

/// Whether a Deployment controls a pod.
fn is_of(pod: &Pod, deployment: &Deployment) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(super) fn marks() -> Marks {
        Marks { cluster: "harbour".to_owned(), run: "r".to_owned(), node: "node".to_owned() }
    }

    pub(super) fn deployment(change: impl FnOnce(&mut Value)) -> Deployment {
        let mut value = json!({
            "metadata": {
                "name": "disk",
                "namespace": "n",
                "uid": "d",
                "labels": {(MANAGED_BY_LABEL): MANAGED_BY, (CLUSTER_LABEL): "harbour"},
            },
            "spec": {
                "paused": true,
                "replicas": 1,
                "selector": {},
                "template": {
                    "metadata": {"labels": {"app": "disk"}},
                    "spec": {"containers": [{"name": "c"}]},
                },
            },
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut value = json!({
            "metadata": {
                "name": "disk-1",
                "labels": {(RUN): "r"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": "disk", "uid": "d",
                    "controller": true,
                }],
            },
            "spec": {"nodeName": "node", "containers": []},
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_pods_of_this_run_and_of_our_deployments_are_served() {
        type Change = fn(&mut Value);
        let ours = deployment(|_| ());
        assert!(marks().serves(&pod(|_| ()), [&ours]));
        assert!(!marks().serves(&pod(|_| ()), []));
        let others: [(&str, Change); 5] = [
            ("another run", |it| it["metadata"]["labels"][RUN] = json!("other")),
            ("no label", |it| it["metadata"]["labels"] = json!({})),
            ("another node", |it| it["spec"]["nodeName"] = json!("other")),
            ("no owner", |it| it["metadata"]["ownerReferences"] = json!([])),
            ("no controller", |it| {
                it["metadata"]["ownerReferences"][0]["controller"] = json!(false);
            }),
        ];
        for (what, change) in others {
            assert!(!marks().serves(&pod(change), [&ours]), "{what}");
        }
        for label in [MANAGED_BY_LABEL, CLUSTER_LABEL] {
            let other = deployment(|it| it["metadata"]["labels"][label] = json!("other"));
            assert!(!marks().serves(&pod(|_| ()), [&other]), "{label}");
        }
    }
}
