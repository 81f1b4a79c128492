//! `spec.services`.

use lanyard_api::crd_definitions::validation_messages;
use lanyard_api::hosted_cluster::{
    HostedClusterSpec, PlatformSpec, PublishedService, PublishingStrategy,
};

use super::domain::{is_hostname, is_node_port_address};
use crate::hosted_cluster::validate::checker::FieldChecker;

pub(super) fn check_services(
    checker: &mut FieldChecker,
    spec: &HostedClusterSpec,
    platform: Option<&PlatformSpec>,
) {
    let field = "spec.services";
    let Some(services) = checker.check_required(field, spec.services.as_ref()) else { return };
    checker.check_item_count(field, services.len(), 0..=6);
    for (index, service) in services.iter().enumerate() {
        check_published_service(checker, &format!("{field}[{index}]"), service);
    }
    let kind = platform.and_then(|platform| platform.platform_type.as_deref());
    let fewest = if kind == Some("IBMCloud") { 3 } else { 4 };
    checker.check_rule("spec", services.len() >= fewest, validation_messages::SERVICES_COUNT);
    if kind == Some("Azure") {
        check_publishing_strategies(checker, services, is_self_managed(platform));
    }
}

fn is_self_managed(platform: Option<&PlatformSpec>) -> bool {
    let azure = platform.and_then(|platform| platform.azure.as_ref());
    let config = azure.and_then(|azure| azure.authentication.as_ref());
    config.and_then(|config| config.authentication_type.as_deref()) == Some("WorkloadIdentities")
}

fn check_published_service(checker: &mut FieldChecker, field: &str, service: &PublishedService) {
    let known = ["APIServer", "OAuthServer", "OIDC", "Konnectivity", "Ignition", "OVNSbDb"];
    checker.check_required_one_of(&format!("{field}.service"), service.service.as_ref(), &known);
    let field = format!("{field}.servicePublishingStrategy");
    let Some(strategy) = checker.check_required(&field, service.strategy.as_ref()) else { return };
    let known = ["LoadBalancer", "NodePort", "Route", "None", "S3"];
    checker.check_required_one_of(
        &format!("{field}.type"),
        strategy.strategy_type.as_ref(),
        &known,
    );
    check_strategy_members(checker, &field, strategy);
}

/// Checks the members of the union of publishing strategies.
fn check_strategy_members(checker: &mut FieldChecker, field: &str, strategy: &PublishingStrategy) {
    let (node_port, balancer, route) =
        (strategy.node_port.is_some(), strategy.load_balancer.is_some(), strategy.route.is_some());
    let kind = strategy.strategy_type.as_deref().unwrap_or_default();
    let has_members = node_port || balancer || route;
    let route_fits = if kind == "Route" { !node_port && !balancer } else { !route };
    let balancer_fits = if kind == "LoadBalancer" { !node_port && !route } else { !balancer };
    for (holds, message) in [
        (node_port == (kind == "NodePort"), validation_messages::NODE_PORT_MEMBER),
        (route_fits, validation_messages::ROUTE_MEMBER),
        (balancer_fits, validation_messages::LOAD_BALANCER_MEMBER),
        (kind != "None" || !has_members, validation_messages::NONE_MEMBER),
        (kind != "S3" || !has_members, validation_messages::S3_MEMBER),
    ] {
        checker.check_rule(field, holds, message);
    }
    for (name, endpoint) in [("loadBalancer", &strategy.load_balancer), ("route", &strategy.route)]
    {
        let Some(text) = endpoint.as_ref().and_then(|endpoint| endpoint.hostname.as_ref()) else {
            continue;
        };
        let field = format!("{field}.{name}.hostname");
        checker.check_length(&field, text, 1..=253);
        checker.check_rule(&field, is_hostname(text), validation_messages::SERVICE_HOSTNAME);
    }
    if let Some(node_port) = &strategy.node_port {
        let field = format!("{field}.nodePort.address");
        if let Some(text) = checker.check_text(&field, node_port.address.as_ref(), 1..=253) {
            checker.check_rule(
                &field,
                is_node_port_address(text),
                validation_messages::NODE_PORT_ADDRESS,
            );
        }
    }
}

/// Checks the publishing strategies that Azure requires.
fn check_publishing_strategies(
    checker: &mut FieldChecker,
    services: &[PublishedService],
    self_managed: bool,
) {
    let published = |name: &str, ways: &[&str]| {
        services.iter().filter(|service| service.service.as_deref() == Some(name)).any(|service| {
            let method = service.strategy.as_ref().and_then(|it| it.strategy_type.as_deref());
            method.is_some_and(|method| ways.contains(&method))
        })
    };
    let (message, ways): (_, &[&str]) = if self_managed {
        (validation_messages::SELF_MANAGED_OAUTH, &["Route", "LoadBalancer"])
    } else {
        (validation_messages::MANAGED_OAUTH, &["Route"])
    };
    checker.check_rule("spec", published("OAuthServer", ways), message);
    checker.check_rule(
        "spec",
        published("Konnectivity", &["Route"]),
        validation_messages::KONNECTIVITY_ROUTE,
    );
    checker.check_rule(
        "spec",
        published("Ignition", &["Route"]),
        validation_messages::IGNITION_ROUTE,
    );
}
