//! What a canary knows about the identity that it proves.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a canary knows about its identity: the annotation [`CanaryStatusReport::REPORT_ANNOTATION`] of its own
/// pod, as JSON. What is absent is unknown.
///
/// It changes when something does: a hop becomes good or bad, another certificate is loaded, a
/// probe comes to another answer. While all stays as it is nothing is written; whether the canary
/// still runs says the readiness of its pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatusReport {
    /// The component, as its field in the HostedCluster API.
    pub component: String,
    /// The last hop that is known to be good, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_hop: Option<String>,
    /// What is wrong, while something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HopFailure>,
    /// The hop that cannot be walked for a while, because its service wants to be left alone. It
    /// says nothing about the identity: what was known of the hop stays known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<HopFailure>,
    /// The credential that all this is true of: the loaded one, but for the first tries of one that
    /// was just loaded, while what is known is of the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<LoadedCredential>,
    /// What was probed beyond the hops, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<CanaryProbeReport>,
}

/// The hop at which a canary stopped, or has to wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HopFailure {
    /// The hop, by its name.
    pub hop: String,
    /// A stable code: of Entra (`AADSTS700027`), of a service (`AuthorizationFailed`), or ours.
    pub code: String,
    /// What was tried and what came back.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// Since when.
    pub since: Timestamp,
}

/// The credential that a process has loaded; nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedCredential {
    /// The client id.
    pub client_id: String,
    /// The SHA-256 thumbprint of the certificate, base64url: `x5t#S256` of its assertions.
    pub thumbprint: String,
    /// `not_before` of the document, or of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// `not_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// `renew_after`: from when on a newer one is to be expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after: Option<Timestamp>,
    /// `cannot_renew_after`: from when on the identity cannot be renewed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_renew_after: Option<Timestamp>,
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryProbeReport {
    /// Which probe: [`CanaryProbeReport::NETWORK_PROBE`] or [`CanaryProbeReport::ENCRYPTION_PROBE`].
    pub name: String,
    /// Whether it was good.
    pub good: bool,
    /// The reason, as a condition has one: `AsExpected`, `AzureError`, `InvalidAzureCredentials`…
    /// Of a good one `TooManyRequests`, while nobody may look whether it still is.
    pub reason: String,
    /// What was tried and what came back.
    pub message: String,
    /// What to do next, where something is wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Since when it comes to this.
    pub since: Timestamp,
}

impl CanaryStatusReport {
    /// The annotation of the canary's pod.
    pub const REPORT_ANNOTATION: &str = "lanyard.dev/canary-facts";
    /// The label of a workload's pod with the component that it runs.
    pub const COMPONENT_LABEL: &str = "lanyard.dev/component";
}

impl CanaryProbeReport {
    /// The virtual network, its security group and the resource group are there, in one region.
    pub const NETWORK_PROBE: &str = "network";
    /// The key encrypts.
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
