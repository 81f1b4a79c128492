//! The infrastructure of a new cluster: from a file, or created in the same run.

use std::path::Path;

use lanyard_azure::AzureCredentialsFile;
use lanyard_changes::RunSummary;
use lanyard_clock::SharedClock;
use lanyard_infra::manifests::ClusterAccount;
use lanyard_infra::{
    ClusterConfiguration, ClusterIdentities, ClusterTarget, DEFAULT_LOCATION, IdentitySource,
    InfraOutput, RawConfiguration, RawInfra, read_identities, read_identity_file,
};
use lanyard_vocabulary::{EntraTenantId, InfraId};

use super::Args;
use super::infra_id::new_infra_id;
use crate::commands::azure_account::{AzureAccount, read_credentials_file};
use crate::commands::azure_resources::RunArgs;
use crate::commands::azure_resources::cluster_stacks::{apply_target, load_target};
use crate::commands::cluster_objects::ClusterObjects;
use crate::commands::create::infra::raw_infra;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::output;
use crate::settings::ProcessEnvironment;

/// The infrastructure of --infra-json.
pub(super) struct InfrastructureFile {
    pub(super) account: ClusterAccount,
    pub(super) infra: InfraOutput,
    pub(super) identities: ClusterIdentities,
}

impl InfrastructureFile {
    /// Reads the file. Sends no request.
    pub(super) fn read(
        path: &Path,
        args: &Args,
        environment: &ProcessEnvironment,
    ) -> Result<Self, CommandError> {
        let mut findings = Vec::new();
        let infra = read_identity_file(path, &mut findings, InfraOutput::parse)?;
        args.check_existing_resources(&infra)?;
        let given = match args.identity_source() {
            Some(source) => read_identities(&source, &mut findings)?,
            None => None,
        };
        for finding in &findings {
            output::print_stderr(&format!("warning: {}", finding.message));
        }
        let identities = given.or_else(|| infra.identities.clone()).ok_or_else(no_identities)?;
        let file = credentials_file(args)?;
        let subscription = args.account.subscription.clone();
        let subscription = subscription.or_else(|| Some(file.as_ref()?.subscription.clone()));
        let variable = environment.azure_subscription_id.as_deref();
        let subscription = match subscription {
            Some(subscription) => subscription,
            None => parse_variable("AZURE_SUBSCRIPTION_ID", variable, "--subscription")?,
        };
        let tenant = tenant(file.as_ref(), environment)?;
        Ok(Self { account: ClusterAccount { subscription, tenant }, infra, identities })
    }
}

/// The error of a cluster without identities.
pub(super) fn no_identities() -> CommandError {
    CommandError::invalid_input("--workload-identities-file is missing")
        .with_hint("create the identities with `lanyard create iam azure`, or give the files of an ARO HCP cluster")
}

fn credentials_file(args: &Args) -> Result<Option<AzureCredentialsFile>, CommandError> {
    args.account.azure_creds.as_deref().map(read_credentials_file).transpose()
}

/// The tenant of the file, else of the environment.
fn tenant(
    file: Option<&AzureCredentialsFile>,
    environment: &ProcessEnvironment,
) -> Result<EntraTenantId, CommandError> {
    match file.and_then(|file| file.tenant.clone()) {
        Some(tenant) => Ok(tenant),
        None => parse_variable(
            "AZURE_TENANT_ID",
            environment.azure_tenant_id.as_deref(),
            "`tenantId` in the file of --azure-creds",
        ),
    }
}

fn parse_variable<T: std::str::FromStr<Err: std::error::Error>>(
    name: &str,
    value: Option<&str>,
    alternative: &str,
) -> Result<T, CommandError> {
    let Some(text) = value else {
        return Err(CommandError::invalid_input(format!("{name} is not set"))
            .with_hint(format!("set it, or give {alternative}")));
    };
    text.parse().or_invalid(format_args!("{name} is invalid"))
}

impl Args {
    /// The identity files that the user named.
    fn identity_source(&self) -> Option<IdentitySource> {
        let identities = &self.platform.identities;
        if let Some(path) = &identities.workload_identities_file {
            return Some(IdentitySource::WorkloadFile(path.clone()));
        }
        let control_plane = identities.managed_identities_file.clone();
        let data_plane = identities.data_plane_identities_file.clone();
        control_plane
            .is_some()
            .then_some(IdentitySource::ManagedFiles { control_plane, data_plane })
    }

    /// Flags of existing resources must agree with the file, because they have no other effect.
    fn check_existing_resources(&self, infra: &InfraOutput) -> Result<(), CommandError> {
        let groups = &self.platform.groups;
        let flags = [
            ("--resource-group-name", &groups.resource_group_name, infra.resource_group.as_str()),
            ("--vnet-id", &groups.vnet_id, infra.vnet.as_str()),
            ("--subnet-id", &groups.subnet_id, infra.subnet.as_str()),
            (
                "--network-security-group-id",
                &groups.network_security_group_id,
                infra.security_group.as_str(),
            ),
        ];
        let differing = flags.into_iter().filter_map(|(flag, given, found)| {
            let differs = given.as_ref().is_some_and(|given| !given.eq_ignore_ascii_case(found));
            differs.then(|| format!("{flag} differs from --infra-json, which has `{found}`"))
        });
        let differing: Vec<_> = differing.collect();
        if differing.is_empty() {
            Ok(())
        } else {
            Err(CommandError::invalid_input(differing.join("\n")))
        }
    }

    /// Checks the flags of the infrastructure that the command creates. Sends no request.
    pub(super) fn check_configuration(&self) -> Result<(), CommandError> {
        // The infrastructure id may be known only after the sign-in. The checks are the same with another one.
        let placeholder = self.cluster.name.as_str().parse().ok();
        match self.cluster.infra_id.as_ref().or(placeholder.as_ref()) {
            Some(infra_id) => self.configuration(infra_id).map(drop),
            None => Ok(()),
        }
    }

    fn configuration(&self, infra_id: &InfraId) -> Result<ClusterConfiguration, CommandError> {
        const IMAGE_REGISTRY: &str = "ImageRegistry";
        let platform = &self.platform;
        let (identities, roles) = (&platform.identities, &platform.roles);
        let mut infra = raw_infra(&platform.groups, identities, roles, &platform.endpoint);
        // Other capabilities have no identity.
        infra.disable_cluster_capabilities.retain(|it| it == IMAGE_REGISTRY);
        let raw = RawConfiguration {
            name: Some(self.cluster.name.to_string()),
            infra_id: Some(infra_id.to_string()),
            location: Some(platform.location.as_deref().unwrap_or(DEFAULT_LOCATION).to_owned()),
            infra: Some(RawInfra {
                base_domain: self.cluster.base_domain.as_ref().map(ToString::to_string),
                public_zone_id: platform.public_zone_id.clone(),
                ..infra
            }),
            iam: None,
        };
        Ok(raw.parse()?)
    }
}

/// The infrastructure that the command creates.
pub(super) struct NewInfrastructure {
    pub(super) account: AzureAccount,
    configuration: ClusterConfiguration,
    tenant: EntraTenantId,
}

impl NewInfrastructure {
    /// Signs in and chooses the infrastructure id: that of the flag, of an existing HostedCluster, or a new one.
    pub(super) async fn prepare(
        args: &Args,
        objects: Option<&ClusterObjects>,
        environment: &ProcessEnvironment,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        let existing = match objects {
            Some(objects) => objects.recorded_infra_id().await?,
            None => None,
        };
        let given = args.cluster.infra_id.clone().or(existing);
        let account = AzureAccount::sign_in(&args.account, environment, clock).await?;
        let file = credentials_file(args)?;
        let tenant = match file.and_then(|file| file.tenant) {
            Some(tenant) => tenant,
            None => account.caller().await?.tenant,
        };
        let infra_id = if let Some(infra_id) = given {
            infra_id
        } else {
            let context = args.run.journal_context(&account, environment, clock);
            new_infra_id(&args.cluster.name, &args.run.state, context).await?
        };
        output::print_stderr(&format!("infrastructure id: {infra_id}"));
        let configuration = args.configuration(&infra_id)?;
        Ok(Self { account, configuration, tenant })
    }

    /// The target in Azure. Sends GET requests only.
    pub(super) async fn target<'a>(
        &'a self,
        run: &RunArgs,
        environment: &'a ProcessEnvironment,
        clock: &'a SharedClock,
    ) -> Result<ClusterTarget<'a>, CommandError> {
        let context = run.journal_context(&self.account, environment, clock);
        load_target(context, &self.configuration, &run.state).await
    }

    /// Where the cluster's resources are.
    pub(super) fn cluster_account(&self) -> ClusterAccount {
        let (subscription, tenant) = (self.account.subscription.clone(), self.tenant.clone());
        ClusterAccount { subscription, tenant }
    }

    /// How to continue after a failure.
    pub(super) fn continue_hint(&self) -> String {
        let infra_id = self.configuration.identifiers.infra_id();
        format!("hint: correct the problem, and run the command again with --infra-id {infra_id}")
    }
}

/// The infrastructure output of the target.
pub(super) fn parse_output(target: &ClusterTarget<'_>) -> Result<InfraOutput, CommandError> {
    let text = target.infra_output(None).unwrap_or_default();
    let parsed = InfraOutput::parse(&text)
        .or_invalid("the infrastructure cannot be used for a cluster")
        .hint("an existing network needs both --vnet-id and --subnet-id")?;
    Ok(parsed.0)
}

/// Creates the resources; `None` if the plan cannot be applied.
pub(super) async fn apply(
    target: &ClusterTarget<'_>,
    account: &AzureAccount,
    run: &RunArgs,
    clock: &SharedClock,
) -> Result<Option<RunSummary>, CommandError> {
    let report = apply_target(target, account, run, clock).await?;
    Ok(report.map(|report| RunSummary::new(&report, &target.stack)))
}
