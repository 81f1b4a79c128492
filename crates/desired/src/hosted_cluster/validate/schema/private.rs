//! `topology` and `private`: unions.

use lanyard_api::definitions::message;
use lanyard_api::hosted_cluster::{AzurePlatform, AzurePrivate, PrivateLink};

use crate::hosted_cluster::validate::checker::{Checker, has_form, is_dns_label, is_uuid};
use crate::hosted_cluster::validate::{AZURE, path};

const SUBNET: &str =
    "/subscriptions/*/resourceGroups/*/providers/Microsoft.Network/virtualNetworks/*/subnets/*";

pub(super) fn topology(checker: &mut Checker, azure: &AzurePlatform) {
    let topology = azure.topology.as_deref();
    if let Some(text) = topology {
        checker.one_of(&path("topology"), text, &["Public", "PublicAndPrivate", "Private"]);
    }
    let wants_private = topology.is_some_and(|topology| topology != "Public");
    checker.rule(AZURE, wants_private == azure.private.is_some(), message::PRIVATE_MEMBER);
    if let Some(wire) = &azure.private {
        private(checker, wire);
    }
}

fn private(checker: &mut Checker, private: &AzurePrivate) {
    let field = path("private");
    let known = ["PrivateLink", "Swift"];
    let kind = checker.choice(&format!("{field}.type"), private.private_type.as_ref(), &known);
    let holds = (kind == Some("PrivateLink")) == private.private_link.is_some();
    checker.rule(&field, holds, message::PRIVATE_LINK_MEMBER);
    let holds = (kind == Some("Swift")) == private.swift.is_some();
    checker.rule(&field, holds, message::SWIFT_MEMBER);
    if let Some(link) = &private.private_link {
        private_link(checker, &format!("{field}.privateLink"), link);
    }
    if let Some(swift) = &private.swift {
        let field = format!("{field}.swift.podNetworkInstance");
        if let Some(text) = checker.text(&field, swift.pod_network_instance.as_ref(), 1..=63) {
            // Its length is another rule.
            let holds = text.len() > 63 || is_dns_label(text);
            checker.rule(&field, holds, message::POD_NETWORK_LABEL);
        }
    }
}

fn private_link(checker: &mut Checker, field: &str, link: &PrivateLink) {
    let allowed = link.additional_allowed_subscriptions.as_deref();
    if let Some(text) = &link.nat_subnet_id {
        let field = format!("{field}.natSubnetID");
        checker.length(&field, text, 1..=355);
        let full = text.split('/').skip(1).all(|part| !part.is_empty());
        checker.rule(&field, full && has_form(text, SUBNET), message::NAT_SUBNET_FORMAT);
    } else if allowed.is_none() {
        let message =
            format!("Invalid value: 0: {field} in body should have at least 1 properties");
        checker.problems.error(field, message);
    }
    let Some(allowed) = allowed else { return };
    let field = format!("{field}.additionalAllowedSubscriptions");
    checker.items(&field, allowed.len(), 1..=50);
    for (index, subscription) in allowed.iter().enumerate() {
        let field = format!("{field}[{index}]");
        checker.length(&field, subscription, 36..=36);
        checker.rule(&field, is_uuid(subscription), message::ALLOWED_SUBSCRIPTION);
        if allowed[..index].contains(subscription) {
            checker.problems.error(&*field, format!("Duplicate value: \"{subscription}\""));
        }
    }
}
