//! An operator that runs, and what it asks of the API server.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_clock::{Clock, SystemClock};
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use lanyard_operator::rights::{Right, cluster_rights, namespace_rights};
use lanyard_operator::{LeaseSettings, Operator, OperatorSettings};
use lanyard_telemetry::{MetricsPage, Readiness};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::asked::Asked;
use super::relay::Relay;
use crate::api_server::Kind;
use crate::suites::operator::OPERATOR;
use crate::suites::operator::world::World;
use crate::waiting::{PACE, PATIENCE, eventually, pause};

/// An operator that runs.
pub(super) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    asked: Asked,
    page: MetricsPage,
}

/// How an operator reaches the API server.
enum Way<'a> {
    /// Nothing is between them.
    Straight,
    /// Over a relay.
    Over(&'a Relay),
    /// Over a relay, with the connections of the binary.
    AsBinary(&'a Relay),
}

impl Running {
    /// Starts an operator with the rights of its chart.
    pub(super) async fn start(
        world: &World,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::start_with(world, change, async || Ok(())).await
    }

    /// The same over a relay.
    pub(super) async fn start_by(
        world: &World,
        relay: &Relay,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::begin(world, change, async || Ok(()), Way::Over(relay)).await
    }

    /// The same with the connections that the binary has: what is asked is counted by metrics alone.
    pub(super) async fn start_over(
        world: &World,
        relay: &Relay,
        change: impl FnOnce(&mut OperatorSettings),
    ) -> Result<Self, Failed> {
        Self::begin(world, change, async || Ok(()), Way::AsBinary(relay)).await
    }

    /// The same, and something is done between the grant of the rights and the start.
    pub(super) async fn start_with(
        world: &World,
        change: impl FnOnce(&mut OperatorSettings),
        between: impl AsyncFnOnce() -> Result<(), Failed>,
    ) -> Result<Self, Failed> {
        Self::begin(world, change, between, Way::Straight).await
    }

    async fn begin(
        world: &World,
        change: impl FnOnce(&mut OperatorSettings),
        between: impl AsyncFnOnce() -> Result<(), Failed>,
        way: Way<'_>,
    ) -> Result<Self, Failed> {
        let mut settings = OperatorSettings { workers: 4, ..OperatorSettings::default() };
        change(&mut settings);
        grant(&world.client, &world.namespace, settings.role).await?;
        between().await?;
        let asked = Asked::default();
        let api = match way {
            Way::Straight => asked.api(&world.plane.kubeconfig(OPERATOR)).await?,
            Way::Over(relay) => asked.api(&relay.kubeconfig(&world.plane)?).await?,
            Way::AsBinary(relay) => {
                let access = ApiAccess::Kubeconfig(relay.kubeconfig(&world.plane)?);
                let agent = UserAgent::from_static("lanyard-operator/trial");
                KubernetesApi::connect(&access, agent, SystemClock::shared()).await?
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let operator = Operator::new(api, settings, &Readiness::default());
        let page = MetricsPage::build(|registry| operator.register(registry));
        let task = tokio::spawn(operator.run(async move { drop(stopped.await) }));
        Ok(Self { stop: Some(stop), task, asked, page })
    }

    /// The lines of some metrics.
    pub(super) fn lines(&self, metrics: &str) -> String {
        let page = self.page.render();
        let lines = page.lines().filter(|line| line.starts_with(metrics));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What was written about something whose path contains this.
    pub(super) fn written(&self, part: &str) -> Vec<String> {
        self.asked.written(part)
    }

    /// Forgets what was asked until now.
    pub(super) fn forget(&self) {
        self.asked.forget();
    }

    /// What it asks, also after its end.
    pub(super) fn asked(&self) -> Asked {
        self.asked.clone()
    }

    /// Cuts or mends its way to the API server: what is asked in between gets no answer.
    pub(super) fn cut(&self, cut: bool) {
        self.asked.cut(cut);
    }

    /// Ends it as a supervisor does.
    pub(super) async fn end(mut self) -> Result<(), Failed> {
        if let Some(stop) = self.stop.take() {
            stop.send(()).ok();
        }
        (&mut self.task).await?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How leases are held in trials: they must end soon.
pub(super) fn leases(world: &World, identity: &str, shards: u32) -> LeaseSettings {
    LeaseSettings {
        namespace: world.namespace.clone(),
        name: "lanyard-operator".to_owned(),
        identity: identity.to_owned(),
        shards,
        duration: LEASE,
    }
}

/// Gives the operator exactly the rights of its role: those in its own namespace there alone.
pub(crate) async fn grant(
    client: &Client,
    namespace: &str,
    role: lanyard_operator::Role,
) -> Result<(), Failed> {
    apply(&Api::<ClusterRole>::all(client.clone()), rules_of(cluster_rights(role))).await?;
    let binding = binding_to("ClusterRole");
    apply(&Api::<ClusterRoleBinding>::all(client.clone()), binding).await?;
    let roles = Api::<Role>::namespaced(client.clone(), namespace);
    apply(&roles, rules_of(namespace_rights())).await?;
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    apply(&bindings, binding_to("Role")).await?;
    until_granted(client, namespace, cluster_rights(role).chain(namespace_rights())).await
}

/// The rules of a role that gives these rights.
pub(super) fn rules_of(rights: impl Iterator<Item = &'static Right>) -> Value {
    let rule = |right: &Right| {
        json!({
            "apiGroups": [right.group],
            "resources": [right.resource],
            "verbs": right.verbs,
            "resourceNames": right.names,
        })
    };
    json!({"rules": rights.map(rule).collect::<Vec<_>>()})
}

fn binding_to(kind: &str) -> Value {
    json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": OPERATOR},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": OPERATOR}],
    })
}

async fn apply<T>(objects: &Api<T>, mut object: Value) -> Result<(), Failed>
where
    T: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    object["apiVersion"] = json!(T::api_version(&()));
    object["kind"] = json!(T::kind(&()));
    object["metadata"] = json!({"name": OPERATOR});
    let parameters = PatchParams::apply("trial").force();
    objects.patch(OPERATOR, &parameters, &Patch::Apply(object)).await?;
    Ok(())
}

/// Waits until the authorizer, which hears of roles by a watch, knows of these rights.
pub(super) async fn until_granted(
    client: &Client,
    namespace: &str,
    rights: impl Iterator<Item = &'static Right>,
) -> Result<(), Failed> {
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    for right in rights {
        let (resource, subresource) =
            right.resource.split_once('/').unwrap_or((right.resource, ""));
        let review = json!({"spec": {
            "user": OPERATOR,
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

impl World {
    /// The namespace of the control plane of the example.
    pub(super) fn room(&self) -> String {
        format!("{}-harbour", self.namespace)
    }

    /// Makes the example, changed.
    pub(super) async fn make_cluster(&self, change: impl FnOnce(&mut Value)) -> Result<(), Failed> {
        let mut cluster = self.hosted_cluster();
        change(&mut cluster);
        let clusters = self.api(&Kind::hosted_cluster());
        clusters.create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
        Ok(())
    }

    /// Changes the example as a person with kubectl would.
    pub(super) async fn patch_cluster(&self, patch: Value) -> Result<(), Failed> {
        let parameters =
            PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
        let clusters = self.api(&Kind::hosted_cluster());
        clusters.patch("harbour", &parameters, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The objects of a kind in the namespace of the control plane.
    pub(super) fn made(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.room(), kind.resource())
    }

    /// How many objects of a kind are in the namespace of the control plane.
    pub(super) async fn count(&self, kind: &Kind) -> Result<usize, Failed> {
        Ok(self.made(kind).list(&ListParams::default()).await?.items.len())
    }

    /// The HostedCluster as it is.
    pub(super) async fn cluster(&self) -> Result<Value, Failed> {
        let cluster = self.api(&Kind::hosted_cluster()).get("harbour").await?;
        Ok(serde_json::to_value(cluster)?)
    }

    /// What is told about its identities; null where nothing is.
    pub(super) async fn told(&self) -> Result<Value, Failed> {
        let told = self.api(&Kind::hosted_cluster_identities()).get_opt("harbour").await?;
        Ok(told.map(serde_json::to_value).transpose()?.unwrap_or_default())
    }

    /// Waits until the example has everything and everything is told.
    pub(super) async fn until_made(&self) -> Result<(), Failed> {
        eventually("nine classes, ten deployments and a status", async || {
            let classes = self.count(&classes()).await?;
            let deployments = self.count(&deployments()).await?;
            let identities = self.told().await?["status"]["identities"].as_array().map(Vec::len);
            Ok(classes == 9 && deployments >= 9 && identities == Some(9))
        })
        .await
    }

    /// A canary that runs and is ready, and what it tells.
    pub(super) async fn ready_canary(
        &self,
        pods: &Kind,
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
                "namespace": self.room(),
                "labels": {
                    "hypershift.openshift.io/hosted-control-plane": self.room(),
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
        let made = self.made(pods);
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
    pub(super) async fn broken_canary(&self) -> Result<(), Failed> {
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
        let pods = Kind::of("", "v1", "Pod", "pods");
        self.ready_canary(&pods, "azure-disk-csi-driver-controller-0", "disk", &facts).await
    }

    /// Takes the example away, where a trial has not done so.
    pub(super) async fn clear(&self) -> Result<(), Failed> {
        let clusters = self.api(&Kind::hosted_cluster());
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
pub(super) fn classes() -> Kind {
    Kind::of("secrets-store.csi.x-k8s.io", "v1", "SecretProviderClass", "secretproviderclasses")
}

/// `Deployment`.
pub(super) fn deployments() -> Kind {
    Kind::of("apps", "v1", "Deployment", "deployments")
}

/// `ConfigMap`.
pub(super) fn config_maps() -> Kind {
    Kind::of("", "v1", "ConfigMap", "configmaps")
}

/// Waits until an operator has written nothing about a path for a while.
pub(super) async fn settle(running: &Running, part: &str) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let mut count = running.written(part).len();
    let mut quiet = began;
    while clock.monotonic().saturating_sub(quiet) < QUIET {
        pause(PACE).await;
        let now = running.written(part).len();
        if now != count {
            (count, quiet) = (now, clock.monotonic());
        }
        if clock.monotonic().saturating_sub(began) > PATIENCE {
            return Err(
                format!("it never settles; last: {:?}", running.written(part).last()).into()
            );
        }
    }
    Ok(())
}

pub(super) const LEASE: Duration = Duration::from_secs(3);
const QUIET: Duration = Duration::from_secs(2);
