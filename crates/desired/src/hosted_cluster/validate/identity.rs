//! One identity of the control plane, and what all of them must not share.

use std::collections::BTreeMap;

use lanyard_api::hosted_cluster::ManagedIdentity;
use lanyard_api::reads_as_text;
use lanyard_vocabulary::{ClientId, Component, ObjectEncoding, SecretName};

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

/// A secret holds one credential of one identity, in one encoding. Components may share it, and
/// then they are one identity; a vault ignores the case of names.
pub(super) fn check_shared_secrets(
    checker: &mut Checker,
    identities: &BTreeMap<Component, ControlPlaneIdentity>,
) {
    let mut seen: BTreeMap<String, (Component, &ControlPlaneIdentity)> = BTreeMap::new();
    for (component, identity) in identities {
        let name = identity.secret_name.as_str().to_ascii_lowercase();
        let (other, first) = *seen.entry(name).or_insert((*component, identity));
        if other == *component {
            continue;
        }
        let (field, secret) = (component.field_path(), &identity.secret_name);
        if identity.encoding != first.encoding {
            checker.problems.error_with_hint(
                format!("{field}.objectEncoding"),
                format!(
                    "`{secret}` is the secret of `{other}` too, which reads it in another encoding"
                ),
                "write how the secret is stored, or give every component a secret of its own",
            );
        }
        let mut named = identities.values().filter(|it| it.shares_secret(identity));
        let owner = named.find_map(|it| it.client_id);
        let field = format!("{field}.credentialsSecretName");
        if identity.client_id.is_some() && identity.client_id != owner {
            checker.problems.error_with_hint(
                field,
                format!("shared credentialsSecretName: `{secret}` is the secret of `{other}` too, which has another clientID"),
                "give every component a secret of its own",
            );
        } else {
            checker.problems.lint(
                field,
                format!("`{secret}` is the secret of `{other}` too, so the two are one identity"),
                "give every component a secret of its own",
            );
        }
    }
}

/// Credentials of one identity in several secrets work, as test environments have it, where one
/// application stands for all of them; but then nothing keeps the rights of components apart.
pub(super) fn lint_shared_client_ids(
    checker: &mut Checker,
    identities: &BTreeMap<Component, ControlPlaneIdentity>,
) {
    let mut seen: BTreeMap<ClientId, (Component, &ControlPlaneIdentity)> = BTreeMap::new();
    for (component, identity) in identities {
        let Some(client_id) = identity.client_id else { continue };
        let (other, first) = *seen.entry(client_id).or_insert((*component, identity));
        if other != *component && !identity.shares_secret(first) {
            checker.problems.lint(
                format!("{}.clientID", component.field_path()),
                format!("duplicate clientID: `{client_id}` is the identity of `{other}` too"),
                "give every component an identity of its own",
            );
        }
    }
}
