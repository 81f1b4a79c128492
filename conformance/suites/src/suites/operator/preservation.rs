//! What the API server does with an object beside judging it: it keeps what others define, fills in
//! what is missing, and leaves out what nobody knows.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use lanyard_api::{HostedCluster, HostedClusterIdentities, HostedControlPlane, definitions};
use lanyard_desired::validate;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::trial_fixture::OperatorTrialFixture;
use super::{OperatorSuiteFixture, trial};
use crate::api_server::{DynamicKind, install_definitions};
use crate::suites::expect_equal;

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(stage, "preservation::unknown_fields_survive_a_patch", foreign_fields_are_kept),
        trial(stage, "preservation::defaults_are_filled_in", defaults_are_filled_in),
        trial(
            stage,
            "preservation::a_misspelled_field_of_the_platform_is_pruned",
            misspelled_field_is_pruned,
        ),
        trial(
            stage,
            "preservation::object_of_the_full_hypershift_schema_round_trips",
            fuller_schema_is_read,
        ),
        trial(
            stage,
            "preservation::hosted_control_plane_has_the_same_platform_schema",
            control_plane_platform,
        ),
        trial(
            stage,
            "preservation::each_condition_keeps_its_field_manager",
            conditions_of_two_managers,
        ),
        trial(
            stage,
            "preservation::object_survives_an_api_server_restart",
            object_survives_restart,
        ),
        trial(stage, "preservation::hosted_cluster_identities_round_trips", identities_round_trip),
    ]
}

async fn create_object(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject, Failed> {
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// What the server answers, without what it adds itself.
fn object_value(object: &DynamicObject) -> Result<Value, Failed> {
    Ok(serde_json::to_value(object)?)
}

async fn foreign_fields_are_kept(world: OperatorTrialFixture) -> Result<(), Failed> {
    let api = world.dynamic_api(&DynamicKind::hosted_cluster());
    let mut cluster = world.hosted_cluster();
    cluster["spec"]["tolerations"] = json!([{"key": "x", "operator": "Exists"}]);
    cluster["spec"]["platform"]["somebodys"] = json!({"deep": [1, {"two": null}]});
    cluster["spec"]["secretEncryption"]["kms"]["aws"] = json!({"region": "us-east-1"});
    let made = create_object(&api, cluster.clone()).await?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"ours": "yes"}}}));
    let name = made.metadata.name.unwrap_or_default();
    let patched = api.patch(&name, &PatchParams::default(), &patch).await?;
    let spec = &object_value(&patched)?["spec"];
    for field in ["tolerations", "etcd", "networking", "release", "services", "dns"] {
        expect_equal(field, &spec[field], &cluster["spec"][field])?;
    }
    expect_equal("platform", &spec["platform"], &cluster["spec"]["platform"])?;
    expect_equal("encryption", &spec["secretEncryption"], &cluster["spec"]["secretEncryption"])
}

async fn defaults_are_filled_in(world: OperatorTrialFixture) -> Result<(), Failed> {
    let api = world.dynamic_api(&DynamicKind::hosted_cluster());
    let mut cluster = world.hosted_cluster();
    let spec = &mut cluster["spec"];
    remove_fields(&mut spec["platform"]["azure"], &["cloud", "resourceGroup"]);
    remove_fields(spec, &["issuerURL"]);
    spec["serviceAccountSigningKey"] = json!({});
    let made = object_value(&create_object(&api, cluster).await?)?;
    let azure = &made["spec"]["platform"]["azure"];
    expect_equal("cloud", azure["cloud"].as_str(), Some("AzurePublicCloud"))?;
    expect_equal("resourceGroup", azure["resourceGroup"].as_str(), Some("default"))?;
    let issuer = made["spec"]["issuerURL"].as_str();
    expect_equal("issuerURL", issuer, Some(definitions::DEFAULT_ISSUER_URL))?;
    let key = &made["spec"]["serviceAccountSigningKey"];
    expect_equal("serviceAccountSigningKey", key, &json!({"name": ""}))
}

fn remove_fields(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

async fn misspelled_field_is_pruned(world: OperatorTrialFixture) -> Result<(), Failed> {
    let api = world.dynamic_api(&DynamicKind::hosted_cluster());
    let mut cluster = world.hosted_cluster();
    let azure = &mut cluster["spec"]["platform"]["azure"];
    remove_fields(azure, &["resourceGroup"]);
    azure["resourceGroupName"] = json!("mine");
    let made = object_value(&create_object(&api, cluster).await?)?;
    let azure = &made["spec"]["platform"]["azure"];
    expect_equal("the default", azure["resourceGroup"].as_str(), Some("default"))?;
    expect_equal("the misspelled field", &azure["resourceGroupName"], &Value::Null)
}

/// A definition that keeps nothing that it does not name, and names much that ours does not, as the
/// reference's does. It has a group of its own, so that both are served.
fn fuller_definition() -> Result<CustomResourceDefinition, Failed> {
    let found = definitions::crd_manifests().into_iter().find(|it| it.plural() == "hostedclusters");
    let mut value = found.ok_or("no definition")?.value;
    value["metadata"]["name"] = json!("hostedclusters.fuller.lanyard.dev");
    value["spec"]["group"] = json!("fuller.lanyard.dev");
    let schema = &mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = &mut schema["properties"]["spec"];
    remove_fields(spec, &["x-kubernetes-preserve-unknown-fields"]);
    let text = json!({"type": "string"});
    let named = json!({"type": "object", "properties": {"name": text}});
    let cidrs = json!({"type": "array", "items": {"type": "object", "required": ["cidr"], "properties": {"cidr": text}}});
    let more = json!({
        "release": {"type": "object", "required": ["image"], "properties": {"image": text}},
        "channel": text,
        "pullSecret": named,
        "sshKey": named,
        "fips": {"type": "boolean"},
        "controllerAvailabilityPolicy": {"type": "string", "default": "HighlyAvailable"},
        "infrastructureAvailabilityPolicy": text,
        "olmCatalogPlacement": {"type": "string", "default": "management"},
        "networking": {"type": "object", "properties": {
            "networkType": text,
            "clusterNetwork": cidrs,
            "serviceNetwork": cidrs,
            "machineNetwork": cidrs,
        }},
        "etcd": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "autoscaling": {"type": "object", "default": {}, "properties": {
            "maxNodesTotal": {"type": "integer", "default": 3},
        }},
    });
    for (name, field) in more.as_object().into_iter().flatten() {
        spec["properties"][name] = field.clone();
    }
    for name in ["release", "pullSecret", "networking", "etcd"] {
        spec["required"].as_array_mut().ok_or("no requirements")?.push(json!(name));
    }
    Ok(serde_json::from_value(value)?)
}

async fn fuller_schema_is_read(world: OperatorTrialFixture) -> Result<(), Failed> {
    install_definitions(&world.client, &[fuller_definition()?]).await?;
    let kind =
        DynamicKind::from_names("fuller.lanyard.dev", "v1beta1", "HostedCluster", "hostedclusters");
    let mut cluster = world.hosted_cluster();
    cluster["apiVersion"] = json!("fuller.lanyard.dev/v1beta1");
    let made = object_value(&create_object(&world.dynamic_api(&kind), cluster).await?)?;
    expect_equal("a default", &made["spec"]["autoscaling"], &json!({"maxNodesTotal": 3}))?;
    let read: HostedCluster = serde_json::from_value(made.clone())?;
    validate(&read)?;
    let spec = serde_json::to_value(&read.spec)?;
    expect_equal("what is read and written", &spec, &made["spec"])
}

async fn control_plane_platform(world: OperatorTrialFixture) -> Result<(), Failed> {
    let mut cluster = world.hosted_cluster();
    cluster["kind"] = json!(HostedControlPlane::KIND);
    let api = world.dynamic_api(&DynamicKind::hosted_control_plane());
    let made = object_value(&create_object(&api, cluster.clone()).await?)?;
    let read: HostedControlPlane = serde_json::from_value(made.clone())?;
    let spec = serde_json::to_value(&read.spec)?;
    expect_equal("what is read and written", &spec, &made["spec"])?;
    expect_equal("spec", &made["spec"], &cluster["spec"])?;
    let azure = &mut cluster["spec"]["platform"]["azure"];
    azure["topology"] = json!("Private");
    cluster["metadata"]["name"] = json!("other");
    match create_object(&api, cluster).await {
        Ok(_) => Err("a control plane with a broken platform was accepted".into()),
        Err(error) => {
            let text = error.message().unwrap_or_default();
            let message = definitions::validation_messages::PRIVATE_MEMBER;
            if text.contains(message) { Ok(()) } else { Err(text.to_owned().into()) }
        }
    }
}

/// Two managers write a condition each, and neither takes the other's away.
async fn conditions_of_two_managers(world: OperatorTrialFixture) -> Result<(), Failed> {
    let api = world.dynamic_api(&DynamicKind::hosted_cluster());
    let made = create_object(&api, world.hosted_cluster()).await?;
    let name = made.metadata.name.unwrap_or_default();
    for (manager, condition) in [("theirs", "Available"), ("ours", "ValidAzureIdentities")] {
        let status = json!({
            "apiVersion": HostedCluster::API_VERSION,
            "kind": HostedCluster::KIND,
            "status": {"conditions": [{
                "type": condition,
                "status": "True",
                "reason": "AsExpected",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        api.patch_status(&name, &PatchParams::apply(manager), &Patch::Apply(status)).await?;
    }
    let found = object_value(&api.get(&name).await?)?;
    let found = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found: Vec<_> = found.iter().filter_map(|it| it["type"].as_str()).collect();
    expect_equal("conditions", found, vec!["Available", "ValidAzureIdentities"])
}

async fn object_survives_restart(world: OperatorTrialFixture) -> Result<(), Failed> {
    let api = world.dynamic_api(&DynamicKind::hosted_cluster());
    let made = create_object(&api, world.hosted_cluster()).await?;
    world.plane.kill_api_server();
    world.plane.start_api_server().await?;
    let found = api.get(made.metadata.name.as_deref().unwrap_or_default()).await?;
    expect_equal("the object", object_value(&found)?, object_value(&made)?)
}

async fn identities_round_trip(world: OperatorTrialFixture) -> Result<(), Failed> {
    let api = world.dynamic_api(&DynamicKind::hosted_cluster_identities());
    let object = json!({
        "apiVersion": HostedClusterIdentities::API_VERSION,
        "kind": HostedClusterIdentities::KIND,
        "metadata": {"name": "harbour"},
    });
    create_object(&api, object.clone()).await?;
    let time = "2026-01-01T00:00:00Z";
    let mut status = object;
    status["status"] = json!({
        "observedGeneration": 1,
        "identities": [{
            "component": "disk",
            "clientID": "550e8400-e29b-41d4-a716-446655440000",
            "secretProviderClass": "managed-azure-disk-csi",
            "ready": "False",
            "reason": "NotReported",
            "message": "x",
            "lastGoodHop": "volume",
            "failedHop": "decode",
            "loadedVersion": "1",
            "notBefore": time,
            "notAfter": time,
            "renewAfter": time,
            "cannotRenewAfter": time,
            "since": time,
        }],
        "drift": [{"kind": "StaleMount", "subject": "disk", "message": "x", "since": time}],
    });
    let parameters = PatchParams::apply("ours");
    let made = api.patch_status("harbour", &parameters, &Patch::Apply(&status)).await?;
    let made = object_value(&made)?;
    expect_equal("status", &made["status"], &status["status"])?;
    let read: HostedClusterIdentities = serde_json::from_value(made.clone())?;
    let written = serde_json::to_value(&read.status)?;
    expect_equal("what is read and written", &written, &made["status"])?;
    status["status"]["identities"][0]["ready"] = json!("Maybe");
    match api.patch_status("harbour", &parameters, &Patch::Apply(&status)).await {
        Ok(_) => Err("a status that is none was accepted".into()),
        Err(_) => Ok(()),
    }
}
