//! The status that a canary publishes about the identity that it proves.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The status report of a canary about its component's identity, stored as JSON in the annotation
/// [`CanaryStatusReport::REPORT_ANNOTATION`] of the canary's own pod. An absent field is unknown.
///
/// The canary writes the annotation only when the report changes: a hop succeeds or fails, another
/// certificate is loaded, or a probe result changes. The report is no heartbeat: the pod's
/// readiness shows whether the canary is still running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatusReport {
    /// The component, by the name of its field in the HostedCluster API.
    pub component: String,
    /// The name of the last hop that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_hop: Option<String>,
    /// The current failure; absent while the canary succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HopFailure>,
    /// The hop that the canary postpones because its service throttles requests. Throttling says
    /// nothing about the identity: the earlier result of the hop stays valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<HopFailure>,
    /// The credential that the report describes: the loaded one. During the first attempts with a
    /// newly loaded credential, it is still the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<LoadedCredential>,
    /// Results of the probes beyond the hops, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<CanaryProbeReport>,
}

/// The hop at which a canary failed or is throttled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HopFailure {
    /// The name of the hop.
    pub hop: String,
    /// A stable code from Entra (`AADSTS700027`), from an Azure service (`AuthorizationFailed`), or
    /// from lanyard.
    pub code: String,
    /// The attempted operation and the response.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// The time at which the failure or the throttling started.
    pub since: Timestamp,
}

/// Metadata of the credential that a process has loaded; contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedCredential {
    pub client_id: String,
    /// The SHA-256 thumbprint of the certificate, base64url: `x5t#S256` of its assertions.
    pub thumbprint: String,
    /// `not_before` of the credential document, or of the certificate if the document has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// `not_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// `renew_after`: the time from which a newer credential is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after: Option<Timestamp>,
    /// `cannot_renew_after`: the time from which the identity can no longer be renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_renew_after: Option<Timestamp>,
}

/// The result of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryProbeReport {
    /// The name of the probe: [`CanaryProbeReport::NETWORK_PROBE`] or
    /// [`CanaryProbeReport::ENCRYPTION_PROBE`].
    pub name: String,
    /// Whether the probe succeeded.
    pub good: bool,
    /// The reason, in the format of a condition's `reason`: `AsExpected`, `AzureError`,
    /// `InvalidAzureCredentials`… `TooManyRequests` on a successful probe means that throttling
    /// prevents the canary from repeating it.
    pub reason: String,
    /// The attempted operation and the response.
    pub message: String,
    /// The suggested next step; empty if the probe succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The time of the last change of the result.
    pub since: Timestamp,
}

impl CanaryStatusReport {
    /// The annotation on the canary's pod that holds the report.
    pub const REPORT_ANNOTATION: &str = "lanyard.dev/canary-facts";
    /// The label on a workload's pod that names the component which the pod runs.
    pub const COMPONENT_LABEL: &str = "lanyard.dev/component";
}

impl CanaryProbeReport {
    /// Checks that the virtual network, its security group and the resource group exist in one
    /// region.
    pub const NETWORK_PROBE: &str = "network";
    /// Checks that the KMS key encrypts.
    pub const ENCRYPTION_PROBE: &str = "encryption";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_survives_round_trip_without_absent_fields() {
        let text = serde_json::json!({
            "component": "disk",
            "lastGoodHop": "credential",
            "failure": {
                "hop": "entra-token",
                "code": "AADSTS700027",
                "message": "could not get a token: the certificate is not known",
                "hint": "register the certificate",
                "since": "2026-01-02T03:04:05Z",
            },
            "credential": {"clientId": "c", "thumbprint": "t", "notAfter": "2026-02-01T00:00:00Z"},
        });
        let facts: CanaryStatusReport = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&facts).unwrap(), text);
    }
}
