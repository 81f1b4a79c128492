//! `azureAuthenticationConfig`, and the identities wherever they stand.

use lanyard_api::definitions::message;
use lanyard_api::hosted_cluster::{
    AzureAuthentication, ControlPlaneIdentities, ManagedIdentities, ManagedIdentity,
    WorkloadIdentities, WorkloadIdentity,
};
use lanyard_vocabulary::component::FieldParent;
use lanyard_vocabulary::{Component, ObjectEncoding, SecretName};

use crate::hosted_cluster::validate::AUTHENTICATION;
use crate::hosted_cluster::validate::checker::{Checker, is_uuid};

/// Both rules of the union are always evaluated, so a wrong combination may break both.
pub(super) fn authentication(checker: &mut Checker, config: &AzureAuthentication) {
    let kind = checker.choice(
        &format!("{AUTHENTICATION}.azureAuthenticationConfigType"),
        config.authentication_type.as_ref(),
        &["ManagedIdentities", "WorkloadIdentities"],
    );
    checker.rule(
        AUTHENTICATION,
        (kind == Some("ManagedIdentities")) == config.managed_identities.is_some(),
        message::MANAGED_MEMBER,
    );
    checker.rule(
        AUTHENTICATION,
        (kind == Some("WorkloadIdentities")) == config.workload_identities.is_some(),
        message::WORKLOAD_MEMBER,
    );
    if let Some(wire) = &config.managed_identities {
        managed_identities(checker, wire);
    }
    if let Some(wire) = &config.workload_identities {
        workload_identities(checker, wire);
    }
}

/// The components whose identities stand in the authentication configuration.
fn components() -> impl Iterator<Item = Component> {
    Component::ALL.into_iter().filter(|it| it.facts().parent == FieldParent::ControlPlane)
}

fn managed_identities(checker: &mut Checker, wire: &ManagedIdentities) {
    let parent = FieldParent::ControlPlane.path();
    if let Some(wire) = checker.required(parent, wire.control_plane.as_ref()) {
        control_plane(checker, parent, wire);
    }
    let field = format!("{AUTHENTICATION}.managedIdentities.dataPlane");
    let Some(wire) = checker.required(&field, wire.data_plane.as_ref()) else { return };
    let clients = [
        ("imageRegistryMSIClientID", &wire.image_registry),
        ("diskMSIClientID", &wire.disk),
        ("fileMSIClientID", &wire.file),
    ];
    for (name, value) in clients {
        checker.text(&format!("{field}.{name}"), value.as_ref(), 0..=255);
    }
}

fn control_plane(checker: &mut Checker, parent: &str, wire: &ControlPlaneIdentities) {
    let field = format!("{parent}.managedIdentitiesKeyVault");
    if let Some(vault) = checker.required(&field, wire.key_vault.as_ref()) {
        checker.text(&format!("{field}.name"), vault.name.as_ref(), 0..=255);
        checker.text(&format!("{field}.tenantID"), vault.tenant_id.as_ref(), 0..=255);
    }
    for component in components() {
        let (field, found) = (component.field_path(), wire.identities.get(&component));
        if let Some(identity) = found {
            managed_identity(checker, &field, identity);
        } else if !component.facts().optional {
            checker.required(&field, found);
        }
    }
}

/// Only the control plane operator may be without an identity.
fn workload_identities(checker: &mut Checker, wire: &WorkloadIdentities) {
    for component in components() {
        let field = format!("{AUTHENTICATION}.workloadIdentities.{component}");
        let found = wire.get(component.name());
        if let Some(identity) = found {
            workload_identity(checker, &field, identity);
        } else if component != Component::ControlPlaneOperator {
            checker.required(&field, found);
        }
    }
}

/// An identity with a federated credential.
pub(super) fn workload_identity(checker: &mut Checker, field: &str, wire: &WorkloadIdentity) {
    let field = format!("{field}.clientID");
    if let Some(text) = checker.required(&field, wire.client_id.as_ref()) {
        client_id(checker, &field, text);
    }
}

/// A managed identity and the place of its credential.
pub(super) fn managed_identity(checker: &mut Checker, field: &str, wire: &ManagedIdentity) {
    if let Some(text) = &wire.client_id {
        client_id(checker, &format!("{field}.clientID"), text);
    }
    encoding(checker, &format!("{field}.objectEncoding"), wire.object_encoding.as_ref());
    let field = format!("{field}.credentialsSecretName");
    let name = checker.text(&field, wire.credentials_secret_name.as_ref(), 1..=127);
    if let Some(text) = name {
        let matches = text.parse::<SecretName>().is_ok();
        checker.pattern(&field, text, message::SECRET_NAME_PATTERN, matches);
    }
}

fn client_id(checker: &mut Checker, field: &str, text: &str) {
    checker.length(field, text, 36..=36);
    let holds = is_uuid(text);
    checker.pattern(field, text, message::CLIENT_ID_PATTERN, holds);
    checker.rule(field, holds, message::CLIENT_ID);
}

/// Documentation promises a default of `utf-8`; the schema has none.
fn encoding(checker: &mut Checker, field: &str, value: Option<&String>) {
    let Some(text) = value else {
        checker.problems.error_with_hint(
            field,
            "Required value",
            "there is no default: write `utf-8`, `hex` or `base64`, as the secret was stored",
        );
        return;
    };
    checker.one_of(field, text, &ObjectEncoding::ALL.map(ObjectEncoding::name));
}
