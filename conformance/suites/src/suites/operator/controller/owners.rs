//! Where the API server asks whoever names an owner for a right to that owner.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use lanyard_api::HostedControlPlane;
use lanyard_operator::Role;
use lanyard_operator::rights::{cluster_rights, owner_rights};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running::{Running, classes, rules_of, until_granted};
use crate::api_server::Kind;
use crate::settings::start_control_plane;
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{OPERATOR, Stage};
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    let stage = stage.clone();
    let name = "operator::where_owners_are_enforced_it_takes_one_right_more";
    vec![Trial::test(name, move || {
        stage.runtime.block_on(async {
            let plugin = ("enable-admission-plugins", "OwnerReferencesPermissionEnforcement");
            let (plane, client) = start_control_plane(&stage.ground, &[plugin]).await?;
            let stage = Stage { plane, client, ..stage.clone() };
            enforced(World::make(&stage).await?).await
        })
    })]
}

async fn enforced(world: World) -> Result<(), Failed> {
    until_owners_are_known(&world).await?;
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    let asked = running.asked();
    eventually("what would belong to the control plane is refused", async || {
        Ok(asked.refused().iter().any(|(_, resource, _)| resource == "secretproviderclasses"))
    })
    .await?;
    let owners = world.made(&Kind::hosted_control_plane());
    expect_same("the control plane is there", owners.get_opt("harbour").await?.is_some(), true)?;
    expect_same("classes", world.count(&classes()).await?, 0)?;
    running.end().await?;
    let running = Running::start_with(&world, |_| (), async || grant_owners(&world).await).await?;
    world.until_made().await?;
    let refused = running.asked().refused();
    expect_same("what is refused", refused.into_iter().collect::<Vec<_>>(), Vec::new())?;
    running.end().await
}

/// As the chart does with `rbac.updateForOwners`.
async fn grant_owners(world: &World) -> Result<(), Failed> {
    let roles = Api::<ClusterRole>::all(world.client.clone());
    let rules = Patch::Merge(rules_of(cluster_rights(Role::All).chain(owner_rights())));
    roles.patch(OPERATOR, &PatchParams::default(), &rules).await?;
    until_granted(&world.client, &world.namespace, owner_rights()).await
}

/// The API server learns of new kinds of owners from time to time, and refuses owners of any other.
async fn until_owners_are_known(world: &World) -> Result<(), Failed> {
    let belongs: ConfigMap = serde_json::from_value(json!({"metadata": {
        "name": "belongs",
        "ownerReferences": [{
            "apiVersion": HostedControlPlane::API_VERSION,
            "kind": HostedControlPlane::KIND,
            "name": "harbour",
            "uid": "9a2f6c1e-5b34-4d70-8e91-0c7d3f5a6b28",
            "blockOwnerDeletion": true,
        }],
    }}))?;
    let objects = Api::<ConfigMap>::namespaced(world.client.clone(), &world.namespace);
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the kind of the owner is known", async || {
        Ok(objects.create(&parameters, &belongs).await.is_ok())
    })
    .await
}
