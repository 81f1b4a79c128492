//! Tests `lanyard` as a kubectl plugin, and its kubeconfig handling.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

fn run_plugin(arguments: &[&str], kubeconfig: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("kubectl-lanyard");
    symlink(env!("CARGO_BIN_EXE_lanyard"), &program).unwrap();
    Command::new(&program).args(arguments).env("KUBECONFIG", kubeconfig).output().unwrap()
}

#[test]
fn plugin_help_shows_kubectl_usage() {
    let output = run_plugin(&["identities", "--help"], "");
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Usage: kubectl lanyard identities [OPTIONS] [NAME]"), "{help}");
}

#[test]
fn identities_are_read_from_a_file() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hostedclusteridentities.yaml");
    let output = run_plugin(&["identities", "--input", file, "harbour"], "/nonexistent");
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains("harbour         ingress"), "{table}");
    assert!(!table.contains("quay"), "{table}");
}

#[test]
fn missing_kubeconfig_error_lists_paths_and_hint() {
    let output = run_plugin(&["identities", "-A"], "/nonexistent/one:/nonexistent/two");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    for part in ["/nonexistent/one, /nonexistent/two", "hint: give --kubeconfig, or set KUBECONFIG"]
    {
        assert!(stderr.contains(part), "{stderr}");
    }
}
