//! Which results of linters are findings, and rules for the examples that no linter has: other programs must get neither
//! the tokens of a job nor commands in the output of lanyard.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde_json::Value;

use super::*;

/// The variable with the path of the token that lanyard exchanges.
const TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
/// Directories whose files no later step publishes.
const TEMPORARY_DIRECTORIES: [&str; 3] =
    ["$RUNNER_TEMP/", "${{ runner.temp }}/", "$(Agent.TempDirectory)/"];

/// What is wrong with a workflow of GitHub Actions.
fn github_violations(text: &str) -> Vec<String> {
    violations(text, |workflow, found| {
        if workflow["permissions"] != serde_json::json!({}) {
            found.push("the permissions of the workflow are not `{}`".to_owned());
        }
        for action in texts_of_key(workflow, "uses") {
            if !is_pinned(action) {
                found.push(format!("`{action}` is not pinned to a commit"));
            }
        }
        lanyard_commands(workflow, found, |_, before| {
            let stopped = before.rsplit_once("::stop-commands::").map(|(_, after)| after);
            stopped.is_some_and(|after| !after.contains("::$stop::"))
        });
    })
}

/// What is wrong with a pipeline of Azure Pipelines.
fn azure_violations(text: &str) -> Vec<String> {
    violations(text, |pipeline, found| {
        lanyard_commands(pipeline, found, |step, _| {
            let target = &step["target"];
            target["commands"] == "restricted" && target["settableVariables"] == "none"
        });
    })
}

fn violations(text: &str, check: impl FnOnce(&Value, &mut Vec<String>)) -> Vec<String> {
    let document: Value = match serde_saphyr::from_str(text) {
        Ok(document) => document,
        Err(error) => return vec![format!("is not YAML: {error}")],
    };
    let mut found = Vec::new();
    check(&document, &mut found);
    let in_scripts = texts(&document).into_iter().flat_map(|text| {
        let assignments = text.split(TOKEN_FILE).skip(1);
        assignments.filter_map(|rest| rest.strip_prefix('=')).map(|path| path.trim_matches('"'))
    });
    for path in in_scripts.chain(texts_of_key(&document, TOKEN_FILE)) {
        if !TEMPORARY_DIRECTORIES.iter().any(|directory| path.starts_with(directory)) {
            let path = path.lines().next().unwrap_or_default();
            found.push(format!("the token file is not in the temporary directory: {path}"));
        }
    }
    found
}

/// Whether an action names a commit, and not a tag or a branch, which can be moved.
fn is_pinned(action: &str) -> bool {
    action.rsplit_once('@').is_some_and(|(_, version)| {
        version.len() == 40 && version.chars().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Adds the commands of lanyard that are not `restricted`, which gets the step and the script before the command.
fn lanyard_commands(
    document: &Value,
    found: &mut Vec<String>,
    restricted: impl Fn(&Value, &str) -> bool,
) {
    let mut count = 0;
    for step in values_of_key(document, "steps").into_iter().filter_map(Value::as_array).flatten() {
        for script in texts(step) {
            let mut start = 0;
            for line in script.split_inclusive('\n') {
                if runs_lanyard(line) {
                    count += 1;
                    if !restricted(step, &script[..start]) {
                        let command = line.trim();
                        found.push(format!("the output of `{command}` can contain commands"));
                    }
                }
                start += line.len();
            }
        }
    }
    if count == 0 {
        found.push("no step runs lanyard".to_owned());
    }
}

fn runs_lanyard(line: &str) -> bool {
    let words = line.split_whitespace().filter(|word| !["if", "!"].contains(word));
    let command = words.map(|word| word.trim_matches('"')).next().unwrap_or_default();
    command == "lanyard" || command.ends_with("/lanyard") || command.ends_with("$(lanyard")
}

/// The texts in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text.as_str()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// The texts with this key.
fn texts_of_key<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    values_of_key(value, key).into_iter().filter_map(Value::as_str).collect()
}

/// The values with this key, at any depth.
fn values_of_key<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    match value {
        Value::Array(items) => items.iter().flat_map(|item| values_of_key(item, key)).collect(),
        Value::Object(fields) => {
            let below = fields.values().flat_map(|field| values_of_key(field, key));
            fields.get(key).into_iter().chain(below).collect()
        }
        _ => Vec::new(),
    }
}

const GITHUB: &str = include_str!("../../../examples/github-actions/lanyard.yml");
const AZURE: &str = include_str!("../../../examples/azure-pipelines/lanyard.yml");

#[test]
fn each_linter_has_a_valid_and_a_wrong_file() {
    for is_valid in [true, false] {
        let of = |wanted: fn(Linter) -> bool| {
            CASES.iter().any(|it| it.is_valid == is_valid && wanted(it.linter))
        };
        assert!(of(|it| matches!(it, Linter::Actionlint)));
        assert!(of(|it| matches!(it, Linter::AzureSchema)));
    }
}

#[test]
fn accepted_wrong_file_and_rejected_valid_file_are_findings() {
    let output = |code: i32| Output {
        status: ExitStatus::from_raw(code << 8),
        stdout: b"line 8".to_vec(),
        stderr: Vec::new(),
    };
    let result = |is_valid, code| {
        unexpected_result(LintCase { is_valid, ..CASES[0] }, &output(code)).is_some()
    };
    assert!(!result(true, 0));
    assert!(result(true, 1));
    assert!(result(false, 0));
    assert!(!result(false, 1));
    assert!(result(false, 3));
}

#[test]
fn examples_have_no_violation() {
    assert_eq!(github_violations(GITHUB), Vec::<String>::new());
    assert_eq!(azure_violations(AZURE), Vec::<String>::new());
}

#[test]
fn each_violation_of_a_workflow_is_found() {
    for (part, replacement, expected) in [
        (
            "@11bd71901bbe5b1630ceea73d27597364c9af683",
            "@v4",
            "`actions/checkout@v4` is not pinned to a commit",
        ),
        ("permissions: {}", "permissions: {id-token: write}", "the permissions of the workflow"),
        ("permissions: {}", "permissions: write-all", "the permissions of the workflow"),
        (
            "TOKEN_FILE=$RUNNER_TEMP/",
            "TOKEN_FILE=$GITHUB_WORKSPACE/",
            "the token file is not in the temporary directory: $GITHUB_WORKSPACE/azure-token",
        ),
        (
            "AZURE_TENANT_ID: ${{ vars.AZURE_TENANT_ID }}",
            "AZURE_FEDERATED_TOKEN_FILE: ${{ github.workspace }}/.azure-token",
            "the token file is not in the temporary directory: ${{ github.workspace }}/",
        ),
        ("::stop-commands::$stop", "stop", "the output of `lanyard plan azure"),
        ("::stop-commands::$(", "$(", "the output of `lanyard apply azure"),
        (
            "if [ \"$status\"",
            "echo \"::$stop::\"; if [ \"$status\"",
            "the output of `lanyard plan azure",
        ),
    ] {
        assert!(GITHUB.contains(part), "{part}");
        let found = github_violations(&GITHUB.replace(part, replacement));
        assert!(!found.is_empty(), "{replacement}");
        assert!(found.iter().all(|it| it.starts_with(expected)), "{found:?}");
    }
}

#[test]
fn each_violation_of_a_pipeline_is_found() {
    for (part, replacement, expected) in [
        ("commands: restricted", "commands: any", "the output of `"),
        ("settableVariables: none", "settableVariables: [a]", "the output of `"),
        (
            "TOKEN_FILE=\"$(Agent.TempDirectory)/",
            "TOKEN_FILE=\"$(Build.SourcesDirectory)/",
            "the token file is not in the temporary directory: $(Build.SourcesDirectory)/",
        ),
        ("lanyard", "other", "no step runs lanyard"),
    ] {
        let found = azure_violations(&AZURE.replace(part, replacement));
        assert!(!found.is_empty(), "{replacement}");
        assert!(found.iter().all(|it| it.starts_with(expected)), "{found:?}");
    }
    assert!(azure_violations("a: [")[0].starts_with("is not YAML"));
}
