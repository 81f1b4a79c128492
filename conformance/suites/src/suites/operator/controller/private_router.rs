//! Trial of a private vault, which is reached through a Service of another operator.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, PostParams};
use lanyard_desired::workload::PRIVATE_ROUTER_SERVICE;
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running_operator::{RunningOperator, deployment_kind, wait_until_quiet};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![trial(
        suite,
        "operator::private_vault_is_called_once_its_router_exists",
        private_router_service,
    )]
}

async fn private_router_service(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture
        .create_cluster(|cluster| {
            cluster["spec"]["secretEncryption"]["kms"]["azure"]["keyVaultAccess"] =
                json!("Private");
        })
        .await?;
    fixture.wait_until_reconciled().await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    expect_equal("the route to the vault", read_vault_route(&fixture).await?, (None, false))?;

    let services =
        Api::<Service>::namespaced(fixture.client.clone(), &fixture.control_plane_namespace());
    let service = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"ports": [{"port": 443}], "selector": {"app": name}},
        })
    };
    // Only the Service with this name is the router.
    let other = serde_json::from_value(service("another-router"))?;
    services.create(&PostParams::default(), &other).await?;
    let router = serde_json::from_value(service(PRIVATE_ROUTER_SERVICE))?;
    let created = services.create(&PostParams::default(), &router).await?;
    let address =
        created.spec.and_then(|spec| spec.cluster_ip).ok_or("the Service has no address")?;
    eventually(
        "the API server's pod has the host alias and its canary calls the vault",
        async || Ok(read_vault_route(&fixture).await? == (Some(address.clone()), true)),
    )
    .await?;
    services.delete(PRIVATE_ROUTER_SERVICE, &DeleteParams::default()).await?;
    eventually("the host alias and the call are removed", async || {
        Ok(read_vault_route(&fixture).await? == (None, false))
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

/// The vault's address in the API server's pod, and whether its canary calls the vault.
async fn read_vault_route(
    fixture: &OperatorTrialFixture,
) -> Result<(Option<String>, bool), Failed> {
    let deployment = fixture.control_plane_api(&deployment_kind()).get("kube-apiserver").await?;
    let pod = &serde_json::to_value(deployment)?["spec"]["template"]["spec"];
    let alias = &pod["hostAliases"][0];
    let hosts = &alias["hostnames"];
    if !alias.is_null() {
        expect_equal("the hosts", hosts, &json!(["harbour-keys.vault.azure.net"]))?;
    }
    let containers = pod["containers"].as_array().into_iter().flatten();
    let mut arguments =
        containers.flat_map(|it| it["args"].as_array().cloned().unwrap_or_default());
    let asks = arguments.any(|it| it.as_str().is_some_and(|it| it.starts_with("--call=")));
    Ok((alias["ip"].as_str().map(str::to_owned), asks))
}
