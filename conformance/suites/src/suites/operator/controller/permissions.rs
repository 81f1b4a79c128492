//! Trials of the chart's permissions: each is required, and each is used.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_desired::OwnedKind;
use lanyard_operator::OperatorRole;
use lanyard_operator::permissions::{
    ApiPermission, CONTROL_PLANE_CLUSTER_ROLE, cluster_permissions, control_plane_permissions,
    namespace_permissions, owner_permissions,
};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::api_request_monitor::ApiRequestMonitor;
use super::reconciliation::wait_for_deletion;
use super::running_operator::{RunningOperator, lease_settings, wait_until_quiet};
use crate::api_server::{DynamicKind, ensure_namespace_exists, install_definitions};
use crate::suites::operator::rendered_chart::{RbacPermission, role_permissions};
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let chart = Arc::clone(&suite.rendered_chart);
    let given =
        Trial::test("operator::chart_grants_exactly_the_permissions_of_each_role", move || {
            let control_plane: Vec<_> = control_plane_permissions().collect();
            let with_owners: Vec<_> =
                control_plane_permissions().chain(owner_permissions()).collect();
            for (role, in_control_planes, objects) in [
                (OperatorRole::All, &control_plane, &chart.all),
                (OperatorRole::All, &with_owners, &chart.all_features),
                (OperatorRole::IdentityOnly, &Vec::new(), &chart.identity_only),
            ] {
                let mut wanted =
                    expected_permissions(GrantScope::Cluster, cluster_permissions(role));
                wanted.extend(expected_permissions(
                    GrantScope::ControlPlaneNamespace,
                    in_control_planes.iter().copied(),
                ));
                wanted.extend(expected_permissions(GrantScope::Namespace, namespace_permissions()));
                expect_equal_sets(
                    "the rules of the chart",
                    &granted_permissions(objects),
                    &wanted,
                )?;
            }
            Ok(())
        });
    vec![
        given,
        trial(suite, "operator::every_permission_is_used", every_permission_is_used),
        trial(
            suite,
            "operator::every_permission_of_the_identity_only_role_is_used",
            every_permission_is_used_with_identity_only_role,
        ),
    ]
}

/// The scope of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GrantScope {
    /// All namespaces.
    Cluster,
    /// The namespaces of control planes.
    ControlPlaneNamespace,
    /// The operator's namespace.
    Namespace,
}

/// A permission as a role grants it: scope, permission and object names.
type GrantedPermission = (GrantScope, RbacPermission, Vec<String>);

/// The permissions of the operator's table.
fn expected_permissions(
    scope: GrantScope,
    permissions: impl Iterator<Item = &'static ApiPermission>,
) -> BTreeSet<GrantedPermission> {
    let named = |permission: &'static ApiPermission| {
        let names: Vec<_> = permission.names.iter().map(|name| (*name).to_owned()).collect();
        permissions_of_right(permission).map(move |used| (scope, used, names.clone()))
    };
    permissions.flat_map(named).collect()
}

fn permissions_of_right(
    permission: &'static ApiPermission,
) -> impl Iterator<Item = RbacPermission> {
    let (group, resource) = (permission.group, permission.resource);
    let of_verb = move |verb: &&str| (group.to_owned(), resource.to_owned(), (*verb).to_owned());
    permission.verbs.iter().map(of_verb)
}

/// The permissions of rendered roles that the chart binds to the operator, and of the role that the operator binds
/// itself to. The operator binds the role of canaries, and users bind the others.
fn granted_permissions(objects: &[Value]) -> BTreeSet<GrantedPermission> {
    let role_of = |binding: &Value| {
        let role = &binding["roleRef"];
        Some((role["kind"].as_str()?.to_owned(), role["name"].as_str()?.to_owned()))
    };
    let bound: BTreeSet<_> = objects.iter().filter_map(role_of).collect();
    let mut given = BTreeSet::new();
    for object in objects {
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]]
            .map(|text| text.as_str().unwrap_or_default().to_owned());
        let scope = match kind.as_str() {
            "ClusterRole" if name == CONTROL_PLANE_CLUSTER_ROLE => {
                GrantScope::ControlPlaneNamespace
            }
            "ClusterRole" => GrantScope::Cluster,
            "Role" => GrantScope::Namespace,
            _ => continue,
        };
        let is_bound_by_operator = scope == GrantScope::ControlPlaneNamespace;
        if is_bound_by_operator || bound.contains(&(kind, name)) {
            given.extend(
                role_permissions(object).into_iter().map(|(used, names)| (scope, used, names)),
            );
        }
    }
    given
}

fn expect_equal_sets<T: Ord + Debug>(
    what: &str,
    found: &BTreeSet<T>,
    expected: &BTreeSet<T>,
) -> Result<(), Failed> {
    let missing: Vec<_> = expected.difference(found).collect();
    let superfluous: Vec<_> = found.difference(expected).collect();
    if missing.is_empty() && superfluous.is_empty() {
        return Ok(());
    }
    Err(format!("{what}: missing {missing:?}, superfluous {superfluous:?}").into())
}

/// Runs a cluster lifecycle that needs every permission once. The operator has exactly the permissions of its
/// table: a missing one is forbidden here, and a superfluous one stays unused.
async fn every_permission_is_used(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let foreign = foreign_definitions();
    install_definitions(&fixture.client, &foreign).await?;
    let running =
        RunningOperator::start(&fixture, |it| it.leases = Some(lease_settings(&fixture, "one", 2)))
            .await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    wait_until_quiet(&running, &fixture.control_plane_namespace()).await?;
    modify_one_object_per_kind(&fixture).await?;
    wait_until_quiet(&running, &fixture.control_plane_namespace()).await?;
    let elsewhere = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/elsewhere";
    fixture
        .patch_cluster(json!({
            "metadata": {"annotations": {HostedCluster::RESOURCE_ID_ANNOTATION: elsewhere}},
            "spec": {"platform": {"azure": {
                "tenantID": "1d9c2b7e-3f60-4a8d-9e15-6c7b0a4f8d21",
                "azureAuthenticationConfig": {"managedIdentities": {"controlPlane": {
                    "disk": {"credentialsSecretName": "harbour-other-disk"},
                }}},
            }}},
        }))
        .await?;
    wait_until_quiet(&running, &fixture.control_plane_namespace()).await?;
    break_identity(&fixture).await?;
    create_superfluous_objects(&fixture).await?;
    for kind in prunable_kinds() {
        let objects = api_for_kind(&fixture, kind);
        let what = format!("the superfluous {kind:?} is pruned");
        eventually(&what, async || Ok(objects.get_opt(SUPERFLUOUS_NAME).await?.is_none())).await?;
    }
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    wait_for_deletion(&fixture).await?;
    let monitor = running.requests();
    running.stop().await?;
    let definitions = Api::<CustomResourceDefinition>::all(fixture.client.clone());
    for definition in &foreign {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        definitions.delete(name, &DeleteParams::default()).await?;
        // Later trials must not find a partly deleted CRD.
        let what = format!("the definition {name} is gone");
        eventually(&what, async || Ok(definitions.get_opt(name).await?.is_none())).await?;
    }
    expect_exact_permissions(&monitor, OperatorRole::All)
}

/// Runs a lifecycle with the role `identity-only`, which has few permissions.
async fn every_permission_is_used_with_identity_only_role(
    fixture: OperatorTrialFixture,
) -> Result<(), Failed> {
    ensure_namespace_exists(&fixture.client, &fixture.control_plane_namespace()).await?;
    let running = RunningOperator::start(&fixture, |it| {
        it.role = OperatorRole::IdentityOnly;
        it.leases = Some(lease_settings(&fixture, "one", 2));
    })
    .await?;
    fixture.create_cluster(|_| ()).await?;
    eventually("the identities are reported", async || {
        Ok(!fixture.read_identities().await?["status"].is_null())
    })
    .await?;
    break_identity(&fixture).await?;
    let monitor = running.requests();
    running.stop().await?;
    fixture.delete_cluster().await?;
    expect_exact_permissions(&monitor, OperatorRole::IdentityOnly)
}

/// Fails unless every permission of the role was used and no permission was missing.
fn expect_exact_permissions(monitor: &ApiRequestMonitor, role: OperatorRole) -> Result<(), Failed> {
    let used = monitor.used_permissions();
    expect_equal_sets("forbidden requests", &monitor.refused_permissions(), &BTreeSet::new())?;
    let in_control_planes = control_plane_permissions().filter(|_| role == OperatorRole::All);
    let table = cluster_permissions(role)
        .chain(in_control_planes)
        .chain(namespace_permissions())
        .flat_map(permissions_of_right)
        .collect();
    expect_equal_sets("used permissions", &used, &table)
}

/// CRDs of other operators, with schemas that accept any fields.
fn foreign_definitions() -> Vec<CustomResourceDefinition> {
    let kinds = [
        (
            "infrastructure.cluster.x-k8s.io",
            "v1beta1",
            "AzureClusterIdentity",
            "azureclusteridentities",
        ),
        ("infrastructure.cluster.x-k8s.io", "v1beta1", "AzureCluster", "azureclusters"),
        ("infrastructure.cluster.x-k8s.io", "v1beta1", "AzureMachine", "azuremachines"),
        ("cluster.x-k8s.io", "v1beta1", "Cluster", "clusters"),
        ("hypershift.openshift.io", "v1beta1", "NodePool", "nodepools"),
    ];
    let definition = |(group, version, kind, plural): (&str, &str, &str, &str)| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({
            "name": version, "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema},
        });
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [version],
            },
        }))
    };
    kinds.into_iter().map(definition).filter_map(Result::ok).collect()
}

fn dynamic_kind(kind: OwnedKind) -> DynamicKind {
    let facts = kind.info();
    let (group, version) = facts.api_version.rsplit_once('/').unwrap_or(("", facts.api_version));
    DynamicKind::from_names(group, version, facts.kind, facts.plural)
}

fn api_for_kind(fixture: &OperatorTrialFixture, kind: OwnedKind) -> Api<DynamicObject> {
    let known = dynamic_kind(kind);
    if kind.info().namespaced {
        fixture.control_plane_api(&known)
    } else {
        Api::all_with(fixture.client.clone(), known.api_resource())
    }
}

/// Patches one object of each kind as a kubectl user would. Namespaces are left out, because the operator
/// does not revert changes of their administrators.
async fn modify_one_object_per_kind(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let annotation = HostedCluster::CLUSTER_ANNOTATION;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: "other/cluster"}}}));
    for kind in OwnedKind::ALL.into_iter().filter(|kind| *kind != OwnedKind::Namespace) {
        let objects = api_for_kind(fixture, kind);
        let found = objects.list(&ListParams::default()).await?;
        let ours = |it: &&DynamicObject| {
            let annotations = it.metadata.annotations.as_ref();
            let cluster = annotations.and_then(|all| all.get(annotation));
            cluster.is_some_and(|it| it.starts_with(&format!("{}/", fixture.namespace)))
        };
        let object = found.items.iter().find(ours);
        let name = object.and_then(|it| it.metadata.name.as_deref());
        let name = name.ok_or_else(|| format!("no object of the kind {kind:?}"))?;
        objects.patch(name, &parameters, &patch).await?;
    }
    Ok(())
}

/// Makes a canary report that its identity is broken, which emits an event.
async fn break_identity(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    fixture.create_broken_canary().await?;
    let events = Api::<Event>::namespaced(fixture.client.clone(), &fixture.namespace);
    eventually("an event reports the failure", async || {
        Ok(!events.list(&ListParams::default()).await?.items.is_empty())
    })
    .await
}

const SUPERFLUOUS_NAME: &str = "superfluous";

/// The kinds of objects that the operator prunes while the cluster exists.
fn prunable_kinds() -> impl Iterator<Item = OwnedKind> {
    let stays = [OwnedKind::Namespace, OwnedKind::HostedControlPlane];
    OwnedKind::ALL.into_iter().filter(move |kind| !stays.contains(kind))
}

/// Creates an object of each kind with the operator's labels that is not desired.
async fn create_superfluous_objects(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    let owner =
        fixture.control_plane_api(&DynamicKind::hosted_control_plane()).get("harbour").await?;
    for kind in prunable_kinds() {
        let facts = kind.info();
        let mut object = json!({
            "apiVersion": facts.api_version,
            "kind": facts.kind,
            "metadata": {
                "name": SUPERFLUOUS_NAME,
                "labels": {
                    "app.kubernetes.io/managed-by": "lanyard",
                    "lanyard.dev/hosted-cluster": "harbour",
                },
                "ownerReferences": [{
                    "apiVersion": HostedControlPlane::API_VERSION,
                    "kind": HostedControlPlane::KIND,
                    "name": "harbour",
                    "uid": owner.metadata.uid,
                }],
            },
        });
        match kind {
            OwnedKind::RoleBinding => {
                object["roleRef"] = json!({
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
                });
            }
            OwnedKind::Deployment => {
                let labels = json!({"app": SUPERFLUOUS_NAME});
                object["spec"] = json!({
                    "replicas": 0,
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [{"name": "x", "image": "x"}]},
                    },
                });
            }
            _ => {}
        }
        let object = serde_json::from_value(object)?;
        api_for_kind(fixture, kind).create(&PostParams::default(), &object).await?;
    }
    Ok(())
}
