//! `lanyard create identities azure`: creates the identities of an ARO HCP development environment.

use std::path::PathBuf;

use futures::future::try_join_all;
use lanyard_changes::{AzureResource, RunReport, RunSummary};
use lanyard_clock::SystemClock;
use lanyard_infra::{
    ControlPlaneIdentities, ControlPlaneIdentity, DEFAULT_LOCATION, DataPlaneIdentities,
    DataPlaneIdentity, DataPlaneParameters, IdentityVault, data_plane_identity_key,
    data_plane_resources,
};
use lanyard_service_principals::{CreatedServicePrincipal, service_principal_components};
use lanyard_vocabulary::{Component, ObjectEncoding};
use serde::Serialize;

use super::kms_identity::{KmsArgs, KmsResult, assign_role, find_or_create_key};
use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::output_files::write_output_file;
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::commands::azure_resources::shared_stack::SharedRunArgs;
use crate::commands::service_principals::{
    EnvironmentArgs, EnvironmentRun, ServicePrincipalRow, application_resource, check_applications,
    rows_text, run_for_each,
};
use crate::exit::{CommandError, CommandExit, CommandResult, ResultExt as _};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create keyvault azure --name harbour-dev
  lanyard create identities azure --prefix harbour-dev \\
    --managed-identities-file cp.json --data-plane-identities-file dp.json \\
    --oidc-issuer-url https://account.blob.core.windows.net/container --enable-kms";

/// Create the identities of an ARO HCP development environment in Azure
///
/// For each component of the control plane: an application with its service principal, a certificate in the vault,
/// and a secret in the vault with the credential that the component reads. The command requests a token with each
/// new certificate before it writes the secret. With an issuer, it also creates the managed identities of the
/// components on worker nodes. With --enable-kms, it also creates the identity and the key that encrypt the secrets
/// of clusters.
///
/// What exists stays as it is; identities that HyperShift's scripts created are used. The signed-in identity
/// needs Key Vault Administrator at the vault and the Graph permission Application.ReadWrite.OwnedBy; with --enable-kms
/// also Key Vault Contributor and Role Based Access Control Administrator there.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Write the identities of the control plane, which `create infra azure` reads
    #[arg(long, value_name = "FILE")]
    managed_identities_file: Option<PathBuf>,
    /// Write the identities of the worker nodes, which `create infra azure` reads
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    data_plane_identities_file: Option<PathBuf>,
    /// The URL of the token issuer, whose tokens the identities of the worker nodes accept
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,
    /// The resource group of the worker nodes' identities, which is created if it does not exist
    #[arg(long, default_value = "os4-common", value_name = "NAME")]
    resource_group_name: String,
    /// The region of the worker nodes' identities
    #[arg(long, default_value = DEFAULT_LOCATION, value_name = "REGION")]
    location: String,
    #[command(flatten)]
    kms: KmsArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: SharedRunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

/// The result of the command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdentitiesDocument {
    service_principals: Vec<ServicePrincipalRow>,
    /// What happened to the applications and the identities of the worker nodes.
    #[serde(rename = "dataPlane")]
    resources: RunSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    kms: Option<KmsResult>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let with_kms = args.kms.enable_kms;
    let mut names = args.environment.names(service_principal_components(with_kms))?;
    let vault = args.environment.vault()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let stack = args.environment.stack(&account, &environment);
    if args.roll_back.roll_back {
        let journal = stack.journal(&args.run.run.state, &args.run.run.lock, &clock)?;
        check_applications(&journal.read().await?.unwrap_or_default(), &names)?;
        return stack.roll_back(&args.run, args.output.format, &clock).await;
    }
    let tenant = account.caller().await?.tenant;
    let timeout = args.run.run.options().retry_timeout;
    let client = args.environment.client(&account, tenant.clone(), timeout, &clock)?;
    let key = match args.kms.key_id(args.account.cloud, &args.environment.prefix, vault.clone())? {
        Some(key) => Some(find_or_create_key(&account, &key).await?),
        None => None,
    };
    let mut resources = args.data_plane(&account)?;
    let unique = try_join_all(names.iter().map(|names| client.uses_unique_name(names))).await?;
    let unique = names.iter().zip(unique).filter(|(_, is_unique)| *is_unique);
    resources.extend(unique.map(|(names, _)| application_resource(names)));
    let Some((target, report)) = stack.apply(resources, &args.run, &clock).await? else {
        return Ok(CommandExit::Failed);
    };
    // A roll-back of the failed run would delete the applications, and leave their credentials.
    if !report.succeeded() {
        names.clear();
    }
    let create = run_for_each(&names, async |names, observer| client.create(names, observer).await);
    let created = target.journal.with_lock(create).await?;
    let kms_identity = created.successes().find(|it| it.component == Component::Kms);
    let kms = match (key, kms_identity) {
        (Some(key), Some(identity)) => {
            assign_role(&stack, &key, identity, &args.run, &clock).await?
        }
        _ => None,
    };
    let succeeded = report.succeeded() && kms.is_some() == with_kms;
    let exit = if succeeded { created.exit() } else { CommandExit::Failed };
    if exit == CommandExit::Success {
        write_files(&args, IdentityVault { name: vault, tenant }, &created, &report)?;
    }
    let resources = RunSummary::new(&report, &target);
    let service_principals = created.rows(|it| Some(it));
    let document = IdentitiesDocument { service_principals, resources, kms };
    output::print_value(&document, args.output.format, |line_width| {
        let rows = rows_text(&document.service_principals, line_width);
        let kms = document.kms.iter().map(KmsResult::to_text);
        [document.resources.to_string(), rows].into_iter().chain(kms).collect::<Vec<_>>().join("\n")
    })?;
    Ok(exit)
}

impl Args {
    /// The managed identities of the worker nodes; none without an issuer.
    fn data_plane(&self, account: &AzureAccount) -> Result<Vec<AzureResource>, CommandError> {
        let Some(issuer) = &self.oidc_issuer_url else { return Ok(Vec::new()) };
        let parameters = DataPlaneParameters {
            subscription: account.subscription.clone(),
            prefix: self.environment.prefix.to_string(),
            location: self.location.clone(),
            resource_group: self.resource_group_name.clone(),
            issuer: issuer.clone(),
        };
        data_plane_resources(&parameters).context("--prefix").mark_invalid()
    }
}

fn client_ids(report: &RunReport) -> DataPlaneIdentities {
    let ids = DataPlaneIdentity::ALL.into_iter().filter_map(|identity| {
        let live = report.live.get(&data_plane_identity_key(identity))?;
        let id = live.body.pointer("/properties/clientId")?.as_str()?;
        Some((identity, id.parse().ok()?))
    });
    DataPlaneIdentities(ids.collect())
}

fn write_files(
    args: &Args,
    vault: IdentityVault,
    created: &EnvironmentRun<CreatedServicePrincipal>,
    report: &RunReport,
) -> Result<(), CommandError> {
    if let Some(path) = &args.managed_identities_file {
        // HyperShift reads the KMS identity from flags, and not from this file.
        let others = created.successes().filter(|it| it.component != Component::Kms);
        let identities = others.map(|it| (it.component, identity(it))).collect();
        write_output_file(path, &ControlPlaneIdentities { vault, identities }.to_json())?;
    }
    if let Some(path) = &args.data_plane_identities_file {
        write_output_file(path, &client_ids(report).to_json())?;
    }
    Ok(())
}

fn identity(created: &CreatedServicePrincipal) -> ControlPlaneIdentity {
    ControlPlaneIdentity {
        certificate_name: Some(created.name.to_string()),
        client_id: created.client_id,
        credentials_secret_name: created.secret.clone(),
        object_encoding: ObjectEncoding::Utf8,
    }
}
