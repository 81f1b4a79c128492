//! `lanyard ccoctl azure create-managed-identities`: creates the identities of CredentialsRequests.

use std::path::{Path, PathBuf};

use lanyard_azure::{
    ArmBody as _, ArmRequest, AssignedRole, ResourceGroupBody, RoleAssignmentBody,
};
use lanyard_changes::{
    AzureResource, LiveState, PreflightFinding, ResourceKey, RunReport, RunSummary, StackTarget,
};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_federation::{
    CredentialsRequestFile, IdentityIds, IdentityPlanSettings, IdentitySpec, IssuerUrl, OutputFile,
    RoleScopeGroups, credentials_secret_file, parse_credentials_requests, plan_identities,
};
use lanyard_infra::{
    AzureSubscription, ComponentIdentityParameters, IDENTITY_GROUP_KEY, INSTALLATION_GROUP_KEY,
    RoleNames, component_identity_key, component_identity_resources, find_other_role_assignments,
};

use super::flags::CreateArgs;
use super::report::{CcoctlReport, print_dry_run};
use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::commands::go_bool::GoBool;
use crate::commands::issuer::write_output_files;
use crate::exit::{CommandError, CommandExit, CommandResult, ResultExt as _};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  oc adm release extract --credentials-requests --cloud=azure --to=requests $RELEASE_IMAGE
  lanyard ccoctl azure create-managed-identities --name harbour --region eastus --output-dir harbour \\
    --subscription-id 11111111-2222-3333-4444-555555555555 --credentials-requests-dir requests \\
    --issuer-url https://harbour.blob.core.windows.net/harbour --dnszone-resource-group-name dns";

/// Create the managed identities of CredentialsRequests
///
/// Each identity gets a federated credential for each service account of its CredentialsRequest, the roles that the
/// CredentialsRequest names, and a custom role with its permissions. Writes a Secret with the ids of the identity
/// for each component.
///
/// Role assignments of these identities that no CredentialsRequest lists are removed at the end, as in ccoctl;
/// --preserve-existing-roles keeps them. Identities of CredentialsRequests that are not in the directory stay.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    identities: IdentityArgs,
    /// The URL of the token issuer, byte for byte as in the tokens
    #[arg(long, value_name = "URL")]
    issuer_url: IssuerUrl,
    /// Write the files without the ids of the identities, and send no request to Azure
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    dry_run: GoBool,
}

/// The flags of the identities.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct IdentityArgs {
    /// The directory of the CredentialsRequests: its files `*.yaml`, `*.yml` and `*.json`
    #[arg(long, value_name = "DIR")]
    credentials_requests_dir: PathBuf,
    /// The resource group of the cluster's resources, which is created if it does not exist [default: the name]
    #[arg(long, value_name = "NAME")]
    installation_resource_group_name: Option<String>,
    /// The resource group of the public DNS zone
    #[arg(long, value_name = "NAME")]
    dnszone_resource_group_name: Option<String>,
    /// The resource group of an existing virtual network
    #[arg(long, value_name = "NAME")]
    network_resource_group_name: Option<String>,
    /// Also create the identities of components in technology preview
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    enable_tech_preview: GoBool,
    /// Keep role assignments of the identities that no CredentialsRequest lists
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    preserve_existing_roles: GoBool,
}

pub(super) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let Args { create, identities, issuer_url, dry_run } = args;
    let planned = identities.plan(&create, issuer_url)?;
    if dry_run.0 {
        let files = planned.secret_files(None);
        write_output_files(&create.output_dir, &files)?;
        let paths = files.iter().map(|it| create.output_dir.join(it.path()).display().to_string());
        return print_dry_run(&paths.collect::<Vec<_>>());
    }
    let clock = SystemClock::shared();
    let account = create.owner.sign_in(&environment, &clock).await?;
    let stack = create.owner.stack(&account, &environment);
    let mut report = CcoctlReport::default();
    if planned.create(&stack, &mut report, &clock).await? {
        report.print(create.output.format)
    } else {
        Ok(CommandExit::Failed)
    }
}

impl IdentityArgs {
    /// Reads the CredentialsRequests, and plans their identities. Sends no request.
    pub(super) fn plan<'a>(
        &'a self,
        create: &'a CreateArgs,
        issuer: IssuerUrl,
    ) -> Result<PlannedIdentities<'a>, CommandError> {
        let owner = &create.owner;
        let installation = self.installation_resource_group_name.as_ref().unwrap_or(&owner.name);
        if installation.eq_ignore_ascii_case(&owner.oidc_group()) {
            return Err(CommandError::invalid_input(format!(
                "--installation-resource-group-name: `{installation}` is the resource group of the identities, which has to outlive the cluster"
            ))
            .with_hint("name two groups; the default of --oidc-resource-group-name is NAME-oidc"));
        }
        let group = |name: &String| ResourceGroupBody::id(&owner.subscription_id, name);
        let groups = RoleScopeGroups {
            installation: group(installation),
            dns_zone: self.dnszone_resource_group_name.as_ref().map(group),
            network: self.network_resource_group_name.as_ref().map(group),
        };
        let files = read_requests(&self.credentials_requests_dir)?;
        let files: Vec<_> =
            files.iter().map(|(name, text)| CredentialsRequestFile { name, text }).collect();
        let requests = parse_credentials_requests(&files, self.enable_tech_preview.0)
            .context("--credentials-requests-dir")
            .mark_invalid()?;
        if requests.is_empty() {
            return Err(no_requests(&self.credentials_requests_dir));
        }
        let settings =
            IdentityPlanSettings { name: owner.name.clone(), issuer, groups: groups.clone() };
        let identities = plan_identities(requests, &settings).mark_invalid()?;
        Ok(PlannedIdentities { create, args: self, groups, identities })
    }
}

fn no_requests(directory: &Path) -> CommandError {
    CommandError::invalid_input(format!(
        "--credentials-requests-dir: {} has no CredentialsRequest to create an identity for",
        directory.display()
    ))
    .with_hint(
        "extract the files with `oc adm release extract --credentials-requests --cloud=azure`",
    )
}

/// The names and texts of the YAML and JSON files of a directory, sorted by name.
fn read_requests(directory: &Path) -> Result<Vec<(String, String)>, CommandError> {
    let failed = |path: &Path, error: &std::io::Error| {
        let path = path.display();
        CommandError::invalid_input(format!("--credentials-requests-dir: {path} cannot be read"))
            .with_cause(error)
    };
    let entries = std::fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(directory, &error))?.path();
        let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
        if ["yaml", "yml", "json"].contains(&extension) {
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
            files.push((path.display().to_string(), text));
        }
    }
    files.sort();
    Ok(files)
}

/// The identities of CredentialsRequests before they are created.
pub(super) struct PlannedIdentities<'a> {
    create: &'a CreateArgs,
    args: &'a IdentityArgs,
    groups: RoleScopeGroups,
    identities: Vec<IdentitySpec>,
}

impl PlannedIdentities<'_> {
    /// The Secrets of the components. Without a report, they lack the ids of the identities.
    fn secret_files(&self, report: Option<&RunReport>) -> Vec<OutputFile> {
        let (subscription, region) = (&self.create.owner.subscription_id, &self.create.region);
        let file = |identity: &IdentitySpec| {
            let ids = report.and_then(|report| identity_ids(identity, report));
            credentials_secret_file(&identity.request, ids.as_ref(), subscription, region)
        };
        self.identities.iter().map(file).collect()
    }

    /// Creates the identities, removes their other role assignments, and writes the Secrets. Returns `false` if the
    /// plan cannot be applied; nothing was written then.
    pub(super) async fn create(
        &self,
        stack: &SharedStack<'_>,
        summary: &mut CcoctlReport,
        clock: &SharedClock,
    ) -> Result<bool, CommandError> {
        let check = |live: &LiveState| group_findings(live, &self.create.region);
        let resources = self.resources(stack.account).await?;
        let applied = stack.apply_checked(resources, &self.create.run, &check, clock).await?;
        let Some((target, report)) = applied else { return Ok(false) };
        if report.succeeded() {
            write_output_files(&self.create.output_dir, &self.secret_files(Some(&report)))?;
            if !self.args.preserve_existing_roles.0 {
                summary.removed_role_assignments = remove_other_roles(&target, &report).await?;
            }
        }
        summary.identities = Some(RunSummary::new(&report, &target));
        Ok(true)
    }

    /// Whether the identities can be created. Prints the plan if not. Sends GET requests only.
    pub(super) async fn check(
        &self,
        stack: &SharedStack<'_>,
        clock: &SharedClock,
    ) -> Result<bool, CommandError> {
        let check = |live: &LiveState| group_findings(live, &self.create.region);
        let resources = self.resources(stack.account).await?;
        stack.can_apply(resources, &self.create.run, &check, clock).await
    }

    async fn resources(&self, account: &AzureAccount) -> Result<Vec<AzureResource>, CommandError> {
        let roles = RoleNames::read(&account.arm, &account.subscription)
            .await
            .context("listing the roles of the subscription failed")?;
        let parameters = ComponentIdentityParameters {
            subscription: account.subscription.clone(),
            owner: self.create.owner.owner(),
            location: self.create.region.clone(),
            resource_group: self.create.owner.oidc_group(),
            groups: self.groups.clone(),
            tags: self.create.tags(),
            identities: self.identities.clone(),
        };
        component_identity_resources(&parameters, &roles).map_err(|errors| {
            let text: Vec<_> = errors.iter().map(ToString::to_string).collect();
            let error = CommandError::invalid_input(text.join("; "));
            match errors.first() {
                Some(first) => error.with_hint_of(first),
                None => error,
            }
        })
    }
}

fn identity_ids(identity: &IdentitySpec, report: &RunReport) -> Option<IdentityIds> {
    let body = &report.live.get(&component_identity_key(identity))?.body;
    let property = |pointer: &str| body.pointer(pointer).and_then(serde_json::Value::as_str);
    Some(IdentityIds {
        client_id: property("/properties/clientId")?.parse().ok()?,
        tenant_id: property("/properties/tenantId")?.parse().ok()?,
    })
}

/// Existing groups have to be in the region of the command, as in ccoctl.
fn group_findings(live: &LiveState, region: &str) -> Vec<PreflightFinding> {
    let squeezed = |text: &str| text.replace(' ', "").to_ascii_lowercase();
    let groups = [IDENTITY_GROUP_KEY, INSTALLATION_GROUP_KEY].map(ResourceKey::new);
    let found = groups.iter().filter_map(|key| live.get(key));
    let elsewhere = found.filter_map(|group| {
        let location = group.body["location"].as_str()?;
        (squeezed(location) != squeezed(region)).then(|| {
            let name = group.id.name();
            PreflightFinding::error(
                "region",
                format!("the resource group `{name}` is in `{location}`, not in `{region}`"),
                "give the region of the group with --region, or name another group",
            )
        })
    });
    elsewhere.collect()
}

/// Removes the role assignments of the identities that the graph does not contain; returns their ids.
async fn remove_other_roles(
    target: &StackTarget<AzureSubscription>,
    report: &RunReport,
) -> Result<Vec<String>, CommandError> {
    let (arm, subscription) = (&target.rules.access.arm, &target.rules.id);
    let failed = |what: String, error: &lanyard_azure::AzureCallError| {
        CommandError::unavailable(what).with_cause(error).with_hint_of(error)
    };
    let others =
        find_other_role_assignments(arm, subscription, &target.graph, &report.live, &target.tags)
            .await
            .context("reading the role assignments of the identities failed")?;
    if !others.is_empty() {
        output::print_stderr(
            "Removing role assignments that no CredentialsRequest lists; --preserve-existing-roles would keep them:",
        );
    }
    let mut removed = Vec::new();
    for AssignedRole { id, properties, .. } in others {
        output::print_stderr(&format!(
            "  {} at {}",
            properties.role_definition_id, properties.scope
        ));
        let request = ArmRequest::delete(id.as_str(), RoleAssignmentBody::API_VERSION);
        arm.send(&request)
            .await
            .map_err(|error| failed(format!("removing the role assignment {id} failed"), &error))?;
        removed.push(id);
    }
    Ok(removed)
}
