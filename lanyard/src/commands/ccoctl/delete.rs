//! `lanyard ccoctl azure delete`: removes the issuer and the identities of an owner.

use lanyard_changes::{PlannedRemoval, RecordedStacks, RecordedState, StackRemoval};
use lanyard_clock::SystemClock;
use lanyard_infra::{AzureSubscription, CcoctlRemoval};

use super::flags::OwnerArgs;
use crate::commands::azure_resources::RunArgs;
use crate::commands::azure_resources::destroy_stack::{
    print_removal, print_result, remove_planned,
};
use crate::commands::go_bool::GoBool;
use crate::exit::{CommandError, CommandResult};
use crate::output::OutputArgs;
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
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = args.owner.sign_in(&environment, &clock).await?;
    let stack = args.owner.stack(&account, &environment).recorded(&args.run, &clock)?;
    let include_unrecorded = args.include_unrecorded;
    if args.dry_run.0 {
        let planned = args.plan(&stack, RecordedState::default()).await?;
        stack.check(&planned, include_unrecorded).await?;
        return print_result(&StackRemoval::planned(planned), args.output.format);
    }
    let plan = async |recorded| args.plan(&stack, recorded).await;
    let run = &args.run;
    let removal = remove_planned(&stack, &account, run, include_unrecorded, &clock, plan).await?;
    print_result(&removal, args.output.format)
}

impl Args {
    /// Finds the resources to remove, and prints them.
    async fn plan(
        &self,
        stack: &RecordedStacks<AzureSubscription>,
        recorded: RecordedState,
    ) -> Result<PlannedRemoval, CommandError> {
        let (owner, subscription) = (&self.owner, &stack.rules);
        let removal = CcoctlRemoval {
            subscription: subscription.id.clone(),
            owner: owner.owner(),
            resource_group: owner.oidc_group(),
            storage_account: self
                .storage_account_name
                .clone()
                .unwrap_or_else(|| owner.name.clone()),
            removes_group: self.delete_oidc_resource_group.0,
        };
        let found = removal.find(&subscription.access.arm, &recorded).await?;
        let planned = stack.plan(&found).await?;
        print_removal(&planned);
        Ok(planned)
    }
}
