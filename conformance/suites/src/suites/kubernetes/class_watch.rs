//! Trials of the class cache: classes are read once, watched per namespace, and served during an outage.

use std::time::Duration;

use kube::api::DeleteParams;
use lanyard_api::SecretProviderClass;
use lanyard_clock::SystemClock;
use lanyard_cluster::ControlPlane;
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use lanyard_node::{ClassChange, KubeClassCache, KubeClassCacheSettings, NodeKubernetesApi};
use lanyard_provider::{ClassError, ClassSource};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::trial_fixture::KubernetesTrialFixture;
use super::{KubernetesSuiteFixture, trial};
use crate::suites::expect_equal;
use crate::waiting::{eventually, sleep};

pub(super) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "classes::one_watch_serves_a_namespace_without_lists",
            one_watch_per_namespace,
        ),
        trial(suite, "classes::change_event_carries_the_new_class", change_is_reported),
        trial(suite, "classes::class_created_later_is_found", class_created_later),
        trial(suite, "classes::watch_of_an_idle_namespace_ends", idle_namespace_is_dropped),
        trial(
            suite,
            "classes::last_known_class_is_served_during_an_outage",
            last_known_class_during_outage,
        ),
        trial(suite, "classes::a_kubeconfig_is_enough_to_connect", kubeconfig_connects),
    ]
}

async fn one_watch_per_namespace(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    for number in 0..50 {
        fixture.create_class(&format!("c{number}"), json!({"provider": "azure"})).await?;
    }
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let classes = KubeClassCache::new(counted.api.clone(), KubeClassCacheSettings::default());
    for name in ["c0", "c1"] {
        let class = classes.class(&fixture.namespace, name).await?;
        expect_equal("the class", class.metadata.name.as_deref(), Some(name))?;
    }
    let path = format!(
        "/apis/secrets-store.csi.x-k8s.io/v1/namespaces/{}/secretproviderclasses",
        fixture.namespace
    );
    // Each class is read on its first use, and once more after the watch has begun.
    let mut requests = Vec::new();
    eventually("the watch has begun", async || {
        requests.extend(counted.take_requests());
        Ok(requests.contains(&format!("WATCH {path}")))
    })
    .await?;
    eventually("the cache serves both classes from the watch", async || {
        requests.extend(counted.take_requests());
        for name in ["c0", "c1"] {
            classes.class(&fixture.namespace, name).await?;
        }
        Ok(counted.take_requests().is_empty())
    })
    .await?;
    let is_list = |it: &&String| {
        it.strip_prefix("GET ").is_some_and(|it| it.split('?').next() == Some(&path))
    };
    let lists: Vec<_> = requests.iter().filter(is_list).collect();
    if lists.is_empty() || !lists.iter().all(|it| it.contains("limit=1")) {
        return Err(format!("unexpected lists: {lists:?}").into());
    }
    if requests.len() > 12 {
        return Err(format!("too many requests: {requests:?}").into());
    }
    for _ in 0..1_000 {
        classes.class(&fixture.namespace, "c1").await?;
    }
    expect_equal("requests for a thousand questions", counted.take_requests(), Vec::new())?;
    expect_equal("watched namespaces", classes.watched_namespaces(), 1)
}

/// Waits until the cache serves a class from the watch, without a request.
async fn wait_until_watched(
    fixture: &KubernetesTrialFixture,
    classes: &KubeClassCache,
    counted: &super::trial_fixture::CountingNodeApi,
    name: &str,
) -> Result<(), Failed> {
    eventually("the namespace is watched", async || {
        Ok(counted.peek_requests().iter().any(|it| it.starts_with("WATCH ")))
    })
    .await?;
    eventually("the cache serves the class from the watch", async || {
        counted.take_requests();
        classes.class(&fixture.namespace, name).await?;
        Ok(counted.take_requests().is_empty())
    })
    .await
}

async fn change_is_reported(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", json!({"provider": "one"})).await?;
    fixture.create_class("other", json!({"provider": "one"})).await?;
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let classes = KubeClassCache::new(counted.api.clone(), KubeClassCacheSettings::default());
    let mut changes = classes.changes();
    classes.class(&fixture.namespace, "c").await?;
    wait_until_watched(&fixture, &classes, &counted, "c").await?;
    let provider = |name: &str| json!({"spec": {"provider": name}});
    fixture.merge_patch::<SecretProviderClass>("other", provider("two")).await?;
    fixture.merge_patch::<SecretProviderClass>("c", provider("two")).await?;
    let change = ClassChange { namespace: fixture.namespace.clone(), name: "c".to_owned() };
    expect_equal("the change", changes.recv().await?, change.clone())?;
    let class = classes.class(&fixture.namespace, "c").await?;
    expect_equal("the provider", class.spec.provider.as_deref(), Some("two"))?;
    let annotation = json!({"metadata": {"annotations": {"lanyard.dev/refresh": "1"}}});
    fixture.merge_patch::<SecretProviderClass>("c", annotation).await?;
    expect_equal("the annotation as a change", changes.recv().await?, change)?;
    let class = classes.class(&fixture.namespace, "c").await?;
    let value =
        class.metadata.annotations.as_ref().and_then(|it| it.get("lanyard.dev/refresh").cloned());
    expect_equal("the annotation", value.as_deref(), Some("1"))?;
    expect_equal("requests", counted.take_requests(), Vec::new())?;
    expect_equal("other changes", changes.try_recv().is_err(), true)
}

async fn class_created_later(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let classes = KubeClassCache::new(counted.api.clone(), KubeClassCacheSettings::default());
    let absent = classes.class(&fixture.namespace, "c").await;
    expect_equal("absent", matches!(absent, Err(ClassError::NotFound { .. })), true)?;
    fixture.create_class("c", json!({"provider": "azure"})).await?;
    // The watch may have begun and deliver the class later.
    eventually("the class is there", async || {
        Ok(classes.class(&fixture.namespace, "c").await.is_ok())
    })
    .await?;
    wait_until_watched(&fixture, &classes, &counted, "c").await?;
    fixture.api::<SecretProviderClass>().delete("c", &DeleteParams::default()).await?;
    eventually("the class is gone", async || {
        let answer = classes.class(&fixture.namespace, "c").await;
        Ok(matches!(answer, Err(ClassError::NotFound { .. })))
    })
    .await
}

async fn idle_namespace_is_dropped(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", json!({"provider": "azure"})).await?;
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let settings = KubeClassCacheSettings { idle_after: Duration::from_millis(50) };
    let classes = KubeClassCache::new(counted.api.clone(), settings);
    classes.class(&fixture.namespace, "c").await?;
    sleep(Duration::from_millis(200)).await;
    // The watch checks for idleness with the next event.
    fixture.create_class("d", json!({"provider": "azure"})).await?;
    eventually("nothing is watched", async || Ok(classes.watched_namespaces() == 0)).await?;
    classes.class(&fixture.namespace, "c").await?;
    expect_equal("watched namespaces", classes.watched_namespaces(), 1)
}

async fn last_known_class_during_outage(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", json!({"provider": "one"})).await?;
    let counted = fixture.counting_api(ControlPlane::ADMINISTRATOR).await?;
    let classes = KubeClassCache::new(counted.api.clone(), KubeClassCacheSettings::default());
    let mut changes = classes.changes();
    classes.class(&fixture.namespace, "c").await?;
    wait_until_watched(&fixture, &classes, &counted, "c").await?;
    fixture.plane.kill_api_server();
    sleep(Duration::from_millis(200)).await;
    let class = classes.class(&fixture.namespace, "c").await?;
    expect_equal("the last known class", class.spec.provider.as_deref(), Some("one"))?;
    let unknown = classes.class(&fixture.namespace, "unknown").await;
    expect_equal("unknown", matches!(unknown, Err(ClassError::Unavailable { .. })), true)?;
    fixture.plane.start_api_server().await?;
    let provider = json!({"spec": {"provider": "two"}});
    fixture.merge_patch::<SecretProviderClass>("c", provider).await?;
    let change = ClassChange { namespace: fixture.namespace.clone(), name: "c".to_owned() };
    expect_equal("the change after the outage", changes.recv().await?, change)?;
    let class = classes.class(&fixture.namespace, "c").await?;
    expect_equal("the provider", class.spec.provider.as_deref(), Some("two"))
}

async fn kubeconfig_connects(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", json!({"provider": "azure"})).await?;
    let access = ApiAccess::Kubeconfig(fixture.plane.kubeconfig_path(ControlPlane::ADMINISTRATOR));
    let agent = UserAgent::from_static("lanyard-conformance/1.0");
    let api = NodeKubernetesApi::new(
        KubernetesApi::connect(&access, agent, SystemClock::shared()).await?,
    );
    api.probe().await?;
    let classes = KubeClassCache::new(api, KubeClassCacheSettings::default());
    classes.class(&fixture.namespace, "c").await?;
    Ok(())
}
