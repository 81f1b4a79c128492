//! What nobody else on the machine may reach, and what is left of a run that was killed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lanyard_cluster::StoreAccess;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::own::PATIENCE;
use super::running::Running;
use super::{Ended, Scene, Stage, expect, trial};
use crate::kubectl::Kubectl;
use crate::suites::chain;
use crate::suites::store::Store;

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("up::guarded::nobody_else_reads_its_files_or_asks_its_store", stage, closed),
        trial("up::guarded::only_pods_of_the_run_are_served", stage, strangers),
        trial("up::guarded::a_pod_leads_to_no_file_outside_its_volumes", stage, outside),
        trial("up::guarded::what_a_killed_run_left_goes_at_the_next_start", stage, killed),
    ]
}

/// A server that stays up.
struct Up {
    running: Running,
    kubectl: Kubectl,
    /// The directory of its servers.
    servers: PathBuf,
}

impl Up {
    async fn start(scene: &Scene<'_>) -> Result<Self, Failed> {
        let log = scene.beside.path().join("up.log");
        let mut running = Running::start(scene.up(&["--kubernetes"]), &log)?;
        let kubeconfig = running.until_it_stays_up().await?;
        let kubectl = Kubectl::new(&scene.stage.programs.join("kubectl"), &kubeconfig);
        let servers = kubeconfig.parent().ok_or("the kubeconfig is in no directory")?.to_owned();
        Ok(Self { running, kubectl, servers })
    }

    /// The store, with the files that only its owner reads.
    fn store(&self, scene: &Scene<'_>) -> Result<StoreAccess, Failed> {
        let processes = scene.processes()?;
        let url = processes.iter().find_map(|arguments| {
            let place = arguments.iter().position(|it| it == "--listen-client-urls")?;
            arguments.get(place + 1)
        });
        let file = |name: &str| self.servers.join(name);
        Ok(StoreAccess {
            url: url.ok_or("there is no etcd")?.clone(),
            authority: file("ca.crt"),
            certificate: file("etcd-client.crt"),
            key: file("etcd-client.key"),
        })
    }

    /// A pod that runs: the first of its Deployment.
    fn pod(&self, deployment: &str) -> Result<Value, Failed> {
        let arguments = ["pods", NAMESPACE, "--selector", &format!("app={deployment}")];
        let mut pods = self.kubectl.read(&arguments).map_err(chain)?;
        let pod = pods["items"][0].take();
        expect(pod["status"]["phase"] == "Running", || format!("{pod:#}"))?;
        Ok(pod)
    }

    async fn end(self) -> Result<(), Failed> {
        let code = self.running.interrupt().await?;
        expect(code == Some(0), || format!("it ended with {code:?}"))
    }
}

async fn closed(scene: &Scene<'_>) -> Result<(), Failed> {
    let up = Up::start(scene).await?;
    let mut seen = 0;
    let volumes = entries(scene.temporary.path())?.into_iter().filter(|place| {
        place.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lanyard-up-"))
    });
    let places: Vec<_> = volumes.chain([up.servers.clone()]).collect();
    expect(places.len() == 2, || format!("{places:?}"))?;
    for place in places {
        expect_closed(&place)?;
        // What `up` writes is closed by itself, too; the programs have their own ways below.
        for entry in entries(&place)?.iter().filter(|entry| entry.is_file()) {
            expect_closed(entry)?;
            seen += 1;
        }
    }
    expect(seen > 10, || format!("only {seen} files were looked at"))?;

    let access = up.store(scene)?;
    let key = "/registry/namespaces/clusters";
    let held = Store::new(&access)?.read(key).await?;
    expect(!held.is_empty(), || "the store holds nothing".to_owned())?;
    let stranger = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
    let stranger = stranger.build().map_err(chain)?;
    for url in [access.url.clone(), access.url.replacen("https:", "http:", 1)] {
        let asked = stranger.post(format!("{url}/v3/kv/range")).body("{}").send().await;
        let answered = asked.is_ok_and(|answer| answer.status().is_success());
        expect(!answered, || format!("the store answers everybody at {url}"))?;
    }
    up.end().await
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, Failed> {
    let entries = std::fs::read_dir(directory).map_err(chain)?;
    entries.map(|entry| Ok(entry.map_err(chain)?.path())).collect()
}

fn expect_closed(path: &Path) -> Result<(), Failed> {
    let mode = path.metadata().map_err(chain)?.permissions().mode() & 0o777;
    expect(mode | 0o700 == 0o700, || format!("{} has mode {mode:o}", path.display()))
}

async fn strangers(scene: &Scene<'_>) -> Result<(), Failed> {
    let up = Up::start(scene).await?;
    let ours = up.pod(DEPLOYMENT)?;
    let mut copy = as_made(&ours, "stranger");
    let labels = copy["metadata"]["labels"].as_object_mut();
    let run = labels.and_then(|labels| labels.remove("lanyard.dev/run"));
    expect(run.is_some(), || format!("it has no label of its run: {ours:#}"))?;
    up.kubectl.apply(&copy).map_err(chain)?;

    // One of ours that goes comes again, under its name: meanwhile the other had its time, too.
    let name = ours["metadata"]["name"].as_str().ok_or("a pod has a name")?;
    up.kubectl.delete(&["pod", name, NAMESPACE]).map_err(chain)?;
    let again = ["pod", name, NAMESPACE];
    let runs = |pod: &Value| pod["status"]["phase"] == "Running";
    let again = up.kubectl.await_object("the pod again", PATIENCE, &again, runs).await;
    let again = again.map_err(chain)?;
    let is_another = again["metadata"]["uid"] != ours["metadata"]["uid"];
    expect(is_another, || "the pod did not go".to_owned())?;
    let stranger = up.kubectl.read(&["pod", "stranger", NAMESPACE]).map_err(chain)?;
    let is_served = stranger["status"].get("containerStatuses").is_some();
    expect(!is_served, || format!("it is served: {:#}", stranger["status"]))?;
    // It is on our node, so nobody else lets it go.
    up.kubectl.delete(&["pod", "stranger", NAMESPACE]).map_err(chain)?;
    up.end().await
}

/// Past all validation of the API server, as somebody would write it who reaches its store.
async fn outside(scene: &Scene<'_>) -> Result<(), Failed> {
    let up = Up::start(scene).await?;
    let store = Store::new(&up.store(scene)?)?;
    let planted = scene.beside.path().join("planted");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "planted", "namespace": "clusters-harbour"},
        "stringData": {"key": "written"},
    });
    up.kubectl.apply(&secret).map_err(chain)?;
    let mut pod = as_made(&up.pod(DEPLOYMENT)?, "planted");
    pod["metadata"]["uid"] = json!("6b1f3c1e-5f0b-4a57-9f4e-2f4f0c7f5a11");
    pod["metadata"]["creationTimestamp"] = json!("2026-11-01T08:00:00Z");
    pod["spec"]["volumes"] = json!([{
        "name": "planted",
        "secret": {"secretName": "planted", "items": [{"key": "key", "path": planted}]},
    }]);
    let bytes = pod.to_string().into_bytes();
    store.write("/registry/pods/clusters-harbour/planted", &bytes).await?;
    let told = |pod: &Value| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().is_some_and(|it| it.contains("no path below the volume"))
    };
    let planted_pod = ["pod", "planted", NAMESPACE];
    let refused = up.kubectl.await_object("the refusal", PATIENCE, &planted_pod, told).await;
    drop(refused.map_err(chain)?);
    expect(!planted.exists(), || format!("{} was written", planted.display()))?;
    up.end().await
}

async fn killed(scene: &Scene<'_>) -> Result<(), Failed> {
    let log = scene.beside.path().join("up.log");
    let mut running = Running::start(scene.up(&["--kubernetes"]), &log)?;
    running.until("a mount", |_| scene.mounts().is_ok_and(|mounts| !mounts.is_empty())).await?;
    running.kill()?;
    let (mounts, processes) = (scene.mounts()?.len(), scene.processes()?.len());
    let is_left = mounts > 0 && processes == 2;
    expect(is_left, || format!("{mounts} mounts and {processes} processes are left"))?;
    let ended = Ended::of(scene.up(&["--kubernetes", "--once"]))?;
    ended.expect_code(0)?;
    // The trial ends with a look at all that is left.
    Ok(())
}

/// An object as it would be made under another name.
fn as_made(object: &Value, name: &str) -> Value {
    let metadata = &object["metadata"];
    json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": object["spec"],
    })
}

/// The Deployment whose pod is taken for an example.
const DEPLOYMENT: &str = "ingress-operator";
const NAMESPACE: &str = "--namespace=clusters-harbour";
