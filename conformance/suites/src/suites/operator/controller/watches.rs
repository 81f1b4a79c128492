//! Watches that break otherwise than with their server, over the connections that the binary has.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::StoreAccess;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::relay::Relay;
use super::running::{Running, classes, config_maps};
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::{eventually_within, pause};

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::watches_that_are_cut_or_fall_silent_go_on_without_lists", broken),
        trial(
            stage,
            "operator::a_version_that_is_too_old_costs_each_kind_one_list_at_most",
            too_old,
        ),
    ]
}

/// How often everything of each kind was listed, of the kinds that this API server has: one that it
/// has not is asked for again and again, should somebody install it.
fn lists(running: &Running) -> Result<BTreeMap<String, u64>, Failed> {
    let page = running.lines("lanyard_operator_lists_total");
    let served = page.lines().filter(|line| !line.contains("\"AzureClusterIdentity\""));
    let counts = served.filter_map(|line| line.rsplit_once(' '));
    counts.map(|(kind, count)| Ok((kind.to_owned(), count.parse()?))).collect()
}

/// Somebody changes a class; the operator notices and sets it back in time.
async fn notices(world: &World, within: Duration) -> Result<Duration, Failed> {
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let patch = json!({"spec": {"parameters": {"keyvaultName": "elsewhere"}}});
    let made = world.made(&classes());
    made.patch("managed-azure-network", &parameters, &Patch::Merge(patch)).await?;
    let clock = SystemClock::new();
    let began = clock.monotonic();
    eventually_within(within, "the class is as it was", async || {
        let class = serde_json::to_value(made.get("managed-azure-network").await?)?;
        Ok(class["spec"]["parameters"]["keyvaultName"] == "harbour-identities")
    })
    .await?;
    Ok(clock.monotonic().saturating_sub(began))
}

async fn broken(world: World) -> Result<(), Failed> {
    let relay = Relay::start(&world.plane).await?;
    let running = Running::start_over(&world, &relay, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    let before = lists(&running)?;
    for _ in 0..2 {
        relay.cut();
        notices(&world, SOON).await?;
    }
    // Half open: packets vanish, and no end of the connection is seen. Pings find it.
    relay.hold();
    let took = notices(&world, PINGS).await?;
    if took < SOON {
        return Err(format!("nothing was held: {took:?}").into());
    }
    expect_same("lists", lists(&running)?, before)?;
    running.end().await?;
    world.clear().await
}

async fn too_old(world: World) -> Result<(), Failed> {
    let relay = Relay::start(&world.plane).await?;
    let running = Running::start_over(&world, &relay, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    let before = lists(&running)?;
    // Nothing reaches the operator while something goes, and then nobody knows of it any more.
    relay.hold_all();
    world.made(&config_maps()).delete("azure-cloud-config", &DeleteParams::default()).await?;
    compact(&world).await?;
    world.plane.kill_server();
    world.plane.start_server().await?;
    // What was held is lost.
    relay.cut();
    relay.release();
    eventually_within(PINGS, "what was lost is there again", async || {
        Ok(world.made(&config_maps()).get_opt("azure-cloud-config").await?.is_some())
    })
    .await?;
    notices(&world, SOON).await?;
    pause(SOON).await;
    // One whose last version was still known needs none.
    let more = lists(&running)?.into_iter().map(|(kind, count)| {
        let more = count - before.get(&kind).copied().unwrap_or_default();
        (kind, more)
    });
    let more: Vec<_> = more.filter(|(_, more)| *more > 0).collect();
    let is_listed = more.iter().any(|(kind, _)| kind.contains("\"ConfigMap\""));
    if !is_listed || more.iter().any(|(_, more)| *more > 1) {
        return Err(format!("lists since then: {more:?}").into());
    }
    running.end().await?;
    world.clear().await
}

/// Forgets every version of the store but the last.
async fn compact(world: &World) -> Result<(), Failed> {
    let store = store(&world.plane.store()).await?;
    let ask = async |path: &str, body: Value| {
        let request = Request::post(path).body(body.to_string().into_bytes())?;
        Ok::<_, Failed>(store.request::<Value>(request).await?)
    };
    let now = ask("/v3/kv/range", json!({"key": "AA=="})).await?;
    let revision = &now["header"]["revision"];
    let answer = ask("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await?;
    expect_same("the store compacts", answer["header"].is_object(), true)
}

/// The store by its own interface, which signs in as the API server does.
async fn store(access: &StoreAccess) -> Result<Client, Failed> {
    let user = json!({"client-certificate": access.certificate, "client-key": access.key});
    let cluster = json!({"server": access.url, "certificate-authority": access.authority});
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "clusters": [{"name": "store", "cluster": cluster}],
        "users": [{"name": "store", "user": user}],
        "contexts": [{"name": "store", "context": {"cluster": "store", "user": "store"}}],
        "current-context": "store",
    }))?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// What is noticed by a watch that goes on.
const SOON: Duration = Duration::from_secs(12);
/// Pings find a dead connection after 45 s.
const PINGS: Duration = Duration::from_secs(70);
