//! A server of its own.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use super::running::Running;
use super::{Ended, Scene, Stage, blamed, expect, expect_all_good, trial};
use crate::kubectl::Kubectl;
use crate::suites::chain;

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("up::own::nine_components_are_good_and_the_table_names_the_road", stage, table),
        trial("up::own::canaries_prove_with_every_new_certificate", stage, rotation),
        trial("up::own::what_cannot_be_mounted_is_blamed_by_the_event", stage, unmountable),
        trial("up::own::what_is_not_granted_is_blamed_by_the_operator", stage, ungranted),
        trial("up::own::what_ended_is_told_with_a_next_step_that_mends_it", stage, outlived),
        trial("up::own::what_stays_up_can_be_looked_at_until_ctrl_c", stage, staying),
        trial("up::own::ctrl_c_in_the_middle_leaves_nothing", stage, interrupted),
    ]
}

async fn table(scene: &Scene<'_>) -> Result<(), Failed> {
    let ended = Ended::of(scene.up(&["--kubernetes", "--once"]))?;
    ended.expect_code(0)?;
    for told in ["road: Kubernetes v", "started for this road", "9 of 9 components good"] {
        expect(ended.stdout.contains(told), || format!("{told} is not in {ended:#?}"))?;
    }
    Ok(())
}

async fn rotation(scene: &Scene<'_>) -> Result<(), Failed> {
    let ended = Ended::of(scene.up(&["--kubernetes", "--once", "--rotate", "--output", "json"]))?;
    ended.expect_code(0)?;
    let report = ended.report()?;
    expect_all_good(&report)?;
    let rotated = report["rotation"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_in_use = rotated.len() == 9 && rotated.iter().all(|it| it["millis"].is_f64());
    expect(is_in_use, || format!("{rotated:#?}"))?;
    let is_whole = ended.stderr.contains("0 torn, 0 missing");
    expect(is_whole, || format!("a reader saw something else: {}", ended.stderr))
}

async fn unmountable(scene: &Scene<'_>) -> Result<(), Failed> {
    blame(scene, "vault-role", "disk", "vault-read", "VaultForbidden")
}

async fn ungranted(scene: &Scene<'_>) -> Result<(), Failed> {
    blame(scene, "arm-role", "ingress", "granted", "AuthorizationFailed")
}

async fn outlived(scene: &Scene<'_>) -> Result<(), Failed> {
    blame(scene, "expired", "disk", "credential", "renew the secret in the vault, with")
}

/// One component is blamed at one hop with this word, and eight are good.
fn blame(
    scene: &Scene<'_>,
    fault: &str,
    component: &str,
    hop: &str,
    word: &str,
) -> Result<(), Failed> {
    let broken = format!("{fault}:{component}");
    let arguments = ["--kubernetes", "--once", "--output", "json", "--break", &broken];
    let ended = Ended::of(scene.up(&arguments))?;
    ended.expect_code(1)?;
    let report = ended.report()?;
    let rows = blamed(&report)?;
    let failed: Vec<_> = rows.iter().filter(|(_, failed)| failed.is_some()).collect();
    let expected = (component.to_owned(), Some(hop.to_owned()));
    expect(rows.len() == 9 && failed == [&expected], || format!("{rows:?}"))?;
    expect(ended.stdout.contains(word), || format!("{word} is not in {}", ended.stdout))
}

async fn staying(scene: &Scene<'_>) -> Result<(), Failed> {
    let log = scene.beside.path().join("up.log");
    let mut running = Running::start(scene.up(&["--kubernetes"]), &log)?;
    let kubeconfig = running.until_it_stays_up().await?;
    let kubectl = Kubectl::new(&scene.stage.programs.join("kubectl"), &kubeconfig);
    let pods = kubectl.read(&["pods", "--namespace=clusters-harbour"]).map_err(chain)?;
    let pods = pods["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let run = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
    expect(run == 9 && pods.len() == 9, || format!("{run} of {} pods run", pods.len()))?;

    let mut identities = Command::new(&scene.stage.lanyard);
    identities.args(["identities", "-A"]).env("KUBECONFIG", &kubeconfig);
    identities.env_remove("HTTPS_PROXY");
    let identities = Ended::of(identities)?;
    identities.expect_code(0)?;
    let good = identities.stdout.matches("granted").count();
    expect(good >= 9, || format!("{identities:#?}"))?;

    let code = running.interrupt().await?;
    expect(code == Some(0), || format!("it ended with {code:?}"))
}

async fn interrupted(scene: &Scene<'_>) -> Result<(), Failed> {
    let log = scene.beside.path().join("up.log");
    let mut running =
        Running::start(scene.up(&["--kubernetes", "--log", "lanyard_node=info"]), &log)?;
    // Somewhere between the first mount and the last word of a canary.
    running.until("a mount", |_| scene.mounts().is_ok_and(|mounts| !mounts.is_empty())).await?;
    let code = running.interrupt().await?;
    expect(code == Some(1), || format!("it ended with {code:?}"))
}

/// How long `up` may take for what is waited for.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
