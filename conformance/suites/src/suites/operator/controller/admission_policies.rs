//! Trials of what the operator's token can do beyond the operator's own writes, with the permissions and the
//! admission policies of the chart.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use lanyard_operator::OperatorRole;
use lanyard_operator::permissions::{
    CONTROL_PLANE_CLUSTER_ROLE, cluster_permissions, control_plane_permissions,
};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::namespaces::mark_namespace_for_cluster;
use super::running_operator::{RunningOperator, config_map_kind, wait_until_quiet};
use crate::api_server::{ensure_namespace_exists, user_client};
use crate::suites::expect_equal;
use crate::suites::operator::operator_account::{
    OPERATOR_ROLE, OPERATOR_USER, grant_role_permissions, role_rules, wait_until_granted,
};
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "operator::operator_token_cannot_take_over_a_namespace",
            namespace_cannot_be_taken_over,
        ),
        trial(
            suite,
            "operator::operator_token_binds_only_its_two_roles_in_control_plane_namespaces",
            only_two_roles_can_be_bound,
        ),
        trial(
            suite,
            "operator::operator_token_writes_only_in_control_plane_namespaces",
            writes_are_limited_to_control_planes,
        ),
        trial(
            suite,
            "operator::existing_cluster_gets_its_role_binding_after_an_upgrade",
            upgrade_from_permissions_in_all_namespaces,
        ),
    ]
}

/// The operator's client, once it has the permissions of its role.
async fn operator_client(fixture: &OperatorTrialFixture) -> Result<Client, Failed> {
    grant_role_permissions(&fixture.client, &fixture.namespace, OperatorRole::All).await?;
    Ok(user_client(&fixture.plane, OPERATOR_USER).await?)
}

/// Repeats a dry-run request until the API server denies it with a message that contains `part`. A policy takes
/// effect some time after its creation.
async fn expect_denied<T: Debug>(
    what: &str,
    part: &str,
    request: impl AsyncFn() -> Result<T, kube::Error>,
) -> Result<(), Failed> {
    eventually(&format!("{what} is denied with `{part}`"), async || {
        Ok(match request().await {
            Err(kube::Error::Api(status)) => status.code == 403 && status.message.contains(part),
            Ok(_) | Err(_) => false,
        })
    })
    .await
}

fn dry_run_patch() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

fn dry_run_create() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn dry_run_delete() -> DeleteParams {
    DeleteParams { dry_run: true, ..DeleteParams::default() }
}

async fn namespace_cannot_be_taken_over(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    const UNMARKED: &str = "not marked as that of a control plane";
    let namespaces = Api::<Namespace>::all(operator_client(&fixture).await?);
    let marks = json!({"metadata": {
        "labels": {"hypershift.openshift.io/hosted-control-plane": "true"},
        "annotations": {
            "hypershift.openshift.io/cluster": "kube/system",
            "lanyard.dev/created": "true",
        },
    }});
    let marks = Patch::Merge(marks);
    expect_denied("taking over kube-system", UNMARKED, async || {
        namespaces.patch("kube-system", &dry_run_patch(), &marks).await
    })
    .await?;
    expect_denied("the deletion of another namespace", UNMARKED, async || {
        namespaces.delete(&fixture.namespace, &dry_run_delete()).await
    })
    .await?;
    let plain: Namespace = serde_json::from_value(json!({"metadata": {"name": "unmarked"}}))?;
    expect_denied("the creation of an unmarked namespace", UNMARKED, async || {
        namespaces.create(&dry_run_create(), &plain).await
    })
    .await?;

    // An administrator hands a namespace over: the operator changes it, but does not delete it.
    let handed_over = fixture.control_plane_namespace();
    ensure_namespace_exists(&fixture.client, &handed_over).await?;
    mark_namespace_for_cluster(&fixture).await?;
    expect_denied("the deletion", "only a namespace that it created", async || {
        namespaces.delete(&handed_over, &dry_run_delete()).await
    })
    .await?;
    let created = json!({"metadata": {"annotations": {"lanyard.dev/created": "true"}}});
    let created = Patch::Merge(created);
    expect_denied("the mark of a creation", "as created by it", async || {
        namespaces.patch(&handed_over, &dry_run_patch(), &created).await
    })
    .await?;
    let label = Patch::Merge(json!({"metadata": {"labels": {"example.com/a": "b"}}}));
    namespaces.patch(&handed_over, &dry_run_patch(), &label).await?;
    Ok(())
}

async fn only_two_roles_can_be_bound(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    const UNMARKED: &str = "only in a namespace that is marked";
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.stop().await?;
    let client = operator_client(&fixture).await?;
    let (namespace, name) = OPERATOR_USER
        .trim_start_matches("system:serviceaccount:")
        .split_once(':')
        .unwrap_or_default();
    let operator = json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    let own = role_binding(CONTROL_PLANE_CLUSTER_ROLE, &json!([operator]))?;
    let bindings = |namespace: &str| Api::<RoleBinding>::namespaced(client.clone(), namespace);
    for namespace in ["kube-system", "default", &fixture.namespace] {
        let bindings = bindings(namespace);
        expect_denied(&format!("a binding in {namespace}"), UNMARKED, async || {
            bindings.create(&dry_run_create(), &own).await
        })
        .await?;
    }
    let in_control_plane = bindings(&fixture.control_plane_namespace());
    in_control_plane.create(&dry_run_create(), &own).await?;
    let other = json!({"kind": "ServiceAccount", "namespace": "default", "name": "default"});
    let user = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
    for (role, subjects) in [
        (CONTROL_PLANE_CLUSTER_ROLE, json!([other])),
        (CONTROL_PLANE_CLUSTER_ROLE, json!([user])),
        (CONTROL_PLANE_CLUSTER_ROLE, json!([operator, other])),
        ("lanyard-canary", json!([operator])),
        ("lanyard-canary", json!([])),
    ] {
        let binding = role_binding(role, &subjects)?;
        let what = format!("the binding of {role} to {subjects}");
        expect_denied(&what, "may bind only the ServiceAccount lanyard-canary", async || {
            in_control_plane.create(&dry_run_create(), &binding).await
        })
        .await?;
    }
    // RBAC allows no other role.
    let administrator = role_binding("cluster-admin", &json!([operator]))?;
    expect_denied("the binding of cluster-admin", "grant RBAC permissions", async || {
        in_control_plane.create(&dry_run_create(), &administrator).await
    })
    .await?;
    // The binding of another client stays.
    let foreign = Api::<RoleBinding>::namespaced(fixture.client.clone(), &fixture.namespace);
    foreign.create(&PostParams::default(), &role_binding("view", &json!([other]))?).await?;
    let foreign = bindings(&fixture.namespace);
    expect_denied("the deletion of another binding", "only its own RoleBindings", async || {
        foreign.delete("trial", &dry_run_delete()).await
    })
    .await?;
    fixture.delete_cluster().await
}

fn role_binding(role: &str, subjects: &Value) -> Result<RoleBinding, Failed> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "trial"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }))?)
}

async fn writes_are_limited_to_control_planes(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.stop().await?;
    let client = operator_client(&fixture).await?;
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "trial"}}))?;
    let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
    for namespace in ["kube-system", &fixture.namespace] {
        let secrets = secrets(namespace);
        expect_denied(&format!("a Secret in {namespace}"), "cannot create", async || {
            secrets.create(&dry_run_create(), &secret).await
        })
        .await?;
    }
    let in_control_plane = secrets(&fixture.control_plane_namespace());
    in_control_plane.create(&dry_run_create(), &secret).await?;
    fixture.delete_cluster().await
}

/// A release with permissions in all namespaces creates a cluster; the next one has none and binds itself.
async fn upgrade_from_permissions_in_all_namespaces(
    fixture: OperatorTrialFixture,
) -> Result<(), Failed> {
    let wide = || cluster_permissions(OperatorRole::All).chain(control_plane_permissions());
    let before = RunningOperator::start_after(
        &fixture,
        |it| it.service_account = None,
        async || {
            let roles = Api::<ClusterRole>::all(fixture.client.clone());
            let rules = Patch::Merge(role_rules(wide()));
            roles.patch(OPERATOR_ROLE, &PatchParams::default(), &rules).await?;
            wait_until_granted(&fixture.client, &fixture.namespace, wide()).await
        },
    )
    .await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    wait_until_quiet(&before, &fixture.namespace).await?;
    before.stop().await?;
    let namespace = fixture.control_plane_namespace();
    let bindings = Api::<RoleBinding>::namespaced(fixture.client.clone(), &namespace);
    let own = bindings.get_opt(CONTROL_PLANE_CLUSTER_ROLE).await?;
    expect_equal("the binding exists before", own.is_some(), false)?;

    let after = RunningOperator::start(&fixture, |_| ()).await?;
    eventually("the operator binds itself", async || {
        Ok(bindings.get_opt(CONTROL_PLANE_CLUSTER_ROLE).await?.is_some())
    })
    .await?;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), &namespace);
    maps.delete("azure-cloud-config", &DeleteParams::default()).await?;
    eventually("a deleted object is created again", async || {
        Ok(maps.get_opt("azure-cloud-config").await?.is_some())
    })
    .await?;
    wait_until_quiet(&after, &fixture.namespace).await?;
    expect_equal("ConfigMaps", fixture.count_objects(&config_map_kind()).await? > 0, true)?;
    after.stop().await?;
    fixture.delete_cluster().await
}
