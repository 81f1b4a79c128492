//! `spec`, and how its services are published.

use lanyard_api::definitions::{DEFAULT_ISSUER_URL, message};
use lanyard_api::hosted_cluster::{HostedClusterSpec, Platform, PublishedService};

use super::uri::is_request_uri;
use super::{azure, encryption};
use crate::hosted_cluster::validate::checker::{Checker, is_uuid};

pub(super) fn cluster(checker: &mut Checker, spec: &HostedClusterSpec) {
    infra_id(checker, spec);
    cluster_id(checker, spec);
    issuer_url(checker, spec);
    let field = "spec.platform";
    let platform = checker.required(field, spec.platform.as_ref());
    if let Some(platform) = platform {
        let kind = format!("{field}.type");
        checker.text(&kind, platform.platform_type.as_ref(), 0..=255);
    }
    services(checker, spec, platform);
    if let Some(wire) = platform.and_then(|platform| platform.azure.as_ref()) {
        azure::azure(checker, wire);
    }
    if let Some(wire) = &spec.secret_encryption {
        encryption::encryption(checker, wire);
    }
}

fn infra_id(checker: &mut Checker, spec: &HostedClusterSpec) {
    let Some(text) = &spec.infra_id else { return };
    let field = "spec.infraID";
    checker.length(field, text, 1..=253);
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let holds = !text.is_empty()
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    checker.rule(field, holds, message::INFRA_ID);
}

fn cluster_id(checker: &mut Checker, spec: &HostedClusterSpec) {
    let Some(text) = &spec.cluster_id else { return };
    let field = "spec.clusterID";
    checker.length(field, text, 36..=36);
    checker.rule(field, is_uuid(text), message::CLUSTER_ID);
}

/// The default is filled in before the rules are judged, so the rule that a signing key needs an
/// issuer is never broken.
fn issuer_url(checker: &mut Checker, spec: &HostedClusterSpec) {
    let field = "spec.issuerURL";
    let text = spec.issuer_url.as_deref().unwrap_or(DEFAULT_ISSUER_URL);
    checker.length(field, text, 0..=255);
    checker.rule(field, is_request_uri(text), message::ISSUER_URL);
}

fn services(checker: &mut Checker, spec: &HostedClusterSpec, platform: Option<&Platform>) {
    let field = "spec.services";
    let Some(services) = checker.required(field, spec.services.as_ref()) else { return };
    checker.items(field, services.len(), 0..=6);
    for (index, service) in services.iter().enumerate() {
        published_service(checker, &format!("{field}[{index}]"), service);
    }
    let kind = platform.and_then(|platform| platform.platform_type.as_deref());
    let fewest = if kind == Some("IBMCloud") { 3 } else { 4 };
    checker.rule("spec", services.len() >= fewest, message::SERVICES_COUNT);
    if kind == Some("Azure") {
        publishing(checker, services, is_self_managed(platform));
    }
}

fn is_self_managed(platform: Option<&Platform>) -> bool {
    let azure = platform.and_then(|platform| platform.azure.as_ref());
    let config = azure.and_then(|azure| azure.authentication.as_ref());
    config.and_then(|config| config.authentication_type.as_deref()) == Some("WorkloadIdentities")
}

fn published_service(checker: &mut Checker, field: &str, service: &PublishedService) {
    let known = ["APIServer", "OAuthServer", "OIDC", "Konnectivity", "Ignition", "OVNSbDb"];
    checker.choice(&format!("{field}.service"), service.service.as_ref(), &known);
    let field = format!("{field}.servicePublishingStrategy");
    let Some(strategy) = checker.required(&field, service.strategy.as_ref()) else { return };
    let known = ["LoadBalancer", "NodePort", "Route", "None", "S3"];
    checker.choice(&format!("{field}.type"), strategy.strategy_type.as_ref(), &known);
}

/// What Azure asks of the services.
fn publishing(checker: &mut Checker, services: &[PublishedService], self_managed: bool) {
    let published = |name: &str, ways: &[&str]| {
        services.iter().filter(|service| service.service.as_deref() == Some(name)).any(|service| {
            let way = service.strategy.as_ref().and_then(|it| it.strategy_type.as_deref());
            way.is_some_and(|way| ways.contains(&way))
        })
    };
    let (message, ways): (_, &[&str]) = if self_managed {
        (message::SELF_MANAGED_OAUTH, &["Route", "LoadBalancer"])
    } else {
        (message::MANAGED_OAUTH, &["Route"])
    };
    checker.rule("spec", published("OAuthServer", ways), message);
    checker.rule("spec", published("Konnectivity", &["Route"]), message::KONNECTIVITY_ROUTE);
    checker.rule("spec", published("Ignition", &["Route"]), message::IGNITION_ROUTE);
}
