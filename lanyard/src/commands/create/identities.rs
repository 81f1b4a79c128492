//! `lanyard create identities azure`: creates the identities of an ARO HCP development environment.

use std::path::PathBuf;

use lanyard_changes::{RunReport, RunSummary};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_infra::{
    ControlPlaneIdentities, ControlPlaneIdentity, DEFAULT_LOCATION, DataPlaneIdentities,
    DataPlaneIdentity, DataPlaneParameters, IdentityVault, data_plane_identity_key,
    data_plane_resources, stacks,
};
use lanyard_service_principals::{CreatedServicePrincipal, service_principal_components};
use lanyard_vocabulary::{Component, ObjectEncoding};
use serde::Serialize;

use super::kms_identity::{KmsArgs, KmsIdentity, KmsResult, find_or_create_key};
use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::output_files::write_output_file;
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::commands::service_principals::{
    EnvironmentArgs, EnvironmentRun, ServicePrincipalRow, rows_text, run_for_each,
};
use crate::exit::{CommandError, CommandExit, CommandResult};
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
}

/// The result of the command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdentitiesDocument {
    service_principals: Vec<ServicePrincipalRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_plane: Option<RunSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kms: Option<KmsResult>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let with_kms = args.kms.enable_kms;
    let names = args.environment.names(service_principal_components(with_kms))?;
    let vault = args.environment.vault()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let tenant = account.caller().await?.tenant;
    let timeout = args.run.run.options().retry_timeout;
    let client = args.environment.client(&account, tenant.clone(), timeout, &clock)?;
    let prefix = &args.environment.prefix;
    let key = match args.kms.key_id(args.account.cloud, prefix, vault.clone())? {
        Some(key) => Some(find_or_create_key(&account, &key).await?),
        None => None,
    };
    let data_plane = DataPlane { args: &args, account: &account, environment: &environment };
    let Some(data_plane) = data_plane.create(&clock).await? else {
        return Ok(CommandExit::Failed);
    };
    let stack = SharedStack {
        account: &account,
        name: &prefix.to_string(),
        stack: stacks::IDENTITIES,
        environment: &environment,
    };
    let journal = stack.journal(&args.run.run.state, &args.run.run.lock, &clock)?;
    let create = run_for_each(&names, async |names, observer| client.create(names, observer).await);
    let created = journal.with_lock(create).await?;
    let kms_identity = successes(&created).find(|it| it.component == Component::Kms);
    let kms = match (key, kms_identity) {
        (Some(key), Some(identity)) => {
            let prefix = prefix.to_string();
            let kms = KmsIdentity { account: &account, environment: &environment, prefix, key };
            kms.assign_role(identity, &args.run, &clock).await?
        }
        _ => None,
    };
    let succeeded = data_plane.succeeded() && kms.is_some() == with_kms;
    let exit = if succeeded { created.exit() } else { CommandExit::Failed };
    if exit == CommandExit::Success {
        write_files(&args, IdentityVault { name: vault, tenant }, &created, &data_plane)?;
    }
    print(&args, &created, data_plane, kms)?;
    Ok(exit)
}

/// The service principals that are complete.
fn successes(
    created: &EnvironmentRun<CreatedServicePrincipal>,
) -> impl Iterator<Item = &CreatedServicePrincipal> {
    created.outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok())
}

/// The managed identities of the worker nodes.
struct DataPlane<'a> {
    args: &'a Args,
    account: &'a AzureAccount,
    environment: &'a ProcessEnvironment,
}

/// What was created for the worker nodes.
enum DataPlaneResult {
    /// No issuer was given.
    Omitted,
    Applied {
        ids: DataPlaneIdentities,
        summary: Box<RunSummary>,
        succeeded: bool,
    },
}

impl DataPlaneResult {
    const fn succeeded(&self) -> bool {
        match self {
            Self::Omitted => true,
            Self::Applied { succeeded, .. } => *succeeded,
        }
    }
}

impl DataPlane<'_> {
    /// Creates the identities. Returns `None` if the plan cannot be applied; nothing was written then.
    async fn create(&self, clock: &SharedClock) -> Result<Option<DataPlaneResult>, CommandError> {
        let Some(issuer) = &self.args.oidc_issuer_url else {
            return Ok(Some(DataPlaneResult::Omitted));
        };
        let prefix = self.args.environment.prefix.to_string();
        let parameters = DataPlaneParameters {
            subscription: self.account.subscription.clone(),
            prefix: prefix.clone(),
            location: self.args.location.clone(),
            resource_group: self.args.resource_group_name.clone(),
            issuer: issuer.clone(),
        };
        let resources = data_plane_resources(&parameters).map_err(|error| {
            CommandError::invalid_input("--prefix").with_cause(&error).with_hint_of(&error)
        })?;
        let stack = SharedStack {
            account: self.account,
            name: &prefix,
            stack: stacks::IDENTITIES,
            environment: self.environment,
        };
        let applied = stack.apply(resources, &self.args.run, clock).await?;
        let Some((target, report)) = applied else { return Ok(None) };
        Ok(Some(DataPlaneResult::Applied {
            ids: client_ids(&report),
            summary: Box::new(RunSummary::new(&report, &target)),
            succeeded: report.succeeded(),
        }))
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
    data_plane: &DataPlaneResult,
) -> Result<(), CommandError> {
    if let Some(path) = &args.managed_identities_file {
        // HyperShift reads the KMS identity from flags, and not from this file.
        let others = successes(created).filter(|it| it.component != Component::Kms);
        let identities = others.map(|it| (it.component, identity(it))).collect();
        write_output_file(path, &ControlPlaneIdentities { vault, identities }.to_json())?;
    }
    if let (Some(path), DataPlaneResult::Applied { ids, .. }) =
        (&args.data_plane_identities_file, data_plane)
    {
        write_output_file(path, &ids.to_json())?;
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

fn print(
    args: &Args,
    created: &EnvironmentRun<CreatedServicePrincipal>,
    data_plane: DataPlaneResult,
    kms: Option<KmsResult>,
) -> Result<(), CommandError> {
    let data_plane = match data_plane {
        DataPlaneResult::Applied { summary, .. } => Some(*summary),
        DataPlaneResult::Omitted => None,
    };
    let document =
        IdentitiesDocument { service_principals: created.rows(|it| Some(it)), data_plane, kms };
    output::print_value(&document, args.output.format, |line_width| {
        let summary = document.data_plane.iter().map(ToString::to_string);
        let text = summary
            .chain([rows_text(&document.service_principals, line_width)])
            .chain(document.kms.iter().map(KmsResult::to_text));
        text.collect::<Vec<_>>().join("\n")
    })
}
