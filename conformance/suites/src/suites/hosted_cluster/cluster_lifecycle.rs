//! Trials of the hosted cluster's lifecycle and its canaries.

use std::collections::BTreeMap;

use lanyard_vocabulary::Component;
use libtest_mimic::Failed;
use serde_json::Value;

use super::canary_metrics::{CanaryMetricsPage, fetch_canary_metrics, wait_for_all_canaries};
use super::charts::{DELETE_SECTION, INSTALL_SECTION, REMOVE_ROLE_SECTION, ROTATE_SECTION};
use super::{
    CLUSTER_NAME, CONTROL_PLANE_NAMESPACE, HostedClusterSuiteFixture, NAMESPACE,
    PROPAGATION_TIMEOUT, START_TIMEOUT, failed_with_causes,
};
use crate::tutorial::TutorialStep;

/// Checks the installation section: at most six commands, the last of which shows nine granted identities.
pub(super) async fn check_installation(fixture: &HostedClusterSuiteFixture) -> Result<(), Failed> {
    let commands =
        fixture.tutorial.section_steps(INSTALL_SECTION).map_err(failed_with_causes)?.len();
    if commands > 6 {
        return Err(format!("the page has {commands} commands").into());
    }
    expect_all_granted(fixture.install().await?)
}

/// Fails unless the table of `lanyard identities` shows every component as ready and granted.
fn expect_all_granted(table: &str) -> Result<(), Failed> {
    let lines: Vec<&str> = table.lines().skip(1).collect();
    if lines.len() != Component::ALL.len() {
        return Err(format!("there are {} rows: {table}", lines.len()).into());
    }
    for component in Component::ALL {
        let is_its = |line: &&&str| line.split_whitespace().nth(2) == Some(component.name());
        let line = lines.iter().find(is_its).ok_or_else(|| format!("no {component}: {table}"))?;
        if !line.contains("True") || !line.contains("granted") {
            return Err((*line).into());
        }
    }
    Ok(())
}

/// Waits until nine pods run whose canaries have a token and a granted call.
pub(super) async fn check_canaries(fixture: &HostedClusterSuiteFixture) -> Result<(), Failed> {
    let wanted: Vec<&str> = component_deployments().collect();
    let arguments = ["pods", "--namespace", CONTROL_PLANE_NAMESPACE];
    let run = |pods: &Value| {
        let names = ready_deployments(pods);
        wanted.iter().all(|name| names.contains(name))
    };
    let running =
        fixture.kubectl().wait_for_object("nine pods run", START_TIMEOUT, &arguments, run).await;
    running.map_err(|error| fixture.failure_with_logs(error))?;
    let proves = |_, page: &CanaryMetricsPage| {
        page.is_authenticated()
            && page.sample_sum("lanyard_canary_tokens_total") >= 1.0
            && page
                .sample_with_label("lanyard_canary_calls_total", "granted")
                .is_some_and(|n| n >= 1.0)
    };
    wait_for_all_canaries(
        fixture,
        "every canary has a token and was granted a call",
        PROPAGATION_TIMEOUT,
        proves,
    )
    .await?;
    expect_kms_plugin_healthy(fixture).await
}

/// Expects that the KMS plugin next to the API server's canary is healthy: its socket exists and its key
/// encrypts and decrypts.
async fn expect_kms_plugin_healthy(fixture: &HostedClusterSuiteFixture) -> Result<(), Failed> {
    let url = format!("http://127.0.0.1:{KMS_PLUGIN_PORT}/healthz");
    // Loopback needs no proxy, so proxies of the environment are ignored.
    let client = reqwest::Client::builder().no_proxy().build().map_err(failed_with_causes)?;
    let answer = client.get(url).send().await.map_err(failed_with_causes)?;
    let status = answer.status().as_u16();
    let body = answer.text().await.map_err(failed_with_causes)?;
    if (status, body.as_str()) == (200, "ok") {
        return Ok(());
    }
    Err(fixture.failure_with_logs(format!("the KMS plugin returned {status} {body}")))
}

/// The health port of the active key's plugin.
const KMS_PLUGIN_PORT: u16 = 8787;

fn component_deployments() -> impl Iterator<Item = &'static str> {
    Component::ALL.into_iter().map(|component| component.consumers()[0].deployment)
}

/// The deployments with a running and ready pod.
fn ready_deployments(pods: &Value) -> Vec<&str> {
    let items = pods["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice);
        let ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
        pod["status"]["phase"] == "Running" && conditions.unwrap_or_default().iter().any(ready)
    };
    items
        .iter()
        .filter(is_ready)
        .filter_map(|pod| pod["metadata"]["labels"]["app"].as_str())
        .collect()
}

/// Waits until a condition holds for the identities in HostedClusterIdentities, and returns them by
/// component.
pub(super) async fn wait_for_identities(
    fixture: &HostedClusterSuiteFixture,
    what: &str,
    condition: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> Result<BTreeMap<String, Value>, Failed> {
    let arguments = ["hostedclusteridentities", CLUSTER_NAME, "--namespace", NAMESPACE];
    let found = fixture
        .kubectl()
        .wait_for_object(what, PROPAGATION_TIMEOUT, &arguments, |object| {
            condition(&identities_by_component(object))
        })
        .await
        .map_err(|error| fixture.failure_with_logs(error))?;
    Ok(identities_by_component(&found))
}

fn identities_by_component(object: &Value) -> BTreeMap<String, Value> {
    let rows = object["status"]["identities"].as_array().cloned().unwrap_or_default();
    let named = |row: Value| Some((row["component"].as_str()?.to_owned(), row));
    rows.into_iter().filter_map(named).collect()
}

pub(super) fn all_ready(rows: &BTreeMap<String, Value>) -> bool {
    rows.len() == Component::ALL.len() && rows.values().all(|row| row["ready"] == "True")
}

pub(super) async fn check_identity_status(
    fixture: &HostedClusterSuiteFixture,
) -> Result<(), Failed> {
    let rows = wait_for_identities(fixture, "nine identities are ready", all_ready).await?;
    for (component, row) in &rows {
        for field in ["loadedVersion", "notAfter", "renewAfter", "lastGoodHop", "clientID"] {
            if row[field].is_null() {
                return Err(format!("{component} lacks {field}: {row}").into());
            }
        }
        if row["lastGoodHop"] != "granted" {
            return Err(format!("{component} was not proven to the end: {row}").into());
        }
    }
    let arguments = ["hostedcluster", CLUSTER_NAME, "--namespace", NAMESPACE];
    let valid = |cluster: &Value| {
        ["ValidAzureIdentities", "ValidAzureKMSConfig"].iter().all(|wanted| {
            let conditions = cluster["status"]["conditions"].as_array().map(Vec::as_slice);
            let holds = |it: &Value| it["type"] == *wanted && it["status"] == "True";
            conditions.unwrap_or_default().iter().any(holds)
        })
    };
    let validated = fixture
        .kubectl()
        .wait_for_object("both conditions hold", PROPAGATION_TIMEOUT, &arguments, valid)
        .await;
    validated.map(drop).map_err(|error| fixture.failure_with_logs(error))
}

/// Runs lanyard as a kubectl plugin, as users install it.
pub(super) fn check_kubectl_plugin(fixture: &HostedClusterSuiteFixture) -> Result<(), Failed> {
    let command = "kubectl lanyard identities -A".to_owned();
    let step = TutorialStep { command, output: Vec::new() };
    expect_all_granted(&fixture.tutorial_environment.run_step(&step).map_err(failed_with_causes)?)
}

pub(super) async fn rotate_all_certificates(
    fixture: &HostedClusterSuiteFixture,
) -> Result<(), Failed> {
    const CERTIFICATE: &str = "lanyard_canary_credential_info";
    let mut before = BTreeMap::new();
    for component in Component::ALL {
        let page = fetch_canary_metrics(fixture, component).await?;
        let certificate = page.sample_labels(CERTIFICATE).map(str::to_owned);
        before.insert(component, certificate.ok_or_else(|| format!("{component}: {page:?}"))?);
    }
    fixture.run_tutorial_section(ROTATE_SECTION)?;
    for component in Component::ALL.into_iter().filter(|it| *it != Component::Disk) {
        fixture
            .azure_control
            .rotate_credential(component.name(), 0)
            .await
            .map_err(failed_with_causes)?;
    }
    let is_new = |component, page: &CanaryMetricsPage| {
        page.is_authenticated()
            && page.sample_sum("lanyard_canary_rotations_total") >= 1.0
            && page.sample_labels(CERTIFICATE) != before.get(&component).map(String::as_str)
    };
    let pages = wait_for_all_canaries(
        fixture,
        "every canary has its new certificate",
        PROPAGATION_TIMEOUT,
        is_new,
    )
    .await?;
    for (component, page) in &pages {
        let lapses = page.sample_sum("lanyard_canary_lapses_total");
        let refused = page.sample_with_label("lanyard_canary_calls_total", "\"unauthenticated\"");
        if lapses > 0.5 || refused.unwrap_or_default() > 0.5 {
            return Err(format!("{component} was unauthenticated for a while: {page:?}").into());
        }
    }
    wait_for_identities(fixture, "nine identities are ready after the rotation", all_ready).await?;
    expect_kms_plugin_healthy(fixture).await
}

/// Removes the role of one component, as the tutorial does. Azure then denies the calls of this component's
/// canary only.
pub(super) async fn remove_component_role(
    fixture: &HostedClusterSuiteFixture,
) -> Result<(), Failed> {
    let victim = Component::Disk;
    fixture.run_tutorial_section(REMOVE_ROLE_SECTION)?;
    let is_named = |rows: &BTreeMap<String, Value>| {
        rows.get(victim.name()).is_some_and(|row| row["ready"] == "False")
    };
    let rows = wait_for_identities(fixture, "the broken identity is named", is_named).await?;
    let row = &rows[victim.name()];
    if row["failedHop"] != "granted" || row["message"].as_str().is_none_or(str::is_empty) {
        return Err(format!("the row does not name the failure: {row}").into());
    }
    let others = rows.iter().filter(|(component, _)| *component != victim.name());
    let unwell: Vec<_> = others.filter(|(_, row)| row["ready"] != "True").collect();
    if !unwell.is_empty() {
        return Err(format!("others are not ready: {unwell:?}").into());
    }
    Ok(())
}

/// Deletes the HostedCluster while one of its identities is broken, and waits until its objects are gone. The
/// namespace of its control plane remains with the CA, because the operator did not create it.
pub(super) async fn delete_hosted_cluster(
    fixture: &HostedClusterSuiteFixture,
) -> Result<(), Failed> {
    fixture.run_tutorial_section(DELETE_SECTION)?;
    // The garbage collector deletes HostedClusterIdentities after its owner is gone.
    let identities = format!("hostedclusteridentities/{CLUSTER_NAME}");
    let wait = ["wait", "--for=delete", &identities, "--namespace", NAMESPACE, "--timeout=60s"];
    fixture.kubectl().run(&wait).map_err(|error| fixture.failure_with_logs(error))?;
    // The garbage collector also deletes pod statuses, whose owners are pods.
    let kinds = "hostedclusters,hostedcontrolplanes,hostedclusteridentities,secretproviderclasses,\
                 secretproviderclasspodstatuses";
    let everything = [kinds, "--all-namespaces"];
    let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    let is_empty = |list: &Value| items(list).is_empty();
    let gone = fixture
        .kubectl()
        .wait_for_object("no object is left", START_TIMEOUT, &everything, is_empty)
        .await;
    gone.map_err(|error| fixture.failure_with_logs(error))?;
    let kinds = "deployments,replicasets,pods,configmaps,secrets,services,serviceaccounts,\
                 roles,rolebindings";
    let content = [kinds, "--namespace", CONTROL_PLANE_NAMESPACE];
    let own = ["lanyard-azure-ca", "kube-root-ca.crt", "default"];
    let is_own = |it: &Value| it["metadata"]["name"].as_str().is_some_and(|it| own.contains(&it));
    let has_own_only = |list: &Value| items(list).iter().all(is_own);
    let found = fixture
        .kubectl()
        .wait_for_object("nothing is left", START_TIMEOUT, &content, has_own_only)
        .await;
    found.map_err(|error| fixture.failure_with_logs(error))?;
    let pods = fixture.inputs.suite_cluster.cluster.layout().kubelet_directory().join("pods");
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(failed_with_causes)?;
    let is_volume =
        |line: &&str| line.contains("kubernetes.io~csi") && line.contains(&*pods.to_string_lossy());
    let mounted: Vec<&str> = mounts.lines().filter(is_volume).collect();
    if mounted.is_empty() { Ok(()) } else { Err(format!("still mounted: {mounted:?}").into()) }
}
