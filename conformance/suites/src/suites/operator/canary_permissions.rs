//! Trials of the canary's report on its pod, with exactly the permissions of the chart.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lanyard_api::CanaryStatusReport;
use lanyard_canary::{FactsSink, PodAnnotation, PublishFactsError};
use lanyard_clock::SystemClock;
use lanyard_cluster::ControlPlane;
use lanyard_desired::workload::{CANARY_CLUSTER_ROLE, CANARY_SERVICE_ACCOUNT};
use lanyard_kubernetes::KubernetesApi;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::rendered_chart::{RbacPermission, RenderedOperatorChart, role_permissions};
use super::trial_fixture::OperatorTrialFixture;
use super::{OperatorSuiteFixture, trial};
use crate::api_server::client_config;
use crate::suites::expect_equal;
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let [first, second, third] = [(); 3].map(|()| canary_permissions(&suite.rendered_chart));
    vec![
        trial(suite, "canary::facts_are_one_annotation_of_the_canary_pod", async move |fixture| {
            facts_are_one_annotation(fixture, &first).await
        }),
        trial(suite, "canary::both_permissions_are_required", async move |fixture| {
            each_permission_is_required(fixture, &second).await
        }),
        trial(
            suite,
            "canary::token_changes_only_the_report_on_its_own_pod",
            async move |fixture| only_the_own_report_changes(fixture, &third).await,
        ),
    ]
}

/// The permissions that the chart grants to canaries.
fn canary_permissions(chart: &RenderedOperatorChart) -> Vec<RbacPermission> {
    let is_role = |object: &&Value| {
        object["kind"] == "ClusterRole" && object["metadata"]["name"] == CANARY_CLUSTER_ROLE
    };
    let roles = chart.all.iter().filter(is_role);
    roles.flat_map(role_permissions).map(|(right, _names)| right).collect()
}

const POD_NAME: &str = "canary-1";
/// The pod of another canary in the same namespace.
const OTHER_POD_NAME: &str = "canary-2";

/// A canary's pod, its ServiceAccount with the given permissions, and its client.
struct CanaryPodFixture {
    client: Client,
    annotation: PodAnnotation,
}

impl CanaryPodFixture {
    async fn create(
        fixture: &OperatorTrialFixture,
        permissions: &[&RbacPermission],
    ) -> Result<Self, Failed> {
        let namespace = &fixture.namespace;
        let named = |name: &str| json!({"name": name, "namespace": namespace});
        create_object::<ServiceAccount>(
            fixture,
            json!({"metadata": named(CANARY_SERVICE_ACCOUNT)}),
        )
        .await?;
        let rule = |(group, resource, verb): &&RbacPermission| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let rules: Vec<_> = permissions.iter().map(rule).collect();
        create_object::<Role>(
            fixture,
            json!({"metadata": named(CANARY_SERVICE_ACCOUNT), "rules": rules}),
        )
        .await?;
        let role = json!({
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": CANARY_SERVICE_ACCOUNT,
        });
        let account = json!({
            "kind": "ServiceAccount", "name": CANARY_SERVICE_ACCOUNT, "namespace": namespace,
        });
        let binding = json!({"metadata": named(CANARY_SERVICE_ACCOUNT), "roleRef": role, "subjects": [account]});
        create_object::<RoleBinding>(fixture, binding).await?;
        create_canary_pod(fixture, POD_NAME).await?;
        let client = canary_client(fixture, Some(POD_NAME)).await?;
        let api = KubernetesApi::from_client(client.clone(), SystemClock::shared());
        let annotation = PodAnnotation::new(api, namespace, POD_NAME);
        let canary = Self { client, annotation };
        canary.wait_until_bound(permissions).await?;
        Ok(canary)
    }

    /// Waits until the authorizer, which learns of the binding through a watch, has applied it.
    async fn wait_until_bound(&self, permissions: &[&RbacPermission]) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let may_get = permissions.iter().any(|(_, _, verb)| verb == "get");
        for _ in 0..100 {
            let known = if may_get {
                !is_forbidden(&self.annotation.fetch_facts().await)
            } else {
                !is_forbidden(&self.annotation.apply_facts(&canary_facts("disk")).await)
            };
            if known {
                return Ok(());
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
        Err("the permissions of the ServiceAccount did not become effective".into())
    }
}

async fn create_object<T>(fixture: &OperatorTrialFixture, object: Value) -> Result<(), Failed>
where
    T: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let api = Api::<T>::namespaced(fixture.client.clone(), &fixture.namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn create_canary_pod(fixture: &OperatorTrialFixture, name: &str) -> Result<(), Failed> {
    let pod = json!({
        "metadata": {
            "name": name,
            "namespace": fixture.namespace,
            "labels": {"app": name},
            "annotations": {"example.com/other": "value"},
        },
        "spec": {
            "serviceAccountName": CANARY_SERVICE_ACCOUNT,
            "automountServiceAccountToken": false,
            "containers": [{"name": "canary", "image": "lanyard"}],
        },
    });
    create_object::<Pod>(fixture, pod).await
}

/// A client with a token of the canaries' ServiceAccount, bound to a pod as the kubelet's tokens are.
async fn canary_client(
    fixture: &OperatorTrialFixture,
    pod: Option<&str>,
) -> Result<Client, Failed> {
    let (client, namespace) = (&fixture.client, &fixture.namespace);
    let mut spec = json!({"audiences": []});
    if let Some(name) = pod {
        let pod = Api::<Pod>::namespaced(client.clone(), namespace).get(name).await?;
        spec["boundObjectRef"] =
            json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.metadata.uid});
    }
    let request: TokenRequest = serde_json::from_value(json!({"spec": spec}))?;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let parameters = PostParams::default();
    let answer =
        accounts.create_token_request(CANARY_SERVICE_ACCOUNT, &parameters, &request).await?;
    let token = answer.status.and_then(|status| status.token);
    let token = token.ok_or("the API server returned no token")?;
    let mut config = client_config(&fixture.plane, ControlPlane::ADMINISTRATOR).await?;
    config.auth_info.token = Some(token.into());
    Ok(Client::try_from(config)?)
}

fn canary_facts(component: &str) -> CanaryStatusReport {
    CanaryStatusReport {
        component: component.to_owned(),
        last_good_hop: Some("granted".to_owned()),
        ..CanaryStatusReport::default()
    }
}

fn is_forbidden<T>(outcome: &Result<T, PublishFactsError>) -> bool {
    outcome.as_ref().is_err_and(|error| error.message.contains("HTTP 403"))
}

async fn facts_are_one_annotation(
    fixture: OperatorTrialFixture,
    permissions: &[RbacPermission],
) -> Result<(), Failed> {
    let canary =
        CanaryPodFixture::create(&fixture, &permissions.iter().collect::<Vec<_>>()).await?;
    expect_equal("the facts before", canary.annotation.fetch_facts().await?, None)?;
    canary.annotation.apply_facts(&canary_facts("disk")).await?;
    canary.annotation.apply_facts(&canary_facts("file")).await?;
    expect_equal("the facts", canary.annotation.fetch_facts().await?, Some(canary_facts("file")))?;

    let pods = Api::<Pod>::namespaced(fixture.client.clone(), &fixture.namespace);
    let pod = pods.get(POD_NAME).await?;
    let annotations = pod.metadata.annotations.unwrap_or_default();
    expect_equal(
        "the annotation of another writer",
        annotations.get("example.com/other").map(String::as_str),
        Some("value"),
    )?;
    let entries = pod.metadata.managed_fields.unwrap_or_default();
    let ours = entries.iter().find(|entry| entry.manager.as_deref() == Some("lanyard-canary"));
    let ours = ours.and_then(|entry| entry.fields_v1.clone()).ok_or("lanyard owns no fields")?;
    let key = format!("f:{}", CanaryStatusReport::REPORT_ANNOTATION);
    let one_key = json!({"f:metadata": {"f:annotations": {key: {}}}});
    expect_equal("the fields that lanyard owns", ours.0, one_key)?;

    // All other requests must be forbidden.
    let pods = Api::<Pod>::namespaced(canary.client.clone(), &fixture.namespace);
    let secrets = Api::<Secret>::namespaced(canary.client, &fixture.namespace);
    let refused = |outcome: Option<kube::Error>| match outcome {
        Some(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        other => Err(Failed::from(format!("the request was not forbidden: {other:?}"))),
    };
    refused(pods.list(&ListParams::default()).await.err())?;
    refused(secrets.list(&ListParams::default()).await.err())?;
    let image = json!({"spec": {"containers": [{"name": "canary", "image": "another"}]}});
    let patch = Patch::Strategic(image);
    refused(pods.patch(POD_NAME, &PatchParams::default(), &patch).await.err())?;
    // Patching the status subresource must not change the pod's image, owners or lifetime.
    pods.patch_status(POD_NAME, &PatchParams::default(), &patch).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"});
    let owner = json!({"metadata": {"ownerReferences": [owner]}});
    pods.patch_status(POD_NAME, &PatchParams::default(), &Patch::Merge(owner)).await?;
    let pod =
        Api::<Pod>::namespaced(fixture.client.clone(), &fixture.namespace).get(POD_NAME).await?;
    expect_equal("the owners", pod.metadata.owner_references, None)?;
    let images = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let images: Vec<_> = images.into_iter().filter_map(|it| it.image).collect();
    expect_equal("the image", images, vec!["lanyard".to_owned()])
}

/// Expects that the token of a canary changes nothing but the report on its own pod, although RBAC allows the
/// patch of every pod's status in the namespace.
async fn only_the_own_report_changes(
    fixture: OperatorTrialFixture,
    permissions: &[RbacPermission],
) -> Result<(), Failed> {
    let canary =
        CanaryPodFixture::create(&fixture, &permissions.iter().collect::<Vec<_>>()).await?;
    create_canary_pod(&fixture, OTHER_POD_NAME).await?;
    let facts = CanaryStatusReport::REPORT_ANNOTATION;
    let report = json!({"metadata": {"annotations": {facts: "{}"}}});
    let own_token = Api::<Pod>::namespaced(canary.client.clone(), &fixture.namespace);
    expect_patch_denied(&own_token, OTHER_POD_NAME, &report, "bound to").await?;
    // A token that is bound to no pod, such as that of `kubectl create token`.
    let unbound = canary_client(&fixture, None).await?;
    let unbound = Api::<Pod>::namespaced(unbound, &fixture.namespace);
    expect_patch_denied(&unbound, POD_NAME, &report, "bound to").await?;
    for patch in [
        json!({"metadata": {"labels": {"app": "kube-apiserver"}}}),
        json!({"metadata": {"labels": {"app": null}}}),
        json!({"metadata": {"annotations": {"example.com/more": "value"}}}),
        json!({"metadata": {"annotations": {"example.com/other": "changed"}}}),
        json!({"metadata": {"annotations": {"example.com/other": null}}}),
        json!({"metadata": {"finalizers": ["example.com/held"]}}),
        json!({"status": {"phase": "Failed"}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
    ] {
        expect_patch_denied(&own_token, POD_NAME, &patch, "only the annotation").await?;
    }
    canary.annotation.apply_facts(&canary_facts("disk")).await?;
    expect_equal("the facts", canary.annotation.fetch_facts().await?, Some(canary_facts("disk")))?;
    let parameters = PatchParams::default();
    let removal = Patch::Merge(json!({"metadata": {"annotations": {facts: null}}}));
    own_token.patch_status(POD_NAME, &parameters, &removal).await?;
    expect_equal("the facts after their removal", canary.annotation.fetch_facts().await?, None)?;
    delete_canary_objects(&fixture).await
}

/// Repeats a dry-run patch of the status until the API server denies it with a message that contains `part`. A
/// policy takes effect some time after its creation.
async fn expect_patch_denied(
    pods: &Api<Pod>,
    name: &str,
    patch: &Value,
    part: &str,
) -> Result<(), Failed> {
    let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually(&format!("{patch} is denied with `{part}`"), async || {
        Ok(match pods.patch_status(name, &parameters, &Patch::Strategic(patch)).await {
            Err(kube::Error::Api(status)) => status.code == 403 && status.message.contains(part),
            Ok(_) | Err(_) => false,
        })
    })
    .await
}

/// Expects that the report fails without either of the permissions.
async fn each_permission_is_required(
    fixture: OperatorTrialFixture,
    permissions: &[RbacPermission],
) -> Result<(), Failed> {
    expect_equal("number of permissions", permissions.len(), 2)?;
    for missing in permissions {
        let held: Vec<_> = permissions.iter().filter(|right| *right != missing).collect();
        let canary = CanaryPodFixture::create(&fixture, &held).await?;
        let read = canary.annotation.fetch_facts().await;
        let written = canary.annotation.apply_facts(&canary_facts("disk")).await;
        let refused = (is_forbidden(&read), is_forbidden(&written));
        let expected = (missing.2 == "get", missing.2 == "patch");
        expect_equal(
            &format!("a read and a write are forbidden without {missing:?}"),
            refused,
            expected,
        )?;
        expect_equal("exactly one of them is forbidden", refused.0 != refused.1, true)?;
        for error in [read.err(), written.err()].into_iter().flatten() {
            let says = error.hint.contains("get pods and patch pods/status");
            expect_equal("the hint names the verbs", says, true)?;
        }
        delete_canary_objects(&fixture).await?;
    }
    Ok(())
}

async fn delete_canary_objects(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    let (client, namespace) = (fixture.client.clone(), &fixture.namespace);
    let now = kube::api::DeleteParams::default().grace_period(0);
    Api::<Pod>::namespaced(client.clone(), namespace).delete(POD_NAME, &now).await?;
    Api::<RoleBinding>::namespaced(client.clone(), namespace)
        .delete(CANARY_SERVICE_ACCOUNT, &now)
        .await?;
    Api::<Role>::namespaced(client.clone(), namespace).delete(CANARY_SERVICE_ACCOUNT, &now).await?;
    Api::<ServiceAccount>::namespaced(client, namespace)
        .delete(CANARY_SERVICE_ACCOUNT, &now)
        .await?;
    Ok(())
}
