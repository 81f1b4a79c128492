//! Trials of the HostedControlPlane: what its CRD requires, what the operator copies into it, and the ids that
//! the operator generates.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use lanyard_operator::OperatorRole;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::reconciliation::secret_kind;
use super::running_operator::{RunningOperator, config_map_kind, wait_until_quiet};
use crate::api_server::DynamicKind;
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "operator::cluster_without_optional_fields_gets_a_complete_control_plane",
            control_plane_without_optional_fields,
        ),
        trial(
            suite,
            "operator::incomplete_control_plane_is_rejected",
            incomplete_control_plane_is_rejected,
        ),
        trial(suite, "operator::missing_ids_are_generated_once", missing_ids),
        trial(
            suite,
            "operator::identity_only_role_generates_no_ids",
            no_ids_with_identity_only_role,
        ),
        trial(suite, "operator::mirrored_annotations_follow_the_cluster", mirrored_annotations),
        trial(suite, "operator::referenced_objects_are_copied", referenced_objects),
        trial(
            suite,
            "operator::missing_pull_secret_is_reported_and_its_copy_stays",
            missing_pull_secret,
        ),
    ]
}

const REQUIRED_FIELDS: [&str; 9] = [
    "dns",
    "etcd",
    "infraID",
    "issuerURL",
    "platform",
    "pullSecret",
    "releaseImage",
    "services",
    "sshKey",
];

fn remove_spec_fields(cluster: &mut Value, fields: &[&str]) {
    if let Some(spec) = cluster["spec"].as_object_mut() {
        spec.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

async fn read_control_plane(fixture: &OperatorTrialFixture) -> Result<Value, Failed> {
    let api = fixture.control_plane_api(&DynamicKind::hosted_control_plane());
    let found = api.get_opt("harbour").await?;
    Ok(found.map(serde_json::to_value).transpose()?.unwrap_or_default())
}

async fn control_plane_without_optional_fields(
    fixture: OperatorTrialFixture,
) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    let optional = ["sshKey", "dns", "etcd", "networking", "issuerURL", "serviceAccountSigningKey"];
    fixture.create_cluster(|it| remove_spec_fields(it, &optional)).await?;
    fixture.wait_until_reconciled().await?;
    let control_plane = read_control_plane(&fixture).await?;
    let spec = &control_plane["spec"];
    for field in REQUIRED_FIELDS {
        expect_equal(field, spec[field].is_null(), false)?;
    }
    expect_equal("dns", &spec["dns"], &json!({"baseDomain": ""}))?;
    expect_equal("sshKey", &spec["sshKey"], &json!({"name": ""}))?;
    expect_equal("pullSecret", &spec["pullSecret"], &json!({"name": "pull-secret"}))?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.clear_requests();
    fixture.patch_cluster(json!({"metadata": {"annotations": {"example.com/x": "y"}}})).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let namespace = fixture.control_plane_namespace();
    expect_equal("writes after an unrelated change", running.writes_to(&namespace), Vec::new())?;
    running.stop().await?;
    fixture.delete_cluster().await
}

/// The CRD requires what HyperShift's CRD requires, so that the other trials would notice a missing field.
async fn incomplete_control_plane_is_rejected(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    let complete = read_control_plane(&fixture).await?;
    running.stop().await?;
    let api = fixture.dynamic_api(&DynamicKind::hosted_control_plane());
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let attempt = async |field: Option<&str>| {
        let mut object = complete.clone();
        object["metadata"] = json!({"name": "another", "namespace": fixture.namespace});
        remove_spec_fields(&mut object, field.as_slice());
        Ok::<_, Failed>(api.create(&parameters, &serde_json::from_value(object)?).await)
    };
    attempt(None).await??;
    for field in REQUIRED_FIELDS {
        match attempt(Some(field)).await? {
            Ok(_) => return Err(format!("accepted without spec.{field}").into()),
            Err(error) => {
                let expected = format!("spec.{field}: Required value");
                let text = error.to_string();
                expect_equal(&text, text.contains(&expected), true)?;
            }
        }
    }
    fixture.delete_cluster().await
}

async fn missing_ids(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture.create_cluster(|it| remove_spec_fields(it, &["infraID", "clusterID"])).await?;
    fixture.wait_until_reconciled().await?;
    let cluster = fixture.read_cluster().await?;
    let ids =
        |object: &Value| [object["spec"]["infraID"].clone(), object["spec"]["clusterID"].clone()];
    let [infra_id, cluster_id] = ids(&cluster);
    let suffix = infra_id.as_str().and_then(|id| id.strip_prefix("harbour-")).map(str::len);
    expect_equal("the length of the random part", suffix, Some(5))?;
    expect_equal("the length of clusterID", cluster_id.as_str().map(str::len), Some(36))?;
    let control_plane = read_control_plane(&fixture).await?;
    expect_equal("the ids of the control plane", ids(&control_plane), ids(&cluster))?;
    // The finalizer is applied by the same manager, and must not remove the ids.
    let finalizers = &cluster["metadata"]["finalizers"];
    expect_equal("finalizers", finalizers, &json!(["lanyard.dev/finalizer"]))?;
    running.stop().await?;
    let repeated = RunningOperator::start(&fixture, |_| ()).await?;
    wait_until_quiet(&repeated, &fixture.namespace).await?;
    expect_equal("the ids later", ids(&fixture.read_cluster().await?), ids(&cluster))?;
    repeated.stop().await?;
    fixture.delete_cluster().await
}

async fn no_ids_with_identity_only_role(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running =
        RunningOperator::start(&fixture, |it| it.role = OperatorRole::IdentityOnly).await?;
    fixture.create_cluster(|it| remove_spec_fields(it, &["infraID", "clusterID"])).await?;
    eventually("the missing infra id is reported", async || {
        Ok(fixture.read_identities().await?.to_string().contains("spec.infraID"))
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let spec = fixture.read_cluster().await?["spec"].clone();
    expect_equal("infraID", &spec["infraID"], &Value::Null)?;
    expect_equal("clusterID", &spec["clusterID"], &Value::Null)?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn mirrored_annotations(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let topology = "hypershift.openshift.io/topology";
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture
        .create_cluster(|it| {
            it["metadata"]["annotations"][topology] = json!("dedicated-request-serving-components");
            it["metadata"]["labels"] = json!({"api.openshift.com/limited-support": "true"});
        })
        .await?;
    fixture.wait_until_reconciled().await?;
    let metadata = read_control_plane(&fixture).await?["metadata"].clone();
    let value = &metadata["annotations"][topology];
    expect_equal("topology", value, &json!("dedicated-request-serving-components"))?;
    let value = &metadata["labels"]["api.openshift.com/limited-support"];
    expect_equal("limited support", value, &json!("true"))?;
    // Annotations of another manager: one is mirrored and has no origin, the other is not.
    let api = fixture.control_plane_api(&DynamicKind::hosted_control_plane());
    let annotations = json!({
        "hypershift.openshift.io/disable-profiling": "kube-apiserver",
        "example.com/kept": "x",
    });
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    api.patch("harbour", &PatchParams::default(), &patch).await?;
    fixture
        .patch_cluster(json!({"metadata": {
            "annotations": {topology: null},
            "labels": {"api.openshift.com/limited-support": null},
        }}))
        .await?;
    eventually("annotations without an origin are removed", async || {
        let metadata = read_control_plane(&fixture).await?["metadata"].clone();
        let annotations = &metadata["annotations"];
        Ok(annotations[topology].is_null()
            && annotations["hypershift.openshift.io/disable-profiling"].is_null()
            && annotations["example.com/kept"] == "x"
            && metadata["labels"]["api.openshift.com/limited-support"].is_null())
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

/// Creates or replaces a Secret or `ConfigMap` in the namespace of the HostedCluster.
async fn apply_source(
    fixture: &OperatorTrialFixture,
    kind: &DynamicKind,
    name: &str,
    values: Value,
) -> Result<(), Failed> {
    let field = if kind.api_resource().kind == "Secret" { "stringData" } else { "data" };
    let object = json!({
        "apiVersion": "v1",
        "kind": kind.api_resource().kind,
        "metadata": {"name": name, "namespace": fixture.namespace},
        field: values,
    });
    let parameters = PatchParams::apply("kubectl").force();
    fixture.dynamic_api(kind).patch(name, &parameters, &Patch::Apply(object)).await?;
    Ok(())
}

async fn copied_secret(
    fixture: &OperatorTrialFixture,
    name: &str,
) -> Result<Option<Secret>, Failed> {
    let namespace = fixture.control_plane_namespace();
    Ok(Api::<Secret>::namespaced(fixture.client.clone(), &namespace).get_opt(name).await?)
}

fn secret_text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    String::from_utf8(bytes.clone()).ok()
}

async fn referenced_objects(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let (secrets, maps) = (secret_kind(), config_map_kind());
    let pull = |auths: &str| json!({".dockerconfigjson": auths, "notes": "not copied"});
    apply_source(&fixture, &secrets, "harbour-pull-secret", pull("{\"auths\":{}}")).await?;
    let key = json!({"id_rsa.pub": "ssh-ed25519 AAAA"});
    apply_source(&fixture, &secrets, "harbour-ssh-key", key).await?;
    apply_source(&fixture, &maps, "ours", json!({"ca-bundle.crt": "PEM"})).await?;
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture
        .create_cluster(|it| it["spec"]["additionalTrustBundle"] = json!({"name": "ours"}))
        .await?;
    fixture.wait_until_reconciled().await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let copy = copied_secret(&fixture, "pull-secret").await?.ok_or("no pull secret")?;
    expect_equal("type", copy.type_.as_deref(), Some("kubernetes.io/dockerconfigjson"))?;
    let text = secret_text(&copy, ".dockerconfigjson");
    expect_equal("pull secret", text.as_deref(), Some("{\"auths\":{}}"))?;
    expect_equal("keys", copy.data.map(|data| data.len()), Some(1))?;
    let copy = copied_secret(&fixture, "ssh-key").await?.ok_or("no SSH key")?;
    let text = secret_text(&copy, "id_rsa.pub");
    expect_equal("SSH key", text.as_deref(), Some("ssh-ed25519 AAAA"))?;
    let bundle = fixture.control_plane_api(&maps).get("user-ca-bundle").await?;
    expect_equal("trust bundle", &bundle.data["data"], &json!({"ca-bundle.crt": "PEM"}))?;
    let spec = read_control_plane(&fixture).await?["spec"].clone();
    expect_equal("sshKey", &spec["sshKey"], &json!({"name": "ssh-key"}))?;
    let reference = &spec["additionalTrustBundle"];
    expect_equal("additionalTrustBundle", reference, &json!({"name": "user-ca-bundle"}))?;

    let changed = "{\"auths\":{\"registry.example\":{}}}";
    apply_source(&fixture, &secrets, "harbour-pull-secret", pull(changed)).await?;
    fixture.patch_cluster(json!({"spec": {"sshKey": null, "additionalTrustBundle": null}})).await?;
    eventually("the copies follow", async || {
        let pull_secret = copied_secret(&fixture, "pull-secret").await?;
        let text = pull_secret.and_then(|copy| secret_text(&copy, ".dockerconfigjson"));
        let is_removed = copied_secret(&fixture, "ssh-key").await?.is_none()
            && fixture.control_plane_api(&maps).get_opt("user-ca-bundle").await?.is_none();
        Ok(is_removed && text.as_deref() == Some(changed))
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn missing_pull_secret(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let secrets = secret_kind();
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    let is_reported = async || {
        let reported = fixture.read_identities().await?;
        let conditions = reported["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok::<_, Failed>(conditions.iter().any(|it| {
            it["message"].as_str().is_some_and(|text| text.contains("spec.pullSecret.name"))
        }))
    };
    eventually("the missing Secret is reported", async || is_reported().await).await?;
    expect_equal("a copy", copied_secret(&fixture, "pull-secret").await?.is_none(), true)?;
    let values = json!({".dockerconfigjson": "{\"auths\":{}}"});
    apply_source(&fixture, &secrets, "harbour-pull-secret", values).await?;
    fixture.patch_cluster(json!({"metadata": {"annotations": {"example.com/x": "1"}}})).await?;
    eventually("the Secret is copied", async || {
        Ok(copied_secret(&fixture, "pull-secret").await?.is_some() && !is_reported().await?)
    })
    .await?;
    // The control plane goes on with the copy of a Secret that is deleted.
    let parameters = ListParams::default().fields("metadata.name=harbour-pull-secret");
    let sources = fixture.dynamic_api(&secrets);
    sources.delete_collection(&kube::api::DeleteParams::default(), &parameters).await?;
    fixture.patch_cluster(json!({"metadata": {"annotations": {"example.com/x": "2"}}})).await?;
    eventually("the missing Secret is reported again", async || is_reported().await).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    expect_equal("the copy", copied_secret(&fixture, "pull-secret").await?.is_some(), true)?;
    running.stop().await?;
    fixture.delete_cluster().await
}
