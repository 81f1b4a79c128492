//! Tests the input, output and exit codes of the `lanyard forecast` binary.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::ErrorKind::BrokenPipe;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const IDENTITIES_LIST: &str = "
apiVersion: v1
kind: List
items:
- apiVersion: lanyard.dev/v1alpha1
  kind: HostedClusterIdentities
  metadata: {name: harbour, namespace: clusters}
  status:
    identities:
    - component: disk
      secretProviderClass: managed-azure-disk-csi
      ready: 'True'
      reason: AsExpected
      notBefore: 2026-01-01T00:00:00Z
      renewAfter: 2026-02-15T00:00:00Z
      notAfter: 2026-04-01T00:00:00Z
";

fn run_forecast(arguments: &[&str], input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_lanyard"))
        .args(["forecast", "--input", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program exits without reading its input if its arguments are invalid.
    let written = program.stdin.take().unwrap().write_all(input.as_bytes());
    written.or_else(|error| if error.kind() == BrokenPipe { Ok(()) } else { Err(error) }).unwrap();
    program.wait_with_output().unwrap()
}

fn stdout_text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn exit_code_is_1_when_action_is_needed() {
    for (arguments, expected) in [
        (&["--at", "2026-02-01T00:00:00Z"][..], 0),
        (&["--at", "2026-02-01T00:00:00Z", "--within", "58d"], 0),
        (&["--at", "2026-02-01T00:00:00Z", "--within", "59d"], 1),
        (&["--at", "2026-02-20T00:00:00Z"], 1),
        (&["--at", "2026-02-20T00:00:00Z", "--renewal-grace-period", "7d"], 0),
        (&["--at", "2027-01-01T00:00:00Z"], 1),
        (&["--at", "2026-02-01T00:00:00Z", "harbour"], 0),
        (&["--at", "2026-02-01T00:00:00Z", "another"], 2),
        (&["--within", "soon"], 2),
        (&["--all-namespaces"], 2),
    ] {
        let output = run_forecast(arguments, IDENTITIES_LIST);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn credential_that_expires_within_the_time_is_named() {
    let arguments = ["--at", "2026-02-01T00:00:00Z", "--within", "59d"];
    let line = "within: clusters/harbour disk: its credential ends at 2026-04-01T00:00:00Z";
    let output = run_forecast(&arguments, IDENTITIES_LIST);
    let table = stdout_text(&output);
    assert!(
        table.contains(line) && table.ends_with("\n1 identity at 2026-02-01 00:00Z: 1 ok\n"),
        "{table}"
    );
    let output = run_forecast(&[&arguments[..], &["-o", "json"]].concat(), IDENTITIES_LIST);
    assert!(String::from_utf8_lossy(&output.stderr).contains(line));
    let output =
        run_forecast(&["--at", "2026-02-01T00:00:00Z", "--within", "58d"], IDENTITIES_LIST);
    assert!(!stdout_text(&output).contains("within:"));
}

#[test]
fn unknown_expiry_exits_1_unless_ignored() {
    let unknown = IDENTITIES_LIST.replace("notAfter", "formerly");
    assert_eq!(run_forecast(&[], &unknown).status.code(), Some(1));
    assert_eq!(run_forecast(&["--ignore-unknown"], &unknown).status.code(), Some(0));
}

#[test]
fn empty_input_is_refused_and_empty_list_exits_1() {
    // The input of `kubectl … | lanyard forecast -f -` if kubectl fails.
    for input in ["", "---\n"] {
        let output = run_forecast(&["--ignore-unknown"], input);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("the input is empty"), "{stderr}");
    }
    let none = "kind: List\nitems: []\n";
    assert_eq!(run_forecast(&[], none).status.code(), Some(1));
    assert_eq!(run_forecast(&["--ignore-unknown"], none).status.code(), Some(0));
}

#[test]
fn full_disk_exits_3() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_lanyard"))
        .args(["forecast", "--input", "-", "--at", "2026-02-01T00:00:00Z"])
        .stdin(Stdio::piped())
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    program.stdin.take().unwrap().write_all(IDENTITIES_LIST.as_bytes()).unwrap();
    let output = program.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("standard output cannot be written: No space left"), "{stderr}");
}

#[test]
fn every_output_format_is_printed() {
    let at = ["--at", "2026-02-20T00:00:00Z", "-o"];
    let printed =
        |form: &str| stdout_text(&run_forecast(&[&at[..], &[form]].concat(), IDENTITIES_LIST));
    let table = printed("table");
    for part in ["WHEN", "2026-04-01 00:00Z", "clusters/harbour", "overdue: clusters/harbour disk:"]
    {
        assert!(table.contains(part), "{table}");
    }
    let json: serde_json::Value = serde_json::from_str(&printed("json")).unwrap();
    assert_eq!(json[0]["verdict"], "overdue");
    assert!(printed("yaml").contains("verdict: overdue"));
    let calendar = printed("ics");
    assert!(calendar.starts_with("BEGIN:VCALENDAR\r\n") && calendar.ends_with("END:VCALENDAR\r\n"));
}

#[test]
fn objects_of_other_kinds_are_reported_with_position_and_hint() {
    let output = run_forecast(&[], "kind: Pod\n---\nkind: Secret\n");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for part in [
        "document 1: kind is `Pod`",
        "document 2: kind is `Secret`",
        "hint: give what `kubectl get",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}
