//! `lanyard completions`: prints the completion script of a shell.

use clap_complete::Shell;

use crate::exit::{CommandExit, CommandResult, ExternalResult as _};
use crate::output;

const EXAMPLE: &str = "\
Examples:
  source <(lanyard completions bash)
  lanyard completions zsh > \"${fpath[1]}/_lanyard\"
  lanyard completions fish > ~/.config/fish/completions/lanyard.fish
  lanyard completions powershell >> $PROFILE";

/// Print the script that completes command lines of lanyard in a shell
///
/// The script contains the commands and flags of this version.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for `command`, the command tree of the program.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "lanyard", &mut script);
    let script = std::str::from_utf8(&script).or_unavailable("the script is not text")?;
    output::print_stdout(script)?;
    Ok(CommandExit::Success)
}
