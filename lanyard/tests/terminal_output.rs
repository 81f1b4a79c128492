//! What people see: the tables of the commands at three widths of the terminal, and colours.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;
#[path = "support/terminal.rs"]
mod terminal;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use infra_workspace::InfraWorkspace;

const WIDTHS: [usize; 3] = [60, 80, 200];
const HOSTED_CLUSTER_IDENTITIES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hostedclusteridentities.yaml");
const CREDENTIAL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/credential-with-wrong-keys.json");
const FORECAST: [&str; 5] =
    ["forecast", "--input", HOSTED_CLUSTER_IDENTITIES, "--at", "2026-10-01T12:00:00Z"];
const IDENTITIES: [&str; 3] = ["identities", "--input", HOSTED_CLUSTER_IDENTITIES];
const FAULT_RULE: &str = r#"{"name": "slow-secrets", "service": "key-vault",
    "host": "harbour-identities.vault.azure.net", "path": "/secrets/harbour-cloud-provider/*",
    "times": 3, "effect": {"type": "throttle", "retryAfter": 5}}"#;

fn lanyard(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    command.args(arguments).stdin(Stdio::null());
    for variable in ["COLUMNS", "NO_COLOR", "LANYARD_AZURE_CONTROL", "HTTPS_PROXY"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a command whose output goes into a pipe.
fn run_piped(command: &mut Command, columns: Option<usize>) -> Output {
    if let Some(columns) = columns {
        command.env("COLUMNS", columns.to_string());
    }
    command.output().unwrap()
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Fails for a line that is longer than the terminal, unless a word in it is longer than half of the line: names
/// are never cut.
fn assert_fits(text: &str, columns: usize, of: &str) {
    for line in text.lines() {
        let has_long_word = line.split_whitespace().any(|word| word.chars().count() > columns / 2);
        let fits = line.chars().count() <= columns || has_long_word;
        assert!(fits, "{of} at {columns} columns:\n{line}");
    }
    assert!(!text.contains('\x1b'), "{of} has an escape code");
}

/// The output of a command at each width, which also must be the same with `NO_COLOR` and on a terminal without
/// colours.
fn output_at_each_width(of: &str, command: impl Fn() -> Command) -> String {
    let mut shown = String::new();
    for columns in WIDTHS {
        let text = utf8(&run_piped(&mut command(), Some(columns)).stdout);
        assert_fits(&text, columns, of);
        for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let same = run_piped(command().env(name, value), Some(columns));
            assert_eq!(utf8(&same.stdout), text, "{of} with {name}={value}");
        }
        shown.push_str(&format!("--- {columns} columns\n{text}"));
    }
    shown
}

#[test]
fn tables_fit_the_terminal() {
    insta::assert_snapshot!("forecast", output_at_each_width("forecast", || lanyard(&FORECAST)));
    let identities = output_at_each_width("identities", || lanyard(&IDENTITIES));
    insta::assert_snapshot!("identities", identities);
    let check = ["credential", "check", "--offline", CREDENTIAL];
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/");
    let check = output_at_each_width("credential check", || lanyard(&check));
    insta::assert_snapshot!("credential_check", check.replace(directory, ""));
    let operations = ["azure", "operations", "--service", "imds"];
    let operations = output_at_each_width("azure operations", || lanyard(&operations));
    insta::assert_snapshot!("azure_operations", operations);
    // No local Azure runs in this directory.
    let nowhere = tempfile::tempdir().unwrap();
    let drills = output_at_each_width("azure drill list", || {
        let mut command = lanyard(&["azure", "drill", "list"]);
        command.env("XDG_RUNTIME_DIR", nowhere.path()).env("TMPDIR", nowhere.path());
        command
    });
    insta::assert_snapshot!("azure_drill_list", drills);
}

#[test]
fn tables_of_azure_fit_the_terminal() {
    let workspace = InfraWorkspace::start();
    let rule = workspace.files().join("rule.json");
    std::fs::write(&rule, FAULT_RULE).unwrap();
    let (code, error) = workspace.run(&["azure", "fault", "add", rule.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{error}");
    let at_each_width = |arguments: &[&str]| {
        output_at_each_width(&arguments.join(" "), || workspace.piped_command(arguments))
    };
    insta::assert_snapshot!("azure_fault_list", at_each_width(&["azure", "fault", "list"]));
    insta::assert_snapshot!("plan_azure", at_each_width(&["plan", "azure", "-f", "cluster.yaml"]));
    insta::assert_snapshot!("check_azure", at_each_width(&["check", "azure"]));
    for arguments in [
        &["azure", "settings", "get"][..],
        &["azure", "export"],
        &["import", "azure", "-f", "cluster.yaml"],
        &["sweep", "azure"],
    ] {
        at_each_width(arguments);
    }
    for columns in WIDTHS {
        // Plans and progress go to standard error.
        let mut create = workspace.piped_command(&["apply", "azure", "-f", "cluster.yaml"]);
        let output = run_piped(&mut create, Some(columns));
        assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
        let plan = utf8(&output.stderr);
        let plan = plan.split("\n[").next().unwrap();
        assert_fits(plan, columns, "the plan of apply azure");
        assert_fits(&utf8(&output.stdout), columns, "apply azure");
        let destroyed =
            InfraWorkspace::cluster_arguments(&["destroy", "iam", "azure", "--dry-run"]);
        let destroyed: Vec<_> = destroyed.iter().map(String::as_str).collect();
        let mut destroy = workspace.piped_command(&destroyed);
        let output = run_piped(&mut destroy, Some(columns));
        assert_fits(&utf8(&output.stderr), columns, "destroy iam azure");
    }
}

#[test]
fn report_of_up_fits_the_terminal() {
    for columns in WIDTHS {
        let mut up = lanyard(&["up", "--once", "--break", "vault-role:disk"]);
        let text = utf8(&run_piped(&mut up, Some(columns)).stdout);
        assert_fits(&text, columns, "up");
        let blocks = text.matches("controlPlaneOperator").count();
        assert_eq!(blocks > 1, columns < 200, "{text}");
        let mut run = lanyard(&["azure", "run", "sh", "-c"]);
        run.arg("curl -sS -o /dev/null https://management.azure.com/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups?api-version=2022-12-01");
        let log = utf8(&run_piped(&mut run, Some(columns)).stderr);
        assert!(log.contains("\n1 request, 0 of operations that the local Azure lacks"), "{log}");
        assert_fits(&log, columns, "the request log");
    }
}

#[test]
fn tables_are_complete_in_a_pipe_without_columns() {
    let text = utf8(&run_piped(&mut lanyard(&["azure", "operations"]), None).stdout);
    assert!(text.lines().any(|line| line.chars().count() > 150), "{text}");
    assert!(!text.contains('…'), "{text}");
}

#[test]
fn terminal_sets_the_width_and_the_colours() {
    let up = || lanyard(&["up", "--once"]);
    let shown = terminal::run_on_terminal(up(), 80, "xterm-256color");
    assert!(shown.contains("\x1b[32m9 of 9 components good\x1b[0m"), "{shown}");
    assert!(shown.matches("controlPlaneOperator").count() > 1, "columns follow below: {shown}");
    let mut without = up();
    without.env("NO_COLOR", "1");
    for (command, term) in [(without, "xterm-256color"), (up(), "dumb")] {
        let shown = terminal::run_on_terminal(command, 80, term);
        assert!(shown.contains("9 of 9 components good") && !shown.contains('\x1b'), "{shown}");
    }
    let on_terminal = terminal::run_on_terminal(lanyard(&IDENTITIES), 60, "xterm");
    let piped = utf8(&run_piped(&mut lanyard(&IDENTITIES), Some(60)).stdout);
    assert_eq!(on_terminal.replace("\r\n", "\n"), piped);
}

#[test]
fn help_follows_the_width_of_the_terminal() {
    let mut shown = String::new();
    for columns in WIDTHS {
        let output = run_piped(&mut lanyard(&["identities", "--help"]), Some(columns));
        let help = utf8(&output.stdout);
        assert!(!help.contains('\x1b'), "{help}");
        shown.push_str(&format!("--- {columns} columns\n{help}"));
    }
    insta::assert_snapshot!("help_of_identities", shown);
}

#[test]
fn documents_have_camel_case_keys() {
    let workspace = InfraWorkspace::start();
    let rule = workspace.files().join("rule.json");
    std::fs::write(&rule, FAULT_RULE).unwrap();
    workspace.run(&["azure", "fault", "add", rule.to_str().unwrap()]);
    let document = |arguments: &[&str]| {
        let output =
            workspace.piped_command(arguments).args(["--output", "json"]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", utf8(&output.stderr)))
    };
    for arguments in [
        &["version"][..],
        &FORECAST,
        &IDENTITIES,
        &["credential", "check", "--offline", CREDENTIAL],
        &["up", "--once"],
        &["plan", "azure", "-f", "cluster.yaml"],
        &["check", "azure"],
        &["sweep", "azure"],
        &["import", "azure", "-f", "cluster.yaml"],
        &["apply", "azure", "-f", "cluster.yaml"],
        &["azure", "operations"],
        &["azure", "drill", "list"],
        &["azure", "fault", "list"],
        &["azure", "settings", "get"],
        &["azure", "export"],
        &["azure", "env"],
    ] {
        assert_camel_case(&document(arguments), &arguments.join(" "));
    }
}

/// Fails for keys that are not camelCase, except the names of environment variables and of tags.
fn assert_camel_case(value: &Value, of: &str) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_camel_case = key.starts_with(|c: char| c.is_ascii_lowercase())
                    && key.chars().all(|c| c.is_ascii_alphanumeric());
                let is_data = of == "azure env.set" || of.ends_with(".tags");
                assert!(is_camel_case || is_data, "{of}: `{key}`");
                assert_camel_case(value, &format!("{of}.{key}"));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| assert_camel_case(item, of)),
        _ => {}
    }
}

#[test]
fn completions_and_manual_pages_come_from_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = run_piped(&mut lanyard(&["completions", shell]), None);
        let script = utf8(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        for word in ["forecast", "within", "snapshot"] {
            assert!(script.contains(word), "{word} is not in the script of {shell}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut man = lanyard(&["man", "--directory"]);
    man.arg(directory.path().join("man1"));
    assert_eq!(run_piped(&mut man, None).status.code(), Some(0));
    let page =
        |name: &str| std::fs::read_to_string(directory.path().join("man1").join(name)).unwrap();
    assert!(page("lanyard.1").contains("forecast"));
    assert!(page("lanyard-azure-run.1").contains("Examples:"));
}

#[test]
fn version_is_a_document_with_the_commit() {
    let output = run_piped(&mut lanyard(&["version", "-o", "json"]), None);
    let version: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version.as_object().unwrap().contains_key("commit"), "{version}");
}

#[test]
fn misspelled_log_filter_is_refused() {
    let output = run_piped(&mut lanyard(&["version", "--log", "inof"]), None);
    assert_eq!(output.status.code(), Some(2));
    let error = utf8(&output.stderr);
    assert!(
        error.contains("`inof` is not one of off, error, warn, info, debug and trace"),
        "{error}"
    );
}

#[test]
fn node_without_a_class_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut node = lanyard(&["node", "--nodeid", "n", "--classes"]);
    let output = run_piped(node.arg(file.path()), None);
    let error = utf8(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("it contains no SecretProviderClass"), "{error}");
}
