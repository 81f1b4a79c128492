//! The configuration of a cluster's infrastructure: a file of `lanyard plan|apply|import azure`, or the flags of
//! `lanyard create`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lanyard_azure::ResourceTags;
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, SubscriptionId, format_error_chain};
use serde::Deserialize;

use crate::azure_name_rules::RESOURCE_GROUP;
use crate::cluster_identifiers::{BaseDomain, ClusterIdentifiers};
use crate::iam_graph::IamParameters;
use crate::identity_source::IdentitySource;
use crate::infra_graph::{ExistingNetwork, InfraParameters, LegacyNames};
use crate::manifests::EndpointAccess;
use crate::role_assignments::RoleProfile;

/// The default region of HyperShift's commands.
pub const DEFAULT_LOCATION: &str = "eastus";

/// The file of `--filename`, and the values of flags. Names and ids are text, so that every problem with them is reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawConfiguration {
    pub name: Option<String>,
    #[serde(alias = "infraID")]
    pub infra_id: Option<String>,
    pub location: Option<String>,
    pub infra: Option<RawInfra>,
    pub iam: Option<RawIam>,
}

/// The part of the configuration for `create infra azure`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawInfra {
    pub base_domain: Option<String>,
    #[serde(default)]
    pub resource_group_name: Option<String>,
    #[serde(default)]
    pub resource_group_tags: BTreeMap<String, String>,
    #[serde(alias = "vnetID")]
    pub vnet_id: Option<String>,
    #[serde(alias = "subnetID")]
    pub subnet_id: Option<String>,
    #[serde(alias = "networkSecurityGroupID")]
    pub network_security_group_id: Option<String>,
    pub endpoint_access: Option<String>,
    #[serde(alias = "endpointAccessPrivateNatSubnetID")]
    pub endpoint_access_private_nat_subnet_id: Option<String>,
    #[serde(alias = "publicZoneID")]
    pub public_zone_id: Option<String>,
    pub workload_identities_file: Option<PathBuf>,
    pub managed_identities_file: Option<PathBuf>,
    pub data_plane_identities_file: Option<PathBuf>,
    #[serde(default)]
    pub assign_identity_roles: bool,
    pub role_profile: Option<RoleProfile>,
    pub dns_zone_resource_group_name: Option<String>,
    #[serde(alias = "encryptionKeyResourceID")]
    pub encryption_key_resource_id: Option<String>,
    #[serde(default)]
    pub disable_cluster_capabilities: Vec<String>,
    pub max_nodes: Option<u32>,
}

/// The part of the configuration for `create iam azure`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawIam {
    pub resource_group_name: Option<String>,
    #[serde(alias = "oidcIssuerURL")]
    pub oidc_issuer_url: Option<String>,
    #[serde(default, alias = "enableKMS")]
    pub enable_kms: bool,
}

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct ClusterConfiguration {
    pub identifiers: ClusterIdentifiers,
    pub location: String,
    pub infra: Option<InfraConfiguration>,
    pub iam: Option<IamConfiguration>,
}

/// The valid configuration of the stack `infra`.
#[derive(Debug, Clone)]
pub struct InfraConfiguration {
    pub base_domain: BaseDomain,
    resource_group: Option<String>,
    group_tags: ResourceTags,
    security_group: Option<ArmResourceId>,
    network: Option<ExistingNetwork>,
    nat_subnet: Option<ArmResourceId>,
    pub public_zone: Option<ArmResourceId>,
    pub identities: IdentitySource,
    pub roles: Option<RoleConfiguration>,
    pub max_nodes: Option<u32>,
}

/// Which roles the identities of the cluster get.
#[derive(Debug, Clone)]
pub struct RoleConfiguration {
    pub profile: RoleProfile,
    pub dns_group: String,
    pub image_registry: bool,
    pub encryption_key: Option<ArmResourceId>,
}

/// The valid configuration of the stack `iam`.
#[derive(Debug, Clone)]
pub struct IamConfiguration {
    resource_group: String,
    issuer: String,
    pub with_kms: bool,
}

impl RawConfiguration {
    /// Reads a configuration file. Relative paths of identity files are relative to its directory.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError`] if the file cannot be read, or has other fields.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let named = || path.to_owned();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigurationError::Unreadable { path: named(), source })?;
        let mut raw: Self = serde_saphyr::from_str(&text).map_err(|source| {
            ConfigurationError::Malformed { path: named(), source: source.into() }
        })?;
        let directory = path.parent().unwrap_or(Path::new("."));
        if let Some(infra) = &mut raw.infra {
            for file in [
                &mut infra.workload_identities_file,
                &mut infra.managed_identities_file,
                &mut infra.data_plane_identities_file,
            ] {
                *file = file.take().map(|file| directory.join(file));
            }
        }
        Ok(raw)
    }

    /// Checks all values.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError::Values`], which names every field with a problem.
    pub fn parse(self) -> Result<ClusterConfiguration, ConfigurationError> {
        let mut problems = ProblemList::default();
        let name = problems.require("name", self.name);
        let infra_id = problems.require("infraId", self.infra_id);
        let identifiers = name.zip(infra_id).and_then(|(name, infra_id)| {
            problems.check("infraId", ClusterIdentifiers::new(name, infra_id))
        });
        if self.infra.is_none() && self.iam.is_none() {
            problems.add("infra", "is missing; give `infra`, `iam` or both");
        }
        let has_iam = self.iam.is_some();
        // A part that cannot be parsed adds a problem.
        let infra = self.infra.and_then(|infra| infra.parse(&mut problems, has_iam));
        let iam = self.iam.and_then(|iam| iam.parse(&mut problems));
        let location = self.location.unwrap_or_else(|| DEFAULT_LOCATION.to_owned());
        let is_region = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if location.is_empty() || !location.chars().all(is_region) {
            problems.add("location", "is not the name of a region, such as `eastus`");
        }
        match identifiers {
            Some(identifiers) if problems.0.is_empty() => {
                Ok(ClusterConfiguration { identifiers, location, infra, iam })
            }
            _ => Err(ConfigurationError::Values(problems.0)),
        }
    }
}

impl RawInfra {
    /// `None` if a required value is missing or invalid.
    fn parse(self, problems: &mut ProblemList, has_iam: bool) -> Option<InfraConfiguration> {
        let identities = self.identity_source(problems, has_iam);
        let base_domain = problems.require("infra.baseDomain", self.base_domain.clone());
        if let Some(group) = &self.resource_group_name {
            problems.check("infra.resourceGroupName", RESOURCE_GROUP.check(group));
        }
        let security_group = problems
            .optional("infra.networkSecurityGroupId", self.network_security_group_id.clone());
        let vnet = problems.optional("infra.vnetId", self.vnet_id.clone());
        let subnet = problems.optional("infra.subnetId", self.subnet_id.clone());
        if subnet.is_some() && self.vnet_id.is_none() {
            problems.add(
                "infra.vnetId",
                "is missing; `subnetId` needs the virtual network of the subnet",
            );
        }
        let network = vnet.map(|vnet| ExistingNetwork { vnet, subnet });
        let nat_subnet = self.nat_subnet(problems);
        let public_zone = problems.optional("infra.publicZoneId", self.public_zone_id.clone());
        let roles = self.roles(problems);
        let resource_group = self.resource_group_name;
        let group_tags = self.resource_group_tags.into_iter().collect();
        Some(InfraConfiguration {
            base_domain: base_domain?,
            resource_group,
            group_tags,
            security_group,
            network,
            nat_subnet,
            public_zone,
            identities: identities?,
            roles,
            max_nodes: self.max_nodes,
        })
    }

    /// The subnet of the private link service. The service uses the internal load balancer of the management
    /// cluster, so no command creates the subnet.
    fn nat_subnet(&self, problems: &mut ProblemList) -> Option<ArmResourceId> {
        const FIELD: &str = "infra.endpointAccessPrivateNatSubnetId";
        let given = self.endpoint_access_private_nat_subnet_id.clone();
        let access: Option<EndpointAccess> =
            problems.optional("infra.endpointAccess", self.endpoint_access.clone());
        let is_private = access.is_some_and(EndpointAccess::is_private);
        let problem = match given {
            Some(text) if is_private => return problems.check(FIELD, text.parse()),
            None if !is_private => return None,
            Some(_) => "has no effect without `endpointAccess: Private` or `PublicAndPrivate`",
            None => {
                "is missing; name a subnet for the private link service of the API server, in the virtual network of the management cluster, with network policies for private link services disabled"
            }
        };
        problems.add(FIELD, problem);
        None
    }

    fn identity_source(&self, problems: &mut ProblemList, has_iam: bool) -> Option<IdentitySource> {
        let control_plane = self.managed_identities_file.clone();
        let data_plane = self.data_plane_identities_file.clone();
        let has_managed = control_plane.is_some() || data_plane.is_some();
        match (&self.workload_identities_file, has_managed) {
            (Some(_), true) => {
                problems.add(
                    "infra.workloadIdentitiesFile",
                    "excludes the files of managed identities; a cluster has identities of one kind",
                );
                None
            }
            (Some(file), false) => Some(IdentitySource::WorkloadFile(file.clone())),
            (None, true) => Some(IdentitySource::ManagedFiles { control_plane, data_plane }),
            (None, false) if has_iam => Some(IdentitySource::Created),
            (None, false) => {
                problems.add(
                    "infra.workloadIdentitiesFile",
                    "is missing; create the identities with `lanyard create iam azure`, or name the files of an ARO HCP cluster",
                );
                None
            }
        }
    }

    fn roles(&self, problems: &mut ProblemList) -> Option<RoleConfiguration> {
        const IMAGE_REGISTRY: &str = "ImageRegistry";
        for capability in &self.disable_cluster_capabilities {
            if capability != IMAGE_REGISTRY {
                let text = format!("`{capability}` cannot be disabled; known: `{IMAGE_REGISTRY}`");
                problems.add("infra.disableClusterCapabilities", &text);
            }
        }
        let encryption_key = problems
            .optional("infra.encryptionKeyResourceId", self.encryption_key_resource_id.clone());
        if !self.assign_identity_roles {
            if self.role_profile.is_some_and(|profile| profile != RoleProfile::Hypershift) {
                problems.add("infra.roleProfile", "has no effect without `assignIdentityRoles`");
            }
            return None;
        }
        let dns_group = self.dns_zone_resource_group_name.as_deref().unwrap_or_default().trim();
        if dns_group.is_empty() {
            problems.add(
                "infra.dnsZoneResourceGroupName",
                "is missing; role assignments need the group of the public DNS zone",
            );
        }
        Some(RoleConfiguration {
            profile: self.role_profile.unwrap_or_default(),
            dns_group: dns_group.to_owned(),
            image_registry: self.disable_cluster_capabilities.is_empty(),
            encryption_key,
        })
    }
}

impl RawIam {
    fn parse(self, problems: &mut ProblemList) -> Option<IamConfiguration> {
        let resource_group: Option<String> =
            problems.require("iam.resourceGroupName", self.resource_group_name);
        if let Some(group) = &resource_group {
            problems.check("iam.resourceGroupName", RESOURCE_GROUP.check(group));
        }
        let issuer: Option<String> = problems.require("iam.oidcIssuerUrl", self.oidc_issuer_url);
        if let Some(issuer) = &issuer {
            let parsed = issuer.parse::<lanyard_federation::IssuerUrl>();
            problems.check("iam.oidcIssuerUrl", parsed);
        }
        let with_kms = self.enable_kms;
        let (resource_group, issuer) = (resource_group?, issuer?);
        Some(IamConfiguration { resource_group, issuer, with_kms })
    }
}

impl ClusterConfiguration {
    /// The parameters of the stack `infra`.
    pub fn infra_parameters(
        &self,
        infra: &InfraConfiguration,
        subscription: &SubscriptionId,
        legacy_names: LegacyNames,
    ) -> InfraParameters {
        InfraParameters {
            subscription: subscription.clone(),
            identifiers: self.identifiers.clone(),
            location: self.location.clone(),
            base_domain: infra.base_domain.to_string(),
            resource_group: infra.resource_group.clone(),
            group_tags: infra.group_tags.clone(),
            security_group: infra.security_group.clone(),
            network: infra.network.clone(),
            nat_subnet: infra.nat_subnet.clone(),
            legacy_names,
        }
    }

    /// The parameters of the stack `iam`.
    pub fn iam_parameters(
        &self,
        iam: &IamConfiguration,
        subscription: &SubscriptionId,
    ) -> IamParameters {
        IamParameters {
            subscription: subscription.clone(),
            identifiers: self.identifiers.clone(),
            location: self.location.clone(),
            resource_group: iam.resource_group.clone(),
            issuer: iam.issuer.clone(),
            with_kms: iam.with_kms,
        }
    }
}

/// A configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no YAML document with the fields of a configuration.
    #[error("{} is not a configuration", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<serde_saphyr::Error>,
    },
    /// Fields have problems, one text each.
    #[error("{}", .0.join("\n"))]
    Values(Vec<String>),
}

impl ErrorHint for ConfigurationError {
    fn is_invalid_input(&self) -> bool {
        true
    }
}

/// The problems of a configuration.
#[derive(Default)]
struct ProblemList(Vec<String>);

impl ProblemList {
    fn add(&mut self, field: &str, problem: &str) {
        self.0.push(format!("`{field}` {problem}"));
    }

    fn check<T, E: std::error::Error>(&mut self, field: &str, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.push(format!("`{field}`: {}", format_error_chain(&error)));
                None
            }
        }
    }

    fn optional<T: std::str::FromStr<Err: std::error::Error>>(
        &mut self,
        field: &str,
        text: Option<String>,
    ) -> Option<T> {
        self.check(field, text?.parse())
    }

    fn require<T: std::str::FromStr<Err: std::error::Error>>(
        &mut self,
        field: &str,
        text: Option<String>,
    ) -> Option<T> {
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
            self.add(field, "is missing");
            return None;
        };
        self.check(field, text.parse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBNET: &str = "/subscriptions/m/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/nat";

    /// The subnet of the private link service, and the problems.
    fn nat_subnet(access: Option<&str>, subnet: Option<&str>) -> (Option<String>, Vec<String>) {
        let raw = RawInfra {
            endpoint_access: access.map(str::to_owned),
            endpoint_access_private_nat_subnet_id: subnet.map(str::to_owned),
            ..RawInfra::default()
        };
        let mut problems = ProblemList::default();
        let subnet = raw.nat_subnet(&mut problems);
        (subnet.map(|id| id.to_string()), problems.0)
    }

    #[test]
    fn private_endpoint_needs_a_subnet_and_a_public_one_has_none() {
        for access in [None, Some("Public")] {
            assert_eq!(nat_subnet(access, None), (None, Vec::new()));
            let (subnet, problems) = nat_subnet(access, Some(SUBNET));
            assert_eq!((subnet, problems.len()), (None, 1));
        }
        for access in ["Private", "PublicAndPrivate"] {
            let named = nat_subnet(Some(access), Some(SUBNET));
            assert_eq!(named, (Some(SUBNET.to_owned()), Vec::new()));
            let (subnet, problems) = nat_subnet(Some(access), None);
            assert_eq!((subnet, problems.len()), (None, 1));
            let problem = &problems[0];
            assert!(problem.contains("`infra.endpointAccessPrivateNatSubnetId` is missing"));
            assert!(problem.contains("in the virtual network of the management cluster"));
        }
        let (subnet, problems) = nat_subnet(Some("Private"), Some("nat"));
        assert_eq!((subnet, problems.len()), (None, 1));
    }
}
