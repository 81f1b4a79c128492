//! `lanyard azure` and `lanyard credential check` as people run them, against each other.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::{Command, Output};

#[path = "azure/serving.rs"]
mod serving;

use serving::Serving;

fn lanyard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    for variable in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"] {
        command.env_remove(variable);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a shell script inside a local Azure of its own.
fn shell_inside(script: &str) -> Output {
    lanyard().args(["azure", "run", "--", "sh", "-c", script]).output().unwrap()
}

#[test]
fn the_exit_code_of_the_inner_command_is_ours() {
    let output = lanyard().args(["azure", "run", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let missing = lanyard().args(["azure", "run", "--", "no-such-command"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("no-such-command"));
}

#[test]
fn a_command_inside_sees_the_exports_and_its_requests_are_in_the_ledger() {
    let script = r"env | grep -c -E '^(HTTPS_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)='";
    let output = shell_inside(script);
    assert_eq!(text(&output.stdout).trim(), "3");
    assert!(text(&output.stderr).contains("no request reached the local Azure"));
}

#[test]
fn the_world_survives_a_kill_and_the_exports_lead_to_it() {
    let state = tempfile::tempdir().unwrap();
    let first = Serving::start(lanyard(), state.path());
    let exports = lanyard().args(["azure", "env", "--state"]).arg(state.path()).output().unwrap();
    let shell = text(&exports.stdout);
    assert!(shell.contains(&format!("export HTTPS_PROXY='{}'", first.text("proxy"))), "{shell}");
    let ca = std::fs::read_to_string(first.text("ca_file")).unwrap();
    drop(first);

    let none = lanyard().args(["azure", "env", "--state"]).arg(state.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(3));
    assert!(text(&none.stderr).contains("lanyard azure serve"));

    let second = Serving::start(lanyard(), state.path());
    assert_eq!(std::fs::read_to_string(second.text("ca_file")).unwrap(), ca);
    drop(second);

    let other = state.path().join("other.yaml");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hostedcluster.yaml");
    let text = std::fs::read_to_string(example).unwrap();
    std::fs::write(&other, text.replace("location: westeurope", "location: eastus")).unwrap();
    let refused = lanyard()
        .args(["azure", "serve", "--listen", "127.0.0.1:0", "--state"])
        .arg(state.path())
        .arg("-f")
        .arg(other)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "another world than the one on disk");
}

#[test]
fn a_shell_inside_finds_its_tenant_and_reaches_entra_through_the_proxy() {
    // The names of the control API's answer are picked with a shell: no client of ours takes part.
    let script = r#"
        guests=$(curl -sS -H 'x-lanyard-control: 1' "$LANYARD_AZURE_CONTROL/guests")
        value() { printf '%s' "$guests" | tr ',{}' '\n' | grep "\"$1\":" | head -n 1 | sed 's/.*: *"\(.*\)"/\1/'; }
        tenant=$(value tenant)
        curl -sS -o /dev/null -w '%{http_code}' \
            "https://login.microsoftonline.com/$tenant/v2.0/.well-known/openid-configuration"
    "#;
    let output = shell_inside(script);
    assert_eq!(text(&output.stdout), "200", "{}", text(&output.stderr));
    let ledger = text(&output.stderr);
    assert!(ledger.contains("login.microsoftonline.com"), "{ledger}");
}

#[test]
fn an_address_that_others_reach_has_to_be_allowed() {
    let output = lanyard().args(["azure", "serve", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("hint:"));
}

#[test]
fn a_file_that_is_no_credential_gets_its_problems_and_next_steps() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credential");
    std::fs::write(&file, r#"{"clientId": "x", "tenant_id": 7}"#).unwrap();
    let output = lanyard().args(["credential", "check"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stdout);
    for expected in ["client_id", "tenant_id", "client_secret", "hint:", "not good"] {
        assert!(report.contains(expected), "{expected} is not in\n{report}");
    }

    let absent = directory.path().join("absent");
    let output = lanyard().args(["credential", "check"]).arg(absent).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_rendered_objects_are_the_same_every_time_and_one_file_each() {
    let directory = tempfile::tempdir().unwrap();
    let render = || {
        let reader = ["--vault-reader", "11111111-2222-3333-4444-555555555555"];
        lanyard().arg("render").args(reader).output().unwrap().stdout
    };
    let printed = render();
    assert_eq!(printed, render());
    let output = lanyard().args(["render", "--output-dir"]).arg(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let files = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, text(&printed).matches("\napiVersion:").count() + 1);
}
