//! An operator that runs, and what it asks of the API server.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_clock::{Clock, SystemClock};
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use lanyard_operator::permissions::{ApiPermission, cluster_permissions, namespace_permissions};
use lanyard_operator::{LeaseSettings, Operator, OperatorSettings};
use lanyard_telemetry::{MetricsPage, Readiness};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::api_request_monitor::ApiRequestMonitor;
use super::relay::TcpRelay;
use crate::api_server::DynamicKind;
use crate::suites::operator::OPERATOR_USER;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::waiting::{DEFAULT_TIMEOUT, POLL_INTERVAL, eventually, sleep};

/// An operator that runs.
pub(super) struct RunningOperator {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    request_monitor: ApiRequestMonitor,
    metrics_page: MetricsPage,
}

/// How an operator reaches the API server.
enum ApiRoute<'a> {
    /// Nothing is between them.
    Direct,
    /// Over a relay.
    ViaRelay(&'a TcpRelay),
    /// Over a relay, with the connections of the binary.
    ViaRelayAsBinary(&'a TcpRelay),
}

impl RunningOperator {
    /// Starts an operator with the rights of its chart.
    pub(super) async fn start(
        world: &OperatorTrialFixture,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::start_after(world, change, async || Ok(())).await
    }

    /// The same over a relay.
    pub(super) async fn start_via_relay(
        world: &OperatorTrialFixture,
        relay: &TcpRelay,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::start_on_route(world, change, async || Ok(()), ApiRoute::ViaRelay(relay)).await
    }

    /// The same with the connections that the binary has: what is asked is counted by metrics alone.
    pub(super) async fn start_via_relay_as_binary(
        world: &OperatorTrialFixture,
        relay: &TcpRelay,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::start_on_route(world, change, async || Ok(()), ApiRoute::ViaRelayAsBinary(relay))
            .await
    }

    /// The same, and something is done between the grant of the rights and the start.
    pub(super) async fn start_after(
        world: &OperatorTrialFixture,
        change: impl FnOnce(&mut OperatorSettings),
        between: impl AsyncFnOnce() -> Result<(), Failed>,
    ) -> Result<Self, Failed> {
        Self::start_on_route(world, change, between, ApiRoute::Direct).await
    }

    async fn start_on_route(
        world: &OperatorTrialFixture,
        change: impl FnOnce(&mut OperatorSettings),
        between: impl AsyncFnOnce() -> Result<(), Failed>,
        way: ApiRoute<'_>,
    ) -> Result<Self, Failed> {
        let mut settings = OperatorSettings { workers: 4, ..OperatorSettings::default() };
        change(&mut settings);
        grant_role_permissions(&world.client, &world.namespace, settings.role).await?;
        between().await?;
        let asked = ApiRequestMonitor::default();
        let api = match way {
            ApiRoute::Direct => asked.connect(&world.plane.kubeconfig_path(OPERATOR_USER)).await?,
            ApiRoute::ViaRelay(relay) => {
                asked.connect(&relay.write_kubeconfig(&world.plane)?).await?
            }
            ApiRoute::ViaRelayAsBinary(relay) => {
                let access = ApiAccess::Kubeconfig(relay.write_kubeconfig(&world.plane)?);
                let agent = UserAgent::from_static("lanyard-operator/trial");
                KubernetesApi::connect(&access, agent, SystemClock::shared()).await?
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let operator = Operator::new(api, settings, &Readiness::default());
        let page = MetricsPage::build(|registry| operator.register(registry));
        let task = tokio::spawn(operator.run(async move { drop(stopped.await) }));
        Ok(Self { stop: Some(stop), task, request_monitor: asked, metrics_page: page })
    }

    /// The lines of some metrics.
    pub(super) fn metric_lines(&self, metrics: &str) -> String {
        let page = self.metrics_page.render();
        let lines = page.lines().filter(|line| line.starts_with(metrics));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What was written about something whose path contains this.
    pub(super) fn writes_to(&self, part: &str) -> Vec<String> {
        self.request_monitor.writes_to(part)
    }

    /// Forgets what was asked until now.
    pub(super) fn clear_requests(&self) {
        self.request_monitor.clear();
    }

    /// What it asks, also after its end.
    pub(super) fn requests(&self) -> ApiRequestMonitor {
        self.request_monitor.clone()
    }

    /// Cuts or mends its way to the API server: what is asked in between gets no answer.
    pub(super) fn set_disconnected(&self, cut: bool) {
        self.request_monitor.set_disconnected(cut);
    }

    /// Ends it as a supervisor does.
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

/// How leases are held in trials: they must end soon.
pub(super) fn lease_settings(
    world: &OperatorTrialFixture,
    identity: &str,
    shards: u32,
) -> LeaseSettings {
    LeaseSettings {
        namespace: world.namespace.clone(),
        name: "lanyard-operator".to_owned(),
        identity: identity.to_owned(),
        shards,
        duration: LEASE_DURATION,
    }
}

/// Gives the operator exactly the rights of its role: those in its own namespace there alone.
pub(crate) async fn grant_role_permissions(
    client: &Client,
    namespace: &str,
    role: lanyard_operator::OperatorRole,
) -> Result<(), Failed> {
    apply_object(&Api::<ClusterRole>::all(client.clone()), role_rules(cluster_permissions(role)))
        .await?;
    let binding = role_binding("ClusterRole");
    apply_object(&Api::<ClusterRoleBinding>::all(client.clone()), binding).await?;
    let roles = Api::<Role>::namespaced(client.clone(), namespace);
    apply_object(&roles, role_rules(namespace_permissions())).await?;
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    apply_object(&bindings, role_binding("Role")).await?;
    wait_until_granted(client, namespace, cluster_permissions(role).chain(namespace_permissions()))
        .await
}

/// The rules of a role that gives these rights.
pub(super) fn role_rules(rights: impl Iterator<Item = &'static ApiPermission>) -> Value {
    let rule = |right: &ApiPermission| {
        json!({
            "apiGroups": [right.group],
            "resources": [right.resource],
            "verbs": right.verbs,
            "resourceNames": right.names,
        })
    };
    json!({"rules": rights.map(rule).collect::<Vec<_>>()})
}

fn role_binding(kind: &str) -> Value {
    json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": OPERATOR_USER},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": OPERATOR_USER}],
    })
}

async fn apply_object<T>(objects: &Api<T>, mut object: Value) -> Result<(), Failed>
where
    T: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    object["apiVersion"] = json!(T::api_version(&()));
    object["kind"] = json!(T::kind(&()));
    object["metadata"] = json!({"name": OPERATOR_USER});
    let parameters = PatchParams::apply("trial").force();
    objects.patch(OPERATOR_USER, &parameters, &Patch::Apply(object)).await?;
    Ok(())
}

/// Waits until the authorizer, which hears of roles by a watch, knows of these rights.
pub(super) async fn wait_until_granted(
    client: &Client,
    namespace: &str,
    rights: impl Iterator<Item = &'static ApiPermission>,
) -> Result<(), Failed> {
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    for right in rights {
        let (resource, subresource) =
            right.resource.split_once('/').unwrap_or((right.resource, ""));
        let review = json!({"spec": {
            "user": OPERATOR_USER,
            "resourceAttributes": {
                "namespace": namespace,
                "group": right.group,
                "resource": resource,
                "subresource": subresource,
                "name": right.names.first(),
                "verb": right.verbs.first(),
            },
        }});
        let review: SubjectAccessReview = serde_json::from_value(review)?;
        eventually(&format!("{right:?} is in force"), async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed))
        })
        .await?;
    }
    Ok(())
}

impl OperatorTrialFixture {
    /// The namespace of the control plane of the example.
    pub(super) fn control_plane_namespace(&self) -> String {
        format!("{}-harbour", self.namespace)
    }

    /// Makes the example, changed.
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

    /// Changes the example as a person with kubectl would.
    pub(super) async fn patch_cluster(&self, patch: Value) -> Result<(), Failed> {
        let parameters =
            PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
        let clusters = self.dynamic_api(&DynamicKind::hosted_cluster());
        clusters.patch("harbour", &parameters, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The objects of a kind in the namespace of the control plane.
    pub(super) fn control_plane_api(&self, kind: &DynamicKind) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            &self.control_plane_namespace(),
            kind.api_resource(),
        )
    }

    /// How many objects of a kind are in the namespace of the control plane.
    pub(super) async fn count_objects(&self, kind: &DynamicKind) -> Result<usize, Failed> {
        Ok(self.control_plane_api(kind).list(&ListParams::default()).await?.items.len())
    }

    /// The HostedCluster as it is.
    pub(super) async fn read_cluster(&self) -> Result<Value, Failed> {
        let cluster = self.dynamic_api(&DynamicKind::hosted_cluster()).get("harbour").await?;
        Ok(serde_json::to_value(cluster)?)
    }

    /// What is told about its identities; null where nothing is.
    pub(super) async fn read_identities(&self) -> Result<Value, Failed> {
        let told =
            self.dynamic_api(&DynamicKind::hosted_cluster_identities()).get_opt("harbour").await?;
        Ok(told.map(serde_json::to_value).transpose()?.unwrap_or_default())
    }

    /// Waits until the example has everything and everything is told.
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

    /// A canary that runs and is ready, and what it tells.
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
        let made = self.control_plane_api(pods);
        made.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "canary", "image": "x", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        }});
        made.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// The canary of the disk driver, which tells that its identity is gone.
    pub(super) async fn create_broken_canary(&self) -> Result<(), Failed> {
        let facts = json!({
            "component": "disk",
            "lastGoodHop": "credential",
            "failure": {
                "hop": "entra-token",
                "code": "AADSTS700016",
                "message": "the application is gone",
                "hint": "make it again",
                "since": "2026-01-01T00:00:00Z",
            },
        });
        let pods = DynamicKind::from_names("", "v1", "Pod", "pods");
        self.create_ready_canary(&pods, "azure-disk-csi-driver-controller-0", "disk", &facts).await
    }

    /// Takes the example away, where a trial has not done so.
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

/// `SecretProviderClass`.
pub(super) fn class_kind() -> DynamicKind {
    DynamicKind::from_names(
        "secrets-store.csi.x-k8s.io",
        "v1",
        "SecretProviderClass",
        "secretproviderclasses",
    )
}

/// `Deployment`.
pub(super) fn deployment_kind() -> DynamicKind {
    DynamicKind::from_names("apps", "v1", "Deployment", "deployments")
}

/// `ConfigMap`.
pub(super) fn config_map_kind() -> DynamicKind {
    DynamicKind::from_names("", "v1", "ConfigMap", "configmaps")
}

/// Waits until an operator has written nothing about a path for a while.
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
            return Err(
                format!("it never settles; last: {:?}", running.writes_to(part).last()).into()
            );
        }
    }
    Ok(())
}

pub(super) const LEASE_DURATION: Duration = Duration::from_secs(3);
const QUIET_TIME: Duration = Duration::from_secs(2);
