//! All commands: their help at three widths, their manual pages, and a snapshot of the output of each.

use std::path::Path;

use super::{WIDTHS, lanyard, run_piped, utf8};

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

/// The commands that can be run, by their names without `lanyard`.
fn runnable_commands() -> Vec<&'static str> {
    let sections = COMMAND_LINE_PAGE.split("\n## `lanyard").skip(1);
    let commands = sections.filter_map(|section| {
        let (name, help) = section.split_once('`')?;
        let usage = help.lines().find(|line| line.starts_with("Usage: "))?;
        (!usage.ends_with(" <COMMAND>")).then_some(name.trim())
    });
    let commands: Vec<_> = commands.collect();
    assert!(commands.len() > 50, "{commands:?}");
    commands
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
