//! From a HostedCluster to everything that it should have, and back.

use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_desired::OwnedKind;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::namespaces::occupy;
use super::running::{Running, classes, config_maps, deployments, settle};
use crate::api_server::{Kind, ensure_namespace};
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::a_hosted_cluster_gets_everything_and_is_told_of", everything),
        trial(stage, "operator::nothing_is_written_once_all_is_settled", settled),
        trial(stage, "operator::one_secret_name_changes_what_depends_on_it_alone", one_name),
        trial(stage, "operator::what_somebody_changes_is_set_back", drift),
        trial(stage, "operator::fields_of_another_manager_are_named_and_left", conflict),
        trial(stage, "operator::a_paused_cluster_is_told_of_and_not_written", pause),
        trial(stage, "operator::a_spec_that_cannot_be_used_waits_for_a_change", unusable),
        trial(stage, "operator::a_deleted_cluster_leaves_nothing", deletion),
        trial(stage, "operator::the_end_with_a_broken_identity_says_what_it_leaves", broken),
        trial(stage, "operator::a_cluster_of_another_kind_is_left_alone", other_kind),
        trial(stage, "operator::a_contradiction_is_told_and_nothing_is_half_done", contradiction),
        trial(stage, "operator::two_clusters_of_one_namespace_do_not_share_it", one_namespace),
    ]
}

async fn everything(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    eventually("the conditions stand at the HostedCluster", async || {
        let cluster = world.cluster().await?;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_there = |kind: &str| {
            conditions.iter().any(|it| it["type"] == kind && it["status"] == "Unknown")
        };
        Ok(is_there("ValidAzureIdentities") && is_there("ValidAzureKMSConfig"))
    })
    .await?;
    let cluster = world.cluster().await?;
    let finalizers = &cluster["metadata"]["finalizers"];
    expect_same("finalizers", finalizers, &json!(["lanyard.dev/finalizer"]))?;
    let told = world.told().await?;
    for identity in told["status"]["identities"].as_array().into_iter().flatten() {
        expect_same("what nobody told", &identity["ready"], &json!("Unknown"))?;
    }
    let owner = &told["metadata"]["ownerReferences"][0]["uid"];
    expect_same("the owner", owner, &cluster["metadata"]["uid"])?;
    running.end().await?;
    world.clear().await
}

async fn settled(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.namespace).await?;
    let before = versions(&world).await?;
    running.end().await?;
    // Another process finds the same, and writes nothing at all.
    let again = Running::start(&world, |_| ()).await?;
    settle(&again, &world.namespace).await?;
    let writes = again.written(&world.namespace);
    if !writes.is_empty() {
        let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
        let told = events.list(&ListParams::default()).await?;
        let told: Vec<_> = told.iter().map(|it| (it.reason.clone(), it.message.clone())).collect();
        return Err(format!("writes: {writes:?}, events: {told:?}").into());
    }
    expect_same("versions", versions(&world).await?, before)?;
    // What the watches told is not asked again.
    expect_same("reads", again.asked().read(&world.room()), Vec::new())?;
    again.end().await?;
    world.clear().await
}

/// The versions of everything that is made, and of what is told.
pub(super) async fn versions(world: &World) -> Result<Vec<(String, Option<String>)>, Failed> {
    let mut versions = Vec::new();
    for kind in [classes(), deployments(), config_maps(), secrets(), Kind::hosted_control_plane()] {
        for object in world.made(&kind).list(&ListParams::default()).await? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let name = format!("{} {name}", kind.resource().kind);
            versions.push((name, object.metadata.resource_version));
        }
    }
    let told = world.told().await?["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let cluster = world.cluster().await?["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    versions.extend([("told".to_owned(), told), ("cluster".to_owned(), cluster)]);
    Ok(versions)
}

fn secrets() -> Kind {
    Kind::of("", "v1", "Secret", "secrets")
}

async fn one_name(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.namespace).await?;
    let before = versions(&world).await?;
    let control_plane = json!({"disk": {"credentialsSecretName": "harbour-other-disk"}});
    let patch = json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
        "managedIdentities": {"controlPlane": control_plane},
    }}}}});
    world.patch_cluster(patch).await?;
    eventually("the class names the other secret", async || {
        let class = world.made(&classes()).get("managed-azure-disk-csi").await?;
        Ok(serde_json::to_string(&class)?.contains("harbour-other-disk"))
    })
    .await?;
    settle(&running, &world.namespace).await?;
    let after = versions(&world).await?;
    let changed: Vec<_> = after
        .iter()
        .filter(|(name, version)| !before.contains(&(name.clone(), version.clone())))
        .map(|(name, _)| name.as_str())
        .filter(|name| !["told", "cluster"].contains(name))
        .collect();
    let expected = [
        "SecretProviderClass managed-azure-disk-csi",
        "Deployment azure-disk-csi-driver-controller",
        "Secret azure-disk-csi-config",
        "HostedControlPlane harbour",
    ];
    expect_same("what changed", changed, expected.to_vec())?;
    running.end().await?;
    world.clear().await
}

async fn drift(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.namespace).await?;
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let patch = json!({"spec": {"parameters": {"keyvaultName": "other", "cloudName": "foreign"}}});
    let made = world.made(&classes());
    made.patch("managed-azure-network", &parameters, &Patch::Merge(patch)).await?;
    eventually("the class is as it was", async || {
        let class = serde_json::to_value(made.get("managed-azure-network").await?)?;
        let parameters = &class["spec"]["parameters"];
        Ok(parameters["keyvaultName"] == "harbour-identities" && parameters["cloudName"].is_null())
    })
    .await?;
    made.delete("managed-azure-network", &DeleteParams::default()).await?;
    eventually("the class is there again", async || {
        Ok(made.get_opt("managed-azure-network").await?.is_some())
    })
    .await?;
    running.end().await?;
    world.clear().await
}

async fn conflict(world: World) -> Result<(), Failed> {
    let maps = occupy(&world, &json!({"cloud.conf": "{}"})).await?;
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    eventually("the drift names the manager and the field", async || {
        let told = world.told().await?.to_string();
        Ok(told.contains("ConfigMap")
            && told.contains("held by somebody")
            && told.contains("cloud.conf"))
    })
    .await?;
    let map = maps.get("azure-cloud-config").await?;
    let kept = map.data.and_then(|data| data.get("cloud.conf").cloned());
    expect_same("the field of the other", kept.as_deref(), Some("{}"))?;
    running.end().await?;
    world.clear().await
}

async fn pause(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|it| it["spec"]["pausedUntil"] = json!("true")).await?;
    eventually("it is told of", async || Ok(!world.told().await?["status"].is_null())).await?;
    settle(&running, &world.namespace).await?;
    expect_same("classes", world.count(&classes()).await?, 0)?;
    expect_same("writes", running.written(&format!("{}-harbour", world.namespace)), Vec::new())?;
    world.patch_cluster(json!({"spec": {"pausedUntil": null}})).await?;
    world.until_made().await?;
    running.end().await?;
    world.clear().await
}

async fn unusable(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    // The schema takes it, and nobody can use it.
    let vnet = "/spec/platform/azure/vnetID";
    world
        .make_cluster(|it| {
            if let Some(id) = it.pointer_mut(vnet) {
                *id = json!("not-an-id");
            }
        })
        .await?;
    eventually("the condition says what is wrong", async || {
        let told = world.told().await?;
        let conditions = told["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|it| {
            it["type"] == "ValidAzureIdentities"
                && it["status"] == "False"
                && it["message"].as_str().is_some_and(|text| text.contains("vnetID"))
        }))
    })
    .await?;
    settle(&running, &world.namespace).await?;
    running.forget();
    settle(&running, &world.namespace).await?;
    expect_same("writes", running.written(&world.namespace), Vec::new())?;
    expect_same("classes", world.count(&classes()).await?, 0)?;
    running.end().await?;
    world.clear().await
}

async fn deletion(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.namespace).await?;
    running.forget();
    let clusters = world.api(&Kind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    let namespaces = Api::<Namespace>::all(world.client.clone());
    eventually("the namespace is on its way out, and nothing of ours in it", async || {
        let namespace = namespaces.get_opt(&world.room()).await?;
        let is_going = namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
        let mut left = 0;
        for kind in
            [classes(), deployments(), config_maps(), secrets(), Kind::hosted_control_plane()]
        {
            left += world.count(&kind).await?;
        }
        Ok(is_going && left == 0)
    })
    .await?;
    // Settled objects are read once, whatever the number of looks.
    let kinds = OwnedKind::ALL.map(|kind| format!("/{}", kind.facts().plural));
    for plural in kinds {
        let mut reads = running.asked().read(&format!("/namespaces/{}/", world.room()));
        reads.retain(|line| line.ends_with(&plural));
        if reads.len() > 1 {
            return Err(format!("it is read again and again: {reads:?}").into());
        }
    }
    expect_same("the cluster waits", clusters.get_opt("harbour").await?.is_some(), true)?;
    finish(&namespaces, &world.room()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    running.end().await
}

/// Sees a cluster go whose deletion has begun and waits for nobody.
pub(super) async fn see_it_go(world: &World) -> Result<(), Failed> {
    let namespaces = Api::<Namespace>::all(world.client.clone());
    eventually("the namespace is on its way out", async || {
        let namespace = namespaces.get_opt(&world.room()).await?;
        Ok(namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    finish(&namespaces, &world.room()).await?;
    let clusters = world.api(&Kind::hosted_cluster());
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await
}

/// Ends a namespace, as the controller manager would.
async fn finish(namespaces: &Api<Namespace>, name: &str) -> Result<(), Failed> {
    let mut namespace = serde_json::to_value(namespaces.get(name).await?)?;
    namespace["spec"] = json!({"finalizers": []});
    let path = format!("/api/v1/namespaces/{name}/finalize");
    let request = http::Request::put(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&namespace)?)?;
    let client = namespaces.clone().into_client();
    let ended: Value = client.request(request).await?;
    drop(ended);
    Ok(())
}

async fn other_kind(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world
        .make_cluster(|it| {
            it["spec"]["platform"] = json!({"type": "None"});
            it["spec"]["secretEncryption"] = json!({"type": "aescbc"});
        })
        .await?;
    settle(&running, &world.namespace).await?;
    expect_same("writes", running.written(&world.namespace), Vec::new())?;
    running.end().await?;
    world.clear().await
}

async fn contradiction(world: World) -> Result<(), Failed> {
    let service = |settings: &mut lanyard_operator::OperatorSettings| {
        settings.managed_service = Some("ROSA".to_owned());
    };
    let running = Running::start(&world, service).await?;
    world.make_cluster(|_| ()).await?;
    eventually("the condition names the contradiction", async || {
        Ok(world.told().await?.to_string().contains("ROSA"))
    })
    .await?;
    settle(&running, &world.namespace).await?;
    expect_same("writes", running.written(&world.room()), Vec::new())?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let told = events.list(&ListParams::default()).await?.items.len();
    expect_same("events are few", told < 5, true)?;
    running.end().await?;
    world.clear().await
}

async fn one_namespace(world: World) -> Result<(), Failed> {
    // `a-b/c` and `a/b-c`.
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.room()).await?;
    let (start, end) = world.namespace.split_once('-').unwrap_or_default();
    ensure_namespace(&world.client, start).await?;
    let mut second = world.hosted_cluster();
    let name = format!("{end}-harbour");
    (second["metadata"]["namespace"], second["metadata"]["name"]) = (json!(start), json!(name));
    let kind = Kind::hosted_cluster();
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), start, kind.resource());
    running.forget();
    clusters.create(&PostParams::default(), &serde_json::from_value(second)?).await?;
    let told: Api<DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        start,
        Kind::hosted_cluster_identities().resource(),
    );
    eventually("the younger one is told whose it is", async || {
        let told = told.get_opt(&name).await?.map(|it| serde_json::to_string(&it)).transpose()?;
        Ok(told.is_some_and(|text| text.contains("which was there first")))
    })
    .await?;
    let room = format!("/{}/", world.room());
    expect_same("writes", running.written(&room), Vec::new())?;
    running.end().await?;
    clusters.delete(&name, &DeleteParams::default()).await?;
    world.clear().await
}

async fn broken(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.room()).await?;
    world.broken_canary().await?;
    eventually("the identity is broken", async || {
        let told = world.told().await?;
        let identities = told["status"]["identities"].as_array().cloned().unwrap_or_default();
        Ok(identities.iter().any(|it| it["component"] == "disk" && it["ready"] == "False"))
    })
    .await?;
    let clusters = world.api(&Kind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the condition says what stays in Azure", async || {
        let Some(cluster) = clusters.get_opt("harbour").await? else { return Ok(false) };
        let conditions = cluster.data["status"]["conditions"].as_array().cloned();
        Ok(conditions.unwrap_or_default().iter().any(|it| {
            it["type"] == "AzureResourcesCleanedUp"
                && it["status"] == "False"
                && it["message"].as_str().is_some_and(|text| text.contains("managed disks"))
        }))
    })
    .await?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let told = events.list(&ListParams::default()).await?;
    let about = told.iter().filter(|it| it.reason.as_deref() == Some("ResourcesLeft")).count();
    expect_same("events about it", about, 1)?;
    eventually("it goes all the same", async || Ok(world.count(&deployments()).await? == 0))
        .await?;
    running.end().await?;
    world.clear().await
}
