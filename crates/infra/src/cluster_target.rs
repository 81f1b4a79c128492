//! The desired resources of one cluster: the configuration with everything that must be looked up in Azure.

use std::collections::BTreeMap;

use lanyard_changes::{
    AzureGraph, FindingSeverity, JournalTarget, LiveState, PreflightFinding, PrincipalReference,
    RecordedStacks, RunReport, StackTarget,
};
use lanyard_vocabulary::{ArmResourceId, Component, EntraClientId};

use crate::azure_subscription::AzureSubscription;
use crate::cluster_configuration::{ClusterConfiguration, IamConfiguration, RoleConfiguration};
use crate::cluster_target_error::ClusterTargetError;
use crate::existing_network::{check_live_network, check_network_ids};
use crate::iam_graph::{iam_resources, identity_key};
use crate::identity_files::{DataPlaneIdentities, WorkloadIdentities};
use crate::identity_source::read_identities;
use crate::infra_graph::{InfraParameters, LegacyNames, infra_resources};
use crate::infra_output::{ClusterIdentities, infra_output};
use crate::principal_lookup::find_principals;
use crate::public_zone::find_public_zone;
use crate::role_assignments::{RoleIdentity, RoleOptions};
use crate::role_graph::{RoleParameters, role_resources};
use crate::stacks;
use crate::workload_identities::workload_identities;

/// The desired resources of one cluster, with the subscription in which they are created.
#[derive(Debug)]
pub struct ClusterTarget<'a> {
    /// The resources of the stacks `infra` and `iam`, as far as they are configured.
    pub stack: StackTarget<AzureSubscription>,
    configuration: &'a ClusterConfiguration,
    /// The parameters of the stack `infra`, if it is a part of the target.
    pub infra: Option<InfraParameters>,
    max_nodes: Option<u32>,
    public_zone: Option<ArmResourceId>,
    identities: Option<ClusterIdentities>,
    /// What is unusual in the identity files.
    file_findings: Vec<PreflightFinding>,
}

impl<'a> ClusterTarget<'a> {
    /// Reads the identity files, and looks up the public zone and the principals. Sends GET requests only.
    ///
    /// # Errors
    ///
    /// [`ClusterTargetError`].
    pub async fn resolve(
        subscription: AzureSubscription,
        configuration: &'a ClusterConfiguration,
        journal: JournalTarget,
        names: LegacyNames,
    ) -> Result<Self, ClusterTargetError> {
        let identifiers = &configuration.identifiers;
        let mut resources = Vec::new();
        if let Some(iam) = &configuration.iam {
            resources.extend(iam_resources(&configuration.iam_parameters(iam, &subscription.id)));
        }
        let (mut infra, mut public_zone, mut identities) = (None, None, None);
        let mut file_findings = Vec::new();
        if let Some(part) = &configuration.infra {
            let parameters = configuration.infra_parameters(part, &subscription.id, names);
            check_ids(&parameters)?;
            identities = read_identities(&part.identities, &mut file_findings)?;
            if parameters.nat_subnet.is_some() {
                require_operator_identity(identities.as_ref())?;
            }
            let zone = if let Some(zone) = &part.public_zone {
                zone.clone()
            } else {
                let domain = part.base_domain.as_str();
                find_public_zone(&subscription.access.arm, &subscription.id, domain).await?
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
                let roles = parts.parameters(&subscription).await?;
                resources.extend(role_resources(&parameters, &roles)?);
            }
            (infra, public_zone) = (Some(parameters), Some(zone));
        }
        let stack = StackTarget {
            rules: subscription,
            journal,
            graph: AzureGraph::new(resources)?,
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
    ///
    /// # Errors
    ///
    /// [`ClusterTargetError`].
    pub async fn load(
        subscription: AzureSubscription,
        configuration: &'a ClusterConfiguration,
        journal: JournalTarget,
    ) -> Result<Self, ClusterTargetError> {
        let recorded = journal.read().await?.unwrap_or_default();
        let names = configuration.infra.as_ref().map(|infra| {
            let domain = infra.base_domain.as_str();
            LegacyNames::recorded(&recorded, &configuration.identifiers, domain)
        });
        Self::resolve(subscription, configuration, journal, names.unwrap_or_default()).await
    }

    /// Checks the identity files and the live network of the user.
    pub fn check_live(&self, live: &LiveState) -> Vec<PreflightFinding> {
        let infra = self.infra.iter();
        let network = infra.flat_map(|infra| check_live_network(infra, live, self.max_nodes));
        self.file_findings.iter().cloned().chain(network).collect()
    }

    /// The infrastructure output with the identities of the identity files, or the `created` ones; `None` without the
    /// stack `infra`. It does not depend on whether the resources exist.
    pub fn infra_output(&self, created: Option<WorkloadIdentities>) -> Option<String> {
        let (parameters, zone) = (self.infra.as_ref()?, self.public_zone.as_ref()?);
        let created = created.map(ClusterIdentities::Workload);
        Some(infra_output(parameters, zone, self.identities.as_ref().or(created.as_ref())))
    }

    /// The workload identities file of the identities that the stack `iam` created; `None` without that stack.
    pub fn created_identities(&self, report: &RunReport) -> Option<WorkloadIdentities> {
        let with_kms = self.configuration.iam.as_ref()?.with_kms;
        let ids = workload_identities(with_kms).filter_map(|it| {
            let live = report.live.get(&identity_key(it.component))?;
            let id = live.body.pointer("/properties/clientId")?.as_str()?;
            Some((it.component, id.parse().ok()?))
        });
        Some(WorkloadIdentities(ids.collect()))
    }
}

/// The recorded stacks of a configuration. Nothing is looked up in Azure.
pub fn recorded_stacks(
    subscription: AzureSubscription,
    configuration: &ClusterConfiguration,
    journal: JournalTarget,
) -> RecordedStacks<AzureSubscription> {
    let infra = configuration.infra.as_ref().map(|_| stacks::INFRA);
    let iam = configuration.iam.as_ref().map(|_| stacks::IAM);
    let tags = configuration.identifiers.ownership_tags();
    let stacks = infra.into_iter().chain(iam).collect();
    RecordedStacks { rules: subscription, journal, tags, stacks }
}

fn check_ids(parameters: &InfraParameters) -> Result<(), ClusterTargetError> {
    let findings = check_network_ids(parameters);
    let errors: Vec<_> =
        findings.iter().filter(|it| it.severity == FindingSeverity::Error).collect();
    let Some(first) = errors.first() else { return Ok(()) };
    let text: Vec<_> = errors.iter().map(|it| it.message.as_str()).collect();
    Err(ClusterTargetError::NetworkIds { message: text.join("\n"), hint: first.hint.clone() })
}

/// A cluster with a private endpoint needs the identity of the control plane operator, which creates the endpoint.
/// Other self-managed clusters may lack it.
fn require_operator_identity(
    identities: Option<&ClusterIdentities>,
) -> Result<(), ClusterTargetError> {
    match identities {
        Some(ClusterIdentities::Workload(identities))
            if !identities.0.contains_key(&Component::ControlPlaneOperator) =>
        {
            Err(ClusterTargetError::NoControlPlaneOperator)
        }
        _ => Ok(()),
    }
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
    async fn parameters(
        &self,
        subscription: &AzureSubscription,
    ) -> Result<RoleParameters, ClusterTargetError> {
        let principals = match self.identities {
            Some(identities) => look_up_principals(subscription, identities).await?,
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
    fn dns_group(&self) -> Result<ArmResourceId, ClusterTargetError> {
        let (zone, named) = (self.zone, &self.roles.dns_group);
        let group = zone.resource_group().unwrap_or_default();
        if !group.eq_ignore_ascii_case(named) {
            let (group, named, zone) = (group.to_owned(), named.clone(), zone.clone());
            return Err(ClusterTargetError::ZoneGroup { group, named, zone });
        }
        Ok(format!("/subscriptions/{}/resourceGroups/{named}", zone.subscription()).parse()?)
    }

    fn created_principals(&self) -> BTreeMap<RoleIdentity, PrincipalReference> {
        let with_kms = self.iam.is_some_and(|iam| iam.with_kms);
        let components = workload_identities(with_kms).map(|it| it.component);
        let reference = |component| PrincipalReference::identity(identity_key(component));
        components.map(|it| (RoleIdentity::ControlPlane(it), reference(it))).collect()
    }
}

async fn look_up_principals(
    AzureSubscription { id, access }: &AzureSubscription,
    identities: &ClusterIdentities,
) -> Result<BTreeMap<RoleIdentity, PrincipalReference>, ClusterTargetError> {
    let ids: Vec<(RoleIdentity, EntraClientId)> = match identities {
        ClusterIdentities::Workload(identities) => identities.client_ids().collect(),
        ClusterIdentities::Managed { control_plane, data_plane } => {
            let workers = data_plane.iter().flat_map(DataPlaneIdentities::client_ids);
            control_plane.client_ids().chain(workers).collect()
        }
    };
    let client_ids: Vec<_> = ids.iter().map(|(_, id)| *id).collect();
    let found = find_principals(&access.arm, &access.graph, id, &client_ids).await?;
    let principals = ids.into_iter().filter_map(|(identity, id)| {
        Some((identity, PrincipalReference::ObjectId(*found.get(&id)?)))
    });
    Ok(principals.collect())
}
