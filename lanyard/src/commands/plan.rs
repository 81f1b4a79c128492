//! `lanyard plan azure`: shows what `lanyard apply azure` would change.

use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_infra::{PERMISSIONS_CHECK, RawConfiguration};

use super::azure_account::{AccountArgs, AzureAccount};
use super::azure_resources::cluster_stacks::load_target;
use super::azure_resources::journal_args::{JournalContext, StateArgs};
use super::azure_resources::report::{PlanDocument, plan_text};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
The configuration file:

  name: harbour
  infraId: harbour-x7k2p
  location: eastus
  iam:
    resourceGroupName: identities
    oidcIssuerUrl: https://account.blob.core.windows.net/container
  infra:
    baseDomain: example.com
    assignIdentityRoles: true
    dnsZoneResourceGroupName: dns

The how-to page `Create the infrastructure of a cluster` lists all fields with their flags.

Examples:
  lanyard plan azure -f cluster.yaml --exit-code";

/// Show how the live Azure resources of a cluster differ from its configuration
///
/// Sends GET requests only. The plan contains each difference, what the checks before the first write found, and
/// the approximate monthly cost of new resources.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The configuration file of the cluster
    #[arg(long, short = 'f', value_name = "FILE")]
    filename: PathBuf,
    /// Exit with 1 also if there are changes; without this flag, only if the plan cannot be applied
    #[arg(long)]
    exit_code: bool,
    /// Do not report missing permissions, for an identity that may only read
    #[arg(long)]
    ignore_missing_permissions: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let configuration = RawConfiguration::read(&args.filename)?.parse()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let context = JournalContext {
        account: &account,
        environment: &environment,
        clock: &clock,
        lock_timeout: None,
    };
    let target = load_target(context, &configuration, &args.state).await?;
    let recorded = target.stack.journal.read().await?.unwrap_or_default();
    let mut checked = target.stack.plan(&recorded, &|live| target.check_live(live)).await?;
    if args.ignore_missing_permissions {
        checked.findings.retain(|finding| finding.check != PERMISSIONS_CHECK);
    }
    output::print_value(&PlanDocument::new(&checked), args.output.format, |line_width| {
        plan_text(&checked, line_width)
    })?;
    let has_changes = checked.plan.writes().next().is_some();
    if !checked.is_applicable() || (args.exit_code && has_changes) {
        return Ok(CommandExit::Failed);
    }
    Ok(CommandExit::Success)
}
