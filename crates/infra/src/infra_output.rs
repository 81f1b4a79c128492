//! The output file of `create infra azure`, which `create cluster azure --infra-json` reads.

use lanyard_vocabulary::{ArmResourceId, Component, EntraClientId};
use serde_json::{Map, Value, json};

use crate::identity_files::{ControlPlaneIdentities, DataPlaneIdentities, WorkloadIdentities};
use crate::infra_graph::{InfraIds, InfraParameters};
use crate::workload_identities::DataPlaneIdentity;

/// The identities of a cluster as its infrastructure output contains them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterIdentities {
    /// An ARO HCP cluster.
    Managed {
        /// The control plane.
        control_plane: ControlPlaneIdentities,
        /// The worker nodes.
        data_plane: Option<DataPlaneIdentities>,
    },
    /// A self-managed cluster.
    Workload(WorkloadIdentities),
}

/// The infrastructure output as YAML with sorted keys, as HyperShift writes it.
///
/// `bootImageID` is always empty: HyperShift no longer uploads boot images, but keeps the field. `natSubnetID` is
/// the named subnet; HyperShift's code never sets this field.
pub fn infra_output(
    parameters: &InfraParameters,
    public_zone: &ArmResourceId,
    identities: Option<&ClusterIdentities>,
) -> String {
    let document = infra_document(parameters, public_zone, identities);
    // Ids stay on one line, as in Go's YAML.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&document, options).unwrap_or_default()
}

fn infra_document(
    parameters: &InfraParameters,
    public_zone: &ArmResourceId,
    identities: Option<&ClusterIdentities>,
) -> Value {
    let ids = InfraIds::new(parameters);
    let mut document = json!({
        "baseDomain": parameters.base_domain,
        "bootImageID": "",
        "controlPlaneMIs": null,
        "dataPlaneIdentities": data_plane_document(None),
        "infraID": parameters.identifiers.infra_id().to_string(),
        "privateZoneID": ids.private_zone.as_str(),
        "publicZoneID": public_zone.as_str(),
        "region": parameters.location,
        "resourceGroupName": ids.main_group.name(),
        "securityGroupID": ids.security_group.as_str(),
        "subnetID": ids.subnet.as_ref().map_or("", ArmResourceId::as_str),
        "vnetID": ids.vnet.as_str(),
        "workloadIdentities": null,
    });
    if let Some(subnet) = &parameters.nat_subnet {
        document["natSubnetID"] = subnet.as_str().into();
    }
    match identities {
        None => {}
        Some(ClusterIdentities::Managed { control_plane, data_plane }) => {
            let inner: Value = serde_json::from_str(&control_plane.to_json()).unwrap_or_default();
            let workers = data_plane_document(data_plane.as_ref());
            document["dataPlaneIdentities"] = workers.clone();
            document["controlPlaneMIs"] = json!({ "controlPlane": inner, "dataPlane": workers });
        }
        Some(ClusterIdentities::Workload(identities)) => {
            let entry = |(component, id): (&Component, &EntraClientId)| {
                (component.name().to_owned(), json!({ "clientID": id.to_string() }))
            };
            let components = identities.0.iter().filter(|(it, _)| **it != Component::Kms);
            document["workloadIdentities"] = Value::Object(components.map(entry).collect());
            if let Some(kms) = identities.0.get(&Component::Kms) {
                document["kmsClientID"] = kms.to_string().into();
            }
        }
    }
    document
}

fn data_plane_document(identities: Option<&DataPlaneIdentities>) -> Value {
    let entry = |identity: DataPlaneIdentity| {
        let id = identities.and_then(|identities| identities.0.get(&identity));
        (identity.field().to_owned(), id.map(ToString::to_string).unwrap_or_default().into())
    };
    DataPlaneIdentity::ALL.map(entry).into_iter().collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {

    use super::*;

    use crate::tests::infra_parameters;

    const ZONE: &str =
        "/subscriptions/s/resourceGroups/dns/providers/Microsoft.Network/dnsZones/example.com";

    #[test]
    fn output_of_a_private_topology_names_the_nat_subnet() {
        let subnet = "/subscriptions/m/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/nat";
        let private = InfraParameters { nat_subnet: subnet.parse().ok(), ..infra_parameters() };
        let text = infra_output(&private, &ZONE.parse().unwrap(), None);
        let line = text.lines().find(|line| line.starts_with("natSubnetID: ")).unwrap();
        assert_eq!(line, format!("natSubnetID: {subnet}"));
        assert!(
            !infra_output(&infra_parameters(), &ZONE.parse().unwrap(), None)
                .contains("natSubnetID")
        );
    }

    #[test]
    fn output_has_sorted_keys_and_the_nulls_of_hypershift() {
        let zone = ZONE;
        let kms = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let identities =
            ClusterIdentities::Workload(WorkloadIdentities([(Component::Kms, kms)].into()));
        let text = infra_output(&infra_parameters(), &zone.parse().unwrap(), Some(&identities));
        let networks = "/providers/Microsoft.Network";
        assert_eq!(
            text,
            format!(
                "baseDomain: example.com
bootImageID: \"\"
controlPlaneMIs: null
dataPlaneIdentities:
  diskMSIClientID: \"\"
  fileMSIClientID: \"\"
  imageRegistryMSIClientID: \"\"
infraID: harbour-x
kmsClientID: 00000000-0000-0000-0000-000000000001
privateZoneID: /subscriptions/s/resourceGroups/harbour-harbour-x{networks}/privateDnsZones/harbour.example.com
publicZoneID: {zone}
region: eastus
resourceGroupName: harbour-harbour-x
securityGroupID: /subscriptions/s/resourceGroups/harbour-nsg-harbour-x{networks}/networkSecurityGroups/harbour-harbour-x-nsg
subnetID: /subscriptions/s/resourceGroups/harbour-vnet-harbour-x{networks}/virtualNetworks/harbour-harbour-x/subnets/default
vnetID: /subscriptions/s/resourceGroups/harbour-vnet-harbour-x{networks}/virtualNetworks/harbour-harbour-x
workloadIdentities: {{}}
"
            )
        );
    }
}
