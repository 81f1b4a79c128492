//! The desired resources of one cluster: the configuration with everything that must be looked up in Azure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lanyard_changes::{
    AzureGraph, FindingSeverity, LiveState, PreflightFinding, PrincipalReference, RunReport,
};
use lanyard_clock::SharedClock;
use lanyard_infra::{
    ClusterIdentities, ControlPlaneIdentities, DataPlaneIdentities, InfraParameters, LegacyNames,
    LintNote, RoleIdentity, RoleOptions, RoleParameters, WorkloadIdentities, check_live_network,
    check_network_ids, find_principals, find_public_zone, iam_resources, identity_key,
    infra_output, infra_resources, role_resources, stacks, workload_identities,
};
use lanyard_vocabulary::{ArmResourceId, Component, EntraClientId, format_error_chain};

use super::cluster_configuration::{
    ClusterConfiguration, IamConfiguration, IdentitySource, InfraConfiguration, RoleConfiguration,
};
use super::destroy_stack::RecordedStacks;
use super::output_files::write_output_file;
use super::target_journal::{JournalContext, StateArgs, TargetJournal};
use super::{RunArgs, StackTarget, plan_and_apply, print_report};
use crate::commands::azure_account::AzureAccount;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::CliOutputFormat;

/// The desired resources of one cluster, with the account that creates them.
#[derive(Debug)]
pub(in crate::commands) struct ClusterTarget<'a> {
    pub(in crate::commands) stack: StackTarget<'a>,
    configuration: &'a ClusterConfiguration,
    /// The parameters of the stack `infra`, if it is a part of the target.
    pub(in crate::commands) infra: Option<InfraParameters>,
    max_nodes: Option<u32>,
    public_zone: Option<ArmResourceId>,
    identities: Option<ClusterIdentities>,
    /// What is unusual in the identity files.
    file_findings: Vec<PreflightFinding>,
}

/// The output files that the user named.
#[derive(Debug, Clone, Default)]
pub(in crate::commands) struct OutputPaths {
    /// The infrastructure output.
    pub(in crate::commands) infra: Option<PathBuf>,
    /// The workload identities file.
    pub(in crate::commands) iam: Option<PathBuf>,
}

impl<'a> ClusterTarget<'a> {
    /// Reads the identity files, and looks up the public zone and the principals. Sends GET requests only.
    pub(in crate::commands) async fn resolve(
        account: &'a AzureAccount,
        configuration: &'a ClusterConfiguration,
        journal: TargetJournal,
        names: LegacyNames,
    ) -> Result<Self, CommandError> {
        let identifiers = &configuration.identifiers;
        let mut resources = Vec::new();
        if let Some(iam) = &configuration.iam {
            resources
                .extend(iam_resources(&configuration.iam_parameters(iam, &account.subscription)));
        }
        let (mut infra, mut public_zone, mut identities) = (None, None, None);
        let mut file_findings = Vec::new();
        if let Some(part) = &configuration.infra {
            let parameters = configuration.infra_parameters(part, &account.subscription, names);
            check_ids(&parameters)?;
            identities = read_identities(&part.identities, &mut file_findings)?;
            if parameters.nat_subnet.is_some() {
                require_operator_identity(identities.as_ref())?;
            }
            let zone = match &part.public_zone {
                Some(zone) => zone.clone(),
                None => find_zone(account, part).await?,
            };
            resources.extend(infra_resources(&parameters));
            if let Some(roles) = &part.roles {
                let parts = RoleInputs {
                    roles,
                    iam: configuration.iam.as_ref(),
                    identities: identities.as_ref(),
                    zone: &zone,
                    private_endpoint: parameters.nat_subnet.is_some(),
                };
                let roles = parts.parameters(account).await?;
                resources.extend(role_resources(&parameters, &roles).map_err(|error| {
                    CommandError::invalid_input(error.to_string()).with_hint_of(&error)
                })?);
            }
            (infra, public_zone) = (Some(parameters), Some(zone));
        }
        let graph = AzureGraph::new(resources).map_err(|error| {
            CommandError::invalid_input("the resources cannot be ordered").with_cause(&error)
        })?;
        let stack = StackTarget {
            account,
            journal,
            graph,
            is_complete: true,
            tags: identifiers.ownership_tags(),
            keeps_superseded: false,
        };
        Ok(Self {
            stack,
            configuration,
            infra,
            max_nodes: configuration.infra.as_ref().and_then(|infra| infra.max_nodes),
            public_zone,
            identities,
            file_findings,
        })
    }

    /// Looks up the target of a configuration, with the names that its journal records.
    pub(in crate::commands) async fn load(
        context: JournalContext<'a>,
        configuration: &'a ClusterConfiguration,
        state: &StateArgs,
    ) -> Result<Self, CommandError> {
        let journal = cluster_journal(context, configuration, state)?;
        let recorded = journal.read().await?.unwrap_or_default();
        let names = configuration.infra.as_ref().map(|infra| {
            let domain = infra.base_domain.as_str();
            LegacyNames::recorded(&recorded, &configuration.identifiers, domain)
        });
        let names = names.unwrap_or_default();
        Self::resolve(context.account, configuration, journal, names).await
    }

    /// Checks the identity files and the live network of the user.
    pub(in crate::commands) fn check_live(&self, live: &LiveState) -> Vec<PreflightFinding> {
        let infra = self.infra.iter();
        let network = infra.flat_map(|infra| check_live_network(infra, live, self.max_nodes));
        self.file_findings.iter().cloned().chain(network).collect()
    }

    /// Applies the target, writes its output files, and prints the result.
    pub(in crate::commands) async fn apply(
        &self,
        run: &RunArgs,
        format: CliOutputFormat,
        outputs: &OutputPaths,
        clock: &SharedClock,
    ) -> CommandResult {
        let check = |live: &LiveState| self.check_live(live);
        let Some(report) = plan_and_apply(&self.stack, run, &check, clock).await? else {
            return Ok(CommandExit::Failed);
        };
        print_report(&self.stack, &report, format)?;
        if !report.succeeded() {
            return Ok(CommandExit::Failed);
        }
        outputs.write(self, &report)?;
        Ok(CommandExit::Success)
    }

    /// The infrastructure output with the identities of the identity files; `None` without the stack `infra`. It
    /// does not depend on whether the resources exist.
    pub(in crate::commands) fn infra_output(&self) -> Option<String> {
        let (parameters, zone) = (self.infra.as_ref()?, self.public_zone.as_ref()?);
        Some(infra_output(parameters, zone, self.identities.as_ref()))
    }

    /// The identities that the stack `iam` created.
    fn created_identities(&self, report: &RunReport) -> WorkloadIdentities {
        let with_kms = self.configuration.iam.as_ref().is_some_and(|iam| iam.with_kms);
        let ids = workload_identities(with_kms).filter_map(|it| {
            let live = report.live.get(&identity_key(it.component))?;
            let id = live.body.pointer("/properties/clientId")?.as_str()?;
            Some((it.component, id.parse().ok()?))
        });
        WorkloadIdentities(ids.collect())
    }
}

fn cluster_journal(
    context: JournalContext<'_>,
    configuration: &ClusterConfiguration,
    state: &StateArgs,
) -> Result<TargetJournal, CommandError> {
    let identifiers = &configuration.identifiers;
    let cluster = identifiers.journal_cluster(&context.account.subscription);
    state.journal(context, cluster, identifiers.infra_id().as_str())
}

/// The recorded stacks of a configuration. Nothing is looked up in Azure.
pub(in crate::commands) fn recorded_cluster<'a>(
    context: JournalContext<'a>,
    configuration: &ClusterConfiguration,
    state: &StateArgs,
) -> Result<RecordedStacks<'a>, CommandError> {
    let infra = configuration.infra.as_ref().map(|_| stacks::INFRA);
    let iam = configuration.iam.as_ref().map(|_| stacks::IAM);
    let identifiers = &configuration.identifiers;
    Ok(RecordedStacks {
        account: context.account,
        journal: cluster_journal(context, configuration, state)?,
        tags: identifiers.ownership_tags(),
        stacks: infra.into_iter().chain(iam).collect(),
    })
}

impl OutputPaths {
    /// Writes the files of an apply that succeeded.
    fn write(&self, target: &ClusterTarget<'_>, report: &RunReport) -> Result<(), CommandError> {
        let created = target.configuration.iam.as_ref().map(|_| target.created_identities(report));
        if let (Some(path), Some(created)) = (&self.iam, &created) {
            write_output_file(path, &created.to_json())?;
        }
        if let (Some(path), Some(parameters), Some(zone)) =
            (&self.infra, &target.infra, &target.public_zone)
        {
            let created = created.map(ClusterIdentities::Workload);
            let identities = target.identities.as_ref().or(created.as_ref());
            write_output_file(path, &infra_output(parameters, zone, identities))?;
        }
        Ok(())
    }
}

fn check_ids(parameters: &InfraParameters) -> Result<(), CommandError> {
    let findings = check_network_ids(parameters);
    let errors: Vec<_> =
        findings.iter().filter(|it| it.severity == FindingSeverity::Error).collect();
    let Some(first) = errors.first() else { return Ok(()) };
    let text: Vec<_> = errors.iter().map(|it| it.message.as_str()).collect();
    Err(CommandError::invalid_input(text.join("\n")).with_hint(first.hint.clone()))
}

async fn find_zone(
    account: &AzureAccount,
    infra: &InfraConfiguration,
) -> Result<ArmResourceId, CommandError> {
    let domain = infra.base_domain.as_str();
    let found = find_public_zone(&account.arm, &account.subscription, domain).await;
    found
        .map_err(|error| CommandError::unavailable(format_error_chain(&error)).with_hint_of(&error))
}

/// The client ids of the identity files; `None` if the identities are created in the same run.
pub(in crate::commands) fn read_identities(
    source: &IdentitySource,
    findings: &mut Vec<PreflightFinding>,
) -> Result<Option<ClusterIdentities>, CommandError> {
    match source {
        IdentitySource::Created => Ok(None),
        IdentitySource::WorkloadFile(path) => {
            let (identities, notes) = read_file(path, WorkloadIdentities::parse)?;
            findings.extend(lint_findings(path, &notes));
            Ok(Some(ClusterIdentities::Workload(identities)))
        }
        IdentitySource::ManagedFiles { control_plane: None, .. } => {
            Err(CommandError::invalid_input("`infra.managedIdentitiesFile` is missing")
                .with_hint("name the control plane identities file as well"))
        }
        IdentitySource::ManagedFiles { control_plane: Some(path), data_plane } => {
            let ((control_plane, wrapped), notes) = read_file(path, |text| {
                let (control_plane, data_plane, notes) = ControlPlaneIdentities::parse(text)?;
                Ok(((control_plane, data_plane), notes))
            })?;
            findings.extend(lint_findings(path, &notes));
            let data_plane = match data_plane {
                None => wrapped,
                Some(path) => {
                    let (data_plane, notes) = read_file(path, DataPlaneIdentities::parse)?;
                    findings.extend(lint_findings(path, &notes));
                    Some(data_plane)
                }
            };
            Ok(Some(ClusterIdentities::Managed { control_plane, data_plane }))
        }
    }
}

/// A cluster with a private endpoint needs the identity of the control plane operator, which creates the endpoint.
/// Other self-managed clusters may lack it.
fn require_operator_identity(identities: Option<&ClusterIdentities>) -> Result<(), CommandError> {
    match identities {
        Some(ClusterIdentities::Workload(identities))
            if !identities.0.contains_key(&Component::ControlPlaneOperator) =>
        {
            Err(CommandError::invalid_input(
                "`infra.workloadIdentitiesFile` has no `controlPlaneOperator`, which creates the private endpoint",
            )
            .with_hint("create the identities with `lanyard create iam azure`"))
        }
        _ => Ok(()),
    }
}

pub(in crate::commands) fn read_file<T>(
    path: &Path,
    parse: impl Fn(&str) -> Result<(T, Vec<LintNote>), lanyard_infra::IdentityFileError>,
) -> Result<(T, Vec<LintNote>), CommandError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        CommandError::invalid_input(format!("{shown} cannot be read")).with_cause(&error)
    })?;
    parse(&text).map_err(|error| CommandError::invalid_input(shown.to_string()).with_cause(&error))
}

pub(in crate::commands) fn lint_findings(
    path: &Path,
    notes: &[LintNote],
) -> impl Iterator<Item = PreflightFinding> {
    notes.iter().map(move |note| {
        let message = format!("{}: {note}", path.display());
        PreflightFinding::warning("identity files", message, "correct the file")
    })
}

/// What the role assignments of a cluster are made from.
struct RoleInputs<'a> {
    roles: &'a RoleConfiguration,
    iam: Option<&'a IamConfiguration>,
    identities: Option<&'a ClusterIdentities>,
    zone: &'a ArmResourceId,
    private_endpoint: bool,
}

impl RoleInputs<'_> {
    async fn parameters(&self, account: &AzureAccount) -> Result<RoleParameters, CommandError> {
        let principals = match self.identities {
            Some(identities) => look_up_principals(account, identities).await?,
            None => self.created_principals(),
        };
        let has = |component| principals.contains_key(&RoleIdentity::ControlPlane(component));
        let options = RoleOptions {
            image_registry: self.roles.image_registry,
            control_plane_operator: has(Component::ControlPlaneOperator),
            private_endpoint: self.private_endpoint,
            encryption_key: self.roles.encryption_key.is_some() && has(Component::Kms),
            ..RoleOptions::new(
                self.roles.profile,
                principals.keys().any(|it| matches!(it, RoleIdentity::DataPlane(_))),
            )
        };
        Ok(RoleParameters {
            options,
            principals,
            dns_group: Some(self.dns_group()?),
            dns_zone: Some(self.zone.clone()),
            encryption_key: self.roles.encryption_key.clone(),
        })
    }

    /// The resource group of the public zone. Its name is a parameter for compatibility with HyperShift.
    fn dns_group(&self) -> Result<ArmResourceId, CommandError> {
        let (zone, named) = (self.zone, &self.roles.dns_group);
        let group = zone.resource_group().unwrap_or_default();
        if !group.eq_ignore_ascii_case(named) {
            return Err(CommandError::invalid_input(format!(
                "`infra.dnsZoneResourceGroupName`: the zone is in the group `{group}`, not in `{named}`: {zone}"
            ))
            .with_hint("name the group of the zone, or the zone with --public-zone-id"));
        }
        let id = format!("/subscriptions/{}/resourceGroups/{named}", zone.subscription());
        id.parse().map_err(|error: lanyard_vocabulary::ParseArmResourceIdError| {
            CommandError::invalid_input("`infra.dnsZoneResourceGroupName`").with_cause(&error)
        })
    }

    fn created_principals(&self) -> BTreeMap<RoleIdentity, PrincipalReference> {
        let with_kms = self.iam.is_some_and(|iam| iam.with_kms);
        let components = workload_identities(with_kms).map(|it| it.component);
        let reference = |component| PrincipalReference::identity(identity_key(component));
        components.map(|it| (RoleIdentity::ControlPlane(it), reference(it))).collect()
    }
}

async fn look_up_principals(
    account: &AzureAccount,
    identities: &ClusterIdentities,
) -> Result<BTreeMap<RoleIdentity, PrincipalReference>, CommandError> {
    let ids: Vec<(RoleIdentity, EntraClientId)> = match identities {
        ClusterIdentities::Workload(identities) => identities.client_ids().collect(),
        ClusterIdentities::Managed { control_plane, data_plane } => {
            let workers = data_plane.iter().flat_map(DataPlaneIdentities::client_ids);
            control_plane.client_ids().chain(workers).collect()
        }
    };
    let client_ids: Vec<_> = ids.iter().map(|(_, id)| *id).collect();
    let graph = account.graph();
    let found = find_principals(&account.arm, &graph, &account.subscription, &client_ids).await;
    let found = found.map_err(|error| {
        CommandError::unavailable(format_error_chain(&error)).with_hint_of(&error)
    })?;
    let principals = ids.into_iter().filter_map(|(identity, id)| {
        Some((identity, PrincipalReference::ObjectId(*found.get(&id)?)))
    });
    Ok(principals.collect())
}
