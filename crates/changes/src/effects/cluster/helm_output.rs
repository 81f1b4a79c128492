//! What Helm prints: releases, errors, and releases that a killed Helm left. Does no I/O.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::helm_error::HelmFailure;
use crate::property_diff::PropertyDifference;

/// The status of a release that is as desired.
pub(super) const DEPLOYED: &str = "deployed";

/// The format of `helm get all`: an array of the chart's name, version and application version, then each label and its
/// value. `helm get metadata` of Helm 3 prints no labels.
pub(super) const METADATA: &str = r#"--template=[{{with .Release.Chart.Metadata}}{{printf "%q,%q,%q" .Name .Version .AppVersion}}{{end}}{{range $name, $value := .Release.Labels}}{{printf ",%q,%q" $name $value}}{{end}}]"#;

/// The longest shown message of Helm in characters.
const MESSAGE_LIMIT: usize = 2_000;

/// How a release that a killed Helm left is repaired before the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingRepair {
    /// Roll back to this revision, the last one that was deployed.
    RollBack(u64),
    /// No revision was ever deployed: uninstall.
    Uninstall,
}

/// The release as a body for effects, from the output of `helm status` and [`METADATA`]. The labels are its tags.
/// The rendered objects, which can contain secrets, are not part of it.
pub(super) fn release_body(status: &Value, metadata: &Value) -> Value {
    let (info, values) = (&status["info"], &status["config"]);
    // Helm 3 prints an empty text for no time.
    let deleted = info["deleted"].as_str().filter(|time| !time.is_empty());
    let changed = deleted.or(info["last_deployed"].as_str());
    let labels = metadata.as_array().and_then(|it| it.get(3..)).unwrap_or_default();
    let labels =
        labels.chunks_exact(2).filter_map(|it| Some((it[0].as_str()?.to_owned(), it[1].clone())));
    json!({
        "chart": { "name": metadata[0], "version": metadata[1], "appVersion": metadata[2] },
        "status": info["status"],
        "revision": status["version"],
        "firstDeployed": info["first_deployed"],
        "lastChanged": changed,
        "values": if values.is_null() { json!({}) } else { values.clone() },
        "tags": labels.collect::<Value>(),
    })
}

/// The differences of a release. Values are compared exactly, unlike properties of Azure: an absent value is the chart's
/// default.
pub(super) fn release_differences(
    version: Option<&str>,
    values: &Value,
    body: &Value,
) -> Vec<PropertyDifference> {
    let mut differences = Vec::new();
    let live_version = &body["chart"]["version"];
    let status = Value::from(DEPLOYED);
    for (path, desired, live) in [
        ("chart.version", version.map(Value::from), live_version),
        ("status", Some(status), &body["status"]),
    ] {
        let (path, live) = (path.to_owned(), live.clone());
        if let Some(desired) = desired.filter(|desired| *desired != live) {
            differences.push(PropertyDifference { path, desired, live });
        }
    }
    compare_values("values".to_owned(), Some(values), Some(&body["values"]), &mut differences);
    differences
}

fn compare_values(
    path: String,
    desired: Option<&Value>,
    live: Option<&Value>,
    differences: &mut Vec<PropertyDifference>,
) {
    if let (Some(Value::Object(desired)), Some(Value::Object(live))) = (desired, live) {
        let removed = live.keys().filter(|name| !desired.contains_key(*name));
        for name in desired.keys().chain(removed) {
            let path = format!("{path}.{name}");
            compare_values(path, desired.get(name), live.get(name), differences);
        }
    } else if desired.map(with_plain_numbers) != live.map(with_plain_numbers) {
        let [desired, live] = [desired, live].map(|value| value.cloned().unwrap_or_default());
        differences.push(PropertyDifference { path, desired, live });
    }
}

/// The value as Helm prints it: `1.0` becomes `1`.
fn with_plain_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.iter().map(with_plain_numbers).collect(),
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), with_plain_numbers(value))).collect()
        }
        other => other.clone(),
    }
}

/// Whether a Helm works on the release, or was killed while it did.
pub(super) fn is_pending(body: &Value) -> bool {
    let status = body["status"].as_str().unwrap_or_default();
    status.starts_with("pending-") || status == "uninstalling"
}

/// Whether the last command for the release began so long ago that no Helm works on it any more.
pub(super) fn is_abandoned(body: &Value, now: Timestamp, lease: Duration) -> bool {
    let began = body["lastChanged"].as_str().and_then(|it| it.parse::<Timestamp>().ok());
    let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX);
    began.is_some_and(|began| now.duration_since(began) > lease)
}

/// How the abandoned release is repaired. `history` is the output of `helm history`.
pub(super) fn pending_repair(status: &str, history: &Value) -> PendingRepair {
    let was_deployed = |it: &&Value| it["status"] == DEPLOYED || it["status"] == "superseded";
    let deployed = history.as_array().into_iter().flatten().filter(was_deployed);
    match deployed.filter_map(|it| it["revision"].as_u64()).max() {
        Some(revision) if status != "uninstalling" => PendingRepair::RollBack(revision),
        _ => PendingRepair::Uninstall,
    }
}

/// Helm's error on one line, without warnings and control characters.
pub(super) fn error_message(stderr: &str) -> String {
    let stderr = stderr.find("Error:").map_or(stderr, |start| &stderr[start + "Error:".len()..]);
    let lines: Vec<_> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ");
    let shown = text.chars().take(MESSAGE_LIMIT);
    shown.map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// The failure that a message of Helm describes. The first text in it counts.
pub(super) fn failure_of(message: &str) -> HelmFailure {
    const MESSAGES: [(HelmFailure, &[&str]); 7] = [
        (HelmFailure::ReleaseNotFound, &["release: not found"]),
        (HelmFailure::Busy, &["another operation (install/upgrade/rollback) is in progress"]),
        (
            HelmFailure::NotReady,
            &[
                "not ready. status:",
                "still exists. status:",
                "timed out waiting for the condition",
                "failed: context deadline exceeded",
            ],
        ),
        (
            HelmFailure::Invalid,
            &["denied the request", "cannot be imported into the current release"],
        ),
        (HelmFailure::Conflict, &["conflict occurred while applying", "apply failed with"]),
        (
            HelmFailure::Denied,
            &[
                "is forbidden",
                "unauthorized",
                "provide credentials",
                "getting credentials",
                "x509:",
            ],
        ),
        (
            HelmFailure::Unreachable,
            &[
                "cluster unreachable",
                "connection refused",
                "connection reset",
                "connection lost",
                "i/o timeout",
                "handshake timeout",
                "request timed out",
                "context deadline exceeded",
                "no such host",
                "unexpected eof",
                "etcdserver:",
                "too many requests",
                "failed calling webhook",
                "unable to handle the request",
                "service unavailable",
            ],
        ),
    ];
    let message = message.to_ascii_lowercase();
    // Helm 3 says no more after the timeout of an install.
    if message == "context deadline exceeded" {
        return HelmFailure::NotReady;
    }
    let found = MESSAGES.iter().find(|(_, texts)| texts.iter().any(|text| message.contains(text)));
    found.map_or(HelmFailure::Invalid, |(failure, _)| *failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Value {
        let status = json!({
            "name": "api", "namespace": "shop", "version": 3, "manifest": "planted-secret",
            "config": { "replicas": 2, "image": { "tag": "a" }, "off": false },
            "info": { "first_deployed": "2026-11-30T12:00:00.123456789+01:00",
                "last_deployed": "2026-11-30T13:00:00Z", "status": "deployed", "notes": "" },
        });
        let metadata = json!(["shop-api", "1.2.3", "9", "lanyard-cluster", "shop"]);
        release_body(&status, &metadata)
    }

    #[test]
    fn body_has_chart_values_and_labels_and_no_manifest() {
        let body = body();
        assert_eq!(
            body["chart"],
            json!({ "name": "shop-api", "version": "1.2.3", "appVersion": "9" })
        );
        assert_eq!(
            (&body["revision"], &body["tags"]["lanyard-cluster"]),
            (&json!(3), &json!("shop"))
        );
        assert!(!body.to_string().contains("planted"), "{body}");
        let without_config = json!({ "version": 1, "info": { "status": "failed" } });
        let body = release_body(&without_config, &json!(["c", "1", ""]));
        assert_eq!((&body["values"], &body["status"]), (&json!({}), &json!("failed")));
    }

    #[test]
    fn version_status_and_every_value_are_compared() {
        let same = json!({ "replicas": 2.0, "image": { "tag": "a" }, "off": false });
        for (version, status, values, expected) in [
            (Some("1.2.3"), "deployed", same.clone(), vec![]),
            (None, "deployed", same.clone(), vec![]),
            (Some("1.2.4"), "failed", same.clone(), vec!["chart.version", "status"]),
            (None, "pending-upgrade", same, vec!["status"]),
            // An absent value is the default of the chart, which may be true.
            (
                None,
                "deployed",
                json!({ "replicas": 2, "image": { "tag": "a" } }),
                vec!["values.off"],
            ),
            (
                None,
                "deployed",
                json!({ "replicas": "2", "image": { "tag": "b" }, "off": false, "new": null }),
                vec!["values.image.tag", "values.new", "values.replicas"],
            ),
            (None, "deployed", json!({}), vec!["values.image", "values.off", "values.replicas"]),
        ] {
            let mut body = body();
            body["status"] = status.into();
            let differences = release_differences(version, &values, &body);
            let mut paths: Vec<_> = differences.iter().map(|it| it.path.as_str()).collect();
            paths.sort_unstable();
            assert_eq!(paths, expected, "{values}");
        }
    }

    #[test]
    fn only_an_abandoned_release_is_repaired() {
        let now = "2026-11-30T13:10:00Z".parse().unwrap();
        let mut body = body();
        for (status, expected) in [
            ("deployed", false),
            ("failed", false),
            ("pending-install", true),
            ("pending-rollback", true),
            ("uninstalling", true),
        ] {
            body["status"] = status.into();
            assert_eq!(is_pending(&body), expected, "{status}");
        }
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        assert!(is_abandoned(&body, now, minutes(9)));
        assert!(!is_abandoned(&body, now, minutes(11)));
        body["lastChanged"] = Value::Null;
        assert!(!is_abandoned(&body, now, minutes(0)));
    }

    #[test]
    fn pending_release_returns_to_the_last_deployed_revision() {
        for (status, history, expected) in [
            ("pending-install", vec![(1, "pending-install")], PendingRepair::Uninstall),
            (
                "pending-upgrade",
                vec![(1, "superseded"), (2, "deployed"), (3, "pending-upgrade")],
                PendingRepair::RollBack(2),
            ),
            (
                "pending-rollback",
                vec![(1, "superseded"), (2, "failed"), (3, "pending-rollback")],
                PendingRepair::RollBack(1),
            ),
            (
                "uninstalling",
                vec![(1, "superseded"), (2, "uninstalling")],
                PendingRepair::Uninstall,
            ),
        ] {
            let revision = |(revision, status)| json!({ "revision": revision, "status": status });
            let history = history.into_iter().map(revision).collect();
            assert_eq!(pending_repair(status, &history), expected, "{status}");
        }
    }

    #[test]
    fn message_of_helm_decides_whether_a_repetition_can_help() {
        for (stderr, message, failure) in [
            ("Error: release: not found\n", "release: not found", HelmFailure::ReleaseNotFound),
            (
                "level=WARN msg=old\nError: kubernetes cluster unreachable: Get \"https://x/version\": \
                 dial tcp 127.0.0.1:1: connect: connection refused",
                "kubernetes cluster unreachable: Get \"https://x/version\": dial tcp 127.0.0.1:1: \
                 connect: connection refused",
                HelmFailure::Unreachable,
            ),
            (
                "Error: Kubernetes cluster unreachable: the server has asked for the client to provide \
                 credentials",
                "Kubernetes cluster unreachable: the server has asked for the client to provide \
                 credentials",
                HelmFailure::Denied,
            ),
            (
                "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress",
                "UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress",
                HelmFailure::Busy,
            ),
            (
                "Error: UPGRADE FAILED: resource Deployment/shop/api not ready. status: InProgress, \
                 message: Available: 0/1\ncontext deadline exceeded\n",
                "UPGRADE FAILED: resource Deployment/shop/api not ready. status: InProgress, message: \
                 Available: 0/1; context deadline exceeded",
                HelmFailure::NotReady,
            ),
            (
                "Error: values don't meet the specifications of the schema(s) in the following \
                 chart(s):\nshop:\n- at '/replicas': got string, want number\n",
                "values don't meet the specifications of the schema(s) in the following chart(s):; \
                 shop:; - at '/replicas': got string, want number",
                HelmFailure::Invalid,
            ),
            (
                "Error: admission webhook \"a\" denied the request: x is forbidden\u{1b}[2J",
                "admission webhook \"a\" denied the request: x is forbidden [2J",
                HelmFailure::Invalid,
            ),
            (
                "Error: context deadline exceeded",
                "context deadline exceeded",
                HelmFailure::NotReady,
            ),
            ("killed", "killed", HelmFailure::Invalid),
        ] {
            assert_eq!(error_message(stderr), message);
            assert_eq!(failure_of(message), failure, "{message}");
        }
        assert_eq!(error_message(&"x".repeat(9_999)).len(), MESSAGE_LIMIT);
    }
}
