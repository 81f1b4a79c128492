//! The identities of the control plane, and the credentials that they must not share.

use std::collections::BTreeMap;

use lanyard_api::hosted_cluster::ManagedIdentity;
use lanyard_api::is_unquoted_yaml_string;
use lanyard_vocabulary::{Component, EntraClientId, ObjectEncoding};

use super::checker::FieldChecker;
use crate::hosted_cluster::ControlPlaneIdentity;

/// The schema rules report missing fields.
pub(super) fn check_identity(
    checker: &mut FieldChecker,
    field: &str,
    wire: &ManagedIdentity,
) -> Option<ControlPlaneIdentity> {
    let field = format!("{field}.credentialsSecretName");
    let text = wire.credentials_secret_name.as_ref()?;
    if !text.is_empty() && !is_unquoted_yaml_string(text) {
        checker.problems.lint(
            &*field,
            format!("`{text}` is not a string in YAML, where it is written without quotes"),
            "lanyard reads it as a name, but the upstream provider may not: choose another name",
        );
    }
    let encoding: ObjectEncoding = wire.object_encoding.as_ref()?.parse().ok()?;
    let secret_name = checker.check_parsed(&field, text)?;
    let client_id = wire.client_id.as_ref().and_then(|text| text.parse().ok());
    Some(ControlPlaneIdentity { client_id, secret_name, encoding })
}

/// A secret holds one credential of one identity, in one encoding. Components that share a secret
/// are one identity. Vaults compare names case-insensitively.
pub(super) fn check_shared_secrets(
    checker: &mut FieldChecker,
    identities: &BTreeMap<Component, ControlPlaneIdentity>,
) {
    let mut observed: BTreeMap<String, (Component, &ControlPlaneIdentity)> = BTreeMap::new();
    for (component, identity) in identities {
        let name = identity.secret_name.as_str().to_ascii_lowercase();
        let (other, first) = *observed.entry(name).or_insert((*component, identity));
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
                "set the encoding of the secret, or use a separate secret for each component",
            );
        }
        let mut named = identities.values().filter(|it| it.shares_secret(identity));
        let owner = named.find_map(|it| it.client_id);
        let field = format!("{field}.credentialsSecretName");
        if identity.client_id.is_some() && identity.client_id != owner {
            checker.problems.error_with_hint(
                field,
                format!("shared credentialsSecretName: `{secret}` is the secret of `{other}` too, which has another clientID"),
                "use a separate secret for each component",
            );
        } else {
            checker.problems.lint(
                field,
                format!("`{secret}` is the secret of `{other}` too, so the two are one identity"),
                "use a separate secret for each component",
            );
        }
    }
}

/// Several secrets may hold credentials of one identity, as in test environments that use one
/// application for all components. Such components have the same permissions.
pub(super) fn lint_shared_client_ids(
    checker: &mut FieldChecker,
    identities: &BTreeMap<Component, ControlPlaneIdentity>,
) {
    let mut observed: BTreeMap<EntraClientId, (Component, &ControlPlaneIdentity)> = BTreeMap::new();
    for (component, identity) in identities {
        let Some(client_id) = identity.client_id else { continue };
        let (other, first) = *observed.entry(client_id).or_insert((*component, identity));
        if other != *component && !identity.shares_secret(first) {
            checker.problems.lint(
                format!("{}.clientID", component.field_path()),
                format!("duplicate clientID: `{client_id}` is the identity of `{other}` too"),
                "use a separate identity for each component",
            );
        }
    }
}
