//! Tests the report and the exit codes of the `lanyard up` binary.

#![cfg(feature = "emulator")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde::Deserialize;

const COMPONENTS: [&str; 9] = [
    "cloudProvider",
    "nodePoolManagement",
    "controlPlaneOperator",
    "imageRegistry",
    "ingress",
    "network",
    "disk",
    "file",
    "kms",
];

const HOPS: [&str; 11] = [
    "hostedcluster",
    "spc",
    "volume",
    "imds-token",
    "vault-read",
    "decode",
    "file",
    "credential",
    "entra-token",
    "granted",
    "refused",
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpReport {
    components: Vec<UpComponentReport>,
    rotation: Vec<UpRotationReport>,
    ok: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpComponentReport {
    name: String,
    hops: Vec<UpHopReport>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpHopReport {
    name: String,
    ok: bool,
    millis: f64,
    detail: String,
    hint: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpRotationReport {
    name: String,
    millis: Option<f64>,
    failure: Option<UpStepFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpStepFailure {
    detail: String,
    hint: String,
}

fn run_lanyard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lanyard"))
        .args(arguments)
        .env("LANYARD_LOG", "trace")
        .env_remove("HTTPS_PROXY")
        .output()
        .unwrap()
}

fn parse_report(output: &Output) -> UpReport {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}\n{}", String::from_utf8_lossy(&output.stderr));
    })
}

/// Asserts that the logs, written at the lowest level, and the report contain no secrets.
fn assert_no_secrets(output: &Output) {
    assert!(String::from_utf8_lossy(&output.stderr).contains("TRACE"), "nothing was traced");
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        // A private key, any JWT or other base64 of JSON, the base64 of PEM and of PKCS#12, and the start of
        // a credential document in hex.
        let markers =
            ["PRIVATE KEY", "eyJ", "LS0tLS1CRUdJTi", "\"MII", "7b2261757468656e7469636174696f6e"];
        for marker in markers {
            assert!(!text.contains(marker), "{marker} in the output");
        }
    }
}

fn example() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/hostedcluster.yaml")
}

#[test]
fn every_hop_of_every_component_is_good() {
    let output = run_lanyard(&["up", "--once", "--output", "json"]);
    let report = parse_report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#?}");
    assert!(report.ok);
    assert!(report.rotation.is_empty());
    let names: Vec<_> = report.components.iter().map(|component| &component.name).collect();
    assert_eq!(names, COMPONENTS);
    for component in &report.components {
        let hops: Vec<_> = component.hops.iter().map(|hop| &hop.name).collect();
        assert_eq!(hops, HOPS, "{}", component.name);
        for hop in &component.hops {
            assert!(hop.ok && hop.hint.is_none(), "{}: {hop:?}", component.name);
            assert!(!hop.detail.is_empty() && hop.millis >= 0.0, "{}: {hop:?}", component.name);
        }
    }
    assert_no_secrets(&output);
}

#[test]
fn fault_fails_only_its_hop_of_its_component() {
    let blame = BTreeMap::from([
        ("encoding", "decode"),
        ("missing-secret", "vault-read"),
        ("vault-role", "vault-read"),
        ("expired", "entra-token"),
        ("key-mismatch", "credential"),
        ("missing-leaf", "credential"),
        ("unknown-application", "entra-token"),
        ("audience", "entra-token"),
        ("arm-role", "granted"),
    ]);
    for (fault, blamed) in blame {
        // Without a component the fault applies to cloudProvider. kms is the component whose role is a vault
        // role.
        for target in [None, Some("disk"), Some("kms")] {
            let broken = target.map_or_else(|| fault.to_owned(), |name| format!("{fault}:{name}"));
            let output = run_lanyard(&["up", "--once", "--output", "json", "--break", &broken]);
            let report = parse_report(&output);
            assert_eq!(output.status.code(), Some(1), "{broken}: {report:#?}");
            assert!(!report.ok);
            for component in &report.components {
                let is_target = component.name == target.unwrap_or("cloudProvider");
                if is_target {
                    assert_failed_hop(component, blamed, &broken);
                } else {
                    assert!(component.hops.iter().all(|hop| hop.ok), "{broken}: {component:#?}");
                }
            }
            assert_no_secrets(&output);
        }
    }
}

fn assert_failed_hop(component: &UpComponentReport, blamed: &str, broken: &str) {
    let at = component.hops.iter().position(|hop| hop.name == blamed).unwrap();
    let (before, rest) = component.hops.split_at(at);
    let (hop, after) = rest.split_first().unwrap();
    assert!(before.iter().all(|hop| hop.ok), "{broken}: {component:#?}");
    assert!(!hop.ok, "{broken}: {component:#?}");
    assert!(hop.hint.as_ref().is_some_and(|hint| !hint.is_empty()), "{broken}: {hop:?}");
    for hop in after {
        assert!(!hop.ok && hop.detail == "not reached", "{broken}: {hop:?}");
    }
}

#[test]
fn every_rotated_key_is_in_use_within_a_second() {
    let output = run_lanyard(&["up", "--once", "--rotate", "--output", "json"]);
    let report = parse_report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#?}");
    let names: Vec<_> = report.rotation.iter().map(|rotated| &rotated.name).collect();
    assert_eq!(names, COMPONENTS);
    for rotated in &report.rotation {
        assert!(rotated.millis.is_some_and(|millis| millis < 1_000.0), "{rotated:?}");
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("4 reader threads"), "{stderr}");
    assert!(stderr.contains("0 torn, 0 missing"), "{stderr}");
    assert_no_secrets(&output);
}

#[test]
fn rotation_repairs_an_expired_certificate() {
    let output =
        run_lanyard(&["up", "--once", "--rotate", "--break", "expired:disk", "-o", "json"]);
    let report = parse_report(&output);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let disk = report.rotation.iter().find(|rotated| rotated.name == "disk").unwrap();
    assert!(disk.millis.is_some() && disk.failure.is_none(), "{disk:?} {stderr}");
    assert_eq!(output.status.code(), Some(1), "the first pass found the expired certificate");
}

#[test]
fn failed_rotation_names_the_hop_that_it_does_not_repair() {
    let broken = "unknown-application:disk";
    let output = run_lanyard(&["up", "--once", "--rotate", "--break", broken, "--log", "error"]);
    let report = String::from_utf8(output.stdout).unwrap();
    let failure = "disk: rotation failed: it did not repair the hop `entra-token`: ";
    assert!(report.contains(failure), "{report}");
    assert!(report.contains("AADSTS700016"), "{report}");

    let output = run_lanyard(&["up", "--once", "--rotate", "--break", broken, "-o", "json"]);
    let report = parse_report(&output);
    let disk = report.rotation.iter().find(|rotated| rotated.name == "disk").unwrap();
    let failure = disk.failure.as_ref().unwrap();
    assert!(failure.detail.contains("AADSTS700016"), "{failure:?}");
    assert!(!failure.hint.is_empty(), "{failure:?}");
}

#[test]
fn missing_permission_is_reported_with_its_complete_scope() {
    for (fault, action, end) in [
        (
            "vault-role:disk",
            "Microsoft.KeyVault/vaults/secrets/getSecret/action",
            "/secrets/harbour-disk",
        ),
        ("arm-role:disk", "Microsoft.", ""),
    ] {
        let output = run_lanyard(&["up", "--once", "--break", fault, "--log", "error"]);
        let report = String::from_utf8(output.stdout).unwrap();
        let line = report.lines().find(|line| line.starts_with("disk: ")).unwrap();
        let (_, scope) = line.split_once("' at '").unwrap();
        let (scope, _) = scope.split_once("' is not authorized for ").unwrap();
        assert!(line.contains(&format!("action '{action}")), "{line}");
        assert!(scope.starts_with("/subscriptions/") && scope.ends_with(end), "{line}");
        assert!(!line.contains('…') && !line.contains("DecisionReason"), "{line}");
    }
}

#[test]
fn report_table_shows_components_hops_and_hint() {
    let output = run_lanyard(&["up", "--once", "--break", "vault-role:disk", "--log", "error"]);
    let table = String::from_utf8(output.stdout).unwrap();
    let headers = HOPS.map(str::to_uppercase);
    for name in COMPONENTS.into_iter().chain(headers.iter().map(String::as_str)) {
        assert!(table.contains(name), "{name} is not in\n{table}");
    }
    assert!(table.contains("disk: vault-read failed"), "{table}");
    assert!(table.contains("hint:"), "{table}");
    assert!(table.contains("8 of 9 components good"), "{table}");
}

#[test]
fn every_problem_of_a_hosted_cluster_is_reported_with_its_path() {
    let text = std::fs::read_to_string(example()).unwrap();
    let broken = text
        .replace("objectEncoding: base64", "objectEncoding: rot13")
        .replace("credentialsSecretName: harbour-kms", "credentialsSecretName: harbour_kms");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hostedcluster.yaml");
    std::fs::write(&file, broken).unwrap();

    let output = run_lanyard(&["up", "--once", "-f", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    for path in [
        "controlPlane.controlPlaneOperator.objectEncoding",
        "controlPlane.ingress.objectEncoding",
        "controlPlane.file.objectEncoding",
        "kms.azure.kms.credentialsSecretName",
    ] {
        assert!(stderr.contains(path), "{path} is not in\n{stderr}");
    }
}

#[test]
fn hosted_cluster_as_returned_by_the_api_server_is_accepted() {
    let text = std::fs::read_to_string(example()).unwrap();
    let more_metadata = "metadata:\n  uid: 0c5f6f0e-5d4b-4a57-9a5e-2f5c3a1b7d90\n  generation: 3\n  \
        resourceVersion: \"918273\"\n  creationTimestamp: \"2026-11-01T08:00:00Z\"\n  \
        finalizers:\n    - hypershift.openshift.io/finalizer\n  managedFields:\n    \
        - manager: hypershift\n      operation: Update\n      fieldsV1: {\"f:spec\": {}}\n";
    let more_spec = "spec:\n  autoscaling:\n    scaling: ScaleUpAndScaleDown\n  \
        olmCatalogPlacement: management\n  updateService: https://updates.example.com/graph\n  \
        configuration:\n    apiServer:\n      audit: {profile: Default}\n  \
        tolerations:\n    - {key: hosted, operator: Exists}\n";
    let status = "status:\n  conditions:\n    - type: Available\n      status: \"True\"\n      \
        reason: AsExpected\n      lastTransitionTime: \"2026-11-01T08:20:00Z\"\n  version:\n    \
        history: [{state: Completed, version: 4.21.3}]\n";
    let complete = text.replacen("metadata:\n", more_metadata, 1).replacen(
        "\nspec:\n",
        &format!("\n{more_spec}"),
        1,
    ) + status;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hostedcluster.yaml");
    std::fs::write(&file, complete).unwrap();
    let output = run_lanyard(&["up", "--once", "--output", "json", "-f", file.to_str().unwrap()]);
    assert!(parse_report(&output).ok, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn unknown_fault_error_lists_known_faults() {
    let output = run_lanyard(&["up", "--once", "--break", "gremlins"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("missing-secret") && stderr.contains("arm-role"), "{stderr}");
}
