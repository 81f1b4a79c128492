//! `lanyard node policy`: policies for the identities that the pods of a node share.

use std::io::Read;
use std::path::{Path, PathBuf};

use lanyard_node::audit::{ChainBreak, is_trail_line, verify_chain};
use lanyard_node::policy::ObservedReads;

use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _, ResultExt as _};
use crate::output::{self, CliOutputFormat, OUTPUT_HEADING, counted};

/// The subcommands of `lanyard node policy`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyCommand {
    Suggest(SuggestPolicyArgs),
}

const EXAMPLE: &str = "\
Examples:
  lanyard node policy suggest --from audit.jsonl > policy.yaml";

/// Write the policy that allows exactly the recorded reads
///
/// Reads audit trails (`lanyard node --audit-file`), which record every read through an identity that the
/// whole node shares, and writes the smallest policy without patterns that allows them. Log lines between the
/// records are skipped, so the output of `kubectl logs` of a node plugin is a valid input. Review the policy
/// before you enforce it: it also allows reads that should not have happened, and it covers a monthly read
/// only if the trails are long enough.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct SuggestPolicyArgs {
    /// The audit trails, oldest first; `-` reads standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    from: Vec<PathBuf>,
    /// The format of the output
    #[arg(
        long,
        short,
        value_enum,
        default_value = "yaml",
        value_name = "FORMAT",
        help_heading = OUTPUT_HEADING
    )]
    output: PolicyFormat,
}

/// The format of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PolicyFormat {
    /// YAML, as `--policy-file` reads it
    Yaml,
    /// JSON, which `--policy-file` reads too
    Json,
}

/// Runs a subcommand of `lanyard node policy`.
pub(crate) fn run(command: &PolicyCommand) -> CommandResult {
    match command {
        PolicyCommand::Suggest(args) => suggest_policy(args),
    }
}

fn suggest_policy(args: &SuggestPolicyArgs) -> CommandResult {
    let mut observed = ObservedReads::default();
    for path in &args.from {
        let text = read_trail(path)?;
        let trail = AuditTrailText::of(&text);
        if let Err(ChainBreak { line, problem }) = trail.verify() {
            output::print_stderr(&format!(
                "warning: the chain of {} is broken: line {line}: {problem}",
                path.display()
            ));
        }
        observed.add_lines(trail.lines());
    }
    if observed.is_empty() {
        return Err(CommandError::invalid_input(
            "the trails contain no read through a shared identity",
        )
        .with_hint(
            "let the node run with `--audit-file` and `--policy-mode audit` while pods start",
        ));
    }
    let suggestion = observed.suggest();
    if !suggestion.unreadable.is_empty() {
        output::print_stderr(&format!(
            "warning: skipped {} without a record; the first is line {}",
            counted(suggestion.unreadable.len(), "line"),
            suggestion.unreadable[0],
        ));
    }
    output::print_stderr(&format!(
        "{} became {}",
        counted(suggestion.accesses, "read"),
        counted(suggestion.policy.len(), "rule")
    ));
    let format = match args.output {
        PolicyFormat::Yaml => CliOutputFormat::Yaml,
        PolicyFormat::Json => CliOutputFormat::Json,
    };
    output::print_stdout(&output::serialize_document(&suggestion.policy.to_document(), format))?;
    Ok(CommandExit::Success)
}

/// The audit records in a text. A container's log contains both the records that the plugin wrote to standard
/// output and its log lines.
struct AuditTrailText<'a>(Vec<&'a str>);

impl<'a> AuditTrailText<'a> {
    /// Replaces log lines by empty lines, so that records keep their line numbers.
    fn of(text: &'a str) -> Self {
        Self(text.lines().map(|line| if is_trail_line(line) { line } else { "" }).collect())
    }

    fn lines(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().copied()
    }

    /// Verifies the hash chain, which restarts with each process.
    fn verify(&self) -> Result<(), ChainBreak> {
        verify_chain(self.lines().filter(|line| !line.is_empty())).map(drop).map_err(|error| {
            let places = self.0.iter().zip(1_u64..).filter(|(line, _)| !line.is_empty());
            let before = usize::try_from(error.line).unwrap_or(usize::MAX).saturating_sub(1);
            let place = places.map(|(_, number)| number).nth(before);
            ChainBreak { line: place.unwrap_or(error.line), ..error }
        })
    }
}

fn read_trail(path: &Path) -> Result<String, CommandError> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.or_invalid(format_args!("cannot read the audit trail {}", path.display()))
        .hint("give the file of `lanyard node --audit-file`, or `-` for standard input")
}

#[cfg(test)]
mod tests {
    use lanyard_clock::SystemClock;
    use lanyard_node::audit::{AuditEvent, AuditSink, AuditTrail};

    use super::*;

    /// The container log of a process that writes `lines` audit records.
    fn container_log(lines: usize) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let sink = AuditSink::File(path.clone());
        let trail = AuditTrail::open(&sink, SystemClock::shared()).unwrap();
        for number in 1..lines {
            trail.record(AuditEvent::PolicyKept { problem: number.to_string() });
        }
        drop(trail);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), lines);
        let between = "2026-11-21T12:00:00Z  INFO lanyard_node: mounted\n{\"level\":\"INFO\"}\n";
        text.lines().flat_map(|line| [between, line, "\n"]).collect()
    }

    #[test]
    fn container_log_of_two_processes_verifies_and_gaps_are_located() {
        let text = container_log(3) + &container_log(2);
        let trail = AuditTrailText::of(&text);
        assert_eq!(trail.verify(), Ok(()));
        assert_eq!(trail.lines().filter(|line| !line.is_empty()).count(), 5);
        let gap: Vec<&str> =
            text.lines().enumerate().filter(|(at, _)| *at != 5).map(|it| it.1).collect();
        let broken = AuditTrailText::of(&gap.join("\n")).verify().unwrap_err();
        assert_eq!(broken.line, 8, "{broken}");
    }
}
