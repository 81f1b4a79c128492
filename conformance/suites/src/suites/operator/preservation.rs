//! Trials of the API server's handling of objects besides validation: it keeps fields of others, applies
//! defaults, and prunes unknown fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use lanyard_api::{HostedCluster, HostedClusterIdentities, HostedControlPlane, crd_definitions};
use lanyard_desired::validate;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::trial_fixture::OperatorTrialFixture;
use super::{OperatorSuiteFixture, trial};
use crate::api_server::{DynamicKind, install_definitions};
use crate::suites::expect_equal;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(suite, "preservation::unknown_fields_survive_a_patch", foreign_fields_are_kept),
        trial(suite, "preservation::defaults_are_filled_in", defaults_are_filled_in),
        trial(
            suite,
            "preservation::a_misspelled_field_of_the_platform_is_pruned",
            misspelled_field_is_pruned,
        ),
        trial(
            suite,
            "preservation::object_of_the_full_hypershift_schema_round_trips",
            fuller_schema_is_read,
        ),
        trial(
            suite,
            "preservation::hosted_control_plane_has_the_same_platform_schema",
            control_plane_platform,
        ),
        trial(
            suite,
            "preservation::each_condition_keeps_its_field_manager",
            conditions_of_two_managers,
        ),
        trial(
            suite,
            "preservation::object_survives_an_api_server_restart",
            object_survives_restart,
        ),
        trial(suite, "preservation::hosted_cluster_identities_round_trips", identities_round_trip),
    ]
}

async fn create_object(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject, Failed> {
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// The object as JSON.
fn object_value(object: &DynamicObject) -> Result<Value, Failed> {
    Ok(serde_json::to_value(object)?)
}

async fn foreign_fields_are_kept(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let mut cluster = fixture.hosted_cluster();
    cluster["spec"]["tolerations"] = json!([{"key": "x", "operator": "Exists"}]);
    cluster["spec"]["platform"]["unknown"] = json!({"deep": [1, {"two": null}]});
    cluster["spec"]["secretEncryption"]["kms"]["aws"] = json!({
        "region": "us-east-1",
        "activeKey": {"arn": "arn:aws:kms:us-east-1:123456789012:key/1"},
        "auth": {"awsKms": "arn:aws:iam::123456789012:role/kms"},
    });
    let created = create_object(&api, cluster.clone()).await?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"ours": "yes"}}}));
    let name = created.metadata.name.unwrap_or_default();
    let patched = api.patch(&name, &PatchParams::default(), &patch).await?;
    let spec = &object_value(&patched)?["spec"];
    for field in ["tolerations", "etcd", "networking", "release", "services", "dns"] {
        expect_equal(field, &spec[field], &cluster["spec"][field])?;
    }
    expect_equal("platform", &spec["platform"], &cluster["spec"]["platform"])?;
    expect_equal("encryption", &spec["secretEncryption"], &cluster["spec"]["secretEncryption"])
}

async fn defaults_are_filled_in(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let mut cluster = fixture.hosted_cluster();
    let spec = &mut cluster["spec"];
    remove_fields(&mut spec["platform"]["azure"], &["cloud", "resourceGroup"]);
    remove_fields(spec, &["issuerURL", "etcd", "networking", "capabilities"]);
    spec["serviceAccountSigningKey"] = json!({});
    let created = object_value(&create_object(&api, cluster).await?)?;
    let azure = &created["spec"]["platform"]["azure"];
    expect_equal("cloud", azure["cloud"].as_str(), Some("AzurePublicCloud"))?;
    expect_equal("resourceGroup", azure["resourceGroup"].as_str(), Some("default"))?;
    let issuer = created["spec"]["issuerURL"].as_str();
    expect_equal("issuerURL", issuer, Some(crd_definitions::DEFAULT_ISSUER_URL))?;
    let spec = &created["spec"];
    expect_equal("etcd", &spec["etcd"], &crd_definitions::default_etcd())?;
    expect_equal("networking", &spec["networking"], &crd_definitions::default_networking())?;
    expect_equal("capabilities", &spec["capabilities"], &json!({}))?;
    let key = &spec["serviceAccountSigningKey"];
    expect_equal("serviceAccountSigningKey", key, &json!({"name": ""}))
}

fn remove_fields(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

async fn misspelled_field_is_pruned(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let mut cluster = fixture.hosted_cluster();
    let azure = &mut cluster["spec"]["platform"]["azure"];
    remove_fields(azure, &["resourceGroup"]);
    azure["resourceGroupName"] = json!("mine");
    let created = object_value(&create_object(&api, cluster).await?)?;
    let azure = &created["spec"]["platform"]["azure"];
    expect_equal("the default", azure["resourceGroup"].as_str(), Some("default"))?;
    expect_equal("the misspelled field", &azure["resourceGroupName"], &Value::Null)
}

/// A CRD that prunes unknown fields and declares many more than lanyard's, as HyperShift's does. It has its
/// own group, so that both are served.
fn fuller_definition() -> Result<CustomResourceDefinition, Failed> {
    let found =
        crd_definitions::crd_manifests().into_iter().find(|it| it.plural() == "hostedclusters");
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
    Ok(serde_json::from_value(value)?)
}

async fn fuller_schema_is_read(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    install_definitions(&fixture.client, &[fuller_definition()?]).await?;
    let kind =
        DynamicKind::from_names("fuller.lanyard.dev", "v1beta1", "HostedCluster", "hostedclusters");
    let mut cluster = fixture.hosted_cluster();
    cluster["apiVersion"] = json!("fuller.lanyard.dev/v1beta1");
    let created = object_value(&create_object(&fixture.dynamic_api(&kind), cluster).await?)?;
    expect_equal("a default", &created["spec"]["autoscaling"], &json!({"maxNodesTotal": 3}))?;
    let read: HostedCluster = serde_json::from_value(created.clone())?;
    validate(&read)?;
    let spec = serde_json::to_value(&read.spec)?;
    expect_equal("the spec or status after a round trip", &spec, &created["spec"])
}

async fn control_plane_platform(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let mut cluster = fixture.hosted_cluster();
    cluster["kind"] = json!(HostedControlPlane::KIND);
    cluster["spec"]["releaseImage"] = cluster["spec"]["release"]["image"].take();
    remove_fields(&mut cluster["spec"], &["release"]);
    cluster["spec"]["capabilities"] = json!({});
    let api = fixture.dynamic_api(&DynamicKind::hosted_control_plane());
    let created = object_value(&create_object(&api, cluster.clone()).await?)?;
    let read: HostedControlPlane = serde_json::from_value(created.clone())?;
    let spec = serde_json::to_value(&read.spec)?;
    expect_equal("the spec or status after a round trip", &spec, &created["spec"])?;
    expect_equal("spec", &created["spec"], &cluster["spec"])?;
    let azure = &mut cluster["spec"]["platform"]["azure"];
    azure["topology"] = json!("Private");
    cluster["metadata"]["name"] = json!("other");
    match create_object(&api, cluster).await {
        Ok(_) => Err("a control plane with a broken platform was accepted".into()),
        Err(error) => {
            let text = error.message().unwrap_or_default();
            let message = crd_definitions::validation_messages::PRIVATE_MEMBER;
            if text.contains(message) { Ok(()) } else { Err(text.to_owned().into()) }
        }
    }
}

/// Two managers apply one condition each, and neither removes the other's.
async fn conditions_of_two_managers(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let created = create_object(&api, fixture.hosted_cluster()).await?;
    let name = created.metadata.name.unwrap_or_default();
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

async fn object_survives_restart(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let created = create_object(&api, fixture.hosted_cluster()).await?;
    fixture.plane.kill_api_server();
    fixture.plane.start_api_server().await?;
    let found = api.get(created.metadata.name.as_deref().unwrap_or_default()).await?;
    expect_equal("the object", object_value(&found)?, object_value(&created)?)
}

async fn identities_round_trip(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster_identities());
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
    let created = api.patch_status("harbour", &parameters, &Patch::Apply(&status)).await?;
    let created = object_value(&created)?;
    expect_equal("status", &created["status"], &status["status"])?;
    let read: HostedClusterIdentities = serde_json::from_value(created.clone())?;
    let written = serde_json::to_value(&read.status)?;
    expect_equal("the spec or status after a round trip", &written, &created["status"])?;
    status["status"]["identities"][0]["ready"] = json!("Maybe");
    match api.patch_status("harbour", &parameters, &Patch::Apply(&status)).await {
        Ok(_) => Err("an invalid status was accepted".into()),
        Err(_) => Ok(()),
    }
}
