//! What a cluster looks like from outside.

use std::path::PathBuf;

use serde::Serialize;

use crate::component::Component;

/// Every component at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The directory of the cluster.
    pub directory: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The URL of the API server.
    pub api_server: String,
    /// The version that the API server says it is.
    pub kubernetes: Option<String>,
    /// The components, in the order of the start.
    pub components: Vec<ComponentStatus>,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComponentStatus {
    /// Which one.
    pub component: Component,
    /// Its process id, if it runs.
    pub pid: Option<i32>,
    /// The port that its clients use; containerd has a socket instead.
    pub port: Option<u16>,
    /// What it says about itself.
    #[serde(flatten)]
    pub health: Health,
    /// Resident memory in bytes, if it runs.
    pub memory_bytes: Option<u64>,
}

/// The health of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "health", content = "message", rename_all = "kebab-case")]
pub enum Health {
    /// It serves.
    Ready,
    /// It runs, and this is its answer.
    NotReady(String),
    /// It does not run.
    Stopped,
}

impl Status {
    /// Whether every component serves.
    pub fn is_ready(&self) -> bool {
        self.components.iter().all(|it| it.health == Health::Ready)
    }

    /// The memory of all of them, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.components.iter().filter_map(|it| it.memory_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(health: Health) -> ComponentStatus {
        ComponentStatus {
            component: Component::Kubelet,
            pid: Some(7),
            port: Some(1),
            health,
            memory_bytes: Some(1024),
        }
    }

    #[test]
    fn one_component_that_is_not_ready_makes_the_cluster_not_ready() {
        let status = |components| Status {
            directory: "/c".into(),
            kubeconfig: "/c/kubeconfig".into(),
            api_server: String::new(),
            kubernetes: None,
            components,
        };
        assert!(status(vec![component(Health::Ready)]).is_ready());
        let both = status(vec![component(Health::Ready), component(Health::Stopped)]);
        assert!(!both.is_ready());
        assert_eq!(both.memory_bytes(), 2048);
    }

    #[test]
    fn the_document_says_health_and_message_beside_the_rest() {
        let value = serde_json::to_value(component(Health::NotReady("500: no".to_owned())))
            .expect("it is JSON");
        assert_eq!(value["health"], "not-ready");
        assert_eq!(value["message"], "500: no");
        assert_eq!(value["component"], "kubelet");
    }
}
