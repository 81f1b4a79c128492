//! Readiness of the components, through the health endpoint of each.

use std::time::Duration;

use lanyard_clock::Clock;
use serde_json::Value;

use crate::component::ClusterComponent;
use crate::error::ClusterError;
use crate::http_client::ClusterHttpClient;
use crate::plan::{ClusterContext, LocalClusterPlan};
use crate::processes::{self, RecordedProcess, run_tool};

/// How often a component is probed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A component needs seconds to start, or minutes while the machine runs a build.
const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// The response of the component's health endpoint, or why there was none.
type NotReadyReason = String;

/// Probes a component once.
pub(crate) async fn probe_component(
    context: ClusterContext<'_>,
    api: &ClusterHttpClient,
    component: ClusterComponent,
) -> Result<(), NotReadyReason> {
    let ports = &context.plan.ports;
    let (scheme, port, path) = match component {
        ClusterComponent::Containerd => return probe_containerd(context).await,
        ClusterComponent::Etcd => ("http", ports.etcd, "/readyz"),
        ClusterComponent::KubeApiserver => ("https", ports.api_server, "/readyz"),
        ClusterComponent::KubeControllerManager => ("https", ports.controller_manager, "/healthz"),
        ClusterComponent::KubeScheduler => ("https", ports.scheduler, "/readyz"),
        ClusterComponent::Kubelet => ("http", ports.kubelet_health, "/healthz"),
    };
    let url = format!("{scheme}://{}:{port}{path}", LocalClusterPlan::LOOPBACK_ADDRESS);
    match api.fetch(&url).await {
        Ok((200, text)) if text.trim() == "ok" || text.starts_with("ok\n") => Ok(()),
        Ok((status, text)) => Err(format!("{status}: {}", first_line(&text))),
        Err(_) => Err("no response".to_owned()),
    }
}

async fn probe_containerd(context: ClusterContext<'_>) -> Result<(), NotReadyReason> {
    let socket = context.layout.containerd_socket();
    if !socket.exists() {
        return Err("no socket".to_owned());
    }
    let address = socket.to_string_lossy();
    let arguments = ["--address", &*address, "--connect-timeout", "2s", "version"];
    run_tool(&context.plan.program_path("ctr"), &arguments)
        .await
        .map(drop)
        .map_err(|error| first_line(&error.to_string()).to_owned())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Waits until a component is ready. Returns an error as soon as its process exits.
pub(crate) async fn wait_until_component_ready(
    context: ClusterContext<'_>,
    api: &ClusterHttpClient,
    (component, process): (ClusterComponent, &RecordedProcess),
    clock: &dyn Clock,
) -> Result<(), ClusterError> {
    let deadline = clock.monotonic() + READY_TIMEOUT;
    loop {
        let Err(last_response) = probe_component(context, api, component).await else {
            return Ok(());
        };
        if !process.is_alive() {
            return Err(processes::exited_error(context.layout, component));
        }
        if clock.monotonic() >= deadline {
            return Err(not_ready_error(context, component, last_response));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// Waits until pods can be created and run: the node is ready, and the default namespace has its
/// ServiceAccount and root CA `ConfigMap`.
pub(crate) async fn wait_until_pods_can_run(
    context: ClusterContext<'_>,
    api: &ClusterHttpClient,
    clock: &dyn Clock,
) -> Result<(), ClusterError> {
    let deadline = clock.monotonic() + READY_TIMEOUT;
    let server = context.plan.api_server_url();
    let node = format!("{server}/api/v1/nodes/{}", LocalClusterPlan::NODE_NAME);
    let account = format!("{server}/api/v1/namespaces/default/serviceaccounts/default");
    let roots = format!("{server}/api/v1/namespaces/default/configmaps/kube-root-ca.crt");
    loop {
        let waiting_for = if !api.fetch_json(&node).await.is_ok_and(|it| is_node_ready(&it)) {
            (ClusterComponent::Kubelet, "the node is not ready")
        } else if api.fetch_json(&account).await.is_err() {
            (ClusterComponent::KubeControllerManager, "there is no default service account")
        } else if api.fetch_json(&roots).await.is_err() {
            (ClusterComponent::KubeControllerManager, "there is no kube-root-ca.crt")
        } else {
            return Ok(());
        };
        let (component, why) = waiting_for;
        if processes::recorded_process(context.layout, component).is_none() {
            return Err(processes::exited_error(context.layout, component));
        }
        if clock.monotonic() >= deadline {
            return Err(not_ready_error(context, component, why.to_owned()));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

fn not_ready_error(
    context: ClusterContext<'_>,
    component: ClusterComponent,
    last_response: String,
) -> ClusterError {
    let log = context.layout.log_file(component);
    ClusterError::NotReady { component, timeout: READY_TIMEOUT, last_response, log }
}

/// Whether the condition `Ready` of a Node is true.
fn is_node_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_ready_when_its_condition_says_so() {
        let node = |kind: &str, status: &str| {
            json!({"status": {"conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": kind, "status": status},
            ]}})
        };
        assert!(is_node_ready(&node("Ready", "True")));
        assert!(!is_node_ready(&node("Ready", "False")));
        assert!(!is_node_ready(&node("Ready", "Unknown")));
        assert!(!is_node_ready(&node("DiskPressure", "True")));
        assert!(!is_node_ready(&json!({})));
    }
}
