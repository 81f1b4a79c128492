//! CSIDriver objects and the kubelet's configuration.

use std::time::Duration;

/// The fields of a CSIDriver object that the kubelet uses.
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
    /// A driver of inline volumes with `podInfoOnMount` and `requiresRepublish`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            pod_info_on_mount: true,
            requires_republish: true,
            token_requests: Vec::new(),
            tokens_in_secrets: false,
        }
    }

    /// Requests a token for an audience, valid for one hour.
    #[must_use]
    pub fn with_audience(mut self, audience: impl Into<String>) -> Self {
        let lifetime = Duration::from_hours(1);
        self.token_requests.push(TokenRequest { audience: audience.into(), lifetime });
        self
    }
}

/// A token that the kubelet passes to a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// The audience; empty for the API server's.
    pub audience: String,
    /// The requested lifetime.
    pub lifetime: Duration,
}

/// Settings of a [`FakeKubelet`](crate::FakeKubelet).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeKubeletSettings {
    pub node_name: String,
    /// `syncFrequency`, the nominal period in which pods are synced.
    pub sync_period: Duration,
    /// Whether an error of a republish removes the directory of a volume that is not mounted, as before
    /// Kubernetes 1.36.3 (kubernetes/kubernetes#121271).
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
