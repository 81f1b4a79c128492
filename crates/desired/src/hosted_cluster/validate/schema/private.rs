//! `topology` and `private`: unions.

use lanyard_api::crd_definitions::validation_messages;
use lanyard_api::hosted_cluster::{AzurePlatform, AzurePrivateSpec, PrivateLinkSpec};

use crate::hosted_cluster::validate::checker::{
    FieldChecker, is_dns_label, is_uuid, matches_resource_id_form,
};
use crate::hosted_cluster::validate::{AZURE, azure_field};

const NAT_SUBNET_FORM: &str =
    "/subscriptions/*/resourceGroups/*/providers/Microsoft.Network/virtualNetworks/*/subnets/*";

pub(super) fn check_topology(checker: &mut FieldChecker, azure: &AzurePlatform) {
    let topology = azure.topology.as_deref();
    if let Some(text) = topology {
        checker.check_one_of(
            &azure_field("topology"),
            text,
            &["Public", "PublicAndPrivate", "Private"],
        );
    }
    let wants_private = topology.is_some_and(|topology| topology != "Public");
    checker.check_rule(
        AZURE,
        wants_private == azure.private.is_some(),
        validation_messages::PRIVATE_MEMBER,
    );
    if let Some(wire) = &azure.private {
        check_private(checker, wire);
    }
}

fn check_private(checker: &mut FieldChecker, private: &AzurePrivateSpec) {
    let field = azure_field("private");
    let known = ["PrivateLink", "Swift"];
    let kind = checker.check_required_one_of(
        &format!("{field}.type"),
        private.private_type.as_ref(),
        &known,
    );
    let holds = (kind == Some("PrivateLink")) == private.private_link.is_some();
    checker.check_rule(&field, holds, validation_messages::PRIVATE_LINK_MEMBER);
    let holds = (kind == Some("Swift")) == private.swift.is_some();
    checker.check_rule(&field, holds, validation_messages::SWIFT_MEMBER);
    if let Some(link) = &private.private_link {
        check_private_link(checker, &format!("{field}.privateLink"), link);
    }
    if let Some(swift) = &private.swift {
        let field = format!("{field}.swift.podNetworkInstance");
        if let Some(text) = checker.check_text(&field, swift.pod_network_instance.as_ref(), 1..=63)
        {
            // A separate rule checks the length.
            let holds = text.len() > 63 || is_dns_label(text);
            checker.check_rule(&field, holds, validation_messages::POD_NETWORK_LABEL);
        }
    }
}

fn check_private_link(checker: &mut FieldChecker, field: &str, link: &PrivateLinkSpec) {
    let allowed = link.additional_allowed_subscriptions.as_deref();
    if let Some(text) = &link.nat_subnet_id {
        let field = format!("{field}.natSubnetID");
        checker.check_length(&field, text, 1..=355);
        let full = text.split('/').skip(1).all(|part| !part.is_empty());
        checker.check_rule(
            &field,
            full && matches_resource_id_form(text, NAT_SUBNET_FORM),
            validation_messages::NAT_SUBNET_FORMAT,
        );
    } else if allowed.is_none() {
        let message =
            format!("Invalid value: 0: {field} in body should have at least 1 properties");
        checker.problems.error(field, message);
    }
    let Some(allowed) = allowed else { return };
    let field = format!("{field}.additionalAllowedSubscriptions");
    checker.check_item_count(&field, allowed.len(), 1..=50);
    for (index, subscription) in allowed.iter().enumerate() {
        let field = format!("{field}[{index}]");
        checker.check_length(&field, subscription, 36..=36);
        checker.check_rule(
            &field,
            is_uuid(subscription),
            validation_messages::ALLOWED_SUBSCRIPTION,
        );
        if allowed[..index].contains(subscription) {
            checker.problems.error(&*field, format!("Duplicate value: \"{subscription}\""));
        }
    }
}
