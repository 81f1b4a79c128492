//! The role assignments of which several stay side by side, by their keys.

use lanyard_changes::{
    AzureGraph, LiveState, OwnershipTags, Plan, PrincipalReference, RecordedState, ResourceKey,
};

use crate::stacks;

/// The beginning of the key of the role that `create keyvault` assigns to the signed-in identity.
pub(crate) const ADMINISTRATOR_ROLE: &str = "role/administrator";
/// The beginning of the key of the role that `create oidc` assigns to the signed-in identity.
pub(crate) const UPLOADER_ROLE: &str = "role/uploader";
/// The beginning of the key of the role at the encryption key of an environment.
pub(crate) const ENVIRONMENT_KEY_ROLE: &str = "role/encryption-key";
/// The beginning of the key of the role at the encryption key of a cluster.
pub(crate) const CLUSTER_KEY_ROLE: &str = "role/kms/encryption-key";

/// The key of the role assignment of one principal, such as `role/uploader/<object id>`.
pub(crate) fn key_of_role(role: &str, principal: &PrincipalReference) -> ResourceKey {
    ResourceKey::new(format!("{role}/{}", principal.identifier()))
}

/// The kind of a role of which several stay side by side: that of each identity that ran the command, and that at each
/// encryption key, because clusters may still use an earlier one. `None` for another resource.
pub(crate) fn lasting_role(key: &ResourceKey) -> Option<&'static str> {
    // Keys of earlier versions end with the kind.
    let is_role = |role: &&str| {
        let rest = key.as_str().strip_prefix(role);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    [ADMINISTRATOR_ROLE, UPLOADER_ROLE, ENVIRONMENT_KEY_ROLE, CLUSTER_KEY_ROLE]
        .into_iter()
        .find(is_role)
}

/// Whether the resource stays beside those of the graph: an earlier role beside the one of its kind, and the identities
/// that `create identities` created with other flags.
pub(crate) fn stays_beside(key: &ResourceKey, graph: &AzureGraph) -> bool {
    let kind = lasting_role(key);
    let has_kind =
        kind.is_some() && graph.resources().iter().any(|it| lasting_role(&it.key) == kind);
    has_kind || graph.stacks().contains(&stacks::IDENTITIES)
}

/// Compares desired and live resources. Earlier roles and identities may stay beside those of the graph.
pub fn plan_changes(
    graph: &AzureGraph,
    live: &LiveState,
    recorded: &RecordedState,
    tags: &OwnershipTags,
) -> Plan {
    Plan::new(graph, live, recorded, tags, |key| stays_beside(key, graph))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn roles_that_others_may_still_use_are_known_by_their_keys() {
        let principal = PrincipalReference::User(Uuid::from_u128(1));
        for (key, expected) in [
            (key_of_role(ADMINISTRATOR_ROLE, &principal), true),
            (key_of_role(UPLOADER_ROLE, &principal), true),
            (ResourceKey::new("role/administrator"), true),
            (ResourceKey::new("role/uploader"), true),
            (ResourceKey::new("role/encryption-key/subscriptions/s"), true),
            (ResourceKey::new("role/kms/encryption-key/subscriptions/s"), true),
            (ResourceKey::new("role/uploaders"), false),
            (ResourceKey::new("role/kms/vnet"), false),
            (key_of_role("role/secret-reader", &principal), false),
        ] {
            assert_eq!(lasting_role(&key).is_some(), expected, "{key}");
        }
    }
}
