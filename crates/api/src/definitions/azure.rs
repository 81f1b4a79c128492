//! `spec.platform.azure`.
//!
//! Nothing is kept that the schema does not name: a misspelled `resourceGroupName` is pruned, and
//! the default takes its place, as in the reference.

use lanyard_vocabulary::Cloud;

use super::authentication::authentication;
use super::message;
use super::schema::Schema;

/// The Azure platform.
pub(super) fn azure() -> Schema {
    let id = |what: &str, message: &str| Schema::text(255).describe(what).immutable(message);
    let group = Schema::text(90)
        .describe("The resource group of machines, disks and load balancers.")
        .pattern(message::RESOURCE_GROUP_PATTERN)
        .default("default")
        .immutable(message::RESOURCE_GROUP_IMMUTABLE);
    let cloud = Schema::choice(&Cloud::ALL.map(Cloud::name))
        .describe("The cloud.")
        .default(Cloud::default().name());
    Schema::object()
        .describe("The cluster on Azure.")
        .field("cloud", cloud)
        .required("location", id("The region.", message::LOCATION_IMMUTABLE))
        .required("resourceGroup", group)
        .required("vnetID", id("The id of the virtual network.", message::VNET_IMMUTABLE))
        .required("subnetID", subnet())
        .required(
            "subscriptionID",
            id("The subscription of the cluster's resources.", message::SUBSCRIPTION_IMMUTABLE),
        )
        .required(
            "securityGroupID",
            id("The id of the network security group.", message::SECURITY_GROUP_IMMUTABLE),
        )
        .required(
            "tenantID",
            Schema::text(255).describe("The tenant of the cluster's resources."),
        )
        .required("azureAuthenticationConfig", authentication())
        .field("containerRegistry", container_registry())
        .field(
            "topology",
            Schema::choice(&["Public", "PublicAndPrivate", "Private"])
                .describe("From where the API server can be reached."),
        )
        .field("private", private())
        .rule("has(self.private) == has(oldSelf.private)", message::PRIVATE_PRESENCE)
        .rule("has(self.topology) || !has(oldSelf.topology)", message::TOPOLOGY_REMOVED)
        .rule(
            "!has(self.topology) || !has(oldSelf.topology) || (self.topology == 'Public') == (oldSelf.topology == 'Public')",
            message::TOPOLOGY_TRANSITION,
        )
        .rule(
            "has(self.private) == (has(self.topology) && self.topology != 'Public')",
            message::PRIVATE_MEMBER,
        )
        .rule(
            "!has(self.private) || self.private.type != 'PrivateLink' || self.azureAuthenticationConfig.azureAuthenticationConfigType != 'WorkloadIdentities' || (has(self.azureAuthenticationConfig.workloadIdentities) && has(self.azureAuthenticationConfig.workloadIdentities.controlPlaneOperator))",
            message::PRIVATE_LINK_OPERATOR,
        )
}

/// `subnetID`. The expressions for its parts are searched for and not anchored, as in the
/// reference; what they mean to say is a lint of our own validation.
fn subnet() -> Schema {
    let format = r"self.matches(r'^/subscriptions/[^/]*/resourceGroups/[^/]*/providers/Microsoft\.Network/virtualNetworks/[^/]*/subnets/[^/]*$')";
    // A part of an id of another form is no part: the format is complained of, and nothing else.
    let part = |index: u8, rule: &str| {
        format!("self.split('/').size() != 11 || self.split('/')[{index}].{rule}")
    };
    let end = |index: u8, characters: &str| {
        format!(
            "self.split('/').size() != 11 || !self.split('/')[{index}].matches(r'[{characters}]$')"
        )
    };
    Schema::text(355)
        .at_least(1)
        .describe("The id of the subnet of the nodes.")
        .rule(format, message::SUBNET_FORMAT)
        .rule(&part(4, r"matches(r'[a-zA-Z0-9_().-]{1,90}')"), message::SUBNET_GROUP)
        .rule(&end(4, "."), message::SUBNET_GROUP_END)
        .rule(&part(8, r"matches(r'[a-zA-Z0-9_.-]{2,64}')"), message::SUBNET_VNET)
        .rule(&end(8, ".-"), message::SUBNET_VNET_END)
        .rule(&part(10, r"matches(r'[a-zA-Z0-9][a-zA-Z0-9_.-]{0,79}')"), message::SUBNET_NAME)
        .rule(&end(10, ".-"), message::SUBNET_NAME_END)
        .immutable(message::SUBNET_IMMUTABLE)
}

/// `private`: a union.
fn private() -> Schema {
    let nat_subnet = Schema::text(355)
        .at_least(1)
        .describe("The id of the subnet for network address translation.")
        .rule(
            r"self.matches(r'^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+$')",
            message::NAT_SUBNET_FORMAT,
        )
        .immutable(message::NAT_SUBNET_IMMUTABLE);
    let subscription = Schema::text(36).at_least(36).rule(
        &format!("self.matches(r'{}')", message::CLIENT_ID_PATTERN),
        message::ALLOWED_SUBSCRIPTION,
    );
    let link = Schema::object()
        .describe("Azure Private Link.")
        .at_least(1)
        .field("natSubnetID", nat_subnet)
        .field(
            "additionalAllowedSubscriptions",
            Schema::list(subscription, 50)
                .at_least(1)
                .set()
                .describe("Further subscriptions that may connect."),
        );
    let network = Schema::text(63)
        .at_least(1)
        .describe("The pod network instance.")
        .rule(r"self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", message::POD_NETWORK_LABEL)
        .immutable(message::POD_NETWORK_IMMUTABLE);
    let swift = Schema::object().describe("Swift.").required("podNetworkInstance", network);
    Schema::object()
        .describe("How the API server is reached in private.")
        .required(
            "type",
            Schema::choice(&["PrivateLink", "Swift"]).immutable(message::PRIVATE_TYPE_IMMUTABLE),
        )
        .field("privateLink", link)
        .field("swift", swift)
        .rule("has(self.privateLink) == (self.type == 'PrivateLink')", message::PRIVATE_LINK_MEMBER)
        .rule("has(self.swift) == (self.type == 'Swift')", message::SWIFT_MEMBER)
}

/// `containerRegistry`: how nodes pull images.
fn container_registry() -> Schema {
    let id = Schema::text(345)
        .at_least(131)
        .describe("The id of the identity as a resource.")
        .rule(
            r"self.lowerAscii().matches(r'^/subscriptions/[^/]+/resourcegroups/[^/]+/providers/microsoft\.managedidentity/userassignedidentities/[^/]+$')",
            message::REGISTRY_ID,
        );
    let identity =
        Schema::object().describe("The identity of the nodes.").required("resourceID", id);
    let credentials = Schema::object()
        .describe("Where the credentials come from.")
        .required("type", Schema::choice(&["ManagedIdentity"]))
        .field("managedIdentity", identity)
        .rule(
            "has(self.managedIdentity) == (self.type == 'ManagedIdentity')",
            message::REGISTRY_MEMBER,
        );
    Schema::object()
        .describe("How nodes authenticate to container registries.")
        .required("credentials", credentials)
}
