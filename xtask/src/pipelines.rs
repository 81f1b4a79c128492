//! `cargo xtask pipelines`: checks the examples for GitHub Actions with actionlint, and those for Azure Pipelines with a
//! JSON schema.
//!
//! Each linter must also reject a wrong file, so that a linter that accepts everything fails the check.

use std::process::{Command, Output};

use crate::process::{self, PassFailCounts};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;

/// The schema of Azure Pipelines, for the part that the example uses.
const AZURE_SCHEMA: &str = "conformance/pipelines/azure-pipelines.schema.json";

/// A file, and whether its linter must accept it.
#[derive(Debug, Clone, Copy)]
struct LintCase {
    path: &'static str,
    linter: Linter,
    is_valid: bool,
}

#[derive(Debug, Clone, Copy)]
enum Linter {
    Actionlint,
    AzureSchema,
}

const CASES: [LintCase; 4] = [
    LintCase {
        path: "examples/github-actions/lanyard.yml",
        linter: Linter::Actionlint,
        is_valid: true,
    },
    LintCase {
        path: "examples/azure-pipelines/lanyard.yml",
        linter: Linter::AzureSchema,
        is_valid: true,
    },
    LintCase {
        path: "conformance/pipelines/wrong-github-workflow.yml",
        linter: Linter::Actionlint,
        is_valid: false,
    },
    LintCase {
        path: "conformance/pipelines/wrong-azure-pipeline.yml",
        linter: Linter::AzureSchema,
        is_valid: false,
    },
];

impl Linter {
    fn command(self, repository: &Repository) -> Result<Command, TaskError> {
        let program = |tool, name| {
            tools::go_program(repository, tool).map(|directory| Command::new(directory.join(name)))
        };
        match self {
            Self::Actionlint => {
                let mut command = program("actionlint", "actionlint")?;
                // Without the linters of other languages, which not every machine has.
                command.args(["-no-color", "-shellcheck=", "-pyflakes="]);
                Ok(command)
            }
            Self::AzureSchema => {
                let mut command = program("jsonschema", "jv")?;
                command.arg(AZURE_SCHEMA);
                Ok(command)
            }
        }
    }
}

/// Checks every case; returns their number.
pub(crate) fn check(repository: &Repository) -> Result<PassFailCounts, TaskError> {
    let mut findings = Vec::new();
    for case in CASES {
        let mut command = case.linter.command(repository)?;
        command.arg(case.path).current_dir(repository.root());
        let output = process::run_to_output(&mut command)?;
        findings.extend(unexpected_result(case, &output));
    }
    if findings.is_empty() {
        return Ok(PassFailCounts { passed: CASES.len(), ..PassFailCounts::default() });
    }
    Err(TaskError::Findings { check: "pipeline files with an unexpected result", findings })
}

/// Why the result of a linter is not the expected one. Only exit code 1 is a verdict of a linter about the file.
fn unexpected_result(case: LintCase, output: &Output) -> Option<String> {
    let text = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    let text = text.map(|it| it.trim().to_owned()).join("\n");
    match (output.status.code(), case.is_valid) {
        (Some(0), true) | (Some(1), false) => None,
        (Some(0), false) => Some(format!("{}: the linter accepts the wrong file", case.path)),
        _ => Some(format!("{}: {text}", case.path)),
    }
}

#[cfg(test)]
mod tests;
