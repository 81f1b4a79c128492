//! Trials of a conflicting field manager, and of a leader that loses its lease during a write.

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

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "operator::conflicting_writer_delays_only_its_own_cluster",
            conflicting_writer,
        ),
        trial(
            suite,
            "operator::late_writes_of_a_former_leader_are_reverted",
            late_writes_of_former_leader,
        ),
    ]
}

const CLASS_NAME: &str = "managed-azure-ingress";
const OTHER_CLUSTER_COUNT: u32 = 15;

/// Creates further clusters and returns the time until they are reconciled.
async fn create_other_clusters(
    fixture: &OperatorTrialFixture,
    series: &str,
) -> Result<Duration, Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    for number in 0..OTHER_CLUSTER_COUNT {
        let text = fixture.hosted_cluster().to_string();
        let cluster: Value =
            serde_json::from_str(&text.replace("harbour", &format!("{series}{number}")))?;
        clusters.create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
    }
    let reported = fixture.dynamic_api(&DynamicKind::hosted_cluster_identities());
    eventually_within(Duration::from_mins(2), "the other clusters are reconciled", async || {
        let reported = reported.list(&ListParams::default()).await?;
        let is_made = |it: &&kube::api::DynamicObject| {
            let name = it.metadata.name.as_deref().unwrap_or_default();
            let identities = it.data["status"]["identities"].as_array();
            // Identities without a class have the reason `SecretProviderClassNotFound`.
            let has_all = identities.is_some_and(|all| {
                all.len() == 9 && all.iter().all(|it| it["reason"] != "SecretProviderClassNotFound")
            });
            name.starts_with(series) && has_all
        };
        Ok(reported.iter().filter(is_made).count() == usize::try_from(OTHER_CLUSTER_COUNT)?)
    })
    .await?;
    Ok(clock.monotonic().saturating_sub(began))
}

async fn conflicting_writer(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    let usual = create_other_clusters(&fixture, "calm-").await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.clear_requests();
    let storm = tokio::spawn(write_conflicting_fields(
        fixture.control_plane_api(&class_kind()),
        fixture.dynamic_api(&DynamicKind::hosted_cluster()),
    ));
    let stormy = create_other_clusters(&fixture, "storm-").await?;
    if stormy > usual * 3 + Duration::from_secs(5) {
        return Err(
            format!("{stormy:?} for {OTHER_CLUSTER_COUNT} clusters, and {usual:?} before").into()
        );
    }
    eventually("the drift names the conflicting manager", async || {
        let reported = fixture.read_identities().await?["status"]["drift"].to_string();
        Ok(reported.contains(CLASS_NAME)
            && reported.contains("repeatedly changed by conflicting-manager"))
    })
    .await?;
    sleep(Duration::from_secs(15)).await;
    let path = format!("/{}/secretproviderclasses/{CLASS_NAME}", fixture.control_plane_namespace());
    let written = running.writes_to(&path).len();
    // Four writes immediately, then with back-off.
    if !(4..=12).contains(&written) {
        return Err(
            format!("{written} writes of a field that another manager keeps reverting").into()
        );
    }
    storm.abort();
    let api = fixture.control_plane_api(&class_kind());
    eventually_within(Duration::from_mins(2), "the class is restored", async || {
        let class = serde_json::to_value(api.get(CLASS_NAME).await?)?;
        Ok(class["spec"]["parameters"]["keyvaultName"] == "harbour-identities")
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

/// Repeatedly force-applies fields that the operator applies, and patches the status.
async fn write_conflicting_fields(
    classes: Api<kube::api::DynamicObject>,
    clusters: Api<kube::api::DynamicObject>,
) {
    let parameters = PatchParams::apply("conflicting-manager").force();
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

async fn late_writes_of_former_leader(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let relay = Arc::new(TcpRelay::start(&fixture.plane).await?);
    let lease = |identity: &str| Some(lease_settings(&fixture, identity, 1));
    let one =
        RunningOperator::start_via_relay(&fixture, &relay, |it| it.leases = lease("one")).await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    wait_until_quiet(&one, &fixture.control_plane_namespace()).await?;
    one.clear_requests();
    let name = |secret: &str| {
        let control_plane = json!({"ingress": {"credentialsSecretName": secret}});
        json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
            "managedIdentities": {"controlPlane": control_plane},
        }}}}})
    };
    // The first operator starts to write the changed spec, and the relay holds all it sends.
    let hold = Arc::clone(&relay);
    one.requests()
        .set_before_next_write(fixture.control_plane_namespace(), move || hold.hold_requests());
    fixture.patch_cluster(name("harbour-first")).await?;
    let held = || one.requests().unanswered_writes(&fixture.control_plane_namespace());
    eventually("the first replica writes", async || Ok(held() > 0)).await?;
    let two = RunningOperator::start(&fixture, |it| it.leases = lease("two")).await?;
    let has = async |secret: &str| {
        let class = fixture.control_plane_api(&class_kind()).get(CLASS_NAME).await?;
        Ok::<_, Failed>(serde_json::to_string(&class)?.contains(secret))
    };
    // The second operator leads and reconciles another change.
    eventually("the second replica leads", async || has("harbour-first").await).await?;
    fixture.patch_cluster(name("harbour-second")).await?;
    eventually("the second replica reconciles the change", async || has("harbour-second").await)
        .await?;
    wait_until_quiet(&two, &fixture.control_plane_namespace()).await?;
    wait_until_quiet(&two, "/hostedcluster").await?;
    sleep(2 * LEASE_DURATION).await;
    let (sent, since) =
        (held(), fixture.control_plane_api(&class_kind()).list(&ListParams::default()).await?);
    two.clear_requests();
    // The held writes arrive now.
    one.clear_requests();
    relay.release_connections();
    sleep(2 * LEASE_DURATION).await;
    expect_equal("writes of the first replica", writes_without_leases(&one), Vec::new())?;
    wait_until_quiet(&two, &fixture.control_plane_namespace()).await?;
    let arrived =
        count_outdated_writes(&fixture, &since.metadata.resource_version.unwrap_or_default())
            .await?;
    let set_back = two.writes_to(&fixture.control_plane_namespace()).len();
    if arrived == 0 || arrived > sent || set_back == 0 || set_back > 3 * sent {
        let counts = format!("{sent} writes held, {arrived} arrived, {set_back} reverted them");
        return Err(counts.into());
    }
    expect_equal("the class has the desired secret", has("harbour-second").await?, true)?;
    expect_equal(
        "every object has the desired secret",
        uses_secret_everywhere(&fixture, "harbour-second").await?,
        true,
    )?;
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let mut reported: Vec<_> = events
        .list(&ListParams::default())
        .await?
        .into_iter()
        .map(|it| (it.reason.unwrap_or_default(), it.message.unwrap_or_default()))
        .collect();
    let count = reported.len();
    reported.sort();
    reported.dedup();
    expect_equal("no event is duplicated", count, reported.len())?;
    one.stop().await?;
    two.stop().await?;
    fixture.delete_cluster().await
}

/// The number of writes since `since` that contain the outdated spec.
async fn count_outdated_writes(
    fixture: &OperatorTrialFixture,
    since: &str,
) -> Result<usize, Failed> {
    let mut count = 0;
    for kind in [class_kind(), deployment_kind(), DynamicKind::hosted_control_plane()] {
        let parameters = WatchParams::default().timeout(2);
        let api = fixture.control_plane_api(&kind);
        let mut events = std::pin::pin!(api.watch(&parameters, since).await?);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                let text = serde_json::to_string(&object)?;
                count += usize::from(text.contains("harbour-first"));
            }
        }
    }
    Ok(count)
}

/// Whether every object that depends on the ingress secret's name uses `secret`.
async fn uses_secret_everywhere(
    fixture: &OperatorTrialFixture,
    secret: &str,
) -> Result<bool, Failed> {
    let class =
        serde_json::to_string(&fixture.control_plane_api(&class_kind()).get(CLASS_NAME).await?)?;
    let deployment = fixture.control_plane_api(&deployment_kind()).get("ingress-operator").await?;
    let deployment = serde_json::to_string(&deployment)?;
    let control_planes = DynamicKind::hosted_control_plane();
    let control_plane =
        serde_json::to_string(&fixture.control_plane_api(&control_planes).get("harbour").await?)?;
    Ok([class, deployment, control_plane].iter().all(|it| {
        it.contains(secret) && !it.contains("harbour-first") && !it.contains("harbour-ingress\"")
    }))
}
