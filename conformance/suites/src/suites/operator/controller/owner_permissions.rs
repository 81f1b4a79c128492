//! Where the API server asks whoever names an owner for a right to that owner.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use lanyard_api::HostedControlPlane;
use lanyard_operator::OperatorRole;
use lanyard_operator::permissions::{cluster_permissions, owner_permissions};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running_operator::{RunningOperator, class_kind, role_rules, wait_until_granted};
use crate::api_server::DynamicKind;
use crate::suite_setup::start_control_plane;
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OPERATOR_USER, OperatorSuiteFixture};
use crate::waiting::eventually;

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    let stage = stage.clone();
    let name = "operator::owner_reference_enforcement_requires_one_more_permission";
    vec![Trial::test(name, move || {
        stage.runtime.block_on(async {
            let plugin = ("enable-admission-plugins", "OwnerReferencesPermissionEnforcement");
            let (plane, client) =
                start_control_plane(&stage.control_plane_inputs, &[plugin]).await?;
            let stage = OperatorSuiteFixture { plane, client, ..stage.clone() };
            owner_permission_is_enforced(OperatorTrialFixture::create(&stage).await?).await
        })
    })]
}

async fn owner_permission_is_enforced(world: OperatorTrialFixture) -> Result<(), Failed> {
    wait_until_owner_kind_is_known(&world).await?;
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    let asked = running.requests();
    eventually("what would belong to the control plane is refused", async || {
        Ok(asked
            .refused_permissions()
            .iter()
            .any(|(_, resource, _)| resource == "secretproviderclasses"))
    })
    .await?;
    let owners = world.control_plane_api(&DynamicKind::hosted_control_plane());
    expect_equal("the control plane is there", owners.get_opt("harbour").await?.is_some(), true)?;
    expect_equal("classes", world.count_objects(&class_kind()).await?, 0)?;
    running.stop().await?;
    let running = RunningOperator::start_after(
        &world,
        |_| (),
        async || grant_owner_permissions(&world).await,
    )
    .await?;
    world.wait_until_reconciled().await?;
    let refused = running.requests().refused_permissions();
    expect_equal("what is refused", refused.into_iter().collect::<Vec<_>>(), Vec::new())?;
    running.stop().await
}

/// As the chart does with `rbac.updateForOwners`.
async fn grant_owner_permissions(world: &OperatorTrialFixture) -> Result<(), Failed> {
    let roles = Api::<ClusterRole>::all(world.client.clone());
    let rules =
        Patch::Merge(role_rules(cluster_permissions(OperatorRole::All).chain(owner_permissions())));
    roles.patch(OPERATOR_USER, &PatchParams::default(), &rules).await?;
    wait_until_granted(&world.client, &world.namespace, owner_permissions()).await
}

/// The API server learns of new kinds of owners from time to time, and refuses owners of any other.
async fn wait_until_owner_kind_is_known(world: &OperatorTrialFixture) -> Result<(), Failed> {
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
