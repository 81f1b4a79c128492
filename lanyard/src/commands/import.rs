//! `lanyard import azure`: adopts the resources that another tool created for a cluster.

use std::path::PathBuf;

use lanyard_changes::{ImportResult, ImportedResource};
use lanyard_clock::SystemClock;
use lanyard_infra::{ClusterTarget, RawConfiguration, find_legacy_names};

use super::azure_account::{AccountArgs, AzureAccount};
use super::azure_resources::cluster_stacks::load_target;
use super::azure_resources::journal_args::{JournalContext, LockArgs, StateArgs};
use crate::exit::{CommandExit, CommandResult, ResultExt as _};
use crate::output::{self, ColumnKind, OutputArgs, TextTable};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard import azure -f cluster.yaml";

/// Adopt the Azure resources that another tool created for a cluster
///
/// Finds the resources of the configuration by their names, also by those of earlier versions of HyperShift, and
/// role assignments and federated credentials by their content. The journal then records them, so that
/// `lanyard apply azure` repairs them and `lanyard destroy` removes them. Azure is not changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The configuration file of the cluster, see `lanyard plan azure --help`
    #[arg(long, short = 'f', value_name = "FILE")]
    filename: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    lock: LockArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let configuration = RawConfiguration::read(&args.filename)?.parse()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let context = JournalContext {
        account: &account,
        environment: &environment,
        clock: &clock,
        lock_timeout: args.lock.lock_timeout,
    };
    let mut target = load_target(context, &configuration, &args.state).await?;
    if let Some(parameters) = &target.infra {
        let names = find_legacy_names(&account.arm, parameters).await;
        let names = names.context("looking for the legacy names failed")?;
        if names != parameters.legacy_names {
            let (rules, journal) = (target.stack.rules, target.stack.journal);
            target = ClusterTarget::resolve(rules, &configuration, journal, names).await?;
        }
    }
    let imported = target.stack.import(&clock).await?;
    output::print_value(&imported, args.output.format, |line_width| {
        import_text(&imported, line_width)
    })?;
    Ok(CommandExit::Success)
}

fn import_text(imported: &[ImportedResource], line_width: Option<usize>) -> String {
    let mut table = TextTable::new([
        (ColumnKind::Name, "RESOURCE"),
        (ColumnKind::Name, "RESULT"),
        (ColumnKind::Number, "DIFFERENCES"),
        (ColumnKind::Identifier, "GROUP"),
        (ColumnKind::Identifier, "NAME"),
    ]);
    for resource in imported {
        table.add_row([
            resource.key.as_str(),
            result_word(resource.result),
            &resource.differences.to_string(),
            resource.id.group(),
            resource.id.name(),
        ]);
    }
    let count = |result: ImportResult| imported.iter().filter(|it| it.result == result).count();
    format!(
        "{}\n\n{} imported, {} recorded before, {} of the user, {} missing",
        table.render(line_width),
        count(ImportResult::Imported),
        count(ImportResult::Recorded),
        count(ImportResult::Existing),
        count(ImportResult::Missing)
    )
}

const fn result_word(result: ImportResult) -> &'static str {
    match result {
        ImportResult::Imported => "imported",
        ImportResult::Recorded => "recorded",
        ImportResult::Existing => "existing",
        ImportResult::Missing => "missing",
    }
}
