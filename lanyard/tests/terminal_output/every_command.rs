//! All commands: their help at three widths, their manual pages, a snapshot of the output of each, and a check of the
//! document of each.

use std::path::Path;

use super::{DOCUMENT_COMMANDS, WIDTHS, lanyard, run_piped, utf8};

/// The help of all commands. A unit test of the program compares the page with the commands.
const COMMAND_LINE_PAGE: &str = include_str!("../../../docs/reference/command-line.md");

/// The commands without a snapshot of their output, and why.
const WITHOUT_OUTPUT_SNAPSHOT: &[(&str, &str)] = &[
    ("up", "measures milliseconds; commands/up/table.rs has a snapshot of the table"),
    ("render", "prints YAML, which is the same at every width"),
    ("create cluster azure", "needs an API server; cluster_rendering.rs tests --render"),
    ("create infra azure", "prints the plan and the summary of `apply azure`"),
    ("create iam azure", "prints the plan and the summary of `apply azure`"),
    ("create oidc azure", "prints the plan and the summary of `apply azure`"),
    ("create keyvault azure", "prints the plan and the summary of `apply azure`"),
    ("create aks azure", "prints the plan and the summary of `apply azure`"),
    ("create dns azure", "prints the plan and the summary of `apply azure`"),
    ("create identities azure", "prints random ids; service_principals.rs has a snapshot"),
    ("destroy cluster azure", "needs an API server; prints the plan of `destroy infra azure`"),
    ("destroy identities azure", "prints the rows whose snapshot service_principals.rs has"),
    ("rotate identity azure", "prints random ids; service_principals.rs has a snapshot"),
    ("refresh identities azure", "prints random ids; service_principals.rs has a snapshot"),
    ("ccoctl azure create-key-pair", "prints what ccoctl prints; see ccoctl.rs"),
    ("ccoctl azure create-oidc-issuer", "prints the summary of `apply azure`; see ccoctl.rs"),
    ("ccoctl azure create-managed-identities", "prints the summary of `apply azure`"),
    ("ccoctl azure create-all", "prints the summary of `apply azure`; see ccoctl.rs"),
    ("ccoctl azure delete", "prints the plan and the summary of `destroy`; see ccoctl.rs"),
    ("fleet plan", "prints the plan of `plan azure` for each cluster"),
    ("fleet apply", "prints the plan and the summary of `apply azure` for each cluster"),
    ("fleet schema", "prints a JSON Schema"),
    ("node", "runs until SIGTERM"),
    ("node policy suggest", "prints a policy as YAML or JSON; see policy.rs"),
    ("operator", "runs until SIGTERM, or needs an API server"),
    ("kms", "runs until SIGTERM"),
    ("canary", "runs until SIGTERM"),
    ("azure serve", "runs until SIGTERM, and prints its address; see azure.rs"),
    ("azure login", "runs the Azure CLI, as the conformance suite `azcli` does"),
    ("azure snapshot save", "prints nothing"),
    ("azure snapshot restore", "prints nothing"),
    ("completions", "prints a script for a shell"),
    ("man", "writes files"),
];

/// The commands with `--output` whose documents `documents_have_camel_case_keys` does not check, and why.
const WITHOUT_CHECKED_DOCUMENT: &[(&str, &str)] = &[
    ("create cluster azure", "needs an API server, except for --render, which prints no document"),
    ("destroy cluster azure", "needs an API server"),
    ("fleet plan", "contains the document of `plan azure` for each cluster"),
    ("fleet apply", "contains the document of `apply azure` for each cluster"),
    ("node policy suggest", "prints a policy, in the format that `node --policy-file` reads"),
    ("azure serve", "runs until SIGTERM; the tests with a local Azure read its document"),
];

/// The commands that can be run, by their names without `lanyard`, and the help of each.
fn runnable_commands_with_help() -> Vec<(&'static str, &'static str)> {
    let sections = COMMAND_LINE_PAGE.split("\n## `lanyard").skip(1);
    let commands = sections.filter_map(|section| {
        let (name, help) = section.split_once('`')?;
        let usage = help.lines().find(|line| line.starts_with("Usage: "))?;
        (!usage.ends_with(" <COMMAND>")).then_some((name.trim(), help))
    });
    let commands: Vec<_> = commands.collect();
    assert!(commands.len() > 50, "{}", commands.len());
    commands
}

/// The names of [`runnable_commands_with_help`].
fn runnable_commands() -> Vec<&'static str> {
    runnable_commands_with_help().into_iter().map(|(name, _)| name).collect()
}

/// The name of a command in the name of a snapshot.
fn snapshot_name(command: &str) -> String {
    command.replace([' ', '-'], "_")
}

#[test]
fn help_of_every_command_at_each_width() {
    for command in runnable_commands() {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let help = |columns, variable: Option<(&str, &str)>| {
            let mut process = lanyard(&words);
            utf8(&run_piped(process.envs(variable), Some(columns)).stdout)
        };
        let shown = WIDTHS.map(|columns| {
            let text = help(columns, None);
            assert!(text.contains("Usage: ") && !text.contains('\x1b'), "{command}:\n{text}");
            for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
                // One width is enough: neither variable has an effect on the width.
                if columns == 80 {
                    assert_eq!(help(columns, Some(variable)), text, "{command}: {variable:?}");
                }
            }
            format!("--- {columns} columns\n{text}")
        });
        insta::assert_snapshot!(format!("help_{}", snapshot_name(command)), shown.concat());
    }
}

#[test]
fn every_command_has_a_snapshot_of_its_output() {
    let commands = runnable_commands();
    for (name, _) in WITHOUT_OUTPUT_SNAPSHOT {
        assert!(commands.contains(name), "`{name}` is not a command");
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    for command in &commands {
        let file = directory.join(format!("terminal_output__{}.snap", snapshot_name(command)));
        let exception = WITHOUT_OUTPUT_SNAPSHOT.iter().find(|(name, _)| name == command);
        assert_ne!(file.exists(), exception.is_some(), "{command}: {exception:?}");
    }
    for entry in std::fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_prefix("terminal_output__") else { continue };
        let name = name.trim_end_matches(".snap");
        let is_used = commands.iter().any(|command| snapshot_name(command) == name);
        assert!(is_used || name.contains(".snap."), "no command has the snapshot `{name}`");
    }
}

#[test]
fn document_of_every_command_is_checked() {
    let commands = runnable_commands_with_help().into_iter();
    let with_output = commands.filter(|(_, help)| help.contains("\n  -o, --output <FORMAT>\n"));
    let commands: Vec<_> = with_output.map(|(name, _)| name).collect();
    assert!(commands.len() > 40, "{commands:?}");
    for (name, _) in WITHOUT_CHECKED_DOCUMENT {
        assert!(commands.contains(name), "`{name}` has no --output");
    }
    for command in &commands {
        let runs_it = |line: &&str| line == command || line.starts_with(&format!("{command} "));
        let is_checked = DOCUMENT_COMMANDS.iter().any(runs_it);
        let exception = WITHOUT_CHECKED_DOCUMENT.iter().find(|(name, _)| name == command);
        assert_ne!(is_checked, exception.is_some(), "{command}: {exception:?}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let mut man = lanyard(&["man", "--directory"]);
    man.arg(directory.path());
    assert_eq!(run_piped(&mut man, None).status.code(), Some(0));
    for command in runnable_commands() {
        let page = format!("lanyard-{}.1", command.replace(' ', "-"));
        assert!(directory.path().join(&page).is_file(), "{page} is missing");
    }
}
