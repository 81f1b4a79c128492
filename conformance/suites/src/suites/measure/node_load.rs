//! The load of the benchmark, like a management cluster seen from one of its nodes: a thousand namespaces
//! with nine classes each, and a hundred volumes in a dozen of them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::node_stack::NodeStackKind;
use super::{NodeBenchmarkFixture, failed_with_causes};
use crate::class_manifests::{self, ClassIdentityMode};
use crate::driver_processes::DriverFixtureDirectory;
use crate::sign_in_method::SignInMethod;
use crate::volume::TestVolume;
use crate::volume::UNMANAGED_NODE_NAME;

const NAMESPACE_COUNT: usize = 1_000;
const CLASSES_PER_NAMESPACE: usize = 9;
const VOLUME_COUNT: usize = 100;

/// The number of parallel `kubectl` processes. Each is limited to fifty requests per second.
const WRITER_COUNT: usize = 6;

/// The created objects.
#[derive(Debug)]
pub(super) struct NodeLoad {
    vault_host: String,
}

impl NodeLoad {
    /// Creates the namespaces and classes.
    pub(super) async fn create(fixture: &NodeBenchmarkFixture) -> Result<Self, Failed> {
        fixture
            .suite_cluster
            .kubectl
            .run(&["apply", "--filename", &fixture.crd_directory])
            .map_err(failed_with_causes)?;
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": UNMANAGED_NODE_NAME } });
        fixture.suite_cluster.kubectl.apply(&node).map_err(failed_with_causes)?;
        let secrets = component_secrets(fixture).await?;
        let namespaces: Vec<Value> = (0..NAMESPACE_COUNT)
            .map(|number| {
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace_name(number) } })
            })
            .collect();
        create_objects(fixture, &namespaces)?;
        let inputs = fixture.azure.inputs(SignInMethod::ManagedIdentity);
        let classes: Vec<Value> = (0..NAMESPACE_COUNT * CLASSES_PER_NAMESPACE)
            .map(|number| {
                let secret = &secrets[number % secrets.len()];
                let objects = [format!("objectName: {secret}\nobjectType: secret")];
                let (namespace, name) = (
                    namespace_name(number / CLASSES_PER_NAMESPACE),
                    class_name(number % CLASSES_PER_NAMESPACE),
                );
                let mode = ClassIdentityMode::ManagedIdentity;
                class_manifests::class_manifest(&namespace, &name, "azure", mode, &inputs, &objects)
            })
            .collect();
        create_objects(fixture, &classes)?;
        let vault_host = inputs.vault.trim_start_matches("https://").to_owned();
        Ok(Self { vault_host })
    }

    /// The volumes of one subject, each with a pod on the node without a kubelet. Without pods, the pod
    /// statuses would be garbage-collected and written again.
    pub(super) fn volumes(
        fixture: &NodeBenchmarkFixture,
        directories: &DriverFixtureDirectory,
        kind: NodeStackKind,
    ) -> Result<Vec<TestVolume>, Failed> {
        let mut volumes: Vec<TestVolume> = (0..VOLUME_COUNT)
            .map(|number| {
                let (namespace, class) = (
                    namespace_name(number / CLASSES_PER_NAMESPACE),
                    class_name(number % CLASSES_PER_NAMESPACE),
                );
                let pod = format!("{}-{number}", kind.short_name());
                TestVolume::new(&directories.kubelet_directory(), &namespace, &pod, &class)
            })
            .collect();
        create_objects(fixture, &volumes.iter().map(TestVolume::pod_object).collect::<Vec<_>>())?;
        let found = fixture
            .suite_cluster
            .kubectl
            .get_json(&["pods", "--all-namespaces"])
            .map_err(failed_with_causes)?;
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

    /// The number of requests that the vault has received.
    pub(super) async fn vault_request_count(
        &self,
        fixture: &NodeBenchmarkFixture,
    ) -> Result<u64, Failed> {
        // The request log holds all requests of the benchmark.
        let requests = fixture.azure.control_api().requests_since(0).await;
        let requests = requests.map_err(failed_with_causes)?;
        let count = requests.iter().filter(|request| request.host == self.vault_host).count();
        u64::try_from(count).map_err(failed_with_causes)
    }

    /// The number of pod status writes that the API server has received.
    pub(super) fn pod_status_write_count(fixture: &NodeBenchmarkFixture) -> Result<u64, Failed> {
        let page = fixture
            .suite_cluster
            .kubectl
            .run(&["get", "--raw", "/metrics"])
            .map_err(failed_with_causes)?;
        Ok(page.lines().filter_map(pod_status_writes_of_line).sum())
    }
}

/// The count in a line of the API server's metrics, if it counts writes of pod statuses.
fn pod_status_writes_of_line(line: &str) -> Option<u64> {
    let labels = line.strip_prefix("apiserver_request_total{")?;
    let is_write = ["POST", "PUT", "PATCH", "APPLY"]
        .iter()
        .any(|verb| labels.contains(&format!("verb=\"{verb}\"")));
    if !is_write || !labels.contains("resource=\"secretproviderclasspodstatuses\"") {
        return None;
    }
    labels.rsplit(' ').next()?.parse().ok()
}

fn namespace_name(number: usize) -> String {
    format!("ocm-{number}")
}

fn class_name(number: usize) -> String {
    format!("component-{number}")
}

/// The vault secrets of the components, which the node's identity may read.
async fn component_secrets(fixture: &NodeBenchmarkFixture) -> Result<Vec<String>, Failed> {
    let seed_data: Value =
        fixture.azure.control_api().get("state").await.map_err(failed_with_causes)?;
    let components = seed_data["components"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = components
        .iter()
        .filter_map(|component| component["secretName"].as_str().map(str::to_owned))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { Err("the seed data has no components".into()) } else { Ok(names) }
}

fn create_objects(fixture: &NodeBenchmarkFixture, objects: &[Value]) -> Result<(), Failed> {
    let directory = fixture.suite_cluster.directory();
    let share = objects.len().div_ceil(WRITER_COUNT);
    let mut writers = Vec::new();
    for (number, part) in objects.chunks(share).enumerate() {
        let file = directory.join(format!("objects-{number}.json"));
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": part });
        std::fs::write(&file, list.to_string()).map_err(failed_with_causes)?;
        let mut command = fixture.suite_cluster.kubectl.base_command();
        command.args(["create", "--validate=false", "--filename"]).arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        writers.push(spawn_kubectl(&mut command)?);
    }
    for mut writer in writers {
        if !writer.wait().map_err(failed_with_causes)?.success() {
            return Err("not every object was created".into());
        }
    }
    Ok(())
}

fn spawn_kubectl(command: &mut Command) -> Result<std::process::Child, Failed> {
    command.spawn().map_err(failed_with_causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pod_status_writes_are_counted() {
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
            assert_eq!(pod_status_writes_of_line(line), count, "{line}");
        }
    }
}
