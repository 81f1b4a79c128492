//! A running operator and its requests to the API server.

use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_clock::{Clock, SystemClock};
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use lanyard_operator::{LeaseSettings, Operator, OperatorSettings};
use lanyard_telemetry::{MetricsPage, Readiness};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::api_request_monitor::ApiRequestMonitor;
use super::relay::TcpRelay;
use crate::api_server::DynamicKind;
use crate::suites::operator::operator_account::{
    OPERATOR_ACCOUNT, OPERATOR_USER, grant_role_permissions,
};
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::waiting::{DEFAULT_TIMEOUT, POLL_INTERVAL, eventually, sleep};

/// An operator that runs in this process.
pub(super) struct RunningOperator {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    request_monitor: ApiRequestMonitor,
    metrics_page: MetricsPage,
}

/// The connection between an operator and the API server.
enum ApiRoute<'a> {
    /// A direct connection.
    Direct,
    /// A connection through a relay.
    ViaRelay(&'a TcpRelay),
    /// A connection through a relay, api by the product's own client.
    ViaRelayAsBinary(&'a TcpRelay),
}

impl RunningOperator {
    /// Starts an operator with the permissions of its role.
    pub(super) async fn start(
        fixture: &OperatorTrialFixture,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::start_after(fixture, change, async || Ok(())).await
    }

    /// Starts an operator, and creates a HostedCluster that it reconciles.
    pub(super) async fn start_with_cluster(fixture: &OperatorTrialFixture) -> Result<Self, Failed> {
        let running = Self::start(fixture, |_| ()).await?;
        fixture.create_cluster(|_| ()).await?;
        fixture.wait_until_reconciled().await?;
        Ok(running)
    }

    /// Starts an operator that connects through a relay.
    pub(super) async fn start_via_relay(
        fixture: &OperatorTrialFixture,
        relay: &TcpRelay,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::start_on_route(fixture, change, async || Ok(()), ApiRoute::ViaRelay(relay)).await
    }

    /// Starts an operator that connects through a relay with the product's own client. Its requests are
    /// visible only in its metrics.
    pub(super) async fn start_via_relay_as_binary(
        fixture: &OperatorTrialFixture,
        relay: &TcpRelay,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::start_on_route(fixture, change, async || Ok(()), ApiRoute::ViaRelayAsBinary(relay))
            .await
    }

    /// Starts an operator, and runs `between` after the permissions were granted.
    pub(super) async fn start_after(
        fixture: &OperatorTrialFixture,
        change: impl FnOnce(&mut OperatorSettings),
        between: impl AsyncFnOnce() -> Result<(), Failed>,
    ) -> Result<Self, Failed> {
        Self::start_on_route(fixture, change, between, ApiRoute::Direct).await
    }

    async fn start_on_route(
        fixture: &OperatorTrialFixture,
        change: impl FnOnce(&mut OperatorSettings),
        between: impl AsyncFnOnce() -> Result<(), Failed>,
        route: ApiRoute<'_>,
    ) -> Result<Self, Failed> {
        let mut settings = OperatorSettings {
            workers: 4,
            service_account: Some(OPERATOR_ACCOUNT.parse()?),
            ..OperatorSettings::default()
        };
        change(&mut settings);
        grant_role_permissions(&fixture.client, &fixture.namespace, settings.role).await?;
        between().await?;
        let monitor = ApiRequestMonitor::default();
        let api = match route {
            ApiRoute::Direct => {
                monitor.connect(&fixture.plane.kubeconfig_path(OPERATOR_USER)).await?
            }
            ApiRoute::ViaRelay(relay) => {
                monitor.connect(&relay.write_kubeconfig(&fixture.plane)?).await?
            }
            ApiRoute::ViaRelayAsBinary(relay) => {
                let access = ApiAccess::Kubeconfig(relay.write_kubeconfig(&fixture.plane)?);
                let agent = UserAgent::from_static("lanyard-operator/trial");
                KubernetesApi::connect(&access, agent, SystemClock::shared()).await?
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let operator = Operator::new(api, settings, &Readiness::default());
        let page = MetricsPage::build(|registry| operator.register(registry));
        let task = tokio::spawn(operator.run(async move { drop(stopped.await) }));
        Ok(Self { stop: Some(stop), task, request_monitor: monitor, metrics_page: page })
    }

    /// The samples of metrics whose name begins with `metrics`.
    pub(super) fn metric_lines(&self, metrics: &str) -> String {
        let page = self.metrics_page.render();
        let lines = page.lines().filter(|line| line.starts_with(metrics));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The writes whose path contains `part`.
    pub(super) fn writes_to(&self, part: &str) -> Vec<String> {
        self.request_monitor.writes_to(part)
    }

    /// Discards the recorded requests.
    pub(super) fn clear_requests(&self) {
        self.request_monitor.clear();
    }

    /// The monitor of its requests, which outlives the operator.
    pub(super) fn requests(&self) -> ApiRequestMonitor {
        self.request_monitor.clone()
    }

    /// Blocks or unblocks its requests. Blocked requests get no response.
    pub(super) fn set_disconnected(&self, cut: bool) {
        self.request_monitor.set_disconnected(cut);
    }

    /// Stops the operator gracefully.
    pub(super) async fn stop(mut self) -> Result<(), Failed> {
        if let Some(stop) = self.stop.take() {
            stop.send(()).ok();
        }
        (&mut self.task).await?;
        Ok(())
    }
}

impl Drop for RunningOperator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lease settings for trials, with a short duration.
pub(super) fn lease_settings(
    fixture: &OperatorTrialFixture,
    identity: &str,
    shards: u32,
) -> LeaseSettings {
    LeaseSettings {
        namespace: fixture.namespace.clone(),
        name: "lanyard-operator".to_owned(),
        identity: identity.to_owned(),
        shards,
        duration: LEASE_DURATION,
    }
}

impl OperatorTrialFixture {
    /// The control plane namespace of the example.
    pub(super) fn control_plane_namespace(&self) -> String {
        format!("{}-harbour", self.namespace)
    }

    /// Creates the example after applying `change`.
    pub(super) async fn create_cluster(
        &self,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), Failed> {
        let mut cluster = self.hosted_cluster();
        change(&mut cluster);
        let clusters = self.dynamic_api(&DynamicKind::hosted_cluster());
        clusters.create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
        Ok(())
    }

    /// Patches the example as a kubectl user would.
    pub(super) async fn patch_cluster(&self, patch: Value) -> Result<(), Failed> {
        let parameters =
            PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
        let clusters = self.dynamic_api(&DynamicKind::hosted_cluster());
        clusters.patch("harbour", &parameters, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The API of a kind in the control plane namespace.
    pub(super) fn control_plane_api(&self, kind: &DynamicKind) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            &self.control_plane_namespace(),
            kind.api_resource(),
        )
    }

    /// The number of objects of a kind in the control plane namespace.
    pub(super) async fn count_objects(&self, kind: &DynamicKind) -> Result<usize, Failed> {
        Ok(self.control_plane_api(kind).list(&ListParams::default()).await?.items.len())
    }

    /// Reads the HostedCluster.
    pub(super) async fn read_cluster(&self) -> Result<Value, Failed> {
        let cluster = self.dynamic_api(&DynamicKind::hosted_cluster()).get("harbour").await?;
        Ok(serde_json::to_value(cluster)?)
    }

    /// Reads its HostedClusterIdentities; null if it does not exist.
    pub(super) async fn read_identities(&self) -> Result<Value, Failed> {
        let identities =
            self.dynamic_api(&DynamicKind::hosted_cluster_identities()).get_opt("harbour").await?;
        Ok(identities.map(serde_json::to_value).transpose()?.unwrap_or_default())
    }

    /// Waits until the example's objects and its HostedClusterIdentities exist.
    pub(super) async fn wait_until_reconciled(&self) -> Result<(), Failed> {
        eventually("nine classes, ten deployments and a status", async || {
            let classes = self.count_objects(&class_kind()).await?;
            let deployments = self.count_objects(&deployment_kind()).await?;
            let identities =
                self.read_identities().await?["status"]["identities"].as_array().map(Vec::len);
            Ok(classes == 9 && deployments >= 9 && identities == Some(9))
        })
        .await
    }

    /// Creates the pod of a ready canary with a report.
    pub(super) async fn create_ready_canary(
        &self,
        pods: &DynamicKind,
        name: &str,
        component: &str,
        facts: &Value,
    ) -> Result<(), Failed> {
        let deployment = name.trim_end_matches("-0");
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.control_plane_namespace(),
                "labels": {
                    "hypershift.openshift.io/hosted-control-plane": self.control_plane_namespace(),
                    "lanyard.dev/component": component,
                },
                "annotations": {"lanyard.dev/canary-facts": facts.to_string()},
                "ownerReferences": [{
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": deployment,
                    "uid": "2b6a7a3e-0d5c-4a92-8a52-8d7d8a4a1a11",
                    "controller": true,
                }],
            },
            "spec": {
                "containers": [{"name": "canary", "image": "x", "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "runAsNonRoot": true,
                    "seccompProfile": {"type": "RuntimeDefault"},
                }}],
                "volumes": [{"name": "credential", "csi": {
                    "driver": "secrets-store.csi.k8s.io",
                    "readOnly": true,
                    "volumeAttributes": {"secretProviderClass": "managed-azure-disk-csi"},
                }}],
            },
        });
        let api = self.control_plane_api(pods);
        api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "canary", "image": "x", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        }});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Creates the disk driver's canary, which reports that its application is gone.
    pub(super) async fn create_broken_canary(&self) -> Result<(), Failed> {
        let facts = json!({
            "component": "disk",
            "lastGoodHop": "credential",
            "failure": {
                "hop": "entra-token",
                "code": "AADSTS700016",
                "message": "the application is gone",
                "hint": "create it again",
                "since": "2026-01-01T00:00:00Z",
            },
        });
        let pods = DynamicKind::from_names("", "v1", "Pod", "pods");
        self.create_ready_canary(&pods, "azure-disk-csi-driver-controller-0", "disk", &facts).await
    }

    /// Deletes the example, if the trial has not.
    pub(super) async fn delete_cluster(&self) -> Result<(), Failed> {
        let clusters = self.dynamic_api(&DynamicKind::hosted_cluster());
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        if clusters.get_opt("harbour").await?.is_some() {
            clusters.delete("harbour", &DeleteParams::default()).await?;
        }
        if clusters.get_opt("harbour").await?.is_some() {
            clusters.patch("harbour", &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

pub(super) fn class_kind() -> DynamicKind {
    DynamicKind::from_names(
        "secrets-store.csi.x-k8s.io",
        "v1",
        "SecretProviderClass",
        "secretproviderclasses",
    )
}

pub(super) fn deployment_kind() -> DynamicKind {
    DynamicKind::from_names("apps", "v1", "Deployment", "deployments")
}

pub(super) fn config_map_kind() -> DynamicKind {
    DynamicKind::from_names("", "v1", "ConfigMap", "configmaps")
}

/// Waits until an operator has not written to a path for `QUIET_TIME`.
pub(super) async fn wait_until_quiet(running: &RunningOperator, part: &str) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let mut count = running.writes_to(part).len();
    let mut quiet = began;
    while clock.monotonic().saturating_sub(quiet) < QUIET_TIME {
        sleep(POLL_INTERVAL).await;
        let now = running.writes_to(part).len();
        if now != count {
            (count, quiet) = (now, clock.monotonic());
        }
        if clock.monotonic().saturating_sub(began) > DEFAULT_TIMEOUT {
            return Err(format!(
                "the operator did not settle; last write: {:?}",
                running.writes_to(part).last()
            )
            .into());
        }
    }
    Ok(())
}

pub(super) const LEASE_DURATION: Duration = Duration::from_secs(3);
const QUIET_TIME: Duration = Duration::from_secs(2);

/// Makes a HostedCluster invalid: two identities have one secret. The schema accepts it, but the operator's
/// validation does not.
pub(super) fn use_secret_twice(cluster: &mut Value) {
    let identities =
        "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/controlPlane";
    if let Some(identities) = cluster.pointer_mut(identities) {
        let secret = identities["disk"]["credentialsSecretName"].clone();
        identities["file"]["credentialsSecretName"] = secret;
    }
}
