//! The rights of the chart: no more than is used, and no less.

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
    ApiPermission, cluster_permissions, namespace_permissions, owner_permissions,
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

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    let chart = Arc::clone(&stage.rendered_chart);
    let given =
        Trial::test("operator::chart_grants_exactly_the_permissions_of_each_role", move || {
            let none: &[&ApiPermission] = &[];
            let owners: Vec<_> = owner_permissions().collect();
            for (role, more, objects) in [
                (OperatorRole::All, none, &chart.all),
                (OperatorRole::All, &owners, &chart.all_features),
                (OperatorRole::IdentityOnly, none, &chart.identity_only),
            ] {
                let cluster = cluster_permissions(role).chain(more.iter().copied());
                let mut wanted = expected_permissions(GrantScope::Cluster, cluster);
                wanted.extend(self::expected_permissions(
                    GrantScope::Namespace,
                    namespace_permissions(),
                ));
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
        trial(stage, "operator::every_permission_is_used", every_permission_is_used),
        trial(
            stage,
            "operator::every_permission_of_the_identity_only_role_is_used",
            every_permission_is_used_with_identity_only_role,
        ),
    ]
}

/// Where a right is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GrantScope {
    /// In all namespaces.
    Cluster,
    /// In the operator's own.
    Namespace,
}

/// A right as a role gives it: where, what, and of which objects alone.
type GrantedPermission = (GrantScope, RbacPermission, Vec<String>);

/// The rights of a table.
fn expected_permissions(
    scope: GrantScope,
    rights: impl Iterator<Item = &'static ApiPermission>,
) -> BTreeSet<GrantedPermission> {
    let named = |right: &'static ApiPermission| {
        let names: Vec<_> = right.names.iter().map(|name| (*name).to_owned()).collect();
        permissions_of_right(right).map(move |used| (scope, used, names.clone()))
    };
    rights.flat_map(named).collect()
}

fn permissions_of_right(right: &'static ApiPermission) -> impl Iterator<Item = RbacPermission> {
    let (group, resource) = (right.group, right.resource);
    let of_verb = move |verb: &&str| (group.to_owned(), resource.to_owned(), (*verb).to_owned());
    right.verbs.iter().map(of_verb)
}

/// The rights that rendered roles give to the operator: those that the chart binds. Canaries are
/// bound by the operator, and people by themselves.
fn granted_permissions(objects: &[Value]) -> BTreeSet<GrantedPermission> {
    let role_of = |binding: &Value| {
        let role = &binding["roleRef"];
        Some((role["kind"].as_str()?.to_owned(), role["name"].as_str()?.to_owned()))
    };
    let bound: BTreeSet<_> = objects.iter().filter_map(role_of).collect();
    let mut given = BTreeSet::new();
    for object in objects {
        let scope = match object["kind"].as_str() {
            Some("ClusterRole") => GrantScope::Cluster,
            Some("Role") => GrantScope::Namespace,
            _ => continue,
        };
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]]
            .map(|text| text.as_str().unwrap_or_default().to_owned());
        if bound.contains(&(kind, name)) {
            given.extend(
                role_permissions(object).into_iter().map(|(used, names)| (scope, used, names)),
            );
        }
    }
    given
}

fn expect_equal_sets<T: Ord + Debug>(
    what: &str,
    is: &BTreeSet<T>,
    should: &BTreeSet<T>,
) -> Result<(), Failed> {
    let missing: Vec<_> = should.difference(is).collect();
    let superfluous: Vec<_> = is.difference(should).collect();
    if missing.is_empty() && superfluous.is_empty() {
        return Ok(());
    }
    Err(format!("{what}: missing {missing:?}, superfluous {superfluous:?}").into())
}

/// The life of a cluster in which every right is needed once. The operator has those of the table and
/// no other: one that is missing is refused here, and one too many is not made use of.
async fn every_permission_is_used(world: OperatorTrialFixture) -> Result<(), Failed> {
    let strangers = foreign_definitions();
    install_definitions(&world.client, &strangers).await?;
    let running =
        RunningOperator::start(&world, |it| it.leases = Some(lease_settings(&world, "one", 2)))
            .await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.control_plane_namespace()).await?;
    modify_one_object_per_kind(&world).await?;
    wait_until_quiet(&running, &world.control_plane_namespace()).await?;
    let elsewhere = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/elsewhere";
    world
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
    wait_until_quiet(&running, &world.control_plane_namespace()).await?;
    break_identity(&world).await?;
    create_superfluous_objects(&world).await?;
    for kind in prunable_kinds() {
        let objects = api_for_kind(&world, kind);
        let what = format!("the {kind:?} that nobody wants is pruned");
        eventually(&what, async || Ok(objects.get_opt(SUPERFLUOUS_NAME).await?.is_none())).await?;
    }
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    wait_for_deletion(&world).await?;
    let asked = running.requests();
    running.stop().await?;
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    for definition in &strangers {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        definitions.delete(name, &DeleteParams::default()).await?;
        // Trials that follow must not meet half of it.
        let what = format!("the definition {name} is gone");
        eventually(&what, async || Ok(definitions.get_opt(name).await?.is_none())).await?;
    }
    expect_exact_permissions(&asked, OperatorRole::All)
}

/// The same beside another operator, where most rights are missing.
async fn every_permission_is_used_with_identity_only_role(
    world: OperatorTrialFixture,
) -> Result<(), Failed> {
    ensure_namespace_exists(&world.client, &world.control_plane_namespace()).await?;
    let running = RunningOperator::start(&world, |it| {
        it.role = OperatorRole::IdentityOnly;
        it.leases = Some(lease_settings(&world, "one", 2));
    })
    .await?;
    world.create_cluster(|_| ()).await?;
    eventually("it is told of", async || Ok(!world.read_identities().await?["status"].is_null()))
        .await?;
    break_identity(&world).await?;
    let asked = running.requests();
    running.stop().await?;
    world.delete_cluster().await?;
    expect_exact_permissions(&asked, OperatorRole::IdentityOnly)
}

/// Fails unless everything that a role may do was done, and nothing was refused.
fn expect_exact_permissions(asked: &ApiRequestMonitor, role: OperatorRole) -> Result<(), Failed> {
    expect_equal_sets("what was refused", &asked.refused_permissions(), &BTreeSet::new())?;
    let table = cluster_permissions(role)
        .chain(namespace_permissions())
        .flat_map(permissions_of_right)
        .collect();
    expect_equal_sets("what was made use of", &asked.used_permissions(), &table)
}

/// Kinds of other operators, as far as their objects are named and owned.
fn foreign_definitions() -> Vec<CustomResourceDefinition> {
    let kinds = [
        (
            "infrastructure.cluster.x-k8s.io",
            "v1beta1",
            "AzureClusterIdentity",
            "azureclusteridentities",
        ),
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

fn api_for_kind(world: &OperatorTrialFixture, kind: OwnedKind) -> Api<DynamicObject> {
    let known = dynamic_kind(kind);
    if kind.info().namespaced {
        world.control_plane_api(&known)
    } else {
        Api::all_with(world.client.clone(), known.api_resource())
    }
}

/// Changes one object of each kind, as somebody with kubectl would. A namespace is shared with whoever
/// administers it, so nothing of it is taken back.
async fn modify_one_object_per_kind(world: &OperatorTrialFixture) -> Result<(), Failed> {
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let annotation = HostedCluster::CLUSTER_ANNOTATION;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: "nobody/nothing"}}}));
    for kind in OwnedKind::ALL.into_iter().filter(|kind| *kind != OwnedKind::Namespace) {
        let objects = api_for_kind(world, kind);
        let found = objects.list(&ListParams::default()).await?;
        let ours = |it: &&DynamicObject| {
            let annotations = it.metadata.annotations.as_ref();
            let cluster = annotations.and_then(|all| all.get(annotation));
            cluster.is_some_and(|it| it.starts_with(&format!("{}/", world.namespace)))
        };
        let object = found.items.iter().find(ours);
        let name = object.and_then(|it| it.metadata.name.as_deref());
        let name = name.ok_or_else(|| format!("there is no {kind:?}"))?;
        objects.patch(name, &parameters, &patch).await?;
    }
    Ok(())
}

/// A canary tells that its identity is broken, which is an event.
async fn break_identity(world: &OperatorTrialFixture) -> Result<(), Failed> {
    world.create_broken_canary().await?;
    let events = Api::<Event>::namespaced(world.client.clone(), &world.namespace);
    eventually("an event tells it", async || {
        Ok(!events.list(&ListParams::default()).await?.items.is_empty())
    })
    .await
}

const SUPERFLUOUS_NAME: &str = "superfluous";

/// Kinds of which something can be superfluous while the cluster is there.
fn prunable_kinds() -> impl Iterator<Item = OwnedKind> {
    let stays = [OwnedKind::Namespace, OwnedKind::HostedControlPlane];
    OwnedKind::ALL.into_iter().filter(move |kind| !stays.contains(kind))
}

/// Adds an object of each kind that bears our marks and that nobody wants.
async fn create_superfluous_objects(world: &OperatorTrialFixture) -> Result<(), Failed> {
    let owner =
        world.control_plane_api(&DynamicKind::hosted_control_plane()).get("harbour").await?;
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
        api_for_kind(world, kind).create(&PostParams::default(), &object).await?;
    }
    Ok(())
}
