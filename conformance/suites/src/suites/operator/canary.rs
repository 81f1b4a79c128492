//! What a canary writes to its own pod, with the rights that it has and none more.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use lanyard_api::CanaryFacts;
use lanyard_canary::{FactsTeller, PodAnnotation, TellError};
use lanyard_clock::SystemClock;
use lanyard_cluster::ControlPlane;
use lanyard_desired::workload::{CANARY_ACCOUNT, CANARY_ROLE};
use lanyard_kubernetes::KubernetesApi;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::chart::{Chart, Use, rights_of};
use super::world::World;
use super::{Stage, trial};
use crate::suites::expect_same;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    let [first, second] = [(); 2].map(|()| canary_rights(&stage.chart));
    vec![
        trial(stage, "canary::facts_are_one_key_of_its_own_pod", async move |world| {
            annotated(world, &first).await
        }),
        trial(stage, "canary::each_of_its_two_rights_is_needed", async move |world| {
            each(world, &second).await
        }),
    ]
}

/// The rights that the chart gives canaries.
fn canary_rights(chart: &Chart) -> Vec<Use> {
    let is_role = |object: &&Value| {
        object["kind"] == "ClusterRole" && object["metadata"]["name"] == CANARY_ROLE
    };
    let roles = chart.all.iter().filter(is_role);
    roles.flat_map(rights_of).map(|(right, _names)| right).collect()
}

const POD: &str = "canary-1";

/// A canary's pod, its account with these rights, and what it writes with.
struct Canary {
    client: Client,
    annotation: PodAnnotation,
}

impl Canary {
    async fn make(world: &World, rights: &[&Use]) -> Result<Self, Failed> {
        let namespace = &world.namespace;
        let named = |name: &str| json!({"name": name, "namespace": namespace});
        create::<ServiceAccount>(world, json!({"metadata": named(CANARY_ACCOUNT)})).await?;
        let rule = |(group, resource, verb): &&Use| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let rules: Vec<_> = rights.iter().map(rule).collect();
        create::<Role>(world, json!({"metadata": named(CANARY_ACCOUNT), "rules": rules})).await?;
        let role = json!({
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": CANARY_ACCOUNT,
        });
        let account = json!({
            "kind": "ServiceAccount", "name": CANARY_ACCOUNT, "namespace": namespace,
        });
        let binding =
            json!({"metadata": named(CANARY_ACCOUNT), "roleRef": role, "subjects": [account]});
        create::<RoleBinding>(world, binding).await?;
        let mut pod = json!({"metadata": named(POD)});
        pod["metadata"]["annotations"] = json!({"somebody": "else's"});
        pod["spec"] = json!({
            "serviceAccountName": CANARY_ACCOUNT,
            "automountServiceAccountToken": false,
            "containers": [{"name": "canary", "image": "lanyard"}],
        });
        create::<Pod>(world, pod).await?;
        let client = of_account(world).await?;
        let api = KubernetesApi::of_client(client.clone(), SystemClock::shared());
        let annotation = PodAnnotation::new(api, namespace, POD);
        let canary = Self { client, annotation };
        canary.bound(rights).await?;
        Ok(canary)
    }

    /// Waits until the authorizer knows of the binding, which it hears of by a watch.
    async fn bound(&self, rights: &[&Use]) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let may_get = rights.iter().any(|(_, _, verb)| verb == "get");
        for _ in 0..100 {
            let known = if may_get {
                !is_refused(&self.annotation.fetch_facts().await)
            } else {
                !is_refused(&self.annotation.apply_facts(&facts("disk")).await)
            };
            if known {
                return Ok(());
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
        Err("the rights of the account did not come into force".into())
    }
}

async fn create<T>(world: &World, object: Value) -> Result<(), Failed>
where
    T: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let api = Api::<T>::namespaced(world.client.clone(), &world.namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// A client that the API server takes for the account of canaries.
async fn of_account(world: &World) -> Result<Client, Failed> {
    let kubeconfig = Kubeconfig::read_from(world.plane.kubeconfig(ControlPlane::ADMINISTRATOR))?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.proxy_url = None;
    let account = format!("system:serviceaccount:{}:{CANARY_ACCOUNT}", world.namespace);
    config.auth_info.impersonate = Some(account);
    Ok(Client::try_from(config)?)
}

fn facts(component: &str) -> CanaryFacts {
    CanaryFacts {
        component: component.to_owned(),
        last_good_hop: Some("granted".to_owned()),
        ..CanaryFacts::default()
    }
}

fn is_refused<T>(outcome: &Result<T, TellError>) -> bool {
    outcome.as_ref().is_err_and(|error| error.message.contains("HTTP 403"))
}

async fn annotated(world: World, rights: &[Use]) -> Result<(), Failed> {
    let canary = Canary::make(&world, &rights.iter().collect::<Vec<_>>()).await?;
    expect_same("the facts before", canary.annotation.fetch_facts().await?, None)?;
    canary.annotation.apply_facts(&facts("disk")).await?;
    canary.annotation.apply_facts(&facts("file")).await?;
    expect_same("the facts", canary.annotation.fetch_facts().await?, Some(facts("file")))?;

    let pods = Api::<Pod>::namespaced(world.client.clone(), &world.namespace);
    let pod = pods.get(POD).await?;
    let annotations = pod.metadata.annotations.unwrap_or_default();
    expect_same(
        "what others wrote",
        annotations.get("somebody").map(String::as_str),
        Some("else's"),
    )?;
    let entries = pod.metadata.managed_fields.unwrap_or_default();
    let ours = entries.iter().find(|entry| entry.manager.as_deref() == Some("lanyard-canary"));
    let ours = ours.and_then(|entry| entry.fields_v1.clone()).ok_or("no fields are ours")?;
    let key = format!("f:{}", CanaryFacts::ANNOTATION);
    let one_key = json!({"f:metadata": {"f:annotations": {key: {}}}});
    expect_same("the fields that are ours", ours.0, one_key)?;

    // Nothing else is open to it.
    let pods = Api::<Pod>::namespaced(canary.client.clone(), &world.namespace);
    let secrets = Api::<Secret>::namespaced(canary.client, &world.namespace);
    let refused = |outcome: Option<kube::Error>| match outcome {
        Some(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        other => Err(Failed::from(format!("it was not refused: {other:?}"))),
    };
    refused(pods.list(&ListParams::default()).await.err())?;
    refused(secrets.list(&ListParams::default()).await.err())?;
    let image = json!({"spec": {"containers": [{"name": "canary", "image": "another"}]}});
    let patch = Patch::Strategic(image);
    refused(pods.patch(POD, &PatchParams::default(), &patch).await.err())?;
    // What it may write is no way round to what a pod runs, whom it belongs to and when it ends.
    pods.patch_status(POD, &PatchParams::default(), &patch).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"});
    let owner = json!({"metadata": {"ownerReferences": [owner]}});
    pods.patch_status(POD, &PatchParams::default(), &Patch::Merge(owner)).await?;
    let pod = Api::<Pod>::namespaced(world.client.clone(), &world.namespace).get(POD).await?;
    expect_same("the owners", pod.metadata.owner_references, None)?;
    let images = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let images: Vec<_> = images.into_iter().filter_map(|it| it.image).collect();
    expect_same("the image", images, vec!["lanyard".to_owned()])
}

/// A right without which everything goes on is one too many.
async fn each(world: World, rights: &[Use]) -> Result<(), Failed> {
    expect_same("how many rights there are", rights.len(), 2)?;
    for missing in rights {
        let held: Vec<_> = rights.iter().filter(|right| *right != missing).collect();
        let canary = Canary::make(&world, &held).await?;
        let looked = canary.annotation.fetch_facts().await;
        let wrote = canary.annotation.apply_facts(&facts("disk")).await;
        let refused = (is_refused(&looked), is_refused(&wrote));
        let expected = (missing.2 == "get", missing.2 == "patch");
        expect_same(
            &format!("a look and a write are refused without {missing:?}"),
            refused,
            expected,
        )?;
        expect_same("one of them is", refused.0 != refused.1, true)?;
        for error in [looked.err(), wrote.err()].into_iter().flatten() {
            let says = error.hint.contains("get pods and patch pods/status");
            expect_same("the hint names the verbs", says, true)?;
        }
        clear(&world).await?;
    }
    Ok(())
}

async fn clear(world: &World) -> Result<(), Failed> {
    let (client, namespace) = (world.client.clone(), &world.namespace);
    let now = kube::api::DeleteParams::default().grace_period(0);
    Api::<Pod>::namespaced(client.clone(), namespace).delete(POD, &now).await?;
    Api::<RoleBinding>::namespaced(client.clone(), namespace).delete(CANARY_ACCOUNT, &now).await?;
    Api::<Role>::namespaced(client.clone(), namespace).delete(CANARY_ACCOUNT, &now).await?;
    Api::<ServiceAccount>::namespaced(client, namespace).delete(CANARY_ACCOUNT, &now).await?;
    Ok(())
}
