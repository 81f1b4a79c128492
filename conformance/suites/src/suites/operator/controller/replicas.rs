//! Several replicas: every cluster is looked at, by one at a time.

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

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(stage, "operator::replicas_share_the_shards", replicas_share_shards),
        trial(
            stage,
            "operator::stopped_replica_releases_its_leases_immediately",
            stopped_replica_releases_leases,
        ),
        trial(
            stage,
            "operator::replica_without_lease_stops_writing",
            replica_without_lease_stops_writing,
        ),
    ]
}

/// The holders of the shards, by shard; an empty text where nobody holds one.
async fn shard_holders(world: &OperatorTrialFixture) -> Result<Vec<String>, Failed> {
    let api: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
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

async fn replicas_share_shards(world: OperatorTrialFixture) -> Result<(), Failed> {
    let one =
        RunningOperator::start(&world, |it| it.leases = Some(lease_settings(&world, "one", 4)))
            .await?;
    eventually("the first one has everything", async || {
        Ok(shard_holders(&world).await? == ["one", "one", "one", "one"])
    })
    .await?;
    let two =
        RunningOperator::start(&world, |it| it.leases = Some(lease_settings(&world, "two", 4)))
            .await?;
    eventually("both have two", async || {
        let holders = shard_holders(&world).await?;
        let of = |name: &str| holders.iter().filter(|it| *it == name).count();
        Ok(of("one") == 2 && of("two") == 2)
    })
    .await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&one, &world.control_plane_namespace()).await?;
    let by = [
        one.writes_to(&world.control_plane_namespace()).len(),
        two.writes_to(&world.control_plane_namespace()).len(),
    ];
    expect_equal("one of them wrote", by.iter().filter(|count| **count > 0).count(), 1)?;
    one.stop().await?;
    two.stop().await?;
    world.delete_cluster().await
}

async fn stopped_replica_releases_leases(world: OperatorTrialFixture) -> Result<(), Failed> {
    let one =
        RunningOperator::start(&world, |it| it.leases = Some(lease_settings(&world, "one", 1)))
            .await?;
    eventually("the first one leads", async || Ok(shard_holders(&world).await? == ["one"])).await?;
    let two =
        RunningOperator::start(&world, |it| it.leases = Some(lease_settings(&world, "two", 1)))
            .await?;
    one.stop().await?;
    expect_equal("nobody leads", shard_holders(&world).await?, Vec::<String>::new())?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    expect_equal("the second one leads", shard_holders(&world).await?, vec!["two".to_owned()])?;
    two.stop().await?;
    world.delete_cluster().await
}

async fn replica_without_lease_stops_writing(world: OperatorTrialFixture) -> Result<(), Failed> {
    let one =
        RunningOperator::start(&world, |it| it.leases = Some(lease_settings(&world, "one", 1)))
            .await?;
    world.create_cluster(|_| ()).await?;
    // In the middle of its writes its way to the API server is cut.
    eventually("it has begun to write", async || {
        Ok(!one.writes_to(&world.control_plane_namespace()).is_empty())
    })
    .await?;
    one.set_disconnected(true);
    let two =
        RunningOperator::start(&world, |it| it.leases = Some(lease_settings(&world, "two", 1)))
            .await?;
    world.wait_until_reconciled().await?;
    expect_equal("the second one leads", shard_holders(&world).await?, vec!["two".to_owned()])?;
    wait_until_quiet(&two, &world.control_plane_namespace()).await?;
    wait_until_quiet(&two, "/hostedcluster").await?;
    let before = object_versions(&world).await?;
    one.clear_requests();
    one.set_disconnected(false);
    // What was held by the cut would be sent now.
    sleep(2 * LEASE_DURATION).await;
    expect_equal("what the first one sent", writes_without_leases(&one), Vec::new())?;
    expect_equal("the versions", object_versions(&world).await?, before)?;
    // A change comes while both are there.
    let name = json!({"credentialsSecretName": "harbour-other-ingress"});
    let control_plane = json!({"controlPlane": {"ingress": name}});
    let authentication = json!({"azureAuthenticationConfig": {"managedIdentities": control_plane}});
    world.patch_cluster(json!({"spec": {"platform": {"azure": authentication}}})).await?;
    let made = world.control_plane_api(&class_kind());
    eventually("the second one makes it so", async || {
        let class = serde_json::to_string(&made.get("managed-azure-ingress").await?)?;
        Ok(class.contains("harbour-other-ingress"))
    })
    .await?;
    wait_until_quiet(&two, &world.control_plane_namespace()).await?;
    wait_until_quiet(&two, "/hostedcluster").await?;
    expect_equal("what the first one sent", writes_without_leases(&one), Vec::new())?;
    one.stop().await?;
    two.stop().await?;
    world.delete_cluster().await
}

/// What an operator wrote, leases aside: it goes on to say that it is there.
pub(super) fn writes_without_leases(running: &RunningOperator) -> Vec<String> {
    running.writes_to("/").into_iter().filter(|line| !line.contains("/leases")).collect()
}
