//! Trials of reconciling and deleting a HostedCluster.

use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_desired::OwnedKind;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::namespaces::create_foreign_cloud_config;
use super::running_operator::{
    RunningOperator, class_kind, config_map_kind, deployment_kind, use_secret_twice,
    wait_until_quiet,
};
use crate::api_server::{DynamicKind, ensure_namespace_exists};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "operator::hosted_cluster_is_reconciled_and_reported",
            hosted_cluster_is_reconciled,
        ),
        trial(suite, "operator::no_writes_after_reconcile_settled", no_writes_once_settled),
        trial(
            suite,
            "operator::changed_secret_name_updates_only_dependent_objects",
            renamed_secret,
        ),
        trial(suite, "operator::drift_is_corrected", drift_is_corrected),
        trial(
            suite,
            "operator::conflicting_fields_are_reported_and_unchanged",
            field_conflict_is_reported,
        ),
        trial(suite, "operator::paused_cluster_is_reported_but_not_reconciled", paused_cluster),
        trial(suite, "operator::invalid_spec_is_not_retried_until_it_changes", invalid_spec),
        trial(suite, "operator::deleted_cluster_leaves_no_objects", cluster_deletion),
        trial(
            suite,
            "operator::deletion_with_a_broken_identity_reports_remaining_resources",
            deletion_with_broken_identity,
        ),
        trial(suite, "operator::cluster_of_another_platform_is_ignored", other_platform),
        trial(
            suite,
            "operator::contradictory_settings_are_reported_without_writes",
            contradictory_settings,
        ),
        trial(
            suite,
            "operator::two_clusters_do_not_share_a_control_plane_namespace",
            shared_namespace_name,
        ),
    ]
}

async fn hosted_cluster_is_reconciled(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    eventually("the HostedCluster has the conditions", async || {
        let cluster = fixture.read_cluster().await?;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_there = |kind: &str| {
            conditions.iter().any(|it| it["type"] == kind && it["status"] == "Unknown")
        };
        Ok(is_there("ValidAzureIdentities") && is_there("ValidAzureKMSConfig"))
    })
    .await?;
    let cluster = fixture.read_cluster().await?;
    let finalizers = &cluster["metadata"]["finalizers"];
    expect_equal("finalizers", finalizers, &json!(["lanyard.dev/finalizer"]))?;
    let reported = fixture.read_identities().await?;
    for identity in reported["status"]["identities"].as_array().into_iter().flatten() {
        expect_equal("an identity without a report", &identity["ready"], &json!("Unknown"))?;
    }
    let owner = &reported["metadata"]["ownerReferences"][0]["uid"];
    expect_equal("the owner", owner, &cluster["metadata"]["uid"])?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn no_writes_once_settled(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let before = object_versions(&fixture).await?;
    running.stop().await?;
    // Another process finds the state unchanged and writes nothing.
    let repeated = RunningOperator::start(&fixture, |_| ()).await?;
    wait_until_quiet(&repeated, &fixture.namespace).await?;
    let writes = repeated.writes_to(&fixture.namespace);
    if !writes.is_empty() {
        let events: Api<Event> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
        let reported = events.list(&ListParams::default()).await?;
        let reported: Vec<_> =
            reported.iter().map(|it| (it.reason.clone(), it.message.clone())).collect();
        return Err(format!("writes: {writes:?}, events: {reported:?}").into());
    }
    expect_equal("versions", object_versions(&fixture).await?, before)?;
    // Objects that the watches delivered are not read again.
    expect_equal(
        "reads",
        repeated.requests().reads_of(&fixture.control_plane_namespace()),
        Vec::new(),
    )?;
    repeated.stop().await?;
    fixture.delete_cluster().await
}

/// The resource versions of all objects, of the HostedCluster and of its HostedClusterIdentities.
pub(super) async fn object_versions(
    fixture: &OperatorTrialFixture,
) -> Result<Vec<(String, Option<String>)>, Failed> {
    let mut versions = Vec::new();
    for kind in [
        class_kind(),
        deployment_kind(),
        config_map_kind(),
        secret_kind(),
        DynamicKind::hosted_control_plane(),
    ] {
        for object in fixture.control_plane_api(&kind).list(&ListParams::default()).await? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let name = format!("{} {name}", kind.api_resource().kind);
            versions.push((name, object.metadata.resource_version));
        }
    }
    let reported =
        fixture.read_identities().await?["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let cluster =
        fixture.read_cluster().await?["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    versions.extend([("identities".to_owned(), reported), ("cluster".to_owned(), cluster)]);
    Ok(versions)
}

pub(super) fn secret_kind() -> DynamicKind {
    DynamicKind::from_names("", "v1", "Secret", "secrets")
}

async fn renamed_secret(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let before = object_versions(&fixture).await?;
    let control_plane = json!({"disk": {"credentialsSecretName": "harbour-other-disk"}});
    let patch = json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
        "managedIdentities": {"controlPlane": control_plane},
    }}}}});
    fixture.patch_cluster(patch).await?;
    eventually("the class names the other secret", async || {
        let class = fixture.control_plane_api(&class_kind()).get("managed-azure-disk-csi").await?;
        Ok(serde_json::to_string(&class)?.contains("harbour-other-disk"))
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let after = object_versions(&fixture).await?;
    let changed: Vec<_> = after
        .iter()
        .filter(|(name, version)| !before.contains(&(name.clone(), version.clone())))
        .map(|(name, _)| name.as_str())
        .filter(|name| !["identities", "cluster"].contains(name))
        .collect();
    let expected = [
        "SecretProviderClass managed-azure-disk-csi",
        "Deployment azure-disk-csi-driver-controller",
        "Secret azure-disk-csi-config",
        "HostedControlPlane harbour",
    ];
    expect_equal("the changed objects", changed, expected.to_vec())?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn drift_is_corrected(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let patch = json!({"spec": {"parameters": {"keyvaultName": "other", "cloudName": "foreign"}}});
    let api = fixture.control_plane_api(&class_kind());
    api.patch("managed-azure-network", &parameters, &Patch::Merge(patch)).await?;
    eventually("the class is restored", async || {
        let class = serde_json::to_value(api.get("managed-azure-network").await?)?;
        let parameters = &class["spec"]["parameters"];
        Ok(parameters["keyvaultName"] == "harbour-identities" && parameters["cloudName"].is_null())
    })
    .await?;
    api.delete("managed-azure-network", &DeleteParams::default()).await?;
    eventually("the class is created again", async || {
        Ok(api.get_opt("managed-azure-network").await?.is_some())
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn field_conflict_is_reported(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let maps = create_foreign_cloud_config(&fixture, &json!({"cloud.conf": "{}"})).await?;
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    eventually("the drift names the manager and the field", async || {
        let reported = fixture.read_identities().await?.to_string();
        Ok(reported.contains("ConfigMap")
            && reported.contains("held by other-manager")
            && reported.contains("cloud.conf"))
    })
    .await?;
    let map = maps.get("azure-cloud-config").await?;
    let retained = map.data.and_then(|data| data.get("cloud.conf").cloned());
    expect_equal("the field of the other", retained.as_deref(), Some("{}"))?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn paused_cluster(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture.create_cluster(|it| it["spec"]["pausedUntil"] = json!("true")).await?;
    eventually("the identities are reported", async || {
        Ok(!fixture.read_identities().await?["status"].is_null())
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    expect_equal("classes", fixture.count_objects(&class_kind()).await?, 0)?;
    expect_equal(
        "writes",
        running.writes_to(&format!("{}-harbour", fixture.namespace)),
        Vec::new(),
    )?;
    fixture.patch_cluster(json!({"spec": {"pausedUntil": null}})).await?;
    fixture.wait_until_reconciled().await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn invalid_spec(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture.create_cluster(use_secret_twice).await?;
    eventually("the condition names the invalid field", async || {
        let reported = fixture.read_identities().await?;
        let conditions = reported["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|it| {
            it["type"] == "ValidAzureIdentities"
                && it["status"] == "False"
                && it["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("shared credentialsSecretName"))
        }))
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.clear_requests();
    wait_until_quiet(&running, &fixture.namespace).await?;
    expect_equal("writes", running.writes_to(&fixture.namespace), Vec::new())?;
    expect_equal("classes", fixture.count_objects(&class_kind()).await?, 0)?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn cluster_deletion(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.clear_requests();
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    let namespaces = Api::<Namespace>::all(fixture.client.clone());
    eventually(
        "the namespace is being deleted and contains no object of the operator",
        async || {
            let namespace = namespaces.get_opt(&fixture.control_plane_namespace()).await?;
            let is_going = namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
            let mut left = 0;
            for kind in [
                class_kind(),
                deployment_kind(),
                config_map_kind(),
                secret_kind(),
                DynamicKind::hosted_control_plane(),
            ] {
                left += fixture.count_objects(&kind).await?;
            }
            Ok(is_going && left == 0)
        },
    )
    .await?;
    // Settled objects are read once, whatever the number of reconciles.
    let kinds = OwnedKind::ALL.map(|kind| format!("/{}", kind.info().plural));
    for plural in kinds {
        let mut reads = running
            .requests()
            .reads_of(&format!("/namespaces/{}/", fixture.control_plane_namespace()));
        reads.retain(|line| line.ends_with(&plural));
        if reads.len() > 1 {
            return Err(format!("an object is read repeatedly:  {reads:?}").into());
        }
    }
    expect_equal("the cluster still exists", clusters.get_opt("harbour").await?.is_some(), true)?;
    finalize_namespace(&namespaces, &fixture.control_plane_namespace()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    running.stop().await
}

/// Waits until a cluster is gone whose deletion has begun, finalizing its namespace.
pub(super) async fn wait_for_deletion(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    let namespaces = Api::<Namespace>::all(fixture.client.clone());
    eventually("the namespace is being deleted", async || {
        let namespace = namespaces.get_opt(&fixture.control_plane_namespace()).await?;
        Ok(namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    finalize_namespace(&namespaces, &fixture.control_plane_namespace()).await?;
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await
}

/// Removes the finalizers of a namespace, as the controller manager would.
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

async fn other_platform(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture
        .create_cluster(|it| {
            it["spec"]["platform"] = json!({"type": "None"});
            it["spec"]["secretEncryption"] = json!({"type": "aescbc"});
        })
        .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    expect_equal("writes", running.writes_to(&fixture.namespace), Vec::new())?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn contradictory_settings(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let service = |settings: &mut lanyard_operator::OperatorSettings| {
        settings.managed_service = Some("ROSA".to_owned());
    };
    let running = RunningOperator::start(&fixture, service).await?;
    fixture.create_cluster(|_| ()).await?;
    eventually("the condition names the contradiction", async || {
        Ok(fixture.read_identities().await?.to_string().contains("ROSA"))
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    expect_equal("writes", running.writes_to(&fixture.control_plane_namespace()), Vec::new())?;
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let reported = events.list(&ListParams::default()).await?.items.len();
    expect_equal("events are few", reported < 5, true)?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn shared_namespace_name(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    // The clusters `a-b/c` and `a/b-c`.
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.control_plane_namespace()).await?;
    let (start, end) = fixture.namespace.split_once('-').unwrap_or_default();
    ensure_namespace_exists(&fixture.client, start).await?;
    let mut second = fixture.hosted_cluster();
    let name = format!("{end}-harbour");
    (second["metadata"]["namespace"], second["metadata"]["name"]) = (json!(start), json!(name));
    let kind = DynamicKind::hosted_cluster();
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(fixture.client.clone(), start, kind.api_resource());
    running.clear_requests();
    clusters.create(&PostParams::default(), &serde_json::from_value(second)?).await?;
    let reported: Api<DynamicObject> = Api::namespaced_with(
        fixture.client.clone(),
        start,
        DynamicKind::hosted_cluster_identities().api_resource(),
    );
    eventually("the status of the second cluster names the first", async || {
        let reported =
            reported.get_opt(&name).await?.map(|it| serde_json::to_string(&it)).transpose()?;
        Ok(reported.is_some_and(|text| text.contains("which was there first")))
    })
    .await?;
    let path_part = format!("/{}/", fixture.control_plane_namespace());
    expect_equal("writes", running.writes_to(&path_part), Vec::new())?;
    running.stop().await?;
    clusters.delete(&name, &DeleteParams::default()).await?;
    fixture.delete_cluster().await
}

async fn deletion_with_broken_identity(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.control_plane_namespace()).await?;
    fixture.create_broken_canary().await?;
    eventually("the identity is broken", async || {
        let reported = fixture.read_identities().await?;
        let identities = reported["status"]["identities"].as_array().cloned().unwrap_or_default();
        Ok(identities.iter().any(|it| it["component"] == "disk" && it["ready"] == "False"))
    })
    .await?;
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the condition names the remaining Azure resources", async || {
        let Some(cluster) = clusters.get_opt("harbour").await? else { return Ok(false) };
        let conditions = cluster.data["status"]["conditions"].as_array().cloned();
        Ok(conditions.unwrap_or_default().iter().any(|it| {
            it["type"] == "AzureResourcesCleanedUp"
                && it["status"] == "False"
                && it["message"].as_str().is_some_and(|text| text.contains("managed disks"))
        }))
    })
    .await?;
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let reported = events.list(&ListParams::default()).await?;
    let about = reported.iter().filter(|it| it.reason.as_deref() == Some("ResourcesLeft")).count();
    expect_equal("events about the remaining resources", about, 1)?;
    eventually("the deletion continues", async || {
        Ok(fixture.count_objects(&deployment_kind()).await? == 0)
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await
}
