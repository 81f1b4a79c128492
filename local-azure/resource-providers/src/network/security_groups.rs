//! Network security groups and their rules. Reference: Microsoft.Network, network security groups, 2023-11-01.

use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Map, Value, json};

use super::child_items::{
    child_resource, referring_resources, render_with_children, take_collection,
};

const SECURITY_GROUP: &str = "Microsoft.Network/networkSecurityGroups";
const RULE: &str = "Microsoft.Network/networkSecurityGroups/securityRules";

pub(super) const SECURITY_GROUP_TYPE: ResourceType = ResourceType {
    prepare: prepare_group,
    check_deletion: check_group_deletion,
    render: Some(render_group),
    ..ResourceType::regional(SECURITY_GROUP, NamingRule::word(80), "2015-05-01-preview")
};

pub(super) const RULE_TYPE: ResourceType = ResourceType {
    prepare: prepare_rule,
    ..ResourceType::child(RULE, NamingRule::word(80), "2015-05-01-preview")
};

fn prepare_group(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    write.service_guid();
    write.properties.remove("defaultSecurityRules");
    write.properties.remove("subnets");
    write.properties.remove("networkInterfaces");
    let mut rules = Vec::new();
    for item in take_collection(write, "securityRules", RULE_TYPE.naming)? {
        require_valid_rule(&item.name, &item.properties)?;
        rules.push(child_resource(write, "securityRules", RULE, item));
    }
    require_distinct_priorities(&rules)?;
    write.replace_children(RULE, rules);
    Ok(())
}

fn prepare_rule(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let name = resource_name(write.id);
    require_valid_rule(name, &write.properties)?;
    let group = lanyard_emulator_arm::request_scopes::parent_scope(write.id)?;
    let mut rules: Vec<_> = write
        .resources()
        .of_type_within(&group, RULE)
        .filter(|rule| rule.id != *write.id)
        .cloned()
        .collect();
    let body = json!({ "properties": write.properties });
    rules.push(ArmResource::new(write.id.clone(), RULE, body, write.call.now));
    require_distinct_priorities(&rules)
}

fn require_valid_rule(name: &str, properties: &Map<String, Value>) -> Result<(), ServiceReply> {
    let priority = properties.get("priority").and_then(Value::as_u64).unwrap_or(0);
    if !(100..=4096).contains(&priority) {
        return Err(bad_request(
            "SecurityRuleInvalidPriority",
            format!(
                "Security rule has invalid Priority. Value provided: {priority} Allowed range \
                 100-4096. The rule is '{name}'."
            ),
        ));
    }
    for (field, allowed) in [
        ("access", &["Allow", "Deny"][..]),
        ("direction", &["Inbound", "Outbound"][..]),
        ("protocol", &["Tcp", "Udp", "Icmp", "Esp", "Ah", "*"][..]),
    ] {
        let given = properties.get(field).and_then(Value::as_str).unwrap_or_default();
        if !allowed.iter().any(|known| known.eq_ignore_ascii_case(given)) {
            return Err(bad_request(
                "SecurityRuleInvalidValue",
                format!(
                    "Security rule '{name}' has the invalid {field} '{given}'. Allowed values are {}.",
                    allowed.join(", ")
                ),
            ));
        }
    }
    for field in ["sourcePortRange", "destinationPortRange"] {
        let several = properties.get(&format!("{field}s")).and_then(Value::as_array);
        let one = properties.get(field).filter(|range| range.as_str() != Some(""));
        let ranges = several.into_iter().flatten().chain(one);
        for range in ranges {
            require_valid_port_range(range.as_str().unwrap_or_default())?;
        }
    }
    Ok(())
}

fn require_valid_port_range(range: &str) -> Result<(), ServiceReply> {
    let port = |text: &str| text.parse::<u16>().ok();
    let valid = range == "*"
        || port(range).is_some()
        || range.split_once('-').is_some_and(|(from, to)| {
            port(from).zip(port(to)).is_some_and(|(from, to)| from <= to)
        });
    if valid {
        return Ok(());
    }
    Err(bad_request(
        "SecurityRuleInvalidPortRange",
        format!(
            "Security rule has invalid Port range. Value provided: {range}. Value should be an integer \
             OR integer range with '-' delimiter. Valid range 0-65535."
        ),
    ))
}

/// Checks that the rules of one direction have distinct priorities.
fn require_distinct_priorities(rules: &[ArmResource]) -> Result<(), ServiceReply> {
    let key = |rule: &ArmResource| {
        let direction = rule.property("direction").and_then(Value::as_str).unwrap_or_default();
        (rule.property("priority").and_then(Value::as_u64), direction.to_ascii_lowercase())
    };
    for (at, rule) in rules.iter().enumerate() {
        if let Some(other) = rules[..at].iter().find(|other| key(other) == key(rule)) {
            return Err(bad_request(
                "SecurityRuleConflict",
                format!(
                    "Security rule {} conflicts with rule {}. Rules cannot have the same Priority and \
                     Direction.",
                    resource_name(&other.id),
                    resource_name(&rule.id)
                ),
            ));
        }
    }
    Ok(())
}

fn check_group_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let users: Vec<_> = deletion.referrers().map(ToString::to_string).collect();
    if users.is_empty() {
        return Ok(());
    }
    Err(bad_request(
        "InUseNetworkSecurityGroupCannotBeDeleted",
        format!(
            "Network security group {} cannot be deleted because it is in use by the following \
             resources: {}. In order to delete the Network security group, remove the association with \
             the resource(s).",
            deletion.resource.id,
            users.join(", ")
        ),
    ))
}

/// Renders a security group with its rules, the default rules, and the resources that use it.
fn render_group(resources: &ArmResourceStore, group: &ArmResource) -> Value {
    let mut wire = render_with_children(resources, group, "securityRules", RULE);
    let defaults: Vec<_> = DEFAULT_RULES.iter().map(|rule| rule.to_json(group)).collect();
    wire["properties"]["defaultSecurityRules"] = json!(defaults);
    for (field, kind) in [
        ("subnets", "Microsoft.Network/virtualNetworks/subnets"),
        ("networkInterfaces", "Microsoft.Network/networkInterfaces"),
    ] {
        let users = referring_resources(resources, &group.id, kind);
        if !users.is_empty() {
            wire["properties"][field] = json!(users);
        }
    }
    wire
}

/// A rule that every network security group has.
struct DefaultRule {
    name: &'static str,
    description: &'static str,
    direction: &'static str,
    access: &'static str,
    priority: u16,
    source: &'static str,
    destination: &'static str,
}

/// The default security rules. Reference: "Network security groups".
const DEFAULT_RULES: [DefaultRule; 6] = [
    DefaultRule {
        name: "AllowVnetInBound",
        description: "Allow inbound traffic from all VMs in VNET",
        direction: "Inbound",
        access: "Allow",
        priority: 65_000,
        source: "VirtualNetwork",
        destination: "VirtualNetwork",
    },
    DefaultRule {
        name: "AllowAzureLoadBalancerInBound",
        description: "Allow inbound traffic from azure load balancer",
        direction: "Inbound",
        access: "Allow",
        priority: 65_001,
        source: "AzureLoadBalancer",
        destination: "*",
    },
    DefaultRule {
        name: "DenyAllInBound",
        description: "Deny all inbound traffic",
        direction: "Inbound",
        access: "Deny",
        priority: 65_500,
        source: "*",
        destination: "*",
    },
    DefaultRule {
        name: "AllowVnetOutBound",
        description: "Allow outbound traffic from all VMs to all VMs in VNET",
        direction: "Outbound",
        access: "Allow",
        priority: 65_000,
        source: "VirtualNetwork",
        destination: "VirtualNetwork",
    },
    DefaultRule {
        name: "AllowInternetOutBound",
        description: "Allow outbound traffic from all VMs to Internet",
        direction: "Outbound",
        access: "Allow",
        priority: 65_001,
        source: "*",
        destination: "Internet",
    },
    DefaultRule {
        name: "DenyAllOutBound",
        description: "Deny all outbound traffic",
        direction: "Outbound",
        access: "Deny",
        priority: 65_500,
        source: "*",
        destination: "*",
    },
];

impl DefaultRule {
    fn to_json(&self, group: &ArmResource) -> Value {
        json!({
            "id": format!("{}/defaultSecurityRules/{}", group.id, self.name),
            "name": self.name,
            "type": format!("{SECURITY_GROUP}/defaultSecurityRules"),
            "etag": group.etag(),
            "properties": {
                "provisioningState": "Succeeded",
                "description": self.description,
                "protocol": "*",
                "sourcePortRange": "*",
                "destinationPortRange": "*",
                "sourceAddressPrefix": self.source,
                "destinationAddressPrefix": self.destination,
                "access": self.access,
                "priority": self.priority,
                "direction": self.direction,
            },
        })
    }
}
