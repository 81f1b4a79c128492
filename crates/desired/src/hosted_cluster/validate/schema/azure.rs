//! `spec.platform.azure`.

use lanyard_api::definitions::message;
use lanyard_api::hosted_cluster::{AzurePlatform, ContainerRegistry};
use lanyard_vocabulary::Cloud;

use super::{authentication, cloud_of, private, resource_group_of, subnet};
use crate::hosted_cluster::validate::checker::{Checker, has_form};
use crate::hosted_cluster::validate::{AZURE, path};

const REGISTRY_IDENTITY: &str = "/subscriptions/*/resourcegroups/*/providers/microsoft.managedidentity/userassignedidentities/*";

pub(super) fn azure(checker: &mut Checker, azure: &AzurePlatform) {
    checker.one_of(&path("cloud"), cloud_of(azure), &Cloud::ALL.map(Cloud::name));
    resource_group(checker, resource_group_of(azure));
    let texts = [
        ("location", &azure.location),
        ("vnetID", &azure.vnet_id),
        ("subscriptionID", &azure.subscription_id),
        ("securityGroupID", &azure.security_group_id),
        ("tenantID", &azure.tenant_id),
    ];
    for (name, value) in texts {
        checker.text(&path(name), value.as_ref(), 0..=255);
    }
    subnet::subnet(checker, azure.subnet_id.as_ref());
    private::topology(checker, azure);
    if let Some(registry) = &azure.container_registry {
        container_registry(checker, registry);
    }
    let field = path("azureAuthenticationConfig");
    if let Some(config) = checker.required(&field, azure.authentication.as_ref()) {
        authentication::authentication(checker, config);
        let private = azure.private.as_ref().and_then(|private| private.private_type.as_deref());
        let workload = config.authentication_type.as_deref() == Some("WorkloadIdentities");
        let identities = config.workload_identities.as_ref();
        let operator = identities.is_some_and(|all| all.contains_key("controlPlaneOperator"));
        let holds = private != Some("PrivateLink") || !workload || operator;
        checker.rule(AZURE, holds, message::PRIVATE_LINK_OPERATOR);
    }
}

fn resource_group(checker: &mut Checker, text: &str) {
    let field = path("resourceGroup");
    checker.length(&field, text, 0..=90);
    let valid = |c: char| c.is_ascii_alphanumeric() || "_()-.".contains(c);
    let matches = (2..=90).contains(&text.len()) && text.chars().all(valid) && !text.ends_with('.');
    checker.pattern(&field, text, message::RESOURCE_GROUP_PATTERN, matches);
}

fn container_registry(checker: &mut Checker, registry: &ContainerRegistry) {
    let field = path("containerRegistry.credentials");
    let Some(credentials) = checker.required(&field, registry.credentials.as_ref()) else { return };
    let kind = checker.choice(
        &format!("{field}.type"),
        credentials.credentials_type.as_ref(),
        &["ManagedIdentity"],
    );
    let identity = credentials.managed_identity.as_ref();
    let holds = (kind == Some("ManagedIdentity")) == identity.is_some();
    checker.rule(&field, holds, message::REGISTRY_MEMBER);
    let Some(identity) = identity else { return };
    let field = format!("{field}.managedIdentity.resourceID");
    if let Some(text) = checker.text(&field, identity.resource_id.as_ref(), 131..=345) {
        let full = text.split('/').skip(1).all(|part| !part.is_empty());
        let holds = full && has_form(&text.to_ascii_lowercase(), REGISTRY_IDENTITY);
        checker.rule(&field, holds, message::REGISTRY_ID);
    }
}
