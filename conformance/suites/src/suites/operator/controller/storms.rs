//! Somebody else who writes the same all the time, and a leader that is lost in mid-write.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::relay::Relay;
use super::replicas::writes;
use super::running::{LEASE, Running, classes, deployments, leases, settle};
use crate::api_server::Kind;
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::{eventually, eventually_within, pause};

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::a_fight_over_one_cluster_harms_no_other_and_ends_well", fight),
        trial(stage, "operator::writes_of_a_lost_leader_that_arrive_late_are_set_back", late),
    ]
}

const CLASS: &str = "managed-azure-ingress";
const OTHERS: u32 = 15;

/// Makes further clusters, and says how long it takes until they have everything.
async fn adds(world: &World, series: &str) -> Result<Duration, Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let clusters = world.api(&Kind::hosted_cluster());
    for number in 0..OTHERS {
        let text = world.hosted_cluster().to_string();
        let cluster: Value =
            serde_json::from_str(&text.replace("harbour", &format!("{series}{number}")))?;
        clusters.create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
    }
    let told = world.api(&Kind::hosted_cluster_identities());
    eventually_within(Duration::from_mins(2), "the others are made", async || {
        let told = told.list(&ListParams::default()).await?;
        let is_made = |it: &&kube::api::DynamicObject| {
            let name = it.metadata.name.as_deref().unwrap_or_default();
            let identities = it.data["status"]["identities"].as_array();
            // Without a class an identity is told to have none.
            let has_all = identities.is_some_and(|all| {
                all.len() == 9 && all.iter().all(|it| it["reason"] != "SecretProviderClassNotFound")
            });
            name.starts_with(series) && has_all
        };
        Ok(told.iter().filter(is_made).count() == usize::try_from(OTHERS)?)
    })
    .await?;
    Ok(clock.monotonic().saturating_sub(began))
}

async fn fight(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    let usual = adds(&world, "calm-").await?;
    settle(&running, &world.namespace).await?;
    running.forget();
    let storm = tokio::spawn(meddle(world.made(&classes()), world.api(&Kind::hosted_cluster())));
    let stormy = adds(&world, "storm-").await?;
    if stormy > usual * 3 + Duration::from_secs(5) {
        return Err(format!("{stormy:?} for {OTHERS} clusters, and {usual:?} before").into());
    }
    eventually("who writes what is told", async || {
        let told = world.told().await?["status"]["drift"].to_string();
        Ok(told.contains(CLASS) && told.contains("again and again by meddler"))
    })
    .await?;
    pause(Duration::from_secs(15)).await;
    let path = format!("/{}/secretproviderclasses/{CLASS}", world.room());
    let written = running.written(&path).len();
    // Four at once, and then ever later.
    if !(4..=12).contains(&written) {
        return Err(format!("{written} writes of what somebody writes all the time").into());
    }
    storm.abort();
    let made = world.made(&classes());
    eventually_within(Duration::from_mins(2), "the class is as it was", async || {
        let class = serde_json::to_value(made.get(CLASS).await?)?;
        Ok(class["spec"]["parameters"]["keyvaultName"] == "harbour-identities")
    })
    .await?;
    running.end().await?;
    world.clear().await
}

/// Writes the same fields as the operator all the time, by right of force, and the status.
async fn meddle(classes: Api<kube::api::DynamicObject>, clusters: Api<kube::api::DynamicObject>) {
    let parameters = PatchParams::apply("meddler").force();
    for round in 0_u64.. {
        let class = json!({
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClass",
            "metadata": {"name": CLASS},
            "spec": {"parameters": {"keyvaultName": format!("elsewhere-{round}")}},
        });
        drop(classes.patch(CLASS, &parameters, &Patch::Apply(class)).await);
        let condition = json!({"type": "Available", "status": "True", "reason": "Storm",
            "message": round.to_string(), "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"conditions": [condition]}});
        let merge = Patch::Merge(status);
        drop(clusters.patch_status("harbour", &PatchParams::default(), &merge).await);
        pause(Duration::from_millis(50)).await;
    }
}

async fn late(world: World) -> Result<(), Failed> {
    let relay = Arc::new(Relay::start(&world.plane).await?);
    let lease = |identity: &str| Some(leases(&world, identity, 1));
    let one = Running::start_by(&world, &relay, |it| it.leases = lease("one")).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&one, &world.room()).await?;
    one.forget();
    let name = |secret: &str| {
        let control_plane = json!({"ingress": {"credentialsSecretName": secret}});
        json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
            "managedIdentities": {"controlPlane": control_plane},
        }}}}})
    };
    // The first one begins to write what is wished, and nothing of what it sends arrives.
    let hold = Arc::clone(&relay);
    one.asked().before_writing(world.room(), move || hold.hold_what_is_sent());
    world.patch_cluster(name("harbour-first")).await?;
    let held = || one.asked().unanswered(&world.room());
    eventually("the first one writes it", async || Ok(held() > 0)).await?;
    let two = Running::start(&world, |it| it.leases = lease("two")).await?;
    let has = async |secret: &str| {
        let class = world.made(&classes()).get(CLASS).await?;
        Ok::<_, Failed>(serde_json::to_string(&class)?.contains(secret))
    };
    // The second one leads; another wish comes, and it makes that so.
    eventually("the second one leads", async || has("harbour-first").await).await?;
    world.patch_cluster(name("harbour-second")).await?;
    eventually("the second one makes it so", async || has("harbour-second").await).await?;
    settle(&two, &world.room()).await?;
    settle(&two, "/hostedcluster").await?;
    pause(2 * LEASE).await;
    let (sent, since) = (held(), world.made(&classes()).list(&ListParams::default()).await?);
    two.forget();
    // What was on its way arrives only now.
    one.forget();
    relay.release();
    pause(2 * LEASE).await;
    expect_same("what the first one sends now", writes(&one), Vec::new())?;
    settle(&two, &world.room()).await?;
    let arrived = arrived(&world, &since.metadata.resource_version.unwrap_or_default()).await?;
    let set_back = two.written(&world.room()).len();
    if arrived == 0 || arrived > sent || set_back == 0 || set_back > 3 * sent {
        let counts = format!("{sent} were held, {arrived} arrived, {set_back} set them back");
        return Err(counts.into());
    }
    expect_same("the wish stands", has("harbour-second").await?, true)?;
    expect_same("and nothing is half done", consistent(&world, "harbour-second").await?, true)?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut told: Vec<_> = events
        .list(&ListParams::default())
        .await?
        .into_iter()
        .map(|it| (it.reason.unwrap_or_default(), it.message.unwrap_or_default()))
        .collect();
    let count = told.len();
    told.sort();
    told.dedup();
    expect_same("nothing is told twice", count, told.len())?;
    one.end().await?;
    two.end().await?;
    world.clear().await
}

/// How often something was made since a version that is of the wish before the last one.
async fn arrived(world: &World, since: &str) -> Result<usize, Failed> {
    let mut count = 0;
    for kind in [classes(), deployments(), Kind::hosted_control_plane()] {
        let parameters = WatchParams::default().timeout(2);
        let made = world.made(&kind);
        let mut events = std::pin::pin!(made.watch(&parameters, since).await?);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                let text = serde_json::to_string(&object)?;
                count += usize::from(text.contains("harbour-first"));
            }
        }
    }
    Ok(count)
}

/// Whether all that depends on the name of the ingress' secret has the same one.
async fn consistent(world: &World, secret: &str) -> Result<bool, Failed> {
    let class = serde_json::to_string(&world.made(&classes()).get(CLASS).await?)?;
    let deployment = world.made(&deployments()).get("ingress-operator").await?;
    let deployment = serde_json::to_string(&deployment)?;
    let control_planes = Kind::hosted_control_plane();
    let control_plane = serde_json::to_string(&world.made(&control_planes).get("harbour").await?)?;
    Ok([class, deployment, control_plane].iter().all(|it| {
        it.contains(secret) && !it.contains("harbour-first") && !it.contains("harbour-ingress\"")
    }))
}
