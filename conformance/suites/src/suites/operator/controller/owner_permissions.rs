//! Trial with the admission plugin `OwnerReferencesPermissionEnforcement`, which requires a permission on the
//! owner.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use lanyard_api::HostedControlPlane;
use lanyard_operator::permissions::{
    CONTROL_PLANE_CLUSTER_ROLE, control_plane_permissions, owner_permissions,
};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running_operator::{RunningOperator, class_kind};
use crate::api_server::DynamicKind;
use crate::suite_setup::start_control_plane;
use crate::suites::expect_equal;
use crate::suites::operator::OperatorSuiteFixture;
use crate::suites::operator::operator_account::{role_rules, wait_until_granted};
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let suite = suite.clone();
    let name = "operator::owner_reference_enforcement_requires_one_more_permission";
    vec![Trial::test(name, move || {
        suite.runtime.block_on(async {
            let plugin = ("enable-admission-plugins", "OwnerReferencesPermissionEnforcement");
            let (plane, client) =
                start_control_plane(&suite.control_plane_inputs, &[plugin]).await?;
            let suite = OperatorSuiteFixture { plane, client, ..suite.clone() };
            owner_permission_is_enforced(OperatorTrialFixture::create(&suite).await?).await
        })
    })]
}

async fn owner_permission_is_enforced(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    wait_until_owner_kind_is_known(&fixture).await?;
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture.create_cluster(|_| ()).await?;
    let monitor = running.requests();
    eventually("objects with the control plane as owner are forbidden", async || {
        Ok(monitor
            .refused_permissions()
            .iter()
            .any(|(_, resource, _)| resource == "secretproviderclasses"))
    })
    .await?;
    let owners = fixture.control_plane_api(&DynamicKind::hosted_control_plane());
    expect_equal("the control plane exists", owners.get_opt("harbour").await?.is_some(), true)?;
    expect_equal("classes", fixture.count_objects(&class_kind()).await?, 0)?;
    running.stop().await?;
    let running = RunningOperator::start_after(
        &fixture,
        |_| (),
        async || grant_owner_permissions(&fixture).await,
    )
    .await?;
    fixture.wait_until_reconciled().await?;
    let refused = running.requests().refused_permissions();
    expect_equal("forbidden requests", refused.into_iter().collect::<Vec<_>>(), Vec::new())?;
    running.stop().await
}

/// Grants the permission that the chart grants with `rbac.updateForOwners`.
async fn grant_owner_permissions(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    let roles = Api::<ClusterRole>::all(fixture.client.clone());
    let rules = Patch::Merge(role_rules(control_plane_permissions().chain(owner_permissions())));
    roles.patch(CONTROL_PLANE_CLUSTER_ROLE, &PatchParams::default(), &rules).await?;
    let namespace = fixture.control_plane_namespace();
    wait_until_granted(&fixture.client, &namespace, owner_permissions()).await
}

/// Waits until the API server accepts owners of the kind. It discovers new kinds periodically.
async fn wait_until_owner_kind_is_known(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
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
    let objects = Api::<ConfigMap>::namespaced(fixture.client.clone(), &fixture.namespace);
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the kind of the owner is known", async || {
        Ok(objects.create(&parameters, &belongs).await.is_ok())
    })
    .await
}
