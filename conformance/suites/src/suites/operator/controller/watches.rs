//! Trials of watches that break while the API server runs, with the product's own client.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::EtcdAccess;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::relay::TcpRelay;
use super::running_operator::{RunningOperator, class_kind, config_map_kind};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::{eventually_within, sleep};

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(suite, "operator::broken_watches_resume_without_lists", broken_connections),
        trial(
            suite,
            "operator::expired_resource_version_causes_at_most_one_list_per_kind",
            expired_resource_version,
        ),
    ]
}

/// The number of lists of each kind that this API server serves. Kinds that it does not serve are polled in
/// case they are installed.
fn list_counts(running: &RunningOperator) -> Result<BTreeMap<String, u64>, Failed> {
    let page = running.metric_lines("lanyard_operator_lists_total");
    let served = page.lines().filter(|line| !line.contains("\"AzureCluster"));
    let counts = served.filter_map(|line| line.rsplit_once(' '));
    counts.map(|(kind, count)| Ok((kind.to_owned(), count.parse()?))).collect()
}

/// Changes a class as a user, and measures the time until the operator corrects it.
async fn measure_drift_correction(
    fixture: &OperatorTrialFixture,
    within: Duration,
) -> Result<Duration, Failed> {
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let patch = json!({"spec": {"parameters": {"keyvaultName": "elsewhere"}}});
    let api = fixture.control_plane_api(&class_kind());
    api.patch("managed-azure-network", &parameters, &Patch::Merge(patch)).await?;
    let clock = SystemClock::new();
    let began = clock.monotonic();
    eventually_within(within, "the class is restored", async || {
        let class = serde_json::to_value(api.get("managed-azure-network").await?)?;
        Ok(class["spec"]["parameters"]["keyvaultName"] == "harbour-identities")
    })
    .await?;
    Ok(clock.monotonic().saturating_sub(began))
}

async fn broken_connections(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let relay = TcpRelay::start(&fixture.plane).await?;
    let running = RunningOperator::start_via_relay_as_binary(&fixture, &relay, |_| ()).await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    let before = list_counts(&running)?;
    for _ in 0..2 {
        relay.cut_connections();
        measure_drift_correction(&fixture, WATCH_TIMEOUT).await?;
    }
    // A half-open connection: data is lost without either end noticing. HTTP/2 pings detect it.
    relay.hold_connections();
    let took = measure_drift_correction(&fixture, PING_TIMEOUT).await?;
    if took < WATCH_TIMEOUT {
        return Err(format!("the connection was not held: {took:?}").into());
    }
    expect_equal("lists", list_counts(&running)?, before)?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn expired_resource_version(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let relay = TcpRelay::start(&fixture.plane).await?;
    let running = RunningOperator::start_via_relay_as_binary(&fixture, &relay, |_| ()).await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    let before = list_counts(&running)?;
    // The operator misses a deletion, and compaction then removes it from etcd's history.
    relay.hold_all_connections();
    fixture
        .control_plane_api(&config_map_kind())
        .delete("azure-cloud-config", &DeleteParams::default())
        .await?;
    compact_etcd(&fixture).await?;
    fixture.plane.kill_api_server();
    fixture.plane.start_api_server().await?;
    // Held data is discarded.
    relay.cut_connections();
    relay.release_connections();
    eventually_within(PING_TIMEOUT, "the deleted ConfigMap is created again", async || {
        Ok(fixture
            .control_plane_api(&config_map_kind())
            .get_opt("azure-cloud-config")
            .await?
            .is_some())
    })
    .await?;
    measure_drift_correction(&fixture, WATCH_TIMEOUT).await?;
    sleep(WATCH_TIMEOUT).await;
    // A kind whose last resource version was still known needs no list.
    let more = list_counts(&running)?.into_iter().map(|(kind, count)| {
        let more = count - before.get(&kind).copied().unwrap_or_default();
        (kind, more)
    });
    let more: Vec<_> = more.filter(|(_, more)| *more > 0).collect();
    let is_listed = more.iter().any(|(kind, _)| kind.contains("\"ConfigMap\""));
    if !is_listed || more.iter().any(|(_, more)| *more > 1) {
        return Err(format!("lists since then: {more:?}").into());
    }
    running.stop().await?;
    fixture.delete_cluster().await
}

/// Compacts etcd to its current revision.
async fn compact_etcd(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    let store = etcd_client(&fixture.plane.etcd_access()).await?;
    let ask = async |path: &str, body: Value| {
        let request = Request::post(path).body(body.to_string().into_bytes())?;
        Ok::<_, Failed>(store.request::<Value>(request).await?)
    };
    let now = ask("/v3/kv/range", json!({"key": "AA=="})).await?;
    let revision = &now["header"]["revision"];
    let answer = ask("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await?;
    expect_equal("the store compacts", answer["header"].is_object(), true)
}

/// An HTTP client of etcd with the API server's certificate.
async fn etcd_client(access: &EtcdAccess) -> Result<Client, Failed> {
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

/// How long a change may take to be noticed through a working watch.
const WATCH_TIMEOUT: Duration = Duration::from_secs(12);
/// HTTP/2 pings detect a dead connection after 45 s.
const PING_TIMEOUT: Duration = Duration::from_secs(70);
