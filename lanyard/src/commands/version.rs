//! `lanyard version`: the version and the commit of this program.

use serde::Serialize;

use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, OutputArgs};

const EXAMPLE: &str = "\
Examples:
  lanyard version
  lanyard version -o json";

/// Print the version and the commit of this program
///
/// The commit is that of the variable `LANYARD_COMMIT` at build time or, in a release build, of the Git repository.
/// Other builds have none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgramVersion {
    version: &'static str,
    /// The commit of the source; `None` if the build did not know it.
    commit: Option<&'static str>,
}

/// The commit that the build script found; empty if there is none.
const COMMIT: &str = env!("LANYARD_COMMIT");

impl ProgramVersion {
    const THIS: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        commit: if COMMIT.is_empty() { None } else { Some(COMMIT) },
    };

    fn to_text(&self) -> String {
        let commit = self.commit.map(|commit| format!(" (commit {commit})")).unwrap_or_default();
        format!("lanyard {}{commit}", self.version)
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let version = ProgramVersion::THIS;
    output::print_value(&version, args.output.format, |_| version.to_text())?;
    Ok(CommandExit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_shown_if_the_build_knows_it() {
        let version = |commit| ProgramVersion { version: "1.2.3", commit };
        assert_eq!(version(None).to_text(), "lanyard 1.2.3");
        assert_eq!(version(Some("abc")).to_text(), "lanyard 1.2.3 (commit abc)");
        let json = serde_json::to_string(&version(Some("abc"))).unwrap();
        assert_eq!(json, r#"{"version":"1.2.3","commit":"abc"}"#);
    }
}
