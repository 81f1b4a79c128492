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

use super::relay::TcpRelay;
use super::replicas::writes_without_leases;
use super::running_operator::{
    LEASE_DURATION, RunningOperator, class_kind, deployment_kind, lease_settings, wait_until_quiet,
};
use crate::api_server::DynamicKind;
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::{eventually, eventually_within, sleep};

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            stage,
            "operator::conflicting_writer_delays_only_its_own_cluster",
            conflicting_writer,
        ),
        trial(
            stage,
            "operator::late_writes_of_a_former_leader_are_reverted",
            late_writes_of_former_leader,
        ),
    ]
}

const CLASS_NAME: &str = "managed-azure-ingress";
const OTHER_CLUSTER_COUNT: u32 = 15;

/// Makes further clusters, and says how long it takes until they have everything.
async fn create_other_clusters(
    world: &OperatorTrialFixture,
    series: &str,
) -> Result<Duration, Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
    for number in 0..OTHER_CLUSTER_COUNT {
        let text = world.hosted_cluster().to_string();
        let cluster: Value =
            serde_json::from_str(&text.replace("harbour", &format!("{series}{number}")))?;
        clusters.create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
    }
    let told = world.dynamic_api(&DynamicKind::hosted_cluster_identities());
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
        Ok(told.iter().filter(is_made).count() == usize::try_from(OTHER_CLUSTER_COUNT)?)
    })
    .await?;
    Ok(clock.monotonic().saturating_sub(began))
}

async fn conflicting_writer(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    let usual = create_other_clusters(&world, "calm-").await?;
    wait_until_quiet(&running, &world.namespace).await?;
    running.clear_requests();
    let storm = tokio::spawn(write_conflicting_fields(
        world.control_plane_api(&class_kind()),
        world.dynamic_api(&DynamicKind::hosted_cluster()),
    ));
    let stormy = create_other_clusters(&world, "storm-").await?;
    if stormy > usual * 3 + Duration::from_secs(5) {
        return Err(
            format!("{stormy:?} for {OTHER_CLUSTER_COUNT} clusters, and {usual:?} before").into()
        );
    }
    eventually("who writes what is told", async || {
        let told = world.read_identities().await?["status"]["drift"].to_string();
        Ok(told.contains(CLASS_NAME) && told.contains("again and again by meddler"))
    })
    .await?;
    sleep(Duration::from_secs(15)).await;
    let path = format!("/{}/secretproviderclasses/{CLASS_NAME}", world.control_plane_namespace());
    let written = running.writes_to(&path).len();
    // Four at once, and then ever later.
    if !(4..=12).contains(&written) {
        return Err(format!("{written} writes of what somebody writes all the time").into());
    }
    storm.abort();
    let made = world.control_plane_api(&class_kind());
    eventually_within(Duration::from_mins(2), "the class is as it was", async || {
        let class = serde_json::to_value(made.get(CLASS_NAME).await?)?;
        Ok(class["spec"]["parameters"]["keyvaultName"] == "harbour-identities")
    })
    .await?;
    running.stop().await?;
    world.delete_cluster().await
}

/// Writes the same fields as the operator all the time, by right of force, and the status.
async fn write_conflicting_fields(
    classes: Api<kube::api::DynamicObject>,
    clusters: Api<kube::api::DynamicObject>,
) {
    let parameters = PatchParams::apply("meddler").force();
    for round in 0_u64.. {
        let class = json!({
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClass",
            "metadata": {"name": CLASS_NAME},
            "spec": {"parameters": {"keyvaultName": format!("elsewhere-{round}")}},
        });
        drop(classes.patch(CLASS_NAME, &parameters, &Patch::Apply(class)).await);
        let condition = json!({"type": "Available", "status": "True", "reason": "Storm",
            "message": round.to_string(), "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"conditions": [condition]}});
        let merge = Patch::Merge(status);
        drop(clusters.patch_status("harbour", &PatchParams::default(), &merge).await);
        sleep(Duration::from_millis(50)).await;
    }
}

async fn late_writes_of_former_leader(world: OperatorTrialFixture) -> Result<(), Failed> {
    let relay = Arc::new(TcpRelay::start(&world.plane).await?);
    let lease = |identity: &str| Some(lease_settings(&world, identity, 1));
    let one =
        RunningOperator::start_via_relay(&world, &relay, |it| it.leases = lease("one")).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&one, &world.control_plane_namespace()).await?;
    one.clear_requests();
    let name = |secret: &str| {
        let control_plane = json!({"ingress": {"credentialsSecretName": secret}});
        json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
            "managedIdentities": {"controlPlane": control_plane},
        }}}}})
    };
    // The first one begins to write what is wished, and nothing of what it sends arrives.
    let hold = Arc::clone(&relay);
    one.requests()
        .set_before_next_write(world.control_plane_namespace(), move || hold.hold_requests());
    world.patch_cluster(name("harbour-first")).await?;
    let held = || one.requests().unanswered_writes(&world.control_plane_namespace());
    eventually("the first one writes it", async || Ok(held() > 0)).await?;
    let two = RunningOperator::start(&world, |it| it.leases = lease("two")).await?;
    let has = async |secret: &str| {
        let class = world.control_plane_api(&class_kind()).get(CLASS_NAME).await?;
        Ok::<_, Failed>(serde_json::to_string(&class)?.contains(secret))
    };
    // The second one leads; another wish comes, and it makes that so.
    eventually("the second one leads", async || has("harbour-first").await).await?;
    world.patch_cluster(name("harbour-second")).await?;
    eventually("the second one makes it so", async || has("harbour-second").await).await?;
    wait_until_quiet(&two, &world.control_plane_namespace()).await?;
    wait_until_quiet(&two, "/hostedcluster").await?;
    sleep(2 * LEASE_DURATION).await;
    let (sent, since) =
        (held(), world.control_plane_api(&class_kind()).list(&ListParams::default()).await?);
    two.clear_requests();
    // What was on its way arrives only now.
    one.clear_requests();
    relay.release_connections();
    sleep(2 * LEASE_DURATION).await;
    expect_equal("what the first one sends now", writes_without_leases(&one), Vec::new())?;
    wait_until_quiet(&two, &world.control_plane_namespace()).await?;
    let arrived =
        count_outdated_writes(&world, &since.metadata.resource_version.unwrap_or_default()).await?;
    let set_back = two.writes_to(&world.control_plane_namespace()).len();
    if arrived == 0 || arrived > sent || set_back == 0 || set_back > 3 * sent {
        let counts = format!("{sent} were held, {arrived} arrived, {set_back} set them back");
        return Err(counts.into());
    }
    expect_equal("the wish stands", has("harbour-second").await?, true)?;
    expect_equal(
        "and nothing is half done",
        uses_secret_everywhere(&world, "harbour-second").await?,
        true,
    )?;
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
    expect_equal("nothing is told twice", count, told.len())?;
    one.stop().await?;
    two.stop().await?;
    world.delete_cluster().await
}

/// How often something was made since a version that is of the wish before the last one.
async fn count_outdated_writes(world: &OperatorTrialFixture, since: &str) -> Result<usize, Failed> {
    let mut count = 0;
    for kind in [class_kind(), deployment_kind(), DynamicKind::hosted_control_plane()] {
        let parameters = WatchParams::default().timeout(2);
        let made = world.control_plane_api(&kind);
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
async fn uses_secret_everywhere(
    world: &OperatorTrialFixture,
    secret: &str,
) -> Result<bool, Failed> {
    let class =
        serde_json::to_string(&world.control_plane_api(&class_kind()).get(CLASS_NAME).await?)?;
    let deployment = world.control_plane_api(&deployment_kind()).get("ingress-operator").await?;
    let deployment = serde_json::to_string(&deployment)?;
    let control_planes = DynamicKind::hosted_control_plane();
    let control_plane =
        serde_json::to_string(&world.control_plane_api(&control_planes).get("harbour").await?)?;
    Ok([class, deployment, control_plane].iter().all(|it| {
        it.contains(secret) && !it.contains("harbour-first") && !it.contains("harbour-ingress\"")
    }))
}
