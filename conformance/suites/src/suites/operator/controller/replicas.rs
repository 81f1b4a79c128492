//! Trials of several replicas, which share the clusters by leases.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::reconciliation::object_versions;
use super::running_operator::{
    LEASE_DURATION, RunningOperator, class_kind, lease_settings, wait_until_quiet,
};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::{eventually, sleep};

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(suite, "operator::replicas_share_the_shards", replicas_share_shards),
        trial(
            suite,
            "operator::stopped_replica_releases_its_leases_immediately",
            stopped_replica_releases_leases,
        ),
        trial(
            suite,
            "operator::replica_without_lease_stops_writing",
            replica_without_lease_stops_writing,
        ),
    ]
}

/// The holder of each shard's lease; empty for a lease without a holder.
async fn shard_holders(fixture: &OperatorTrialFixture) -> Result<Vec<String>, Failed> {
    let api: Api<Lease> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let mut holders: Vec<_> = api
        .list(&ListParams::default())
        .await?
        .into_iter()
        .filter(|lease| lease.metadata.name.as_deref().is_some_and(|it| it.contains("-shard-")))
        .map(|lease| {
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            (lease.metadata.name.unwrap_or_default(), holder)
        })
        .collect();
    holders.sort();
    Ok(holders.into_iter().map(|(_, holder)| holder).collect())
}

async fn replicas_share_shards(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let one =
        RunningOperator::start(&fixture, |it| it.leases = Some(lease_settings(&fixture, "one", 4)))
            .await?;
    eventually("the first replica holds all shards", async || {
        Ok(shard_holders(&fixture).await? == ["one", "one", "one", "one"])
    })
    .await?;
    let two =
        RunningOperator::start(&fixture, |it| it.leases = Some(lease_settings(&fixture, "two", 4)))
            .await?;
    eventually("each replica holds two shards", async || {
        let holders = shard_holders(&fixture).await?;
        let of = |name: &str| holders.iter().filter(|it| *it == name).count();
        Ok(of("one") == 2 && of("two") == 2)
    })
    .await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    wait_until_quiet(&one, &fixture.control_plane_namespace()).await?;
    let by = [
        one.writes_to(&fixture.control_plane_namespace()).len(),
        two.writes_to(&fixture.control_plane_namespace()).len(),
    ];
    expect_equal(
        "number of replicas that wrote",
        by.iter().filter(|count| **count > 0).count(),
        1,
    )?;
    one.stop().await?;
    two.stop().await?;
    fixture.delete_cluster().await
}

async fn stopped_replica_releases_leases(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let one =
        RunningOperator::start(&fixture, |it| it.leases = Some(lease_settings(&fixture, "one", 1)))
            .await?;
    eventually("the first replica leads", async || Ok(shard_holders(&fixture).await? == ["one"]))
        .await?;
    let two =
        RunningOperator::start(&fixture, |it| it.leases = Some(lease_settings(&fixture, "two", 1)))
            .await?;
    one.stop().await?;
    expect_equal("no replica leads", shard_holders(&fixture).await?, Vec::<String>::new())?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    expect_equal(
        "the second replica leads",
        shard_holders(&fixture).await?,
        vec!["two".to_owned()],
    )?;
    two.stop().await?;
    fixture.delete_cluster().await
}

async fn replica_without_lease_stops_writing(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let one =
        RunningOperator::start(&fixture, |it| it.leases = Some(lease_settings(&fixture, "one", 1)))
            .await?;
    fixture.create_cluster(|_| ()).await?;
    // The connection to the API server is blocked while it writes.
    eventually("the first replica has begun to write", async || {
        Ok(!one.writes_to(&fixture.control_plane_namespace()).is_empty())
    })
    .await?;
    one.set_disconnected(true);
    let two =
        RunningOperator::start(&fixture, |it| it.leases = Some(lease_settings(&fixture, "two", 1)))
            .await?;
    fixture.wait_until_reconciled().await?;
    expect_equal(
        "the second replica leads",
        shard_holders(&fixture).await?,
        vec!["two".to_owned()],
    )?;
    wait_until_quiet(&two, &fixture.control_plane_namespace()).await?;
    wait_until_quiet(&two, "/hostedcluster").await?;
    let before = object_versions(&fixture).await?;
    one.clear_requests();
    one.set_disconnected(false);
    // Blocked requests would be sent now.
    sleep(2 * LEASE_DURATION).await;
    expect_equal("writes of the first replica", writes_without_leases(&one), Vec::new())?;
    expect_equal("the versions", object_versions(&fixture).await?, before)?;
    // The spec changes while both replicas run.
    let name = json!({"credentialsSecretName": "harbour-other-ingress"});
    let control_plane = json!({"controlPlane": {"ingress": name}});
    let authentication = json!({"azureAuthenticationConfig": {"managedIdentities": control_plane}});
    fixture.patch_cluster(json!({"spec": {"platform": {"azure": authentication}}})).await?;
    let api = fixture.control_plane_api(&class_kind());
    eventually("the second replica reconciles the change", async || {
        let class = serde_json::to_string(&api.get("managed-azure-ingress").await?)?;
        Ok(class.contains("harbour-other-ingress"))
    })
    .await?;
    wait_until_quiet(&two, &fixture.control_plane_namespace()).await?;
    wait_until_quiet(&two, "/hostedcluster").await?;
    expect_equal("writes of the first replica", writes_without_leases(&one), Vec::new())?;
    one.stop().await?;
    two.stop().await?;
    fixture.delete_cluster().await
}

/// The writes of an operator except those of leases, which it keeps renewing.
pub(super) fn writes_without_leases(running: &RunningOperator) -> Vec<String> {
    running.writes_to("/").into_iter().filter(|line| !line.contains("/leases")).collect()
}
