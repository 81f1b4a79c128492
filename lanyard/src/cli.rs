//! The command line: its documentation is the help.

mod command_list;
#[cfg(all(
    test,
    feature = "canary",
    feature = "cli",
    feature = "emulator",
    feature = "kms",
    feature = "node",
    feature = "operator"
))]
mod style_tests;

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::command_list::CommandGroup;
use crate::commands;
#[cfg(feature = "cli")]
use crate::commands::platform::PlatformCommand;
use crate::exit::{EXIT_CODES_HEADING, EXIT_CODES_HELP};
use crate::logging::LogArgs;

/// Azure identities for the components that need them
///
/// Lanyard follows an identity from the HostedCluster that names it to the Azure request that it
/// authorizes: SecretProviderClass, node, vault, file, certificate, token, call.
#[derive(Debug, Parser)]
#[command(
    name = "lanyard",
    version,
    max_term_width = MAX_HELP_WIDTH,
    after_help = "`lanyard COMMAND --help` shows examples and exit codes."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl Cli {
    /// Parses the command line, or prints clap's message and ends the process. When the program is called as
    /// a kubectl plugin, the help shows the `kubectl lanyard` usage. When it is called `ccoctl`, it has only the
    /// commands of `lanyard ccoctl`.
    pub(crate) fn parse_arguments(arguments: Vec<OsString>) -> Self {
        #[cfg(feature = "cli")]
        if arguments.first().is_some_and(|program| is_called(program, "ccoctl")) {
            let mut matches = document_exit_codes(CcoctlCli::command()).get_matches_from(arguments);
            let CcoctlCli { platform, log } =
                CcoctlCli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
            return Self { command: CliCommand::Ccoctl(platform), log };
        }
        let is_plugin = arguments.first().is_some_and(|it| is_called(it, "kubectl-lanyard"));
        let mut command = command();
        if is_plugin {
            command = command.bin_name("kubectl lanyard");
        }
        let mut matches = command.get_matches_from(arguments);
        Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit())
    }
}

/// The command tree. The help of every command ends with its exit codes.
pub(crate) fn command() -> clap::Command {
    command_of_width(None)
}

/// The command tree, whose help has `width` columns; `None` is the width of the terminal.
fn command_of_width(width: Option<usize>) -> clap::Command {
    let program = match width {
        Some(width) => Cli::command().term_width(width),
        None => Cli::command(),
    };
    document_exit_codes(command_list::group_commands(program, &COMMAND_GROUPS, width))
}

/// The maximum width of the help, in columns.
const MAX_HELP_WIDTH: usize = 100;

/// Appends the exit codes to the help of each command that does not list its own.
fn document_exit_codes(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(document_exit_codes);
    if command.is_subcommand_required_set() {
        return command;
    }
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    if help.contains(EXIT_CODES_HEADING) {
        return command;
    }
    let separator = if help.is_empty() { "" } else { "\n\n" };
    command.after_long_help(format!("{help}{separator}{EXIT_CODES_HELP}"))
}

/// Whether the program is called by this name. `kubectl lanyard` runs the program `kubectl-lanyard`.
fn is_called(program: &OsString, expected: &str) -> bool {
    Path::new(program).file_stem().is_some_and(|name| name == expected)
}

/// Create and remove the identities of OpenShift components
///
/// The commands of `lanyard ccoctl`, under the name of the program that they replace.
#[cfg(feature = "cli")]
#[derive(Debug, Parser)]
#[command(name = "ccoctl", version, max_term_width = MAX_HELP_WIDTH)]
struct CcoctlCli {
    #[command(subcommand)]
    platform: commands::ccoctl::CcoctlPlatform,
    #[command(flatten)]
    log: LogArgs,
}

/// The headings of the commands in the help, and the commands below each. Every command is below one heading.
const COMMAND_GROUPS: [CommandGroup; 4] = [
    ("On Kubernetes", &["operator", "node", "kms", "canary", "render", "identities", "forecast"]),
    (
        "In Azure",
        &[
            "create",
            "destroy",
            "plan",
            "apply",
            "import",
            "check",
            "sweep",
            "fleet",
            "rotate",
            "refresh",
            "ccoctl",
            "credential",
        ],
    ),
    ("Local Azure", &["up", "azure"]),
    ("Help", &["completions", "man", "version", "help"]),
];

/// The commands. Commands without a comment here are documented at their arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    #[cfg(feature = "up")]
    Up(commands::up::Args),
    #[cfg(feature = "cli")]
    Render(commands::render::Args),
    #[cfg(feature = "cli")]
    Identities(commands::identities::Args),
    #[cfg(feature = "cli")]
    Forecast(commands::forecast::Args),
    /// Show how the Azure resources of a cluster differ from its configuration
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Plan(PlatformCommand<commands::plan::Args>),
    /// Create and repair the Azure resources of a cluster
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Apply(PlatformCommand<commands::apply::Args>),
    /// Adopt the Azure resources that another tool created for a cluster
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Import(PlatformCommand<commands::import::Args>),
    /// Check what the signed-in identity may do
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Check(PlatformCommand<commands::check::Args>),
    /// Create hosted clusters and the Azure resources that they need
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Create(commands::create::CreateCommand),
    /// Remove hosted clusters and the Azure resources that lanyard created or imported
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Destroy(commands::destroy::DestroyCommand),
    /// Find orphaned role assignments, and delete them with --delete
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Sweep(PlatformCommand<commands::sweep::Args>),
    /// Give an application an identity on each of many AKS clusters
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Fleet(commands::fleet::FleetCommand),
    /// Replace the certificates of service principals
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Rotate(commands::rotate::RotateCommand),
    /// Replace the certificates that are due
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Refresh(commands::rotate::RefreshCommand),
    /// Create and remove the identities of OpenShift components, with the commands of ccoctl
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Ccoctl(commands::ccoctl::CcoctlPlatform),
    #[cfg(feature = "node")]
    Node(commands::node::Args),
    #[cfg(feature = "operator")]
    Operator(commands::operator::Args),
    #[cfg(feature = "kms")]
    Kms(commands::kms::Args),
    #[cfg(feature = "canary")]
    Canary(Box<commands::canary::Args>),
    /// Inspect credentials
    #[cfg(feature = "cli")]
    #[command(subcommand)]
    Credential(CredentialCommand),
    /// Run a strict local Azure
    #[cfg(feature = "emulator")]
    #[command(subcommand)]
    Azure(AzureCommand),
    #[cfg(feature = "cli")]
    Completions(commands::completions::Args),
    #[cfg(feature = "cli")]
    Man(commands::man::Args),
    #[cfg(feature = "cli")]
    Version(commands::version::Args),
}

impl CliCommand {
    /// The default log filter. Commands that print their own errors log only errors.
    pub(crate) const fn default_log_filter(&self) -> &'static str {
        match self {
            #[cfg(feature = "emulator")]
            Self::Azure(_) => "warn",
            #[cfg(feature = "node")]
            Self::Node(args) => args.default_log_filter(),
            #[cfg(feature = "operator")]
            Self::Operator(args) => args.default_log_filter(),
            #[cfg(feature = "kms")]
            Self::Kms(args) => args.default_log_filter(),
            #[cfg(feature = "canary")]
            Self::Canary(_) => "warn,lanyard_canary=info",
            #[cfg(any(feature = "cli", feature = "up"))]
            _ => LOG_FILTER_FOR_REPORTING_COMMANDS,
        }
    }

    /// Whether a flag of the command selects JSON log lines.
    pub(crate) const fn logs_json(&self) -> bool {
        match self {
            #[cfg(feature = "node")]
            Self::Node(args) => args.logs_json(),
            #[cfg(feature = "operator")]
            Self::Operator(args) => args.logs_json(),
            #[cfg(feature = "kms")]
            Self::Kms(args) => args.logs_json(),
            #[cfg(any(feature = "canary", feature = "cli", feature = "up"))]
            _ => false,
        }
    }
}

/// The log filter of commands that print their own result and errors.
#[cfg(any(feature = "cli", feature = "up"))]
const LOG_FILTER_FOR_REPORTING_COMMANDS: &str = "error";

/// The subcommands of `lanyard credential`.
#[cfg(feature = "cli")]
#[derive(Debug, Subcommand)]
pub(crate) enum CredentialCommand {
    Check(commands::credential::check::Args),
}

/// The subcommands of `lanyard azure`.
#[cfg(feature = "emulator")]
#[derive(Debug, Subcommand)]
pub(crate) enum AzureCommand {
    Serve(commands::azure::serve::Args),
    Env(commands::azure::env::Args),
    Run(commands::azure::run::Args),
    Login(commands::azure::login::Args),
    Snapshot(commands::azure::snapshot::Args),
    Export(commands::azure::export::Args),
    Operations(commands::azure::operations::Args),
    /// Read and change the settings of the running local Azure
    #[command(subcommand)]
    Settings(commands::azure::settings::SettingsCommand),
    /// List, add and remove fault rules of the running local Azure
    #[command(subcommand)]
    Fault(commands::azure::fault::FaultCommand),
    /// List, start and stop drills of the running local Azure
    #[command(name = "drill")]
    #[command(subcommand)]
    FaultDrill(commands::azure::drills::DrillCommand),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_below_exactly_one_heading_of_the_help() {
        let mut command = command();
        command.build();
        for inner in command.get_subcommands() {
            let name = inner.get_name();
            let groups = COMMAND_GROUPS.iter().filter(|(_, names)| names.contains(&name));
            assert_eq!(groups.count(), 1, "{name}");
        }
    }

    #[test]
    fn every_command_has_long_help() {
        fn visit(command: &clap::Command) {
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                let name = inner.get_name();
                assert!(inner.get_about().is_some(), "{name}");
                assert!(inner.has_subcommands() || inner.get_long_about().is_some(), "{name}");
                visit(inner);
            }
        }
        visit(&command());
    }

    /// The help of every command, as a page of the documentation.
    #[cfg(all(
        feature = "canary",
        feature = "cli",
        feature = "emulator",
        feature = "kms",
        feature = "node",
        feature = "operator"
    ))]
    mod reference_page {
        use std::fmt::Write as _;

        use super::*;

        fn add_command(page: &mut String, name: &str, command: &mut clap::Command) {
            let help = command.render_long_help().to_string();
            let help: Vec<_> = help.lines().map(str::trim_end).collect();
            writeln!(page, "\n## `{name}`\n\n```text\n{}\n```", help.join("\n").trim_end())
                .unwrap();
            for inner in command.get_subcommands_mut().filter(|it| !it.is_hide_set()) {
                let name = format!("{name} {}", inner.get_name());
                if inner.get_name() != "help" {
                    add_command(page, &name, inner);
                }
            }
        }

        #[test]
        fn committed_command_line_page_is_up_to_date() {
            let mut page = String::from(HEADER);
            let mut command = command_of_width(Some(100));
            command.build();
            add_command(&mut page, "lanyard", &mut command);
            let committed = snapbox::file!["../../docs/reference/command-line.md"].raw();
            snapbox::assert_data_eq!(page, committed);
        }

        const HEADER: &str = "<!-- Generated by `SNAPSHOTS=overwrite cargo test -p lanyard --bins \
            command_line_page`; do not edit. -->\n\n# Command line\n\nThe help of every command, as \
            `lanyard COMMAND --help` prints it.\n";
    }
}
