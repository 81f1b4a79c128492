//! What a management cluster of hosted control planes looks like to one of its nodes: a thousand
//! namespaces with nine classes each, and a hundred volumes of a dozen of them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::contestant::Who;
use super::{Stage, chain};
use crate::classes::{self, Mode};
use crate::ground::Holder;
use crate::peers::{NODE, Nook};
use crate::volume::Volume;

const NAMESPACES: usize = 1_000;
const CLASSES: usize = 9;
const VOLUMES: usize = 100;

/// How many programs write at once: each keeps to fifty requests a second.
const WRITERS: usize = 6;

/// The objects that are there.
#[derive(Debug)]
pub(super) struct Load {
    vault_host: String,
}

impl Load {
    /// Writes namespaces and classes.
    pub(super) async fn write(stage: &Stage) -> Result<Self, Failed> {
        stage.site.kubectl.run(&["apply", "--filename", &stage.crds]).map_err(chain)?;
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
        stage.site.kubectl.apply(&node).map_err(chain)?;
        let secrets = secrets(stage).await?;
        let namespaces: Vec<Value> = (0..NAMESPACES)
            .map(|number| {
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(number) } })
            })
            .collect();
        create(stage, &namespaces)?;
        let inputs = stage.azure.inputs(Holder::ManagedIdentity);
        let classes: Vec<Value> = (0..NAMESPACES * CLASSES)
            .map(|number| {
                let secret = &secrets[number % secrets.len()];
                let objects = [format!("objectName: {secret}\nobjectType: secret")];
                let (namespace, name) = (namespace(number / CLASSES), class(number % CLASSES));
                let mode = Mode::ManagedIdentity;
                classes::class(&namespace, &name, "azure", mode, &inputs, &objects)
            })
            .collect();
        create(stage, &classes)?;
        let vault_host = inputs.vault.trim_start_matches("https://").to_owned();
        Ok(Self { vault_host })
    }

    /// The volumes of one side, each with a pod of a node that nobody runs: without one, its pod
    /// status would be collected and written again.
    pub(super) fn volumes(stage: &Stage, nook: &Nook, who: Who) -> Result<Vec<Volume>, Failed> {
        let mut volumes: Vec<Volume> = (0..VOLUMES)
            .map(|number| {
                let (namespace, class) = (namespace(number / CLASSES), class(number % CLASSES));
                let pod = format!("{}-{number}", who.short());
                Volume::new(&nook.kubelet(), &namespace, &pod, &class)
            })
            .collect();
        create(stage, &volumes.iter().map(Volume::pod_object).collect::<Vec<_>>())?;
        let found = stage.site.kubectl.read(&["pods", "--all-namespaces"]).map_err(chain)?;
        let found = found["items"].as_array().cloned().unwrap_or_default();
        let ids: BTreeMap<&str, &str> = found
            .iter()
            .filter_map(|pod| {
                let metadata = &pod["metadata"];
                Some((metadata["name"].as_str()?, metadata["uid"].as_str()?))
            })
            .collect();
        for volume in &mut volumes {
            let id = ids.get(volume.pod.as_str()).ok_or("a pod was not created")?;
            (*id).clone_into(&mut volume.uid);
        }
        Ok(volumes)
    }

    /// How many requests the vault has had.
    pub(super) async fn vault_requests(&self, stage: &Stage) -> Result<u64, Failed> {
        // What fell out of the ledger is known by the numbers of what is left.
        let ledger: Value = stage.azure.control().read("ledger").await.map_err(chain)?;
        let entries = ledger["value"].as_array().cloned().unwrap_or_default();
        let count =
            entries.iter().filter(|entry| entry["host"] == self.vault_host.as_str()).count();
        u64::try_from(count).map_err(chain)
    }

    /// How many writes of pod statuses the API server has had.
    pub(super) fn api_writes(stage: &Stage) -> Result<u64, Failed> {
        let page = stage.site.kubectl.run(&["get", "--raw", "/metrics"]).map_err(chain)?;
        Ok(page.lines().filter_map(writes).sum())
    }
}

/// The count of a line of the API server's metrics, if it is about writes of pod statuses.
fn writes(line: &str) -> Option<u64> {
    let labels = line.strip_prefix("apiserver_request_total{")?;
    let is_write = ["POST", "PUT", "PATCH", "APPLY"]
        .iter()
        .any(|verb| labels.contains(&format!("verb=\"{verb}\"")));
    if !is_write || !labels.contains("resource=\"secretproviderclasspodstatuses\"") {
        return None;
    }
    labels.rsplit(' ').next()?.parse().ok()
}

fn namespace(number: usize) -> String {
    format!("ocm-{number}")
}

fn class(number: usize) -> String {
    format!("component-{number}")
}

/// The secrets of the components, which the node's identity may read.
async fn secrets(stage: &Stage) -> Result<Vec<String>, Failed> {
    let world: Value = stage.azure.control().read("world").await.map_err(chain)?;
    let components = world["components"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = components
        .iter()
        .filter_map(|component| component["secretName"].as_str().map(str::to_owned))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { Err("the world has no components".into()) } else { Ok(names) }
}

fn create(stage: &Stage, objects: &[Value]) -> Result<(), Failed> {
    let directory = stage.site.directory();
    let share = objects.len().div_ceil(WRITERS);
    let mut writers = Vec::new();
    for (number, part) in objects.chunks(share).enumerate() {
        let file = directory.join(format!("objects-{number}.json"));
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": part });
        std::fs::write(&file, list.to_string()).map_err(chain)?;
        let mut command = stage.site.kubectl.command();
        command.args(["create", "--validate=false", "--filename"]).arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        writers.push(start(&mut command)?);
    }
    for mut writer in writers {
        if !writer.wait().map_err(chain)?.success() {
            return Err("not every object was created".into());
        }
    }
    Ok(())
}

fn start(command: &mut Command) -> Result<std::process::Child, Failed> {
    command.spawn().map_err(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_pod_statuses_are_counted_and_nothing_else() {
        let cases = [
            (
                r#"apiserver_request_total{code="201",resource="secretproviderclasspodstatuses",verb="POST"} 7"#,
                Some(7),
            ),
            (
                r#"apiserver_request_total{code="200",resource="secretproviderclasspodstatuses",verb="APPLY"} 2"#,
                Some(2),
            ),
            (
                r#"apiserver_request_total{code="200",resource="secretproviderclasspodstatuses",verb="GET"} 9"#,
                None,
            ),
            (r#"apiserver_request_total{code="201",resource="pods",verb="POST"} 3"#, None),
            ("# HELP apiserver_request_total Counter", None),
        ];
        for (line, count) in cases {
            assert_eq!(writes(line), count, "{line}");
        }
    }
}
