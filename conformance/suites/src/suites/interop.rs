//! The programs of the Secrets Store project on one side of a socket, ours on the other.

mod parity;
mod stack;
mod under_ours;
mod under_theirs;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use lanyard_cluster::Plan;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use self::stack::Stack;
use super::chain;
use crate::ground::Local;
use crate::kubectl::KubectlError;
use crate::peers::{InCluster, NODE};
use crate::site::Site;

/// Everything that the trials of this suite need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) site: Arc<Site>,
    pub(crate) azure: Arc<Local>,
    pub(crate) programs: Programs,
}

/// The programs on the two sides.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) lanyard: PathBuf,
    pub(crate) driver_1_5: PathBuf,
    pub(crate) driver_1_6: PathBuf,
    pub(crate) azure_provider: PathBuf,
    pub(crate) mock_provider: PathBuf,
}

/// The namespace of every object of the suite.
const NAMESPACE: &str = "interop";

/// The name under which upstream's Azure provider listens where `azure` is ours.
const UPSTREAM: &str = "azure-upstream";

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    let mut trials = parity::trials(&stage);
    trials.extend(under_theirs::trials(&stage));
    trials.extend(under_ours::trials(&stage));
    trials
}

/// A trial on processes of its own.
fn trial(
    name: String,
    stage: &Arc<Stage>,
    run: impl AsyncFnOnce(&Stage) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let stage = Arc::clone(stage);
    Trial::test(name, move || stage.site.runtime.block_on(run(&stage)))
}

impl Stage {
    /// The namespace of the suite, with the CRDs of the chart.
    pub(crate) fn prepare(&self, crds: &str) -> Result<(), KubectlError> {
        let kubectl = &self.site.kubectl;
        kubectl.found(NAMESPACE, crds)?;
        // Pods of a node that does not exist are collected.
        kubectl.apply(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } }))
    }

    /// What a pod of the suite would have to speak to the API as anybody.
    fn in_cluster(&self) -> Result<InCluster, Failed> {
        let (kubectl, directory) = (&self.site.kubectl, self.site.directory());
        let account = format!("system:serviceaccounts:{NAMESPACE}");
        kubectl.apply(&binding(&account)).map_err(chain)?;
        let (token, authority) = (directory.join("token"), directory.join("ca.crt"));
        let text = kubectl.run(&["create", "token", "default", "--namespace", NAMESPACE]);
        fs::write(&token, text.map_err(chain)?.trim()).map_err(chain)?;
        let trusted = ["configmap", "kube-root-ca.crt", "--namespace", NAMESPACE];
        let trusted = kubectl.read(&trusted).map_err(chain)?;
        let pem = trusted["data"]["ca.crt"].as_str().ok_or("the cluster names no authority")?;
        fs::write(&authority, pem).map_err(chain)?;
        let port = self.site.cluster.plan().ports.api_server;
        Ok(InCluster { host: Plan::ADDRESS.to_string(), port, token, authority })
    }

    /// A place for sockets and logs of a case.
    fn stack(&self, name: &str) -> Result<Stack<'_>, Failed> {
        Stack::new(self, name)
    }
}

/// Upstream's driver wants more than one role; which it needs is not the question here.
fn binding(group: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": "interop" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [
            { "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group },
        ],
    })
}
