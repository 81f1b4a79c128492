//! `spec`, except the platform, the services and the encryption.

use lanyard_api::crd_definitions::{
    CAPABILITIES, DEFAULT_ISSUER_URL, PLATFORM_TYPES, validation_messages,
};
use lanyard_api::hosted_cluster::{ClusterCapabilities, DnsSpec, HostedClusterSpec};
use serde_json::Value;

use super::domain::is_domain_name;
use super::uri::is_request_uri;
use super::{azure, encryption, services};
use crate::hosted_cluster::validate::checker::{FieldChecker, is_uuid};

pub(super) fn check_cluster_spec(checker: &mut FieldChecker, spec: &HostedClusterSpec) {
    check_infra_id(checker, spec);
    check_cluster_id(checker, spec);
    check_issuer_url(checker, spec);
    let field = "spec.platform";
    let platform = checker.check_required(field, spec.platform.as_ref());
    if let Some(platform) = platform {
        let kind = format!("{field}.type");
        if let Some(text) = checker.check_text(&kind, platform.platform_type.as_ref(), 0..=100) {
            checker.check_one_of(&kind, text, &PLATFORM_TYPES);
        }
    }
    check_references(checker, spec);
    services::check_services(checker, spec, platform);
    if let Some(dns) = &spec.dns {
        check_dns(checker, dns);
    }
    if let Some(capabilities) = &spec.capabilities {
        check_capabilities(checker, capabilities);
    }
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

/// Checks the required fields that lanyard only copies.
fn check_references(checker: &mut FieldChecker, spec: &HostedClusterSpec) {
    let value = |name: &str| spec.unknown.get(name).filter(|value| !value.is_null());
    checker.check_required("spec.pullSecret", value("pullSecret"));
    checker.check_required("spec.release", value("release"));
    for name in ["release", "controlPlaneRelease"] {
        let Some(release) = value(name) else { continue };
        let image = release.get("image").and_then(Value::as_str).map(str::to_owned);
        checker.check_text(&format!("spec.{name}.image"), image.as_ref(), 1..=253);
    }
}

fn check_dns(checker: &mut FieldChecker, dns: &DnsSpec) {
    let field = "spec.dns.baseDomain";
    if let Some(text) = checker.check_text(field, dns.base_domain.as_ref(), 0..=253) {
        let holds = text.is_empty() || is_domain_name(text);
        checker.check_rule(field, holds, validation_messages::BASE_DOMAIN);
    }
    if let Some(text) = &dns.base_domain_prefix {
        let field = "spec.dns.baseDomainPrefix";
        checker.check_length(field, text, 0..=253);
        let holds = text.is_empty() || is_domain_name(text);
        checker.check_rule(field, holds, validation_messages::BASE_DOMAIN_PREFIX);
    }
    for (name, zone, longest) in
        [("publicZoneID", &dns.public_zone_id, 258), ("privateZoneID", &dns.private_zone_id, 265)]
    {
        if let Some(text) = zone {
            checker.check_length(&format!("spec.dns.{name}"), text, 1..=longest);
        }
    }
}

fn check_capabilities(checker: &mut FieldChecker, capabilities: &ClusterCapabilities) {
    let field = "spec.capabilities";
    let lists = [("enabled", &capabilities.enabled), ("disabled", &capabilities.disabled)];
    for (name, list) in lists {
        let Some(list) = list else { continue };
        let field = format!("{field}.{name}");
        checker.check_item_count(&field, list.len(), 0..=25);
        for (index, capability) in list.iter().enumerate() {
            checker.check_one_of(&format!("{field}[{index}]"), capability, &CAPABILITIES);
        }
    }
    let disabled = capabilities.disabled.as_deref().unwrap_or_default();
    let is_disabled = |name: &str| disabled.iter().any(|it| it == name);
    checker.check_rule(
        &format!("{field}.disabled"),
        !is_disabled("Ingress") || is_disabled("Console"),
        validation_messages::INGRESS_WITHOUT_CONSOLE,
    );
    let enabled = capabilities.enabled.as_deref().unwrap_or_default();
    checker.check_rule(
        field,
        !enabled.iter().any(|it| is_disabled(it)),
        validation_messages::CAPABILITY_CONTRADICTION,
    );
}
