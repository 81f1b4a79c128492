//! Reads the output file of `create infra azure` (`create cluster azure --infra-json`).

use lanyard_vocabulary::{ArmResourceId, InfraId};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cluster_identifiers::BaseDomain;
use crate::identity_files::{
    ControlPlaneIdentities, DataPlaneIdentities, FieldReader, IdentityFileError, LintNote,
    WorkloadIdentities, parse_text,
};
use crate::infra_output::ClusterIdentities;

/// The content of the infrastructure output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfraOutput {
    /// The base domain.
    pub base_domain: BaseDomain,
    /// The infrastructure id.
    pub infra_id: InfraId,
    /// The region.
    pub location: String,
    /// The name of the resource group of machines, load balancer and private DNS zone.
    pub resource_group: String,
    /// The public DNS zone of the base domain.
    pub public_zone: ArmResourceId,
    /// The private DNS zone of the cluster.
    pub private_zone: ArmResourceId,
    /// The virtual network.
    pub vnet: ArmResourceId,
    /// The subnet of the nodes.
    pub subnet: ArmResourceId,
    /// The network security group.
    pub security_group: ArmResourceId,
    /// The subnet for the network address translation of a private link service.
    pub nat_subnet: Option<ArmResourceId>,
    /// The boot image of the machines, which only earlier versions of HyperShift upload.
    pub boot_image: Option<String>,
    /// The identities of the cluster.
    pub identities: Option<ClusterIdentities>,
}

#[derive(Deserialize)]
struct RawInfraOutput {
    #[serde(rename = "baseDomain")]
    base_domain: Option<String>,
    #[serde(rename = "infraID")]
    infra_id: Option<String>,
    region: Option<String>,
    #[serde(rename = "resourceGroupName")]
    resource_group: Option<String>,
    #[serde(rename = "publicZoneID")]
    public_zone: Option<String>,
    #[serde(rename = "privateZoneID")]
    private_zone: Option<String>,
    #[serde(rename = "vnetID")]
    vnet: Option<String>,
    #[serde(rename = "subnetID")]
    subnet: Option<String>,
    #[serde(rename = "securityGroupID")]
    security_group: Option<String>,
    #[serde(rename = "natSubnetID")]
    nat_subnet: Option<String>,
    #[serde(rename = "bootImageID")]
    boot_image: Option<String>,
    #[serde(rename = "controlPlaneMIs")]
    control_plane: Option<Map<String, Value>>,
    #[serde(rename = "dataPlaneIdentities")]
    data_plane: Option<Map<String, Value>>,
    #[serde(rename = "workloadIdentities")]
    workload: Option<Map<String, Value>>,
    #[serde(rename = "kmsClientID")]
    kms: Option<String>,
}

impl InfraOutput {
    /// Parses YAML or JSON. Unknown fields are ignored.
    ///
    /// # Errors
    ///
    /// [`IdentityFileError`] names every field with a problem.
    pub fn parse(text: &str) -> Result<(Self, Vec<LintNote>), IdentityFileError> {
        let mut raw: RawInfraOutput = parse_text(text)?;
        let mut fields = FieldReader::default();
        let identities = fields.read_cluster_identities(&mut raw);
        let nat_subnet = fields.parse("natSubnetID", given(raw.nat_subnet));
        let output = (|| {
            let base_domain = fields.require("baseDomain", given(raw.base_domain));
            let infra_id = fields.require("infraID", given(raw.infra_id));
            let location = fields.require("region", given(raw.region));
            let resource_group = fields.require("resourceGroupName", given(raw.resource_group));
            let public_zone = fields.require("publicZoneID", given(raw.public_zone));
            let private_zone = fields.require("privateZoneID", given(raw.private_zone));
            let vnet = fields.require("vnetID", given(raw.vnet));
            let subnet = fields.require("subnetID", given(raw.subnet));
            let security_group = fields.require("securityGroupID", given(raw.security_group));
            Some(Self {
                base_domain: base_domain?,
                infra_id: infra_id?,
                location: location?,
                resource_group: resource_group?,
                public_zone: public_zone?,
                private_zone: private_zone?,
                vnet: vnet?,
                subnet: subnet?,
                security_group: security_group?,
                nat_subnet,
                boot_image: given(raw.boot_image),
                identities,
            })
        })();
        match output {
            Some(output) if fields.problems.is_empty() => Ok((output, fields.notes)),
            _ => Err(IdentityFileError::Fields(fields.problems)),
        }
    }
}

/// HyperShift writes an empty text for an absent value.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl FieldReader {
    fn read_cluster_identities(&mut self, raw: &mut RawInfraOutput) -> Option<ClusterIdentities> {
        match (raw.control_plane.take(), raw.workload.take()) {
            (Some(_), Some(_)) => {
                self.problem(
                    "workloadIdentities",
                    "excludes `controlPlaneMIs`; a cluster has identities of one kind",
                );
                None
            }
            (Some(managed), None) => self.read_managed(managed, raw.data_plane.take()),
            (None, Some(mut workload)) => {
                let kms = given(raw.kms.take());
                workload.extend(kms.map(|id| ("kmsClientID".to_owned(), id.into())));
                let parsed = WorkloadIdentities::parse(&Value::Object(workload).to_string());
                let (identities, notes) = self.part("workloadIdentities", parsed)?;
                self.notes.extend(notes);
                Some(ClusterIdentities::Workload(identities))
            }
            (None, None) => None,
        }
    }

    fn read_managed(
        &mut self,
        mut managed: Map<String, Value>,
        data_plane: Option<Map<String, Value>>,
    ) -> Option<ClusterIdentities> {
        let wrapped = managed.remove("dataPlane").and_then(|value| match value {
            Value::Object(ids) => Some(ids),
            _ => None,
        });
        let inner = managed.remove("controlPlane").unwrap_or_default();
        let parsed = ControlPlaneIdentities::parse(&inner.to_string());
        let (control_plane, _, _) = self.part("controlPlaneMIs.controlPlane", parsed)?;
        // HyperShift writes empty ids if it was not given a file.
        let is_given = |ids: &Map<String, Value>| ids.values().any(|id| id.as_str() != Some(""));
        let data_plane = match data_plane.into_iter().chain(wrapped).find(is_given) {
            None => None,
            Some(ids) => {
                let parsed = DataPlaneIdentities::parse(&Value::Object(ids).to_string());
                Some(self.part("dataPlaneIdentities", parsed)?.0)
            }
        };
        Some(ClusterIdentities::Managed { control_plane, data_plane })
    }

    /// The result of a nested document; its problems become problems of the field.
    fn part<T>(&mut self, field: &str, parsed: Result<T, IdentityFileError>) -> Option<T> {
        match parsed {
            Ok(value) => Some(value),
            Err(IdentityFileError::Syntax(text)) => {
                self.problem(field, format!("is invalid: {text}"));
                None
            }
            Err(IdentityFileError::Fields(problems)) => {
                for problem in problems {
                    self.problem(&format!("{field}.{}", problem.field), problem.problem);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";

    fn output(rest: &str) -> String {
        format!(
            "baseDomain: example.com
bootImageID: \"\"
infraID: harbour-x
privateZoneID: {NETWORK}/privateDnsZones/harbour.example.com
publicZoneID: {NETWORK}/dnsZones/example.com
region: eastus
resourceGroupName: g
securityGroupID: {NETWORK}/networkSecurityGroups/nsg
subnetID: {NETWORK}/virtualNetworks/vnet/subnets/default
vnetID: {NETWORK}/virtualNetworks/vnet
{rest}"
        )
    }

    #[test]
    fn empty_fields_of_hypershift_count_as_absent() {
        let rest = "controlPlaneMIs: null\nworkloadIdentities: null\nkmsClientID: \"\"\nnatSubnetID: \"\"\n";
        let (output, notes) = InfraOutput::parse(&output(rest)).unwrap();
        assert!(output.identities.is_none() && output.boot_image.is_none() && notes.is_empty());
        assert_eq!(output.nat_subnet, None);
        assert_eq!(output.subnet.name(), "default");
    }

    #[test]
    fn every_missing_or_invalid_field_is_named() {
        let text =
            output("").replace("region: eastus\n", "").replace("example.com\nboot", "x\nboot");
        let text = format!("{text}natSubnetID: nat\nworkloadIdentities: {{disk: {{clientID: x}}}}");
        let IdentityFileError::Fields(problems) = InfraOutput::parse(&text).unwrap_err() else {
            panic!("syntax error");
        };
        let fields: Vec<_> = problems.iter().map(|it| it.field.as_str()).collect();
        for field in ["baseDomain", "region", "natSubnetID", "workloadIdentities.disk.clientID"] {
            assert!(fields.contains(&field), "{field}: {fields:?}");
        }
    }

    #[test]
    fn json_is_read_as_yaml_is() {
        let value: Value = serde_saphyr::from_str(&output("")).unwrap();
        assert_eq!(InfraOutput::parse(&value.to_string()), InfraOutput::parse(&output("")));
    }
}
