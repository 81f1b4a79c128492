//! What is measured on: an API server that tells who asked what.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{ControlPlane, ControlPlaneOptions};
use lanyard_desired::OwnedKind;
use lanyard_operator::{Operator, OperatorSettings, Role};
use lanyard_telemetry::Readiness;
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::audit::{AuditLog, audited};
use super::fleet::{Fleet, NAMESPACE};
use super::process::OperatorProcess;
use super::script::{PEER_NAMESPACE, Recorder, Script};
use crate::api_server::{Kind, client, install, make_namespace};
use crate::suites::operator::{OPERATOR, grant};

/// What is at hand.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) programs: ControlPlaneOptions,
    pub(crate) definitions: Arc<Vec<CustomResourceDefinition>>,
    /// The example of a HostedCluster.
    pub(crate) example: Arc<Value>,
    /// The program lanyard.
    pub(crate) lanyard: PathBuf,
}

/// An API server with the kinds of the operator, its rights and its namespaces.
pub(super) struct Stage {
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
    pub(super) audit: AuditLog,
    lanyard: PathBuf,
    /// Goes last: the log is in it.
    directory: TempDir,
}

impl Stage {
    pub(super) async fn prepare(ground: &Ground) -> Result<Self, Failed> {
        let directory = TempDir::with_prefix("ly-bench-")?;
        let options = ground.programs.clone().user(OPERATOR).user(PEER_USER);
        let users = [OPERATOR, PEER_USER];
        let (options, log) = audited(options, directory.path(), &users)?;
        let plane = ControlPlane::start(options).await?;
        let client = client(&plane, ControlPlane::ADMINISTRATOR).await?;
        install(&client, &ground.definitions).await?;
        install(&client, &[cluster_api()?]).await?;
        for namespace in [NAMESPACE, PEER_NAMESPACE, OPERATOR] {
            make_namespace(&client, namespace).await?;
        }
        grant(&client, OPERATOR, Role::All).await?;
        let binding = json!({
            "metadata": {"name": PEER_USER},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
            },
            "subjects": [{
                "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": PEER_USER,
            }],
        });
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        let (audit, lanyard) = (AuditLog::at(log), ground.lanyard.clone());
        Ok(Self { plane, client, audit, lanyard, directory })
    }

    /// The operator as a process of its own.
    pub(super) fn start_operator(&self) -> Result<OperatorProcess, Failed> {
        let log = self.directory.path().join("operator.log");
        OperatorProcess::start(&self.lanyard, &self.plane.kubeconfig(OPERATOR), log, OPERATOR)
    }

    /// The file with which the peer signs in. It may do everything, and its requests wait in line like
    /// everybody's.
    pub(super) fn peers_kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig(PEER_USER)
    }

    /// Makes HostedClusters of these numbers.
    pub(super) async fn make_clusters(
        &self,
        fleet: &Fleet,
        numbers: impl Iterator<Item = usize>,
    ) -> Result<(), Failed> {
        let mut making = JoinSet::new();
        for number in numbers {
            if making.len() >= MAKERS {
                joined(making.join_next().await)?;
            }
            let api = self.clusters();
            let member: DynamicObject = serde_json::from_value(fleet.member(number)?)?;
            making.spawn(async move { api.create(&PostParams::default(), &member).await });
        }
        while let Some(made) = making.join_next().await {
            joined(Some(made))?;
        }
        Ok(())
    }

    /// The HostedClusters.
    pub(super) fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, Kind::hosted_cluster().resource())
    }

    /// Takes away what the operator would take for its own, though it is the peer's.
    pub(super) async fn clear_after_peer(&self) -> Result<(), Failed> {
        let kind = Kind::hosted_cluster_identities();
        let api = Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            PEER_NAMESPACE,
            kind.resource(),
        );
        drop(api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?);
        Ok(())
    }
}

/// The one kind of Cluster API that the operator writes: its definition comes with that.
fn cluster_api() -> Result<CustomResourceDefinition, Failed> {
    let facts = OwnedKind::AzureClusterIdentity.facts();
    let (group, version) = facts.api_version.split_once('/').unwrap_or_default();
    let definition = json!({
        "metadata": {"name": format!("{}.{group}", facts.plural)},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": facts.kind, "plural": facts.plural, "singular": "azureclusteridentity"},
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    Ok(serde_json::from_value(definition)?)
}

fn joined(
    made: Option<Result<Result<DynamicObject, kube::Error>, tokio::task::JoinError>>,
) -> Result<(), Failed> {
    match made {
        Some(made) => made?.map(drop).map_err(Failed::from),
        None => Ok(()),
    }
}

/// Has an operator of this process look at one cluster, at an API server of its own, and writes down
/// what it writes.
pub(super) async fn rehearse(ground: &Ground, quiet: Duration) -> Result<Script, Failed> {
    let plane = ControlPlane::start(ground.programs.clone()).await?;
    let client = client(&plane, ControlPlane::ADMINISTRATOR).await?;
    install(&client, &ground.definitions).await?;
    install(&client, &[cluster_api()?]).await?;
    make_namespace(&client, NAMESPACE).await?;
    let recorder = Recorder::default();
    let settings =
        OperatorSettings { instance: OPERATOR.to_owned(), ..OperatorSettings::default() };
    let api = recorder.api(&plane).await?;
    let operator = Operator::new(api, settings, &Readiness::default());
    let mut running = JoinSet::new();
    running.spawn(operator.run(std::future::pending()));
    let member = serde_json::from_value(Fleet::like(&ground.example).member(0)?)?;
    let kind = Kind::hosted_cluster();
    let clusters = Api::<DynamicObject>::namespaced_with(client, NAMESPACE, kind.resource());
    clusters.create(&PostParams::default(), &member).await?;
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + PATIENCE;
    let mut length = 0;
    loop {
        clock.sleep(quiet).await;
        let script = recorder.script();
        if script.len() == length && length > 0 {
            running.shutdown().await;
            return Ok(script);
        }
        if clock.monotonic() > deadline {
            return Err("the operator does not settle with one cluster".into());
        }
        length = script.len();
    }
}

/// Who the peer is.
const PEER_USER: &str = "plain-loop";
/// How many HostedClusters are made at once.
const MAKERS: usize = 16;
const PATIENCE: Duration = Duration::from_mins(1);
