//! `spec.platform.azure`.

use lanyard_api::crd_definitions::validation_messages;
use lanyard_api::hosted_cluster::{AzurePlatform, ContainerRegistry};
use lanyard_vocabulary::Cloud;

use super::{authentication, cloud_or_default, private, resource_group_or_default, subnet};
use crate::hosted_cluster::validate::checker::{FieldChecker, matches_resource_id_form};
use crate::hosted_cluster::validate::{AZURE, azure_field};

const REGISTRY_IDENTITY_FORM: &str = "/subscriptions/*/resourcegroups/*/providers/microsoft.managedidentity/userassignedidentities/*";

pub(super) fn check_azure_platform(checker: &mut FieldChecker, azure: &AzurePlatform) {
    checker.check_one_of(
        &azure_field("cloud"),
        cloud_or_default(azure),
        &Cloud::ALL.map(Cloud::name),
    );
    check_resource_group(checker, resource_group_or_default(azure));
    let texts = [
        ("location", &azure.location),
        ("vnetID", &azure.vnet_id),
        ("subscriptionID", &azure.subscription_id),
        ("securityGroupID", &azure.security_group_id),
        ("tenantID", &azure.tenant_id),
    ];
    for (name, value) in texts {
        checker.check_text(&azure_field(name), value.as_ref(), 0..=255);
    }
    subnet::check_subnet_id(checker, azure.subnet_id.as_ref());
    private::check_topology(checker, azure);
    if let Some(registry) = &azure.container_registry {
        check_container_registry(checker, registry);
    }
    let field = azure_field("azureAuthenticationConfig");
    if let Some(config) = checker.check_required(&field, azure.authentication.as_ref()) {
        authentication::check_authentication(checker, config);
        let private = azure.private.as_ref().and_then(|private| private.private_type.as_deref());
        let workload = config.authentication_type.as_deref() == Some("WorkloadIdentities");
        let identities = config.workload_identities.as_ref();
        let operator = identities.is_some_and(|all| all.contains_key("controlPlaneOperator"));
        let holds = private != Some("PrivateLink") || !workload || operator;
        checker.check_rule(AZURE, holds, validation_messages::PRIVATE_LINK_OPERATOR);
    }
}

fn check_resource_group(checker: &mut FieldChecker, text: &str) {
    let field = azure_field("resourceGroup");
    checker.check_length(&field, text, 0..=90);
    let valid = |c: char| c.is_ascii_alphanumeric() || "_()-.".contains(c);
    let matches = (2..=90).contains(&text.len()) && text.chars().all(valid) && !text.ends_with('.');
    checker.check_pattern(&field, text, validation_messages::RESOURCE_GROUP_PATTERN, matches);
}

fn check_container_registry(checker: &mut FieldChecker, registry: &ContainerRegistry) {
    let field = azure_field("containerRegistry.credentials");
    let Some(credentials) = checker.check_required(&field, registry.credentials.as_ref()) else {
        return;
    };
    let kind = checker.check_required_one_of(
        &format!("{field}.type"),
        credentials.credentials_type.as_ref(),
        &["ManagedIdentity"],
    );
    let identity = credentials.managed_identity.as_ref();
    let holds = (kind == Some("ManagedIdentity")) == identity.is_some();
    checker.check_rule(&field, holds, validation_messages::REGISTRY_MEMBER);
    let Some(identity) = identity else { return };
    let field = format!("{field}.managedIdentity.resourceID");
    if let Some(text) = checker.check_text(&field, identity.resource_id.as_ref(), 131..=345) {
        let full = text.split('/').skip(1).all(|part| !part.is_empty());
        let holds =
            full && matches_resource_id_form(&text.to_ascii_lowercase(), REGISTRY_IDENTITY_FORM);
        checker.check_rule(&field, holds, validation_messages::REGISTRY_ID);
    }
}
