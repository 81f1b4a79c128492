//! The suite `interop`: drivers and providers of the Secrets Store project with lanyard's provider and
//! driver.

mod case_fixture;
mod provider_parity;
mod upstream_drivers;
mod upstream_providers;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use lanyard_cluster::LocalClusterPlan;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use self::case_fixture::InteropCaseFixture;
use super::failed_with_causes;
use crate::azure_target::LocalAzureTarget;
use crate::driver_processes::InClusterAccess;
use crate::kubectl::KubectlError;
use crate::suite_cluster::SuiteCluster;
use crate::volume::UNMANAGED_NODE_NAME;

/// The fixture of the suite `interop`.
#[derive(Debug)]
pub(crate) struct InteropSuiteFixture {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) azure: Arc<LocalAzureTarget>,
    pub(crate) programs: InteropPrograms,
}

/// The programs of both sides.
#[derive(Debug)]
pub(crate) struct InteropPrograms {
    pub(crate) lanyard: PathBuf,
    pub(crate) driver_1_5: PathBuf,
    pub(crate) driver_1_6: PathBuf,
    pub(crate) azure_provider: PathBuf,
    pub(crate) mock_provider: PathBuf,
}

/// The namespace of every object of the suite.
const NAMESPACE: &str = "interop";

/// The name of upstream's Azure provider. Lanyard's provider is named `azure`.
const UPSTREAM_PROVIDER_NAME: &str = "azure-upstream";

pub(crate) fn trials(fixture: InteropSuiteFixture) -> Vec<Trial> {
    let fixture = Arc::new(fixture);
    let mut trials = provider_parity::trials(&fixture);
    trials.extend(upstream_drivers::trials(&fixture));
    trials.extend(upstream_providers::trials(&fixture));
    trials
}

/// A trial that runs on the suite's runtime.
fn trial(
    name: String,
    fixture: &Arc<InteropSuiteFixture>,
    run: impl AsyncFnOnce(&InteropSuiteFixture) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let fixture = Arc::clone(fixture);
    Trial::test(name, move || fixture.suite_cluster.runtime.block_on(run(&fixture)))
}

impl InteropSuiteFixture {
    /// Creates the namespace of the suite, with the chart's CRDs and a Node object.
    pub(crate) fn prepare(&self, crds: &str) -> Result<(), KubectlError> {
        let kubectl = &self.suite_cluster.kubectl;
        kubectl.create_namespace_with_definitions(NAMESPACE, crds)?;
        // The garbage collector deletes pods of nodes that do not exist.
        kubectl.apply(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": UNMANAGED_NODE_NAME } }))
    }

    /// Address and credentials of the API server for a pod of the suite, with administrator permissions.
    fn in_cluster_access(&self) -> Result<InClusterAccess, Failed> {
        let (kubectl, directory) = (&self.suite_cluster.kubectl, self.suite_cluster.directory());
        let account = format!("system:serviceaccounts:{NAMESPACE}");
        kubectl.apply(&admin_binding(&account)).map_err(failed_with_causes)?;
        let (token, authority) = (directory.join("token"), directory.join("ca.crt"));
        let text = kubectl.run(&["create", "token", "default", "--namespace", NAMESPACE]);
        fs::write(&token, text.map_err(failed_with_causes)?.trim()).map_err(failed_with_causes)?;
        let trusted = ["configmap", "kube-root-ca.crt", "--namespace", NAMESPACE];
        let trusted = kubectl.get_json(&trusted).map_err(failed_with_causes)?;
        let pem = trusted["data"]["ca.crt"].as_str().ok_or("the cluster names no authority")?;
        fs::write(&authority, pem).map_err(failed_with_causes)?;
        let port = self.suite_cluster.cluster.plan().ports.api_server;
        Ok(InClusterAccess {
            host: LocalClusterPlan::LOOPBACK_ADDRESS.to_string(),
            port,
            token,
            authority,
        })
    }

    /// A directory for the sockets and logs of a case.
    fn case_fixture(&self, name: &str) -> Result<InteropCaseFixture<'_>, Failed> {
        InteropCaseFixture::new(self, name)
    }
}

/// Binds `cluster-admin`, because upstream's driver needs several roles and this suite does not test them.
fn admin_binding(group: &str) -> Value {
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
