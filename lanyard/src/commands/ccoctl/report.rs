//! The result of the commands that create resources.

use lanyard_changes::RunSummary;
use serde::Serialize;

use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat};

/// The result of a command as a document.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CcoctlReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) issuer: Option<RunSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identities: Option<RunSummary>,
    /// The removed role assignments of the identities that no CredentialsRequest lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) removed_role_assignments: Vec<String>,
}

impl CcoctlReport {
    /// Prints the report, and returns the exit code.
    pub(super) fn print(&self, format: CliOutputFormat) -> CommandResult {
        output::print_value(self, format, |_| self.to_text())?;
        let mut runs = self.issuer.iter().chain(&self.identities);
        Ok(if runs.all(RunSummary::succeeded) { CommandExit::Success } else { CommandExit::Failed })
    }

    fn to_text(&self) -> String {
        let runs = self.issuer.iter().chain(&self.identities).map(ToString::to_string);
        let removed =
            self.removed_role_assignments.iter().map(|id| format!("removed role assignment {id}"));
        runs.chain(removed).collect::<Vec<_>>().join("\n")
    }
}

/// Prints the files of a dry run.
pub(super) fn print_dry_run(paths: &[String]) -> Result<CommandExit, CommandError> {
    output::print_stderr("Dry run: no request was sent to Azure. Written files:");
    output::print_stdout(&paths.join("\n"))?;
    Ok(CommandExit::Success)
}
