//! `spec` and `spec.services`.

use lanyard_api::crd_definitions::{DEFAULT_ISSUER_URL, validation_messages};
use lanyard_api::hosted_cluster::{HostedClusterSpec, PlatformSpec, PublishedService};

use super::uri::is_request_uri;
use super::{azure, encryption};
use crate::hosted_cluster::validate::checker::{FieldChecker, is_uuid};

pub(super) fn check_cluster_spec(checker: &mut FieldChecker, spec: &HostedClusterSpec) {
    check_infra_id(checker, spec);
    check_cluster_id(checker, spec);
    check_issuer_url(checker, spec);
    let field = "spec.platform";
    let platform = checker.check_required(field, spec.platform.as_ref());
    if let Some(platform) = platform {
        let kind = format!("{field}.type");
        checker.check_text(&kind, platform.platform_type.as_ref(), 0..=255);
    }
    check_services(checker, spec, platform);
    if let Some(wire) = platform.and_then(|platform| platform.azure.as_ref()) {
        azure::check_azure_platform(checker, wire);
    }
    if let Some(wire) = &spec.secret_encryption {
        encryption::check_secret_encryption(checker, wire);
    }
}

fn check_infra_id(checker: &mut FieldChecker, spec: &HostedClusterSpec) {
    let Some(text) = &spec.infra_id else { return };
    let field = "spec.infraID";
    checker.check_length(field, text, 1..=253);
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let holds = !text.is_empty()
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    checker.check_rule(field, holds, validation_messages::INFRA_ID);
}

fn check_cluster_id(checker: &mut FieldChecker, spec: &HostedClusterSpec) {
    let Some(text) = &spec.cluster_id else { return };
    let field = "spec.clusterID";
    checker.check_length(field, text, 36..=36);
    checker.check_rule(field, is_uuid(text), validation_messages::CLUSTER_ID);
}

/// Defaults are applied before validation, so the rule that a signing key needs an issuer never
/// fails.
fn check_issuer_url(checker: &mut FieldChecker, spec: &HostedClusterSpec) {
    let field = "spec.issuerURL";
    let text = spec.issuer_url.as_deref().unwrap_or(DEFAULT_ISSUER_URL);
    checker.check_length(field, text, 0..=255);
    checker.check_rule(field, is_request_uri(text), validation_messages::ISSUER_URL);
}

fn check_services(
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
