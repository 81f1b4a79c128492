//! Text of Azure and of paths, which contains commands of pipelines and a bidirectional control, on each way to a
//! terminal or a log.

use std::process::Output;

use serde_json::{Value, json};

use crate::infra_workspace::InfraWorkspace;
use crate::{run_piped, terminal, utf8};

const FOREIGN: &str = "Denied ##vso[task.setvariable variable=x]y by \u{202e}policy";
const HARMLESS: &str = r"Denied # #vso[task.setvariable variable=x]y by \u{202e}policy";
/// [`FOREIGN`] in a JSON document.
const HARMLESS_JSON: &str = r"Denied \u0023#vso[task.setvariable variable=x]y by \u202epolicy";
const APPLY: [&str; 4] = ["apply", "azure", "-f", "cluster.yaml"];

/// A workspace whose Azure Resource Manager answers requests of a method with an error of this message.
fn workspace_with_error(method: &str) -> InfraWorkspace {
    let workspace = InfraWorkspace::start();
    let rule = json!({
        "name": "foreign", "service": "arm", "method": method,
        "effect":
            { "type": "status", "status": 400, "code": "InvalidParameter", "message": FOREIGN },
    });
    std::fs::write(workspace.files().join("rule.json"), rule.to_string()).unwrap();
    let (code, error) = workspace.run(&["azure", "fault", "add", "rule.json"]);
    assert_eq!(code, Some(0), "{error}");
    workspace
}

fn run(workspace: &InfraWorkspace, arguments: &[&str]) -> Output {
    run_piped(&mut workspace.piped_command(arguments), None)
}

fn assert_harmless(text: &str, expected: &str) {
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("##vso[") && !text.contains('\u{202e}'), "{text}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("::")), "{text}");
}

#[test]
fn report_and_progress_cannot_command_a_pipeline_or_a_terminal() {
    let workspace = workspace_with_error("PUT");
    let output = run(&workspace, &APPLY);
    assert_eq!(output.status.code(), Some(1));
    assert_harmless(&utf8(&output.stdout), HARMLESS);
    assert_harmless(&utf8(&output.stderr), HARMLESS);
    let shown = terminal::run_on_terminal(workspace.piped_command(&APPLY), 1_000, "xterm");
    assert_harmless(&shown, HARMLESS);
}

#[test]
fn documents_of_a_report_and_of_its_progress_keep_the_text_in_escape_sequences() {
    let workspace = workspace_with_error("PUT");
    let output =
        run(&workspace, &[&APPLY[..], &["--output", "json", "--progress", "json"]].concat());
    let document = utf8(&output.stdout);
    assert_harmless(&document, HARMLESS_JSON);
    assert_harmless(&utf8(&output.stderr), HARMLESS_JSON);
    let report: Value = serde_json::from_str(&document).unwrap();
    let mut resources = report["resources"].as_array().unwrap().iter();
    let has_text = |it: &Value| it["error"].as_str().is_some_and(|text| text.contains(FOREIGN));
    assert!(resources.any(has_text), "{report}");
}

#[test]
fn error_of_a_command_cannot_command_a_pipeline_or_a_terminal() {
    let workspace = workspace_with_error("GET");
    let output = run(&workspace, &["plan", "azure", "-f", "cluster.yaml"]);
    assert!(!output.status.success());
    assert_harmless(&utf8(&output.stderr), HARMLESS);
    let output = run(&workspace, &["plan", "azure", "-f", "absent\n::set-env name=x::y"]);
    assert_eq!(output.status.code(), Some(2));
    assert_harmless(&utf8(&output.stderr), ": :set-env name=x::y");
}

#[cfg(feature = "node")]
#[test]
fn log_cannot_command_a_pipeline_or_a_terminal() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::sync::mpsc;
    use std::time::Duration;

    let workspace = InfraWorkspace::start();
    let directory = workspace.files().join("##vso[x]\u{202e}y");
    std::fs::create_dir_all(directory.join("kubelet/pods")).unwrap();
    std::fs::write(directory.join("classes.yaml"), "").unwrap();
    let at = |name: &str| directory.join(name).display().to_string();
    let mut node = workspace.piped_command(&["node", "--nodeid", "n", "--registration-dir", ""]);
    node.args(["--log", "info", "--metrics-addr", "0", "--healthz-port", "0"]);
    node.args(["--endpoint", &format!("unix://{}", at("csi.sock"))]);
    node.args(["--kubelet-dir", &at("kubelet"), "--classes", &at("classes.yaml")]);
    node.args(["--provider-socket", &at("azure.sock")]);
    let mut node = node.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(node.stderr.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        // A send fails when the test has its line.
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
    });
    let mut logged = Vec::new();
    while let Ok(line) = receiver.recv_timeout(Duration::from_mins(1)) {
        logged.push(line);
        if logged.iter().any(|line| line.contains("csi.sock")) {
            break;
        }
    }
    drop(receiver);
    node.kill().unwrap();
    node.wait().unwrap();
    reader.join().unwrap();
    let line = logged.iter().find(|line| line.contains("csi.sock"));
    assert_harmless(line.unwrap_or_else(|| panic!("{logged:?}")), r"# #vso[x]\u{202e}y/csi.sock");
}
