//! The state of a running cluster.

use std::path::PathBuf;

use serde::Serialize;

use crate::component::ClusterComponent;

/// The status of every component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// The directory of the cluster.
    pub directory: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The URL of the API server.
    pub api_server: String,
    /// The version that the API server reports.
    pub kubernetes: Option<String>,
    /// The components, in start order.
    pub components: Vec<ComponentStatus>,
}

/// The status of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComponentStatus {
    pub component: ClusterComponent,
    /// Its process id, if it runs.
    pub pid: Option<i32>,
    /// The port that its clients use; containerd has a socket instead.
    pub port: Option<u16>,
    /// The result of its health probe.
    #[serde(flatten)]
    pub health: ComponentHealth,
    /// Resident memory in bytes, if it runs.
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "health", content = "message", rename_all = "kebab-case")]
pub enum ComponentHealth {
    /// The component reports that it is healthy.
    Ready,
    /// The component runs but is not ready. Contains the response of its health endpoint.
    NotReady(String),
    /// The component does not run.
    Stopped,
}

impl ClusterStatus {
    /// Whether every component is ready.
    pub fn is_ready(&self) -> bool {
        self.components.iter().all(|it| it.health == ComponentHealth::Ready)
    }

    /// The resident memory of all components, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.components.iter().filter_map(|it| it.memory_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(health: ComponentHealth) -> ComponentStatus {
        ComponentStatus {
            component: ClusterComponent::Kubelet,
            pid: Some(7),
            port: Some(1),
            health,
            memory_bytes: Some(1024),
        }
    }

    #[test]
    fn one_component_that_is_not_ready_makes_the_cluster_not_ready() {
        let status = |components| ClusterStatus {
            directory: "/c".into(),
            kubeconfig: "/c/kubeconfig".into(),
            api_server: String::new(),
            kubernetes: None,
            components,
        };
        assert!(status(vec![component(ComponentHealth::Ready)]).is_ready());
        let both =
            status(vec![component(ComponentHealth::Ready), component(ComponentHealth::Stopped)]);
        assert!(!both.is_ready());
        assert_eq!(both.memory_bytes(), 2048);
    }

    #[test]
    fn status_json_has_health_and_message() {
        let value =
            serde_json::to_value(component(ComponentHealth::NotReady("500: no".to_owned())))
                .expect("it is JSON");
        assert_eq!(value["health"], "not-ready");
        assert_eq!(value["message"], "500: no");
        assert_eq!(value["component"], "kubelet");
    }
}
