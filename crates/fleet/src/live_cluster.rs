//! What Azure Resource Manager says about an AKS cluster of a fleet.

use serde_json::Value;
use uuid::Uuid;

/// What the resources of a cluster depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveCluster {
    /// The region.
    pub(crate) location: String,
    /// The URL of the OIDC issuer, byte for byte as in tokens; `None` if it is not enabled.
    pub(crate) issuer: Option<String>,
    /// Whether the webhook of workload identity is enabled.
    pub(crate) has_workload_identity: bool,
    /// `Succeeded` if nothing changes the cluster, and its last change did not fail.
    pub(crate) provisioning_state: String,
    /// `Running` or `Stopped`.
    pub(crate) power_state: String,
    /// A short id of the cluster. A cluster that was created again under the same name has another one, as it has
    /// another issuer: eight hexadecimal digits.
    pub(crate) generation: String,
}

impl LiveCluster {
    /// The cluster with this body of `Microsoft.ContainerService/managedClusters`.
    pub(crate) fn new(body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
        let unique = text("/properties/resourceUID").or_else(|| text("/id")).unwrap_or_default();
        let mut generation =
            Uuid::new_v5(&Uuid::NAMESPACE_URL, unique.as_bytes()).simple().to_string();
        generation.truncate(8);
        let workload_identity =
            body.pointer("/properties/securityProfile/workloadIdentity/enabled");
        Self {
            location: text("/location").unwrap_or_default().to_owned(),
            issuer: text("/properties/oidcIssuerProfile/issuerURL").map(str::to_owned),
            provisioning_state: text("/properties/provisioningState")
                .unwrap_or_default()
                .to_owned(),
            power_state: text("/properties/powerState/code").unwrap_or_default().to_owned(),
            has_workload_identity: workload_identity.and_then(Value::as_bool).unwrap_or_default(),
            generation,
        }
    }
}
