//! The server of a kubeconfig on which others are at work: people, operators, and whatever keeps it
//! from answering.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::given::{Given, PATIENCE};
use super::running::Running;
use super::{Ended, Scene, Stage, expect, trial};
use crate::daemon::Daemon;
use crate::suites::chain;

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("up::beside::what_others_put_there_meanwhile_survives", stage, survived),
        trial("up::beside::an_operator_that_is_there_is_noticed_first", stage, operated),
        trial("up::beside::a_second_ctrl_c_leaves_all_and_tells_its_removal", stage, abandoned),
        trial("up::beside::ctrl_c_is_heard_before_the_server_answers", stage, unanswered),
    ]
}

/// Somebody makes a HostedCluster and its pull secret where `up` made room.
async fn survived(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    let before = given.all()?;
    let log = scene.beside.path().join("up.log");
    let mut running = Running::start(scene.up(&["--kubeconfig", &given.kubeconfig]), &log)?;
    running.until("what it stays up for", |log| log.contains("identities -A")).await?;

    let pier = given.make_pier(scene).await?;
    let pull = ["create", "secret", "generic", "pull", "--namespace=clusters"];
    given.kubectl.run(&pull).map_err(chain)?;
    let code = running.interrupt().await?;

    let log = std::fs::read_to_string(&log).map_err(chain)?;
    expect(code == Some(0), || format!("it ended with {code:?}: {log}"))?;
    let after = given.cluster("pier")?;
    expect(pier == after, || format!("{pier:#}\nbecame\n{after:#}"))?;
    let pull = ["secret/pull", "--namespace=clusters"];
    given.kubectl.read(&pull).map_err(chain)?;
    let definition =
        "customresourcedefinition.apiextensions.k8s.io/hostedclusters.hypershift.openshift.io";
    let mut expected: Vec<_> =
        before.lines().chain([definition, "namespace/clusters"]).map(str::to_owned).collect();
    let mut after: Vec<_> = given.all()?.lines().map(str::to_owned).collect();
    expected.sort();
    after.sort();
    expect(after == expected, || format!("{after:#?} instead of {expected:#?}"))?;
    for told in ["Namespace clusters stays", "hostedclusters/pier", "secrets/pull"] {
        expect(log.contains(told), || format!("{told} is not in {log}"))?;
    }
    Ok(())
}

/// An operator that renews its lease, and then a Deployment of HyperShift.
async fn operated(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    given.define(scene)?;
    let before = given.all()?;
    let mut operator = Command::new(&scene.stage.lanyard);
    operator.args(["operator", "--lease-namespace=default", "--metrics-addr=127.0.0.1:0"]);
    operator.args(["--kubeconfig", &given.kubeconfig]).env_remove("HTTPS_PROXY");
    let operator = Daemon::start("operator", &mut operator, scene.beside.path()).map_err(chain)?;
    let leases = ["leases", "--namespace=default"];
    let is_held = |leases: &Value| {
        let leases = leases["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        leases.iter().any(|lease| lease["spec"]["holderIdentity"].is_string())
    };
    given.kubectl.await_object("a lease", PATIENCE, &leases, is_held).await.map_err(chain)?;
    refused(scene, &given, "somebody looks after HostedClusters already: lease default/")?;
    operator.end().await;

    given.kubectl.run(&["create", "namespace", "hypershift"]).map_err(chain)?;
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "operator", "namespace": "hypershift"},
        "spec": {
            "selector": {"matchLabels": {"name": "operator"}},
            "template": {
                "metadata": {"labels": {"name": "operator"}},
                "spec": {"containers": [{"name": "operator", "image": "localhost/none"}]},
            },
        },
    });
    given.kubectl.apply(&deployment).map_err(chain)?;
    refused(scene, &given, "Deployment hypershift/operator")?;
    given.kubectl.delete(&["namespace/hypershift"]).map_err(chain)?;
    let after = given.all()?;
    expect(before == after, || format!("before:\n{before}\nafter:\n{after}"))
}

fn refused(scene: &Scene<'_>, given: &Given, told: &str) -> Result<(), Failed> {
    let ended = Ended::of(scene.up(&given.once(&[])))?;
    ended.expect_code(2)?;
    expect(ended.stderr.contains(told), || format!("{told} is not in {ended:#?}"))
}

/// Somebody's finalizer holds the HostedCluster. The commands that are told then leave the server as
/// it was.
async fn abandoned(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    let before = given.all()?;
    let log = scene.beside.path().join("up.log");
    let mut running = Running::start(scene.up(&["--kubeconfig", &given.kubeconfig]), &log)?;
    running.until("what it stays up for", |log| log.contains("identities -A")).await?;
    let hold = r#"[{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/hold"}]"#;
    let patch = ["patch", "hostedcluster", "harbour", "--namespace=clusters", "--type=json"];
    given.kubectl.run(&[&patch[..], &["--patch", hold]].concat()).map_err(chain)?;
    running.press_ctrl_c();
    running.until("the clearing away", |log| log.contains("Ctrl-C leaves it there")).await?;
    let is_held = |cluster: &Value| cluster["metadata"]["deletionTimestamp"].is_string();
    let harbour = ["hostedcluster/harbour", "--namespace=clusters"];
    given.kubectl.await_object("the end", PATIENCE, &harbour, is_held).await.map_err(chain)?;
    let code = running.interrupt().await?;
    let log = std::fs::read_to_string(&log).map_err(chain)?;
    expect(code == Some(3), || format!("it ended with {code:?}: {log}"))?;
    let told = "there may still be: HostedCluster clusters/harbour, Node lanyard-up-";
    expect(log.contains(told), || format!("{told} is not in {log}"))?;

    // The person does as the hint says.
    let commands: Vec<_> = log
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("kubectl delete") || line.starts_with("kubectl patch"))
        .collect();
    expect(commands.len() >= 5, || format!("{commands:#?} in {log}"))?;
    for command in commands {
        follow(scene, &given, command)?;
    }
    let after = given.all()?;
    expect(before == after, || format!("before:\n{before}\nafter:\n{after}\n{log}"))
}

fn follow(scene: &Scene<'_>, given: &Given, command: &str) -> Result<(), Failed> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = [scene.stage.programs.clone()].into_iter().chain(std::env::split_paths(&path));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("KUBECONFIG", &given.kubeconfig);
    shell.env("PATH", std::env::join_paths(places).map_err(chain)?);
    // The proxy of the environment knows no cluster on loopback.
    shell.env_remove("HTTPS_PROXY").env_remove("https_proxy");
    Ended::of(shell)?.expect_code(0)
}

/// A server that takes connections and says nothing.
async fn unanswered(scene: &Scene<'_>) -> Result<(), Failed> {
    let silent = TcpListener::bind("127.0.0.1:0").map_err(chain)?;
    let address = silent.local_addr().map_err(chain)?;
    let kubeconfig = scene.beside.path().join("kubeconfig");
    write_kubeconfig(&kubeconfig, &format!("https://{address}"))?;
    let log = scene.beside.path().join("up.log");
    let kubeconfig = kubeconfig.display().to_string();
    let mut running = Running::start(scene.up(&["--kubeconfig", &kubeconfig]), &log)?;
    silent.set_nonblocking(true).map_err(chain)?;
    let mut heard = None;
    running
        .until("a question", |_| {
            heard = heard.take().or_else(|| silent.accept().ok());
            heard.is_some()
        })
        .await?;
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let code = running.interrupt().await?;
    expect(code == Some(1), || format!("it ended with {code:?}"))?;
    let took = clock.monotonic().saturating_sub(began);
    // The first question alone may take ten.
    expect(took < Duration::from_secs(5), || format!("it took {took:?} to hear"))
}

fn write_kubeconfig(path: &Path, server: &str) -> Result<(), Failed> {
    let name = "silent";
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": "none"}}],
    });
    std::fs::write(path, kubeconfig.to_string()).map_err(chain)
}
