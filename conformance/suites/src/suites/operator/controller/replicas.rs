//! Several replicas: every cluster is looked at, by one at a time.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::converge::versions;
use super::running::{LEASE, Running, classes, leases, settle};
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::{eventually, pause};

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::replicas_share_the_shards", share),
        trial(stage, "operator::a_replica_that_ends_gives_its_leases_back_at_once", hand_over),
        trial(stage, "operator::a_replica_that_lost_its_lease_writes_nothing_more", fenced),
    ]
}

/// The holders of the shards, by shard; an empty text where nobody holds one.
async fn holders(world: &World) -> Result<Vec<String>, Failed> {
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

async fn share(world: World) -> Result<(), Failed> {
    let one = Running::start(&world, |it| it.leases = Some(leases(&world, "one", 4))).await?;
    eventually("the first one has everything", async || {
        Ok(holders(&world).await? == ["one", "one", "one", "one"])
    })
    .await?;
    let two = Running::start(&world, |it| it.leases = Some(leases(&world, "two", 4))).await?;
    eventually("both have two", async || {
        let holders = holders(&world).await?;
        let of = |name: &str| holders.iter().filter(|it| *it == name).count();
        Ok(of("one") == 2 && of("two") == 2)
    })
    .await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&one, &world.room()).await?;
    let by = [one.written(&world.room()).len(), two.written(&world.room()).len()];
    expect_same("one of them wrote", by.iter().filter(|count| **count > 0).count(), 1)?;
    one.end().await?;
    two.end().await?;
    world.clear().await
}

async fn hand_over(world: World) -> Result<(), Failed> {
    let one = Running::start(&world, |it| it.leases = Some(leases(&world, "one", 1))).await?;
    eventually("the first one leads", async || Ok(holders(&world).await? == ["one"])).await?;
    let two = Running::start(&world, |it| it.leases = Some(leases(&world, "two", 1))).await?;
    one.end().await?;
    expect_same("nobody leads", holders(&world).await?, Vec::<String>::new())?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    expect_same("the second one leads", holders(&world).await?, vec!["two".to_owned()])?;
    two.end().await?;
    world.clear().await
}

async fn fenced(world: World) -> Result<(), Failed> {
    let one = Running::start(&world, |it| it.leases = Some(leases(&world, "one", 1))).await?;
    world.make_cluster(|_| ()).await?;
    // In the middle of its writes its way to the API server is cut.
    eventually("it has begun to write", async || Ok(!one.written(&world.room()).is_empty()))
        .await?;
    one.cut(true);
    let two = Running::start(&world, |it| it.leases = Some(leases(&world, "two", 1))).await?;
    world.until_made().await?;
    expect_same("the second one leads", holders(&world).await?, vec!["two".to_owned()])?;
    settle(&two, &world.room()).await?;
    settle(&two, "/hostedcluster").await?;
    let before = versions(&world).await?;
    one.forget();
    one.cut(false);
    // What was held by the cut would be sent now.
    pause(2 * LEASE).await;
    expect_same("what the first one sent", writes(&one), Vec::new())?;
    expect_same("the versions", versions(&world).await?, before)?;
    // A change comes while both are there.
    let name = json!({"credentialsSecretName": "harbour-other-ingress"});
    let control_plane = json!({"controlPlane": {"ingress": name}});
    let authentication = json!({"azureAuthenticationConfig": {"managedIdentities": control_plane}});
    world.patch_cluster(json!({"spec": {"platform": {"azure": authentication}}})).await?;
    let made = world.made(&classes());
    eventually("the second one makes it so", async || {
        let class = serde_json::to_string(&made.get("managed-azure-ingress").await?)?;
        Ok(class.contains("harbour-other-ingress"))
    })
    .await?;
    settle(&two, &world.room()).await?;
    settle(&two, "/hostedcluster").await?;
    expect_same("what the first one sent", writes(&one), Vec::new())?;
    one.end().await?;
    two.end().await?;
    world.clear().await
}

/// What an operator wrote, leases aside: it goes on to say that it is there.
pub(super) fn writes(running: &Running) -> Vec<String> {
    running.written("/").into_iter().filter(|line| !line.contains("/leases")).collect()
}
