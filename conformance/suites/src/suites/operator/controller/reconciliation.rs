//! From a HostedCluster to everything that it should have, and back.

use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_desired::OwnedKind;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::namespaces::create_foreign_cloud_config;
use super::running_operator::{
    RunningOperator, class_kind, config_map_kind, deployment_kind, wait_until_quiet,
};
use crate::api_server::{DynamicKind, ensure_namespace_exists};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            stage,
            "operator::hosted_cluster_is_reconciled_and_reported",
            hosted_cluster_is_reconciled,
        ),
        trial(stage, "operator::no_writes_after_reconcile_settled", no_writes_once_settled),
        trial(
            stage,
            "operator::changed_secret_name_updates_only_dependent_objects",
            renamed_secret,
        ),
        trial(stage, "operator::drift_is_corrected", drift_is_corrected),
        trial(
            stage,
            "operator::conflicting_fields_are_reported_and_unchanged",
            field_conflict_is_reported,
        ),
        trial(stage, "operator::paused_cluster_is_reported_but_not_reconciled", paused_cluster),
        trial(stage, "operator::invalid_spec_is_not_retried_until_it_changes", invalid_spec),
        trial(stage, "operator::deleted_cluster_leaves_no_objects", cluster_deletion),
        trial(
            stage,
            "operator::deletion_with_a_broken_identity_reports_remaining_resources",
            deletion_with_broken_identity,
        ),
        trial(stage, "operator::cluster_of_another_platform_is_ignored", other_platform),
        trial(
            stage,
            "operator::contradictory_settings_are_reported_without_writes",
            contradictory_settings,
        ),
        trial(
            stage,
            "operator::two_clusters_do_not_share_a_control_plane_namespace",
            shared_namespace_name,
        ),
    ]
}

async fn hosted_cluster_is_reconciled(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    eventually("the conditions stand at the HostedCluster", async || {
        let cluster = world.read_cluster().await?;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_there = |kind: &str| {
            conditions.iter().any(|it| it["type"] == kind && it["status"] == "Unknown")
        };
        Ok(is_there("ValidAzureIdentities") && is_there("ValidAzureKMSConfig"))
    })
    .await?;
    let cluster = world.read_cluster().await?;
    let finalizers = &cluster["metadata"]["finalizers"];
    expect_equal("finalizers", finalizers, &json!(["lanyard.dev/finalizer"]))?;
    let told = world.read_identities().await?;
    for identity in told["status"]["identities"].as_array().into_iter().flatten() {
        expect_equal("what nobody told", &identity["ready"], &json!("Unknown"))?;
    }
    let owner = &told["metadata"]["ownerReferences"][0]["uid"];
    expect_equal("the owner", owner, &cluster["metadata"]["uid"])?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn no_writes_once_settled(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let before = object_versions(&world).await?;
    running.stop().await?;
    // Another process finds the same, and writes nothing at all.
    let again = RunningOperator::start(&world, |_| ()).await?;
    wait_until_quiet(&again, &world.namespace).await?;
    let writes = again.writes_to(&world.namespace);
    if !writes.is_empty() {
        let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
        let told = events.list(&ListParams::default()).await?;
        let told: Vec<_> = told.iter().map(|it| (it.reason.clone(), it.message.clone())).collect();
        return Err(format!("writes: {writes:?}, events: {told:?}").into());
    }
    expect_equal("versions", object_versions(&world).await?, before)?;
    // What the watches told is not asked again.
    expect_equal("reads", again.requests().reads_of(&world.control_plane_namespace()), Vec::new())?;
    again.stop().await?;
    world.delete_cluster().await
}

/// The versions of everything that is made, and of what is told.
pub(super) async fn object_versions(
    world: &OperatorTrialFixture,
) -> Result<Vec<(String, Option<String>)>, Failed> {
    let mut versions = Vec::new();
    for kind in [
        class_kind(),
        deployment_kind(),
        config_map_kind(),
        secret_kind(),
        DynamicKind::hosted_control_plane(),
    ] {
        for object in world.control_plane_api(&kind).list(&ListParams::default()).await? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let name = format!("{} {name}", kind.api_resource().kind);
            versions.push((name, object.metadata.resource_version));
        }
    }
    let told =
        world.read_identities().await?["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let cluster =
        world.read_cluster().await?["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    versions.extend([("told".to_owned(), told), ("cluster".to_owned(), cluster)]);
    Ok(versions)
}

fn secret_kind() -> DynamicKind {
    DynamicKind::from_names("", "v1", "Secret", "secrets")
}

async fn renamed_secret(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let before = object_versions(&world).await?;
    let control_plane = json!({"disk": {"credentialsSecretName": "harbour-other-disk"}});
    let patch = json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
        "managedIdentities": {"controlPlane": control_plane},
    }}}}});
    world.patch_cluster(patch).await?;
    eventually("the class names the other secret", async || {
        let class = world.control_plane_api(&class_kind()).get("managed-azure-disk-csi").await?;
        Ok(serde_json::to_string(&class)?.contains("harbour-other-disk"))
    })
    .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let after = object_versions(&world).await?;
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
    expect_equal("what changed", changed, expected.to_vec())?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn drift_is_corrected(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let patch = json!({"spec": {"parameters": {"keyvaultName": "other", "cloudName": "foreign"}}});
    let made = world.control_plane_api(&class_kind());
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
    running.stop().await?;
    world.delete_cluster().await
}

async fn field_conflict_is_reported(world: OperatorTrialFixture) -> Result<(), Failed> {
    let maps = create_foreign_cloud_config(&world, &json!({"cloud.conf": "{}"})).await?;
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    eventually("the drift names the manager and the field", async || {
        let told = world.read_identities().await?.to_string();
        Ok(told.contains("ConfigMap")
            && told.contains("held by somebody")
            && told.contains("cloud.conf"))
    })
    .await?;
    let map = maps.get("azure-cloud-config").await?;
    let kept = map.data.and_then(|data| data.get("cloud.conf").cloned());
    expect_equal("the field of the other", kept.as_deref(), Some("{}"))?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn paused_cluster(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|it| it["spec"]["pausedUntil"] = json!("true")).await?;
    eventually("it is told of", async || Ok(!world.read_identities().await?["status"].is_null()))
        .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    expect_equal("classes", world.count_objects(&class_kind()).await?, 0)?;
    expect_equal("writes", running.writes_to(&format!("{}-harbour", world.namespace)), Vec::new())?;
    world.patch_cluster(json!({"spec": {"pausedUntil": null}})).await?;
    world.wait_until_reconciled().await?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn invalid_spec(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    // The schema takes it, and nobody can use it.
    let vnet = "/spec/platform/azure/vnetID";
    world
        .create_cluster(|it| {
            if let Some(id) = it.pointer_mut(vnet) {
                *id = json!("not-an-id");
            }
        })
        .await?;
    eventually("the condition says what is wrong", async || {
        let told = world.read_identities().await?;
        let conditions = told["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|it| {
            it["type"] == "ValidAzureIdentities"
                && it["status"] == "False"
                && it["message"].as_str().is_some_and(|text| text.contains("vnetID"))
        }))
    })
    .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    running.clear_requests();
    wait_until_quiet(&running, &world.namespace).await?;
    expect_equal("writes", running.writes_to(&world.namespace), Vec::new())?;
    expect_equal("classes", world.count_objects(&class_kind()).await?, 0)?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn cluster_deletion(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.namespace).await?;
    running.clear_requests();
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    let namespaces = Api::<Namespace>::all(world.client.clone());
    eventually("the namespace is on its way out, and nothing of ours in it", async || {
        let namespace = namespaces.get_opt(&world.control_plane_namespace()).await?;
        let is_going = namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
        let mut left = 0;
        for kind in [
            class_kind(),
            deployment_kind(),
            config_map_kind(),
            secret_kind(),
            DynamicKind::hosted_control_plane(),
        ] {
            left += world.count_objects(&kind).await?;
        }
        Ok(is_going && left == 0)
    })
    .await?;
    // Settled objects are read once, whatever the number of looks.
    let kinds = OwnedKind::ALL.map(|kind| format!("/{}", kind.info().plural));
    for plural in kinds {
        let mut reads = running
            .requests()
            .reads_of(&format!("/namespaces/{}/", world.control_plane_namespace()));
        reads.retain(|line| line.ends_with(&plural));
        if reads.len() > 1 {
            return Err(format!("it is read again and again: {reads:?}").into());
        }
    }
    expect_equal("the cluster waits", clusters.get_opt("harbour").await?.is_some(), true)?;
    finalize_namespace(&namespaces, &world.control_plane_namespace()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    running.stop().await
}

/// Sees a cluster go whose deletion has begun and waits for nobody.
pub(super) async fn wait_for_deletion(world: &OperatorTrialFixture) -> Result<(), Failed> {
    let namespaces = Api::<Namespace>::all(world.client.clone());
    eventually("the namespace is on its way out", async || {
        let namespace = namespaces.get_opt(&world.control_plane_namespace()).await?;
        Ok(namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    finalize_namespace(&namespaces, &world.control_plane_namespace()).await?;
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await
}

/// Ends a namespace, as the controller manager would.
async fn finalize_namespace(namespaces: &Api<Namespace>, name: &str) -> Result<(), Failed> {
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

async fn other_platform(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world
        .create_cluster(|it| {
            it["spec"]["platform"] = json!({"type": "None"});
            it["spec"]["secretEncryption"] = json!({"type": "aescbc"});
        })
        .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    expect_equal("writes", running.writes_to(&world.namespace), Vec::new())?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn contradictory_settings(world: OperatorTrialFixture) -> Result<(), Failed> {
    let service = |settings: &mut lanyard_operator::OperatorSettings| {
        settings.managed_service = Some("ROSA".to_owned());
    };
    let running = RunningOperator::start(&world, service).await?;
    world.create_cluster(|_| ()).await?;
    eventually("the condition names the contradiction", async || {
        Ok(world.read_identities().await?.to_string().contains("ROSA"))
    })
    .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    expect_equal("writes", running.writes_to(&world.control_plane_namespace()), Vec::new())?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let told = events.list(&ListParams::default()).await?.items.len();
    expect_equal("events are few", told < 5, true)?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn shared_namespace_name(world: OperatorTrialFixture) -> Result<(), Failed> {
    // `a-b/c` and `a/b-c`.
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.control_plane_namespace()).await?;
    let (start, end) = world.namespace.split_once('-').unwrap_or_default();
    ensure_namespace_exists(&world.client, start).await?;
    let mut second = world.hosted_cluster();
    let name = format!("{end}-harbour");
    (second["metadata"]["namespace"], second["metadata"]["name"]) = (json!(start), json!(name));
    let kind = DynamicKind::hosted_cluster();
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), start, kind.api_resource());
    running.clear_requests();
    clusters.create(&PostParams::default(), &serde_json::from_value(second)?).await?;
    let told: Api<DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        start,
        DynamicKind::hosted_cluster_identities().api_resource(),
    );
    eventually("the younger one is told whose it is", async || {
        let told = told.get_opt(&name).await?.map(|it| serde_json::to_string(&it)).transpose()?;
        Ok(told.is_some_and(|text| text.contains("which was there first")))
    })
    .await?;
    let room = format!("/{}/", world.control_plane_namespace());
    expect_equal("writes", running.writes_to(&room), Vec::new())?;
    running.stop().await?;
    clusters.delete(&name, &DeleteParams::default()).await?;
    world.delete_cluster().await
}

async fn deletion_with_broken_identity(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.control_plane_namespace()).await?;
    world.create_broken_canary().await?;
    eventually("the identity is broken", async || {
        let told = world.read_identities().await?;
        let identities = told["status"]["identities"].as_array().cloned().unwrap_or_default();
        Ok(identities.iter().any(|it| it["component"] == "disk" && it["ready"] == "False"))
    })
    .await?;
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
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
    expect_equal("events about it", about, 1)?;
    eventually("it goes all the same", async || {
        Ok(world.count_objects(&deployment_kind()).await? == 0)
    })
    .await?;
    running.stop().await?;
    world.delete_cluster().await
}
