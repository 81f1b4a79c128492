//! `lanyard create dns azure`: creates a public DNS zone for clusters.

use lanyard_changes::{ResourceKey, RunReport, RunSummary};
use lanyard_clock::SystemClock;
use lanyard_infra::{
    BaseDomain, DEFAULT_LOCATION, DNS_ZONE_KEY, DnsParameters, ZoneDelegation, dns_resources,
    stacks,
};
use lanyard_vocabulary::ArmResourceId;

use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create dns azure --zone dev.example.com --parent-zone-id \\
    /subscriptions/ID/resourceGroups/os4-common/providers/Microsoft.Network/dnsZones/example.com";

/// Create or change a public DNS zone in the persistent resource group in Azure
///
/// With --parent-zone-id, the command also writes the NS record set that makes the zone reachable. Otherwise it
/// prints the name servers, which the owner of the parent zone must enter.
///
/// A later run changes resources that differ from the flags. It deletes resources that an earlier run created and
/// the flags no longer describe: without --parent-zone-id, the NS record set.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the zone
    #[arg(long, value_name = "DOMAIN")]
    zone: BaseDomain,
    /// The resource group, which is created if it does not exist
    #[arg(long, default_value = "os4-common", value_name = "NAME")]
    resource_group_name: String,
    /// The region of a new resource group
    #[arg(long, default_value = DEFAULT_LOCATION, value_name = "REGION")]
    location: String,
    /// The zone above, in which the command enters the name servers
    #[arg(long, value_name = "RESOURCE-ID")]
    parent_zone_id: Option<ArmResourceId>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: SharedRunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let delegation = args.parent_zone_id.as_ref().map(|parent| delegation(&args.zone, parent));
    let delegation = delegation.transpose()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: args.zone.as_str(),
        stack: stacks::DNS,
        environment: &environment,
    };
    if args.roll_back.roll_back {
        return stack.roll_back(&args.run, args.output.format, &clock).await;
    }
    let mut parameters = DnsParameters {
        subscription: account.subscription.clone(),
        resource_group: args.resource_group_name.clone(),
        location: args.location.clone(),
        zone: args.zone.to_string(),
        delegation: None,
    };
    // Azure assigns the name servers when it creates the zone, so the delegation follows in a second run.
    let resources = dns_resources(&parameters);
    let created = match delegation {
        Some(_) => stack.apply_first_part(resources, &args.run, &clock).await?,
        None => stack.apply(resources, &args.run, &clock).await?,
    };
    let Some((mut target, mut report)) = created else { return Ok(CommandExit::Failed) };
    let name_servers = name_servers(&report);
    match delegation {
        Some(delegation) if report.succeeded() => {
            parameters.delegation = Some(ZoneDelegation { name_servers, ..delegation });
            let delegated = stack.apply(dns_resources(&parameters), &args.run, &clock).await?;
            let Some((with_delegation, delegated)) = delegated else {
                return Ok(CommandExit::Failed);
            };
            (target, report) = (with_delegation, delegated.after(report));
        }
        _ => output::print_stderr(&format!("name servers: {}", name_servers.join(" "))),
    }
    let summary = RunSummary::new(&report, &target);
    output::print_value(&summary, args.output.format, |_| summary.to_string())?;
    Ok(if report.succeeded() { CommandExit::Success } else { CommandExit::Failed })
}

fn delegation(zone: &BaseDomain, parent: &ArmResourceId) -> Result<ZoneDelegation, CommandError> {
    let suffix = format!(".{}", parent.name().to_ascii_lowercase());
    let record = zone.as_str().strip_suffix(&suffix).filter(|record| !record.is_empty());
    let Some(record) = record else {
        return Err(CommandError::invalid_input(format!(
            "--parent-zone-id: `{}` is not above `{zone}`",
            parent.name()
        )));
    };
    let (parent, record) = (parent.clone(), record.to_owned());
    Ok(ZoneDelegation { parent, record, name_servers: Vec::new() })
}

fn name_servers(report: &RunReport) -> Vec<String> {
    let zone = report.live.get(&ResourceKey::new(DNS_ZONE_KEY));
    let listed = zone.and_then(|zone| zone.body.pointer("/properties/nameServers")?.as_array());
    let texts = listed.into_iter().flatten().filter_map(|server| server.as_str());
    texts.map(str::to_owned).collect()
}
