//! `lanyard ccoctl azure delete`: removes the issuer and the identities of an owner.

use lanyard_clock::SystemClock;
use lanyard_infra::{
    CcoctlRemoval, DestroyPlan, RecordedState, ResourceStack, RunContext, destroy,
    find_unrecorded_resources, wait_for_interrupted_writes,
};
use lanyard_vocabulary::format_error_chain;

use super::flags::OwnerArgs;
use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::{StackRemoval, plan_text, unrecorded_error};
use crate::commands::azure_resources::target_journal::journal_error;
use crate::commands::azure_resources::{RunArgs, interrupted_write_error};
use crate::commands::go_bool::GoBool;
use crate::exit::{CommandError, CommandResult};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:

  lanyard ccoctl azure delete --name harbour --dry-run \\
    --subscription-id 11111111-2222-3333-4444-555555555555
  lanyard ccoctl azure delete --name harbour --delete-oidc-resource-group \\
    --subscription-id 11111111-2222-3333-4444-555555555555";

/// Remove the token issuer and the managed identities of a cluster
///
/// Finds identities and storage account by the tag of the name, and custom roles by their description, whether ccoctl
/// or lanyard created them. Prints them, and removes the role assignments, the custom roles, the identities and the
/// storage account, or the resource group. The resource group of the installation stays.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    owner: OwnerArgs,
    /// Accepted for compatibility with ccoctl; resources are found by their tag
    #[arg(long, hide = true, value_name = "REGION")]
    region: Option<String>,
    /// The storage account [default: the name]
    #[arg(long, value_name = "NAME")]
    storage_account_name: Option<String>,
    /// Remove the resource group of issuer and identities, too
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    delete_oidc_resource_group: GoBool,
    /// Also remove resources in the removed group that do not have the tag of the name
    #[arg(long)]
    include_unrecorded: bool,
    /// Print what would be removed, and change nothing
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    dry_run: GoBool,
    /// The output format of the result
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = args.owner.sign_in(&environment, &clock).await?;
    if args.dry_run.0 {
        let plan = args.plan(&account, &environment, &RecordedState::default()).await?;
        return StackRemoval::planned(plan).print(args.output);
    }
    let stack = args.owner.stack(&account, &environment);
    let target = stack.target(Vec::new(), &args.run, &clock)?;
    let removal = target.journal.write(async |journal| {
        let (arm, progress) = (&account.arm, args.run.progress());
        let options = args.run.options();
        let context = RunContext { arm, journal, clock: &clock, progress: &progress, options };
        let waited = wait_for_interrupted_writes(context).await;
        waited.map_err(|error| interrupted_write_error(&error))?;
        let plan = args.plan(&account, &environment, &journal.state()).await?;
        let report = destroy(context, &plan, &[ResourceStack::Ccoctl]).await;
        progress.end();
        let report = report.map_err(|error| journal_error(&error))?;
        Ok(StackRemoval::ran(plan, report, arm.lowest_headroom()))
    });
    removal.await?.print(args.output)
}

impl Args {
    /// Finds the resources to remove, and prints them.
    async fn plan(
        &self,
        account: &AzureAccount,
        environment: &ProcessEnvironment,
        recorded: &RecordedState,
    ) -> Result<DestroyPlan, CommandError> {
        let owner = &self.owner;
        let removal = CcoctlRemoval {
            subscription: account.subscription.clone(),
            owner: owner.owner(),
            resource_group: owner.oidc_group(),
            storage_account: self
                .storage_account_name
                .clone()
                .unwrap_or_else(|| owner.name.clone()),
            removes_group: self.delete_oidc_resource_group.0,
        };
        let found = removal.find(&account.arm, recorded).await.map_err(|error| {
            CommandError::unavailable(format_error_chain(&error)).with_hint(error.hint())
        })?;
        let plan = DestroyPlan::new(&found, &[ResourceStack::Ccoctl]);
        output::print_stderr(&plan_text(&plan));
        let identifiers = owner.stack(account, environment).identifiers()?;
        let unrecorded = find_unrecorded_resources(&account.arm, &plan, &found, &identifiers)
            .await
            .map_err(|error| {
                CommandError::unavailable("listing the resources of the group failed")
                    .with_cause(&error)
                    .with_hint(error.hint())
            })?;
        if unrecorded.is_empty() || self.include_unrecorded {
            Ok(plan)
        } else {
            let hint = "move or delete them, or remove them with the group by --include-unrecorded";
            Err(unrecorded_error(&unrecorded, hint))
        }
    }
}
