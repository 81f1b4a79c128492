//! The rights of the chart: no more than is used, and no less.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_desired::OwnedKind;
use lanyard_operator::Role;
use lanyard_operator::rights::{Right, cluster_rights, namespace_rights, owner_rights};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::asked::Asked;
use super::converge::see_it_go;
use super::running::{Running, leases, settle};
use crate::api_server::{Kind, ensure_namespace, install};
use crate::suites::operator::chart::{Use, rights_of};
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    let chart = Arc::clone(&stage.chart);
    let given =
        Trial::test("operator::the_chart_gives_the_rights_of_each_role_and_no_other", move || {
            let none: &[&Right] = &[];
            let owners: Vec<_> = owner_rights().collect();
            for (role, more, objects) in [
                (Role::All, none, &chart.all),
                (Role::All, &owners, &chart.everything),
                (Role::IdentityOnly, none, &chart.identity_only),
            ] {
                let cluster = cluster_rights(role).chain(more.iter().copied());
                let mut wanted = wanted(Scope::Cluster, cluster);
                wanted.extend(self::wanted(Scope::Namespace, namespace_rights()));
                same("the rules of the chart", &given(objects), &wanted)?;
            }
            Ok(())
        });
    vec![
        given,
        trial(stage, "operator::every_right_is_made_use_of", every),
        trial(stage, "operator::every_right_is_made_use_of_beside_another_operator", every_beside),
    ]
}

/// Where a right is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// In all namespaces.
    Cluster,
    /// In the operator's own.
    Namespace,
}

/// A right as a role gives it: where, what, and of which objects alone.
type Given = (Scope, Use, Vec<String>);

/// The rights of a table.
fn wanted(scope: Scope, rights: impl Iterator<Item = &'static Right>) -> BTreeSet<Given> {
    let named = |right: &'static Right| {
        let names: Vec<_> = right.names.iter().map(|name| (*name).to_owned()).collect();
        uses(right).map(move |used| (scope, used, names.clone()))
    };
    rights.flat_map(named).collect()
}

fn uses(right: &'static Right) -> impl Iterator<Item = Use> {
    let (group, resource) = (right.group, right.resource);
    let of_verb = move |verb: &&str| (group.to_owned(), resource.to_owned(), (*verb).to_owned());
    right.verbs.iter().map(of_verb)
}

/// The rights that rendered roles give to the operator: those that the chart binds. Canaries are
/// bound by the operator, and people by themselves.
fn given(objects: &[Value]) -> BTreeSet<Given> {
    let role_of = |binding: &Value| {
        let role = &binding["roleRef"];
        Some((role["kind"].as_str()?.to_owned(), role["name"].as_str()?.to_owned()))
    };
    let bound: BTreeSet<_> = objects.iter().filter_map(role_of).collect();
    let mut given = BTreeSet::new();
    for object in objects {
        let scope = match object["kind"].as_str() {
            Some("ClusterRole") => Scope::Cluster,
            Some("Role") => Scope::Namespace,
            _ => continue,
        };
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]]
            .map(|text| text.as_str().unwrap_or_default().to_owned());
        if bound.contains(&(kind, name)) {
            given.extend(rights_of(object).into_iter().map(|(used, names)| (scope, used, names)));
        }
    }
    given
}

fn same<T: Ord + Debug>(what: &str, is: &BTreeSet<T>, should: &BTreeSet<T>) -> Result<(), Failed> {
    let missing: Vec<_> = should.difference(is).collect();
    let superfluous: Vec<_> = is.difference(should).collect();
    if missing.is_empty() && superfluous.is_empty() {
        return Ok(());
    }
    Err(format!("{what}: missing {missing:?}, superfluous {superfluous:?}").into())
}

/// The life of a cluster in which every right is needed once. The operator has those of the table and
/// no other: one that is missing is refused here, and one too many is not made use of.
async fn every(world: World) -> Result<(), Failed> {
    let strangers = strangers();
    install(&world.client, &strangers).await?;
    let running = Running::start(&world, |it| it.leases = Some(leases(&world, "one", 2))).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.room()).await?;
    spoil(&world).await?;
    settle(&running, &world.room()).await?;
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
    settle(&running, &world.room()).await?;
    break_identity(&world).await?;
    add_superfluous(&world).await?;
    for kind in prunable() {
        let objects = api(&world, kind);
        let what = format!("the {kind:?} that nobody wants is pruned");
        eventually(&what, async || Ok(objects.get_opt(SUPERFLUOUS).await?.is_none())).await?;
    }
    let clusters = world.api(&Kind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    see_it_go(&world).await?;
    let asked = running.asked();
    running.end().await?;
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    for definition in &strangers {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        definitions.delete(name, &DeleteParams::default()).await?;
        // Trials that follow must not meet half of it.
        let what = format!("the definition {name} is gone");
        eventually(&what, async || Ok(definitions.get_opt(name).await?.is_none())).await?;
    }
    just_enough(&asked, Role::All)
}

/// The same beside another operator, where most rights are missing.
async fn every_beside(world: World) -> Result<(), Failed> {
    ensure_namespace(&world.client, &world.room()).await?;
    let running = Running::start(&world, |it| {
        it.role = Role::IdentityOnly;
        it.leases = Some(leases(&world, "one", 2));
    })
    .await?;
    world.make_cluster(|_| ()).await?;
    eventually("it is told of", async || Ok(!world.told().await?["status"].is_null())).await?;
    break_identity(&world).await?;
    let asked = running.asked();
    running.end().await?;
    world.clear().await?;
    just_enough(&asked, Role::IdentityOnly)
}

/// Fails unless everything that a role may do was done, and nothing was refused.
fn just_enough(asked: &Asked, role: Role) -> Result<(), Failed> {
    same("what was refused", &asked.refused(), &BTreeSet::new())?;
    let table = cluster_rights(role).chain(namespace_rights()).flat_map(uses).collect();
    same("what was made use of", &asked.used(), &table)
}

/// Kinds of other operators, as far as their objects are named and owned.
fn strangers() -> Vec<CustomResourceDefinition> {
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

fn kind_of(kind: OwnedKind) -> Kind {
    let facts = kind.facts();
    let (group, version) = facts.api_version.rsplit_once('/').unwrap_or(("", facts.api_version));
    Kind::of(group, version, facts.kind, facts.plural)
}

fn api(world: &World, kind: OwnedKind) -> Api<DynamicObject> {
    let known = kind_of(kind);
    if kind.facts().namespaced {
        world.made(&known)
    } else {
        Api::all_with(world.client.clone(), known.resource())
    }
}

/// Changes one object of each kind, as somebody with kubectl would. A namespace is shared with whoever
/// administers it, so nothing of it is taken back.
async fn spoil(world: &World) -> Result<(), Failed> {
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let annotation = HostedCluster::CLUSTER_ANNOTATION;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: "nobody/nothing"}}}));
    for kind in OwnedKind::ALL.into_iter().filter(|kind| *kind != OwnedKind::Namespace) {
        let objects = api(world, kind);
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
async fn break_identity(world: &World) -> Result<(), Failed> {
    world.broken_canary().await?;
    let events = Api::<Event>::namespaced(world.client.clone(), &world.namespace);
    eventually("an event tells it", async || {
        Ok(!events.list(&ListParams::default()).await?.items.is_empty())
    })
    .await
}

const SUPERFLUOUS: &str = "superfluous";

/// Kinds of which something can be superfluous while the cluster is there.
fn prunable() -> impl Iterator<Item = OwnedKind> {
    let stays = [OwnedKind::Namespace, OwnedKind::HostedControlPlane];
    OwnedKind::ALL.into_iter().filter(move |kind| !stays.contains(kind))
}

/// Adds an object of each kind that bears our marks and that nobody wants.
async fn add_superfluous(world: &World) -> Result<(), Failed> {
    let owner = world.made(&Kind::hosted_control_plane()).get("harbour").await?;
    for kind in prunable() {
        let facts = kind.facts();
        let mut object = json!({
            "apiVersion": facts.api_version,
            "kind": facts.kind,
            "metadata": {
                "name": SUPERFLUOUS,
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
                let labels = json!({"app": SUPERFLUOUS});
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
        api(world, kind).create(&PostParams::default(), &object).await?;
    }
    Ok(())
}
