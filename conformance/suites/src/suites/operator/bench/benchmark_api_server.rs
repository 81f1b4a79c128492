//! The API server of the benchmark, with an audit log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{ControlPlane, ControlPlaneOptions};
use lanyard_desired::OwnedKind;
use lanyard_operator::{Operator, OperatorRole, OperatorSettings};
use lanyard_telemetry::Readiness;
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::audit_log::{ApiServerAuditLog, with_audit_log};
use super::fleet::{HostedClusterFleet, NAMESPACE, referenced_secret};
use super::operator_process::OperatorProcess;
use super::write_script::{WRITE_LOOP_NAMESPACE, WriteRecorder, WriteScript};
use crate::api_server::{DynamicKind, create_namespace, install_definitions, user_client};
use crate::suites::operator::operator_account::{
    OPERATOR_ACCOUNT, OPERATOR_USER, grant_role_permissions,
};
use crate::waiting::eventually;

/// The inputs for starting a control plane.
#[derive(Debug, Clone)]
pub(crate) struct ControlPlaneInputs {
    pub(crate) control_plane_options: ControlPlaneOptions,
    pub(crate) definitions: Arc<Vec<CustomResourceDefinition>>,
    /// The example of a HostedCluster.
    pub(crate) example: Arc<Value>,
    /// The path of the lanyard program.
    pub(crate) lanyard_program: PathBuf,
}

/// An API server with the operator's kinds, permissions and namespaces.
pub(super) struct BenchmarkApiServer {
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
    pub(super) audit_log: ApiServerAuditLog,
    lanyard_program: PathBuf,
    /// Dropped last, because it contains the audit log.
    directory: TempDir,
}

impl BenchmarkApiServer {
    pub(super) async fn start(inputs: &ControlPlaneInputs) -> Result<Self, Failed> {
        let directory = TempDir::with_prefix("ly-bench-")?;
        let options = inputs
            .control_plane_options
            .clone()
            .with_user(OPERATOR_USER)
            .with_user(WRITE_LOOP_USER);
        let users = [OPERATOR_USER, WRITE_LOOP_USER];
        let (options, log) = with_audit_log(options, directory.path(), &users)?;
        let plane = ControlPlane::start(options).await?;
        let client = user_client(&plane, ControlPlane::ADMINISTRATOR).await?;
        install_definitions(&client, &inputs.definitions).await?;
        install_definitions(&client, &cluster_api_definitions()?).await?;
        for namespace in [NAMESPACE, WRITE_LOOP_NAMESPACE, LEASE_NAMESPACE] {
            create_namespace(&client, namespace).await?;
        }
        create_referenced_secret(&client).await?;
        grant_role_permissions(&client, LEASE_NAMESPACE, OperatorRole::All).await?;
        let binding = json!({
            "metadata": {"name": WRITE_LOOP_USER},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
            },
            "subjects": [{
                "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": WRITE_LOOP_USER,
            }],
        });
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        wait_until_administrator(&client, WRITE_LOOP_USER).await?;
        let (audit, lanyard) = (ApiServerAuditLog::open(log), inputs.lanyard_program.clone());
        Ok(Self { plane, client, audit_log: audit, lanyard_program: lanyard, directory })
    }

    /// Starts the operator as a process.
    pub(super) fn start_operator(&self) -> Result<OperatorProcess, Failed> {
        let log = self.directory.path().join("operator.log");
        OperatorProcess::start(
            &self.lanyard_program,
            &self.plane.kubeconfig_path(OPERATOR_USER),
            log,
            LEASE_NAMESPACE,
        )
    }

    /// The kubeconfig of the write loop, which may write everything and is subject to API priority and
    /// fairness like any user.
    pub(super) fn write_loop_kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig_path(WRITE_LOOP_USER)
    }

    /// Creates the HostedClusters with these numbers.
    pub(super) async fn create_clusters(
        &self,
        fleet: &HostedClusterFleet,
        numbers: impl Iterator<Item = usize>,
    ) -> Result<(), Failed> {
        let mut making = JoinSet::new();
        for number in numbers {
            if making.len() >= PARALLEL_CREATES {
                join_result(making.join_next().await)?;
            }
            let api = self.hosted_cluster_api();
            let member: DynamicObject = serde_json::from_value(fleet.hosted_cluster(number)?)?;
            making.spawn(async move { api.create(&PostParams::default(), &member).await });
        }
        while let Some(created) = making.join_next().await {
            join_result(Some(created))?;
        }
        Ok(())
    }

    /// The API of the HostedClusters.
    pub(super) fn hosted_cluster_api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            NAMESPACE,
            DynamicKind::hosted_cluster().api_resource(),
        )
    }

    /// Deletes the statuses that the write loop wrote, because the operator would treat them as its own.
    pub(super) async fn delete_write_loop_statuses(&self) -> Result<(), Failed> {
        let kind = DynamicKind::hosted_cluster_identities();
        let api = Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            WRITE_LOOP_NAMESPACE,
            kind.api_resource(),
        );
        drop(api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?);
        Ok(())
    }
}

/// The CRDs of the kinds of Cluster API that the operator writes. In production, Cluster API installs them.
fn cluster_api_definitions() -> Result<Vec<CustomResourceDefinition>, Failed> {
    let kinds = [OwnedKind::AzureClusterIdentity, OwnedKind::AzureCluster];
    kinds.into_iter().map(cluster_api_definition).collect()
}

fn cluster_api_definition(kind: OwnedKind) -> Result<CustomResourceDefinition, Failed> {
    let facts = kind.info();
    let (group, version) = facts.api_version.split_once('/').unwrap_or_default();
    let definition = json!({
        "metadata": {"name": format!("{}.{group}", facts.plural)},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": facts.kind, "plural": facts.plural},
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

async fn create_referenced_secret(client: &Client) -> Result<(), Failed> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &serde_json::from_value(referenced_secret())?).await?;
    Ok(())
}

fn join_result(
    created: Option<Result<Result<DynamicObject, kube::Error>, tokio::task::JoinError>>,
) -> Result<(), Failed> {
    match created {
        Some(created) => created?.map(drop).map_err(Failed::from),
        None => Ok(()),
    }
}

/// Records the writes of an operator in this process for one HostedCluster on a separate API server.
pub(super) async fn record_write_script(
    inputs: &ControlPlaneInputs,
    quiet: Duration,
) -> Result<WriteScript, Failed> {
    let plane = ControlPlane::start(inputs.control_plane_options.clone()).await?;
    let client = user_client(&plane, ControlPlane::ADMINISTRATOR).await?;
    install_definitions(&client, &inputs.definitions).await?;
    install_definitions(&client, &cluster_api_definitions()?).await?;
    create_namespace(&client, NAMESPACE).await?;
    create_referenced_secret(&client).await?;
    let recorder = WriteRecorder::default();
    let settings = OperatorSettings {
        reporting_instance: "lanyard-operator".to_owned(),
        service_account: Some(OPERATOR_ACCOUNT.parse()?),
        ..OperatorSettings::default()
    };
    let api = recorder.recording_api(&plane).await?;
    let operator = Operator::new(api, settings, &Readiness::default());
    let mut running = JoinSet::new();
    running.spawn(operator.run(std::future::pending()));
    let member = serde_json::from_value(
        HostedClusterFleet::from_template(&inputs.example).hosted_cluster(0)?,
    )?;
    let kind = DynamicKind::hosted_cluster();
    let clusters = Api::<DynamicObject>::namespaced_with(client, NAMESPACE, kind.api_resource());
    clusters.create(&PostParams::default(), &member).await?;
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + RECORD_TIMEOUT;
    let mut length = 0;
    loop {
        clock.sleep(quiet).await;
        let script = recorder.recorded_script();
        if script.len() == length && length > 0 {
            running.shutdown().await;
            return Ok(script);
        }
        if clock.monotonic() > deadline {
            return Err("the operator did not settle with one cluster".into());
        }
        length = script.len();
    }
}

/// The namespace of the operator's leases.
const LEASE_NAMESPACE: &str = "lanyard-operator";
/// The user of the write loop.
const WRITE_LOOP_USER: &str = "plain-loop";
/// The number of HostedClusters that are created in parallel.
const PARALLEL_CREATES: usize = 16;
const RECORD_TIMEOUT: Duration = Duration::from_mins(1);

/// Waits until the authorizer, which learns of bindings through a watch, allows the user everything.
async fn wait_until_administrator(client: &Client, user: &str) -> Result<(), Failed> {
    let attributes = json!({"group": "*", "resource": "*", "verb": "*"});
    let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
    let review: SubjectAccessReview = serde_json::from_value(review)?;
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    eventually("the binding of the administrator is in force", async || {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    })
    .await
}
