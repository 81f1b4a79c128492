//! `lanyard node policy`: policies for the identities that a node's pods share.

use std::io::Read;
use std::path::{Path, PathBuf};

use lanyard_node::audit::verify_chain;
use lanyard_node::policy::ObservedReads;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::output::{self, Format};

/// The commands about policies.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyCommand {
    Suggest(SuggestArgs),
}

/// Write the policy that allows what was read, and nothing else
///
/// Reads audit trails (`lanyard node --audit-file`), which record every read through an identity
/// that the whole node shares, and writes the smallest policy of plain names that allows them.
/// Look at it before you enforce it: it allows what should not have been read, too, and what is
/// read once a month only if the trails are that long.
#[derive(Debug, clap::Args)]
pub(crate) struct SuggestArgs {
    /// The audit trails, oldest first; `-` reads standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    from: Vec<PathBuf>,
    /// The form of the policy
    #[arg(long, short, value_enum, default_value = "yaml", value_name = "FORMAT")]
    output: PolicyFormat,
}

/// The form of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PolicyFormat {
    /// YAML, as `--policy-file` reads it.
    Yaml,
    /// JSON, which `--policy-file` reads too.
    Json,
}

/// Runs a command about policies.
pub(crate) fn run(command: &PolicyCommand) -> CommandResult {
    match command {
        PolicyCommand::Suggest(args) => suggest(args),
    }
}

fn suggest(args: &SuggestArgs) -> CommandResult {
    let mut observed = ObservedReads::default();
    for path in &args.from {
        let text = load(path)?;
        if let Err(broken) = verify_chain(text.lines()) {
            output::note(&format!("warning: the chain of {} is broken: {broken}", path.display()));
        }
        observed.add_lines(text.lines());
    }
    if observed.is_empty() {
        return Err(CommandError::invalid("the trails hold no read through a shared identity")
            .hint(
                "let the node run with `--audit-file` and `--policy-mode audit` while pods start",
            ));
    }
    let suggestion = observed.suggest();
    if !suggestion.unreadable.is_empty() {
        output::note(&format!(
            "warning: {} lines are no records and were passed over, the first is line {}",
            suggestion.unreadable.len(),
            suggestion.unreadable[0],
        ));
    }
    output::note(&format!(
        "{} reads became {} rules",
        suggestion.accesses,
        suggestion.policy.len()
    ));
    let format = match args.output {
        PolicyFormat::Yaml => Format::Yaml,
        PolicyFormat::Json => Format::Json,
    };
    output::print(&output::document(&suggestion.policy.to_document(), format));
    Ok(Exit::Good)
}

fn load(path: &Path) -> Result<String, CommandError> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| {
        CommandError::invalid(format!("cannot read the audit trail {}", path.display()))
            .because(&error)
            .hint("give the file of `lanyard node --audit-file`, or `-` for standard input")
    })
}
