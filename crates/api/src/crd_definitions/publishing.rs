//! `spec.services`.

use super::schema::CrdSchema;
use super::validation_messages;

/// How the services of the control plane are published.
pub(super) fn services_schema() -> CrdSchema {
    let known = ["APIServer", "OAuthServer", "OIDC", "Konnectivity", "Ignition", "OVNSbDb"];
    let service = CrdSchema::object()
        .with_description("One service.")
        .required_field("service", CrdSchema::enumeration(&known))
        .required_field("servicePublishingStrategy", strategy_schema());
    CrdSchema::bounded_list(service, 6)
        .with_description("The publishing strategies of the control plane services.")
}

/// `servicePublishingStrategy`: a union.
fn strategy_schema() -> CrdSchema {
    let kinds = ["LoadBalancer", "NodePort", "Route", "None", "S3"];
    let hostname = |what: &str| {
        let hostname = CrdSchema::string(253)
            .with_minimum_size(1)
            .with_description("The DNS name of the service.")
            .with_cel_rule(
                r"self.matches(r'^(?:[a-zA-Z0-9-]+\.)+[a-zA-Z]{2,}$')",
                validation_messages::SERVICE_HOSTNAME,
            );
        CrdSchema::object().with_description(what).optional_field("hostname", hostname)
    };
    let without_members = |kind: &str| {
        format!(
            "self.type != '{kind}' || !has(self.nodePort) && !has(self.route) && !has(self.loadBalancer)"
        )
    };
    CrdSchema::object()
        .with_description("The publishing strategy of the service.")
        .required_field("type", CrdSchema::enumeration(&kinds))
        .optional_field("nodePort", node_port_schema())
        .optional_field("loadBalancer", hostname("A load balancer of its own."))
        .optional_field("route", hostname("A route."))
        .with_cel_rule(
            "has(self.nodePort) == (self.type == 'NodePort')",
            validation_messages::NODE_PORT_MEMBER,
        )
        .with_cel_rule(
            "self.type == 'Route' ? !has(self.nodePort) && !has(self.loadBalancer) : !has(self.route)",
            validation_messages::ROUTE_MEMBER,
        )
        .with_cel_rule(
            "self.type == 'LoadBalancer' ? !has(self.nodePort) && !has(self.route) : !has(self.loadBalancer)",
            validation_messages::LOAD_BALANCER_MEMBER,
        )
        .with_cel_rule(&without_members("None"), validation_messages::NONE_MEMBER)
        .with_cel_rule(&without_members("S3"), validation_messages::S3_MEMBER)
}

fn node_port_schema() -> CrdSchema {
    // Eight groups, or at most seven with `::` between them.
    let groups = |count: u8| format!("([0-9a-fA-F]{{1,4}}:){{{count}}}");
    let left = |most: u8| format!("([0-9a-fA-F]{{1,4}}:){{1,{most}}}");
    let right = |most: u8| format!("(:[0-9a-fA-F]{{1,4}}){{1,{most}}}");
    let mut forms = vec![format!("{}[0-9a-fA-F]{{1,4}}", groups(7)), format!("{}:", left(7))];
    forms.extend((1..=6).map(|most| format!("{}{}", left(7 - most), right(most))));
    forms.push(format!(":({}|:)", right(7)));
    let address = CrdSchema::string(253)
        .with_minimum_size(1)
        .with_description("The address of the node port.")
        .with_cel_rule(
            &format!(
                r"self.matches(r'^(([a-zA-Z0-9][-a-zA-Z0-9]*\.)+[a-zA-Z]{{2,}}|localhost)$') || self.matches(r'^((\d{{1,3}}\.){{3}}\d{{1,3}})$') || self.matches(r'^({})$')",
                forms.join("|")
            ),
            validation_messages::NODE_PORT_ADDRESS,
        );
    CrdSchema::object()
        .with_description("A node port.")
        .required_field("address", address)
        .optional_field(
            "port",
            CrdSchema::integer_32_bits().with_description("The port; 0 selects one."),
        )
}
