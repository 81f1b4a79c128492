//! What the API server does with an object beside judging it: it keeps what others define, fills in
//! what is missing, and leaves out what nobody knows.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use lanyard_api::{HostedCluster, HostedClusterIdentities, HostedControlPlane, definitions};
use lanyard_desired::validate;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::world::World;
use super::{Stage, trial};
use crate::api_server::{Kind, install};
use crate::suites::expect_same;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "preservation::fields_of_others_are_kept_through_a_patch", kept),
        trial(stage, "preservation::defaults_are_filled_in", defaults),
        trial(stage, "preservation::a_misspelled_field_of_the_platform_is_pruned", pruned),
        trial(stage, "preservation::an_object_of_the_fuller_schema_is_read_whole", fuller),
        trial(stage, "preservation::a_control_plane_has_the_same_platform", control_plane),
        trial(stage, "preservation::conditions_have_an_owner_each", conditions),
        trial(stage, "preservation::an_object_outlives_the_api_server", restart),
        trial(stage, "preservation::our_own_kind_keeps_all_that_its_type_knows", identities),
    ]
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject, Failed> {
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// What the server answers, without what it adds itself.
fn plain(object: &DynamicObject) -> Result<Value, Failed> {
    Ok(serde_json::to_value(object)?)
}

async fn kept(world: World) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster());
    let mut cluster = world.hosted_cluster();
    cluster["spec"]["tolerations"] = json!([{"key": "x", "operator": "Exists"}]);
    cluster["spec"]["platform"]["somebodys"] = json!({"deep": [1, {"two": null}]});
    cluster["spec"]["secretEncryption"]["kms"]["aws"] = json!({"region": "us-east-1"});
    let made = create(&api, cluster.clone()).await?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"ours": "yes"}}}));
    let name = made.metadata.name.unwrap_or_default();
    let patched = api.patch(&name, &PatchParams::default(), &patch).await?;
    let spec = &plain(&patched)?["spec"];
    for field in ["tolerations", "etcd", "networking", "release", "services", "dns"] {
        expect_same(field, &spec[field], &cluster["spec"][field])?;
    }
    expect_same("platform", &spec["platform"], &cluster["spec"]["platform"])?;
    expect_same("encryption", &spec["secretEncryption"], &cluster["spec"]["secretEncryption"])
}

async fn defaults(world: World) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster());
    let mut cluster = world.hosted_cluster();
    let spec = &mut cluster["spec"];
    without(&mut spec["platform"]["azure"], &["cloud", "resourceGroup"]);
    without(spec, &["issuerURL"]);
    spec["serviceAccountSigningKey"] = json!({});
    let made = plain(&create(&api, cluster).await?)?;
    let azure = &made["spec"]["platform"]["azure"];
    expect_same("cloud", azure["cloud"].as_str(), Some("AzurePublicCloud"))?;
    expect_same("resourceGroup", azure["resourceGroup"].as_str(), Some("default"))?;
    let issuer = made["spec"]["issuerURL"].as_str();
    expect_same("issuerURL", issuer, Some(definitions::DEFAULT_ISSUER_URL))?;
    let key = &made["spec"]["serviceAccountSigningKey"];
    expect_same("serviceAccountSigningKey", key, &json!({"name": ""}))
}

fn without(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

async fn pruned(world: World) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster());
    let mut cluster = world.hosted_cluster();
    let azure = &mut cluster["spec"]["platform"]["azure"];
    without(azure, &["resourceGroup"]);
    azure["resourceGroupName"] = json!("mine");
    let made = plain(&create(&api, cluster).await?)?;
    let azure = &made["spec"]["platform"]["azure"];
    expect_same("the default", azure["resourceGroup"].as_str(), Some("default"))?;
    expect_same("the misspelled field", &azure["resourceGroupName"], &Value::Null)
}

/// A definition that keeps nothing that it does not name, and names much that ours does not, as the
/// reference's does. It has a group of its own, so that both are served.
fn fuller_definition() -> Result<CustomResourceDefinition, Failed> {
    let found = definitions::all().into_iter().find(|it| it.plural() == "hostedclusters");
    let mut value = found.ok_or("no definition")?.value;
    value["metadata"]["name"] = json!("hostedclusters.fuller.lanyard.dev");
    value["spec"]["group"] = json!("fuller.lanyard.dev");
    let schema = &mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = &mut schema["properties"]["spec"];
    without(spec, &["x-kubernetes-preserve-unknown-fields"]);
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

async fn fuller(world: World) -> Result<(), Failed> {
    install(&world.client, &[fuller_definition()?]).await?;
    let kind = Kind::of("fuller.lanyard.dev", "v1beta1", "HostedCluster", "hostedclusters");
    let mut cluster = world.hosted_cluster();
    cluster["apiVersion"] = json!("fuller.lanyard.dev/v1beta1");
    let made = plain(&create(&world.api(&kind), cluster).await?)?;
    expect_same("a default", &made["spec"]["autoscaling"], &json!({"maxNodesTotal": 3}))?;
    let read: HostedCluster = serde_json::from_value(made.clone())?;
    validate(&read)?;
    let spec = serde_json::to_value(&read.spec)?;
    expect_same("what is read and written", &spec, &made["spec"])
}

async fn control_plane(world: World) -> Result<(), Failed> {
    let mut cluster = world.hosted_cluster();
    cluster["kind"] = json!(HostedControlPlane::KIND);
    let api = world.api(&Kind::hosted_control_plane());
    let made = plain(&create(&api, cluster.clone()).await?)?;
    let read: HostedControlPlane = serde_json::from_value(made.clone())?;
    let spec = serde_json::to_value(&read.spec)?;
    expect_same("what is read and written", &spec, &made["spec"])?;
    expect_same("spec", &made["spec"], &cluster["spec"])?;
    let azure = &mut cluster["spec"]["platform"]["azure"];
    azure["topology"] = json!("Private");
    cluster["metadata"]["name"] = json!("other");
    match create(&api, cluster).await {
        Ok(_) => Err("a control plane with a broken platform was accepted".into()),
        Err(error) => {
            let text = error.message().unwrap_or_default();
            let message = definitions::message::PRIVATE_MEMBER;
            if text.contains(message) { Ok(()) } else { Err(text.to_owned().into()) }
        }
    }
}

/// Two managers write a condition each, and neither takes the other's away.
async fn conditions(world: World) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster());
    let made = create(&api, world.hosted_cluster()).await?;
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
    let found = plain(&api.get(&name).await?)?;
    let found = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found: Vec<_> = found.iter().filter_map(|it| it["type"].as_str()).collect();
    expect_same("conditions", found, vec!["Available", "ValidAzureIdentities"])
}

async fn restart(world: World) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster());
    let made = create(&api, world.hosted_cluster()).await?;
    world.plane.kill_server();
    world.plane.start_server().await?;
    let found = api.get(made.metadata.name.as_deref().unwrap_or_default()).await?;
    expect_same("the object", plain(&found)?, plain(&made)?)
}

async fn identities(world: World) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster_identities());
    let object = json!({
        "apiVersion": HostedClusterIdentities::API_VERSION,
        "kind": HostedClusterIdentities::KIND,
        "metadata": {"name": "harbour"},
    });
    create(&api, object.clone()).await?;
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
    let made = plain(&made)?;
    expect_same("status", &made["status"], &status["status"])?;
    let read: HostedClusterIdentities = serde_json::from_value(made.clone())?;
    let written = serde_json::to_value(&read.status)?;
    expect_same("what is read and written", &written, &made["status"])?;
    status["status"]["identities"][0]["ready"] = json!("Maybe");
    match api.patch_status("harbour", &parameters, &Patch::Apply(&status)).await {
        Ok(_) => Err("a status that is none was accepted".into()),
        Err(_) => Ok(()),
    }
}
