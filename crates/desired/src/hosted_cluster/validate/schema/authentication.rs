//! `azureAuthenticationConfig` and the identity types.

use lanyard_api::crd_definitions::validation_messages;
use lanyard_api::hosted_cluster::{
    AzureAuthentication, ControlPlaneIdentities, ManagedIdentities, ManagedIdentity,
    WorkloadIdentities, WorkloadIdentity,
};
use lanyard_vocabulary::component::IdentityFieldParent;
use lanyard_vocabulary::{Component, ObjectEncoding, SecretName};

use crate::hosted_cluster::validate::AUTHENTICATION;
use crate::hosted_cluster::validate::checker::{FieldChecker, is_uuid};

/// The API server evaluates both rules of the union, so a wrong combination may violate both.
pub(super) fn check_authentication(checker: &mut FieldChecker, config: &AzureAuthentication) {
    let kind = checker.check_required_one_of(
        &format!("{AUTHENTICATION}.azureAuthenticationConfigType"),
        config.authentication_type.as_ref(),
        &["ManagedIdentities", "WorkloadIdentities"],
    );
    checker.check_rule(
        AUTHENTICATION,
        (kind == Some("ManagedIdentities")) == config.managed_identities.is_some(),
        validation_messages::MANAGED_MEMBER,
    );
    checker.check_rule(
        AUTHENTICATION,
        (kind == Some("WorkloadIdentities")) == config.workload_identities.is_some(),
        validation_messages::WORKLOAD_MEMBER,
    );
    if let Some(wire) = &config.managed_identities {
        check_managed_identities(checker, wire);
    }
    if let Some(wire) = &config.workload_identities {
        check_workload_identities(checker, wire);
    }
}

/// The components whose identities are in the authentication configuration.
fn control_plane_components() -> impl Iterator<Item = Component> {
    Component::ALL
        .into_iter()
        .filter(|it| it.definition().parent == IdentityFieldParent::ControlPlane)
}

fn check_managed_identities(checker: &mut FieldChecker, wire: &ManagedIdentities) {
    let parent = IdentityFieldParent::ControlPlane.path();
    if let Some(wire) = checker.check_required(parent, wire.control_plane.as_ref()) {
        check_control_plane(checker, parent, wire);
    }
    let field = format!("{AUTHENTICATION}.managedIdentities.dataPlane");
    let Some(wire) = checker.check_required(&field, wire.data_plane.as_ref()) else { return };
    let clients = [
        ("imageRegistryMSIClientID", &wire.image_registry),
        ("diskMSIClientID", &wire.disk),
        ("fileMSIClientID", &wire.file),
    ];
    for (name, value) in clients {
        checker.check_text(&format!("{field}.{name}"), value.as_ref(), 0..=255);
    }
}

fn check_control_plane(checker: &mut FieldChecker, parent: &str, wire: &ControlPlaneIdentities) {
    let field = format!("{parent}.managedIdentitiesKeyVault");
    if let Some(vault) = checker.check_required(&field, wire.key_vault.as_ref()) {
        checker.check_text(&format!("{field}.name"), vault.name.as_ref(), 0..=255);
        checker.check_text(&format!("{field}.tenantID"), vault.tenant_id.as_ref(), 0..=255);
    }
    for component in control_plane_components() {
        let (field, found) = (component.field_path(), wire.identities.get(&component));
        if let Some(identity) = found {
            check_managed_identity(checker, &field, identity);
        } else if !component.definition().optional {
            checker.check_required(&field, found);
        }
    }
}

/// Only the control plane operator's identity is optional.
fn check_workload_identities(checker: &mut FieldChecker, wire: &WorkloadIdentities) {
    for component in control_plane_components() {
        let field = format!("{AUTHENTICATION}.workloadIdentities.{component}");
        let found = wire.get(component.name());
        if let Some(identity) = found {
            check_workload_identity(checker, &field, identity);
        } else if component != Component::ControlPlaneOperator {
            checker.check_required(&field, found);
        }
    }
}

/// An identity with a federated credential.
pub(super) fn check_workload_identity(
    checker: &mut FieldChecker,
    field: &str,
    wire: &WorkloadIdentity,
) {
    let field = format!("{field}.clientID");
    if let Some(text) = checker.check_required(&field, wire.client_id.as_ref()) {
        check_client_id(checker, &field, text);
    }
}

/// A managed identity and the secret of its credential.
pub(super) fn check_managed_identity(
    checker: &mut FieldChecker,
    field: &str,
    wire: &ManagedIdentity,
) {
    if let Some(text) = &wire.client_id {
        check_client_id(checker, &format!("{field}.clientID"), text);
    }
    check_encoding(checker, &format!("{field}.objectEncoding"), wire.object_encoding.as_ref());
    let field = format!("{field}.credentialsSecretName");
    let name = checker.check_text(&field, wire.credentials_secret_name.as_ref(), 1..=127);
    if let Some(text) = name {
        let matches = text.parse::<SecretName>().is_ok();
        checker.check_pattern(&field, text, validation_messages::SECRET_NAME_PATTERN, matches);
    }
}

fn check_client_id(checker: &mut FieldChecker, field: &str, text: &str) {
    checker.check_length(field, text, 36..=36);
    let holds = is_uuid(text);
    checker.check_pattern(field, text, validation_messages::CLIENT_ID_PATTERN, holds);
    checker.check_rule(field, holds, validation_messages::CLIENT_ID);
}

/// HyperShift's documentation mentions the default `utf-8`, but the schema has none.
fn check_encoding(checker: &mut FieldChecker, field: &str, value: Option<&String>) {
    let Some(text) = value else {
        checker.problems.error_with_hint(
            field,
            "Required value",
            "there is no default: set `utf-8`, `hex` or `base64`, depending on how the secret was stored",
        );
        return;
    };
    checker.check_one_of(field, text, &ObjectEncoding::ALL.map(ObjectEncoding::name));
}
