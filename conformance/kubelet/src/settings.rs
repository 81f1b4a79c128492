//! What a cluster's administrators say: CSIDriver objects, and the kubelet's configuration.

use std::time::Duration;

/// The CSIDriver object of a driver, as far as the kubelet heeds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiDriverObject {
    /// `metadata.name`.
    pub name: String,
    /// `spec.podInfoOnMount`.
    pub pod_info_on_mount: bool,
    /// `spec.requiresRepublish`.
    pub requires_republish: bool,
    /// `spec.tokenRequests`.
    pub token_requests: Vec<TokenRequest>,
    /// `spec.serviceAccountTokenInSecrets` (Kubernetes 1.35).
    pub tokens_in_secrets: bool,
}

impl CsiDriverObject {
    /// A driver of inline volumes that wants to be told about pods and to be asked again.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            pod_info_on_mount: true,
            requires_republish: true,
            token_requests: Vec::new(),
            tokens_in_secrets: false,
        }
    }

    /// The same with a token for an audience, which lives for an hour.
    #[must_use]
    pub fn with_audience(mut self, audience: impl Into<String>) -> Self {
        let lifetime = Duration::from_hours(1);
        self.token_requests.push(TokenRequest { audience: audience.into(), lifetime });
        self
    }
}

/// A token that the kubelet is to hand to a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// The audience; empty for that of the API server.
    pub audience: String,
    /// How long it shall live.
    pub lifetime: Duration,
}

/// How a [`FakeKubelet`](crate::FakeKubelet) works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeKubeletSettings {
    /// The node's name.
    pub node_name: String,
    /// `syncFrequency`: pods are looked at this often, and a little less.
    pub sync_period: Duration,
    /// Whether an error at a republish removes the directory of a volume that is not mounted, as
    /// before Kubernetes 1.36.3 (kubernetes/kubernetes#121271).
    pub removes_after_republish_error: bool,
}

impl Default for FakeKubeletSettings {
    fn default() -> Self {
        Self {
            node_name: "localhost".to_owned(),
            sync_period: Duration::from_mins(1),
            removes_after_republish_error: false,
        }
    }
}
