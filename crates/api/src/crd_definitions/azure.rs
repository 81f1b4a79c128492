//! `spec.platform.azure`.
//!
//! Unknown fields are pruned, as in HyperShift's schema: a misspelled `resourceGroupName` is
//! dropped, and the default takes its place.

use lanyard_vocabulary::Cloud;

use super::authentication::authentication_schema;
use super::schema::CrdSchema;
use super::validation_messages;

pub(super) fn azure_schema() -> CrdSchema {
    let id = |what: &str, message: &str| {
        CrdSchema::string(255).with_description(what).immutable(message)
    };
    let group = CrdSchema::string(90)
        .with_description("The resource group of machines, disks and load balancers.")
        .with_pattern(validation_messages::RESOURCE_GROUP_PATTERN)
        .with_default("default")
        .immutable(validation_messages::RESOURCE_GROUP_IMMUTABLE);
    let cloud = CrdSchema::enumeration(&Cloud::ALL.map(Cloud::name))
        .with_description("The cloud.")
        .with_default(Cloud::default().name());
    CrdSchema::object()
        .with_description("The Azure settings of the cluster.")
        .optional_field("cloud", cloud)
        .required_field("location", id("The region.", validation_messages::LOCATION_IMMUTABLE))
        .required_field("resourceGroup", group)
        .required_field("vnetID", id("The id of the virtual network.", validation_messages::VNET_IMMUTABLE))
        .required_field("subnetID", subnet_id_schema())
        .required_field(
            "subscriptionID",
            id("The subscription of the cluster's resources.", validation_messages::SUBSCRIPTION_IMMUTABLE),
        )
        .required_field(
            "securityGroupID",
            id("The id of the network security group.", validation_messages::SECURITY_GROUP_IMMUTABLE),
        )
        .required_field(
            "tenantID",
            CrdSchema::string(255).with_description("The tenant of the cluster's resources."),
        )
        .required_field("azureAuthenticationConfig", authentication_schema())
        .optional_field("containerRegistry", container_registry_schema())
        .optional_field(
            "topology",
            CrdSchema::enumeration(&["Public", "PublicAndPrivate", "Private"])
                .with_description("The networks from which the API server is reachable."),
        )
        .optional_field("private", private_schema())
        .with_cel_rule("has(self.private) == has(oldSelf.private)", validation_messages::PRIVATE_PRESENCE)
        .with_cel_rule("has(self.topology) || !has(oldSelf.topology)", validation_messages::TOPOLOGY_REMOVED)
        .with_cel_rule(
            "!has(self.topology) || !has(oldSelf.topology) || (self.topology == 'Public') == (oldSelf.topology == 'Public')",
            validation_messages::TOPOLOGY_TRANSITION,
        )
        .with_cel_rule(
            "has(self.private) == (has(self.topology) && self.topology != 'Public')",
            validation_messages::PRIVATE_MEMBER,
        )
        .with_cel_rule(
            "!has(self.private) || self.private.type != 'PrivateLink' || self.azureAuthenticationConfig.azureAuthenticationConfigType != 'WorkloadIdentities' || (has(self.azureAuthenticationConfig.workloadIdentities) && has(self.azureAuthenticationConfig.workloadIdentities.controlPlaneOperator))",
            validation_messages::PRIVATE_LINK_OPERATOR,
        )
}

/// `subnetID`. As in HyperShift's schema, the regular expressions for its parts are not anchored.
/// `lanyard_desired` lints values that only the anchored expressions reject.
fn subnet_id_schema() -> CrdSchema {
    let format = r"self.matches(r'^/subscriptions/[^/]*/resourceGroups/[^/]*/providers/Microsoft\.Network/virtualNetworks/[^/]*/subnets/[^/]*$')";
    // If the id has another form, its parts are not checked: only the format rule reports it.
    let part = |index: u8, rule: &str| {
        format!("self.split('/').size() != 11 || self.split('/')[{index}].{rule}")
    };
    let end = |index: u8, characters: &str| {
        format!(
            "self.split('/').size() != 11 || !self.split('/')[{index}].matches(r'[{characters}]$')"
        )
    };
    CrdSchema::string(355)
        .with_minimum_size(1)
        .with_description("The id of the subnet of the nodes.")
        .with_cel_rule(format, validation_messages::SUBNET_FORMAT)
        .with_cel_rule(
            &part(4, r"matches(r'[a-zA-Z0-9_().-]{1,90}')"),
            validation_messages::SUBNET_GROUP,
        )
        .with_cel_rule(&end(4, "."), validation_messages::SUBNET_GROUP_END)
        .with_cel_rule(
            &part(8, r"matches(r'[a-zA-Z0-9_.-]{2,64}')"),
            validation_messages::SUBNET_VNET,
        )
        .with_cel_rule(&end(8, ".-"), validation_messages::SUBNET_VNET_END)
        .with_cel_rule(
            &part(10, r"matches(r'[a-zA-Z0-9][a-zA-Z0-9_.-]{0,79}')"),
            validation_messages::SUBNET_NAME,
        )
        .with_cel_rule(&end(10, ".-"), validation_messages::SUBNET_NAME_END)
        .immutable(validation_messages::SUBNET_IMMUTABLE)
}

/// `private`: a union.
fn private_schema() -> CrdSchema {
    let nat_subnet = CrdSchema::string(355)
        .with_minimum_size(1)
        .with_description("The ID of the NAT subnet.")
        .with_cel_rule(
            r"self.matches(r'^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+$')",
            validation_messages::NAT_SUBNET_FORMAT,
        )
        .immutable(validation_messages::NAT_SUBNET_IMMUTABLE);
    let subscription = CrdSchema::string(36).with_minimum_size(36).with_cel_rule(
        &format!("self.matches(r'{}')", validation_messages::CLIENT_ID_PATTERN),
        validation_messages::ALLOWED_SUBSCRIPTION,
    );
    let link = CrdSchema::object()
        .with_description("Azure Private Link.")
        .with_minimum_size(1)
        .optional_field("natSubnetID", nat_subnet)
        .optional_field(
            "additionalAllowedSubscriptions",
            CrdSchema::bounded_list(subscription, 50)
                .with_minimum_size(1)
                .into_set()
                .with_description("Additional subscriptions that may connect."),
        );
    let network = CrdSchema::string(63)
        .with_minimum_size(1)
        .with_description("The pod network instance.")
        .with_cel_rule(
            r"self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            validation_messages::POD_NETWORK_LABEL,
        )
        .immutable(validation_messages::POD_NETWORK_IMMUTABLE);
    let swift = CrdSchema::object()
        .with_description("Swift.")
        .required_field("podNetworkInstance", network);
    CrdSchema::object()
        .with_description("The private connection to the API server.")
        .required_field(
            "type",
            CrdSchema::enumeration(&["PrivateLink", "Swift"])
                .immutable(validation_messages::PRIVATE_TYPE_IMMUTABLE),
        )
        .optional_field("privateLink", link)
        .optional_field("swift", swift)
        .with_cel_rule(
            "has(self.privateLink) == (self.type == 'PrivateLink')",
            validation_messages::PRIVATE_LINK_MEMBER,
        )
        .with_cel_rule(
            "has(self.swift) == (self.type == 'Swift')",
            validation_messages::SWIFT_MEMBER,
        )
}

/// `containerRegistry`: how nodes pull images.
fn container_registry_schema() -> CrdSchema {
    let id = CrdSchema::string(345)
        .with_minimum_size(131)
        .with_description("The Azure resource ID of the identity.")
        .with_cel_rule(
            r"self.lowerAscii().matches(r'^/subscriptions/[^/]+/resourcegroups/[^/]+/providers/microsoft\.managedidentity/userassignedidentities/[^/]+$')",
            validation_messages::REGISTRY_ID,
        );
    let identity = CrdSchema::object()
        .with_description("The identity of the nodes.")
        .required_field("resourceID", id);
    let credentials = CrdSchema::object()
        .with_description("The vault of the credentials.")
        .required_field("type", CrdSchema::enumeration(&["ManagedIdentity"]))
        .optional_field("managedIdentity", identity)
        .with_cel_rule(
            "has(self.managedIdentity) == (self.type == 'ManagedIdentity')",
            validation_messages::REGISTRY_MEMBER,
        );
    CrdSchema::object()
        .with_description("How nodes authenticate to container registries.")
        .required_field("credentials", credentials)
}
