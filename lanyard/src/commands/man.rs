//! `lanyard man`: writes the manual pages.

use std::path::PathBuf;

use crate::exit::{CommandExit, CommandResult, ExternalResult as _, ResultExt as _};
use crate::output;

const EXAMPLE: &str = "\
Examples:
  lanyard man --directory ~/.local/share/man/man1";

/// Write a manual page for each command
///
/// The pages have the names `lanyard.1`, `lanyard-up.1` and so on, and the text of the help.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The directory of the pages, which is created if it is missing
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the pages of `command`, the command tree of the program.
pub(crate) fn run(args: &Args, command: clap::Command) -> CommandResult {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .or_unavailable(format_args!("cannot write into {}", directory.display()))
        .hint("choose another directory with --directory")?;
    output::print_stderr(&format!("wrote the manual pages into {}", directory.display()));
    Ok(CommandExit::Success)
}
