//! Checks of a virtual network, subnet and network security group that the user brings.

use lanyard_changes::{LiveState, PreflightFinding, ResourceKey};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::infra_graph::InfraParameters;
use crate::sizing::check_size;

const CHECK: &str = "existing network";
const PRIVATE_LINK_CHECK: &str = "private link";

const SUBNET_TYPE: &str = "Microsoft.Network/virtualNetworks/subnets";

/// Checks the ids of existing resources before any request: each must have the right type, and the subnet must
/// be a child of the virtual network in the subscription of the cluster. The subnet of the private link service is
/// in the network of the management cluster, and so perhaps in another subscription.
pub(crate) fn check_network_ids(parameters: &InfraParameters) -> Vec<PreflightFinding> {
    let mut findings = Vec::new();
    let subscription = parameters.subscription.as_str();
    if let Some(id) = &parameters.nat_subnet {
        findings.extend(check_type("--endpoint-access-private-nat-subnet-id", id, SUBNET_TYPE));
    }
    let mut check = |flag: &str, id: &ArmResourceId, resource_type: &str| {
        if let Some(finding) = check_type(flag, id, resource_type) {
            findings.push(finding);
        } else if !id.subscription().eq_ignore_ascii_case(subscription) {
            findings.push(PreflightFinding::error(
                CHECK,
                format!("{flag}: `{id}` is not in the subscription `{subscription}`"),
                "use a resource of the cluster's subscription",
            ));
        }
    };
    if let Some(id) = &parameters.security_group {
        let resource_type = "Microsoft.Network/networkSecurityGroups";
        check("--network-security-group-id", id, resource_type);
    }
    if let Some(network) = &parameters.network {
        check("--vnet-id", &network.vnet, "Microsoft.Network/virtualNetworks");
        if let Some(subnet) = &network.subnet {
            check("--subnet-id", subnet, SUBNET_TYPE);
            if !network.vnet.contains(subnet) {
                findings.push(PreflightFinding::error(
                    CHECK,
                    format!("--subnet-id: `{subnet}` is not a subnet of `{}`", network.vnet),
                    "name a subnet of the virtual network",
                ));
            }
        }
    }
    findings
}

fn check_type(flag: &str, id: &ArmResourceId, resource_type: &str) -> Option<PreflightFinding> {
    let is_valid = id.has_type(resource_type) && id.resource_group().is_some();
    (!is_valid).then(|| {
        PreflightFinding::error(
            CHECK,
            format!("{flag}: `{id}` is not the id of a resource of type `{resource_type}`"),
            "copy the id from `az resource show`",
        )
    })
}

/// Checks the live network of the user: its region, the security group and the delegations of the subnet, and its
/// size for the planned number of nodes.
pub(crate) fn check_live_network(
    parameters: &InfraParameters,
    live: &LiveState,
    nodes: Option<u32>,
) -> Vec<PreflightFinding> {
    let body = |key: &str| live.get(&ResourceKey::new(key)).map(|found| &found.body);
    let mut findings = Vec::new();
    if let (Some(network), Some(vnet)) = (&parameters.network, body("vnet")) {
        findings.extend(check_region(&parameters.location, &network.vnet, vnet));
        match body("subnet") {
            Some(subnet) => findings.extend(check_subnet(parameters, subnet)),
            None if network.subnet.is_none() => findings.push(PreflightFinding::warning(
                CHECK,
                "no subnet is given, so the output contains no `subnetID`".to_owned(),
                "name the subnet of the worker nodes with --subnet-id",
            )),
            None => {}
        }
    }
    if let (Some(id), Some(group)) = (&parameters.security_group, body("nsg")) {
        findings.extend(check_region(&parameters.location, id, group));
    }
    if let (Some(id), Some(subnet)) = (&parameters.nat_subnet, body("nat-subnet")) {
        findings.extend(check_nat_subnet(id, subnet));
    }
    if let Some(nodes) = nodes {
        let range = match (&parameters.network, body("subnet")) {
            (Some(_), Some(subnet)) => address_range(subnet),
            (Some(_), None) => None,
            (None, _) => Some(crate::infra_graph::SUBNET_RANGE),
        };
        findings.extend(check_size(nodes, range));
    }
    findings
}

fn check_region(location: &str, id: &ArmResourceId, body: &Value) -> Option<PreflightFinding> {
    let actual = normalize_region(body["location"].as_str().unwrap_or_default());
    (actual != normalize_region(location)).then(|| {
        PreflightFinding::error(
            CHECK,
            format!("`{id}` is in the region `{actual}`, the cluster in `{location}`"),
            "use --location with the region of the network",
        )
    })
}

/// Azure accepts and returns `East US` for `eastus`.
fn normalize_region(region: &str) -> String {
    region.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase()
}

fn check_subnet(parameters: &InfraParameters, subnet: &Value) -> Vec<PreflightFinding> {
    let mut findings = Vec::new();
    let properties = &subnet["properties"];
    let attached = properties.pointer("/networkSecurityGroup/id").and_then(Value::as_str);
    match (attached, &parameters.security_group) {
        (None, _) => findings.push(PreflightFinding::warning(
            CHECK,
            "the subnet has no network security group, so rules of the cluster's group have no effect"
                .to_owned(),
            "attach the group with `az network vnet subnet update --network-security-group`",
        )),
        (Some(attached), Some(given)) if !attached.eq_ignore_ascii_case(given.as_str()) => {
            findings.push(PreflightFinding::error(
                CHECK,
                format!("the subnet has the network security group `{attached}`, not `{given}`"),
                "name the attached group with --network-security-group-id",
            ));
        }
        (Some(attached), None) => findings.push(PreflightFinding::warning(
            CHECK,
            format!("the subnet keeps its network security group `{attached}`; a new one is created and not attached"),
            "name the attached group with --network-security-group-id",
        )),
        (Some(_), Some(_)) => {}
    }
    if let Some(service) = delegated_service(subnet) {
        findings.push(PreflightFinding::error(
            CHECK,
            format!("the subnet is delegated to `{service}`, so it accepts no worker nodes"),
            "use a subnet without a delegation",
        ));
    }
    findings
}

fn delegated_service(subnet: &Value) -> Option<&str> {
    subnet.pointer("/properties/delegations/0/properties/serviceName")?.as_str()
}

/// Checks a subnet of the user for the private link service.
fn check_nat_subnet(id: &ArmResourceId, subnet: &Value) -> Vec<PreflightFinding> {
    let mut findings = Vec::new();
    // Azure omits the property of subnets that were created with an old API; it is on by default.
    let policies = subnet["properties"]["privateLinkServiceNetworkPolicies"].as_str();
    if policies != Some("Disabled") {
        findings.push(PreflightFinding::error(
            PRIVATE_LINK_CHECK,
            format!("--endpoint-access-private-nat-subnet-id: `{id}` has network policies for private link services"),
            "disable them with `az network vnet subnet update --private-link-service-network-policies Disabled`",
        ));
    }
    if let Some(service) = delegated_service(subnet) {
        findings.push(PreflightFinding::error(
            PRIVATE_LINK_CHECK,
            format!("--endpoint-access-private-nat-subnet-id: `{id}` is delegated to `{service}`"),
            "use a subnet without a delegation",
        ));
    }
    findings
}

/// The first address range of a subnet.
fn address_range(subnet: &Value) -> Option<&str> {
    let properties = &subnet["properties"];
    properties["addressPrefix"]
        .as_str()
        .or_else(|| properties.pointer("/addressPrefixes/0").and_then(Value::as_str))
}

#[cfg(test)]
mod tests {

    use lanyard_changes::{FindingSeverity, arm_resource};
    use serde_json::json;

    use super::*;

    use crate::infra_graph::ExistingNetwork;
    use crate::tests::infra_parameters;

    const GROUP: &str = "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network";

    fn parameters(vnet: &str, subnet: &str, security_group: Option<&str>) -> InfraParameters {
        InfraParameters {
            security_group: security_group.map(|id| id.parse().unwrap()),
            network: Some(ExistingNetwork {
                vnet: vnet.parse().unwrap(),
                subnet: Some(subnet.parse().unwrap()),
            }),
            ..infra_parameters()
        }
    }

    #[test]
    fn subnet_of_another_network_and_wrong_types_are_errors() {
        let vnet = format!("{GROUP}/virtualNetworks/v");
        let subnet = format!("{vnet}/subnets/nodes");
        let group = format!("{GROUP}/networkSecurityGroups/g");
        assert_eq!(check_network_ids(&parameters(&vnet, &subnet, Some(&group))), []);
        let other = format!("{GROUP}/virtualNetworks/w/subnets/nodes");
        assert_eq!(check_network_ids(&parameters(&vnet, &other, None)).len(), 1);
        assert_eq!(check_network_ids(&parameters(&group, &subnet, Some(&vnet))).len(), 3);
        let foreign = subnet.replace("/s/", "/t/");
        assert_eq!(check_network_ids(&parameters(&vnet, &foreign, None)).len(), 2);
    }

    #[test]
    fn nat_subnet_may_be_in_another_network_and_subscription() {
        let vnet = format!("{GROUP}/virtualNetworks/v");
        let subnet = format!("{vnet}/subnets/nodes");
        let check = |nat_subnet: &str| {
            let nat_subnet = Some(nat_subnet.parse().unwrap());
            check_network_ids(&InfraParameters { nat_subnet, ..parameters(&vnet, &subnet, None) })
        };
        assert_eq!(check(&subnet.replace("/s/", "/management/")), []);
        assert_eq!(check(&vnet).len(), 1);
    }

    #[test]
    fn live_nat_subnet_needs_disabled_policies_and_no_delegation() {
        let vnet = format!("{GROUP}/virtualNetworks/v");
        let subnet = format!("{vnet}/subnets/nat");
        let check = |properties: Value| {
            let id: ArmResourceId = subnet.parse().unwrap();
            let nat_subnet = Some(id.clone());
            let parameters =
                InfraParameters { network: None, nat_subnet, ..parameters(&vnet, &subnet, None) };
            let mut live = LiveState::default();
            let body = json!({ "properties": properties });
            live.set(ResourceKey::new("nat-subnet"), Some(arm_resource(id.into(), body)));
            check_live_network(&parameters, &live, None).len()
        };
        assert_eq!(check(json!({ "privateLinkServiceNetworkPolicies": "Disabled" })), 0);
        assert_eq!(check(json!({ "privateLinkServiceNetworkPolicies": "Enabled" })), 1);
        assert_eq!(check(json!({})), 1);
        let delegations = json!([{ "properties": { "serviceName": "Microsoft.Web/serverFarms" } }]);
        let delegated =
            json!({ "privateLinkServiceNetworkPolicies": "Disabled", "delegations": delegations });
        assert_eq!(check(delegated), 1);
    }

    #[test]
    fn live_subnet_needs_its_group_no_delegation_and_enough_addresses() {
        let vnet = format!("{GROUP}/virtualNetworks/v");
        let subnet = format!("{vnet}/subnets/nodes");
        let group = format!("{GROUP}/networkSecurityGroups/g");
        let parameters = parameters(&vnet, &subnet, Some(&group));
        let check = |location: &str, properties: Value| {
            let mut live = LiveState::default();
            let bodies = [
                ("vnet", json!({ "location": location })),
                ("nsg", json!({ "location": "eastus" })),
                ("subnet", json!({ "properties": properties })),
            ];
            for (key, body) in bodies {
                let found = arm_resource(vnet.parse().unwrap(), body);
                live.set(ResourceKey::new(key), Some(found));
            }
            let findings = check_live_network(&parameters, &live, Some(60));
            findings.into_iter().map(|it| (it.severity, it.check)).collect::<Vec<_>>()
        };
        let attached = json!({ "id": group });
        let good = json!({ "addressPrefix": "10.1.0.0/24", "networkSecurityGroup": attached });
        assert_eq!(check("East US", good.clone()), []);
        assert_eq!(check("westus", good), [(FindingSeverity::Error, CHECK)]);
        let small = json!({ "addressPrefixes": ["10.1.0.0/27"], "networkSecurityGroup": attached });
        assert_eq!(check("eastus", small), [(FindingSeverity::Warning, "subnet size")]);
        let service = "Microsoft.Web/serverFarms";
        let delegations = json!([{ "properties": { "serviceName": service } }]);
        let delegated = json!({ "networkSecurityGroup": attached, "delegations": delegations });
        assert_eq!(check("eastus", delegated), [(FindingSeverity::Error, CHECK)]);
        let other = json!({ "networkSecurityGroup": { "id": vnet } });
        assert_eq!(check("eastus", other), [(FindingSeverity::Error, CHECK)]);
        assert_eq!(check("eastus", json!({})), [(FindingSeverity::Warning, CHECK)]);
    }
}
