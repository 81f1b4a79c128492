//! One identity of the control plane, and what all of them must not share.

use std::collections::BTreeMap;

use lanyard_api::hosted_cluster::ManagedIdentity;
use lanyard_api::reads_as_text;
use lanyard_vocabulary::{Component, ObjectEncoding, SecretName};

use super::schema::{Checker, is_uuid};
use crate::hosted_cluster::ControlPlaneIdentity;

const CLIENT_ID_PATTERN: &str = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$";
const CLIENT_ID_MESSAGE: &str = "the client ID of a managed identity must be a valid UUID. It should be 5 groups of hyphen separated hexadecimal characters in the form 8-4-4-4-12.";

pub(super) fn identity(
    checker: &mut Checker,
    field: &str,
    wire: &ManagedIdentity,
) -> Option<ControlPlaneIdentity> {
    if let Some(text) = &wire.client_id {
        let field = format!("{field}.clientID");
        if !checker.pattern(&field, text, CLIENT_ID_PATTERN, is_uuid(text)) {
            checker.problems.error(field, CLIENT_ID_MESSAGE);
        }
    }
    let encoding = encoding(checker, &format!("{field}.objectEncoding"), wire);
    let secret_name = secret_name(checker, &format!("{field}.credentialsSecretName"), wire);
    Some(ControlPlaneIdentity {
        client_id: wire.client_id.as_ref().and_then(|text| text.parse().ok()),
        secret_name: secret_name?,
        encoding: encoding?,
    })
}

/// Documentation promises a default of `utf-8`; the schema has none.
fn encoding(checker: &mut Checker, field: &str, wire: &ManagedIdentity) -> Option<ObjectEncoding> {
    let Some(text) = &wire.object_encoding else {
        checker.problems.error_with_hint(
            field,
            "Required value",
            "there is no default: write `utf-8`, `hex` or `base64`, as the secret was stored",
        );
        return None;
    };
    checker.one_of(field, text, &ObjectEncoding::ALL.map(ObjectEncoding::name)).then_some(())?;
    text.parse().ok()
}

fn secret_name(checker: &mut Checker, field: &str, wire: &ManagedIdentity) -> Option<SecretName> {
    let text = checker.text(field, wire.credentials_secret_name.as_ref(), 1..=127)?;
    let name: Option<SecretName> = text.parse().ok();
    checker.pattern(field, text, "^[a-zA-Z0-9-]+$", name.is_some());
    if !reads_as_text(text) {
        checker.problems.lint(
            field,
            format!("`{text}` is written unquoted into YAML, where it is not a text"),
            "lanyard reads it as a name; the upstream provider may not, so choose another name",
        );
    }
    name
}

/// Two identities with one secret are one identity. A vault ignores the case of names.
pub(super) fn lint_shared_secrets(
    checker: &mut Checker,
    identities: &BTreeMap<Component, ControlPlaneIdentity>,
) {
    let mut seen: BTreeMap<String, Component> = BTreeMap::new();
    for (component, identity) in identities {
        let name = identity.secret_name.as_str().to_ascii_lowercase();
        if let Some(other) = seen.get(&name) {
            checker.problems.lint(
                format!("{}.credentialsSecretName", component.field_path()),
                format!(
                    "`{}` is the secret of `{other}` too, so the two are one identity",
                    identity.secret_name
                ),
                "give every component a secret of its own",
            );
        } else {
            seen.insert(name, *component);
        }
    }
}
