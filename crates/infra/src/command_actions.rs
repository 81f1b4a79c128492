//! The actions that a command needs, derived from the resources that it writes.

use std::collections::BTreeSet;

use crate::preflight::{GROUP_TYPE, join_actions};
use crate::resource::{DesiredResource, ResourceDefinition};

/// The control plane actions that creating and destroying these resources needs, sorted.
///
/// Resources that must exist already are only read.
pub fn command_actions(resources: &[DesiredResource]) -> BTreeSet<String> {
    let mut actions = BTreeSet::new();
    for resource in resources {
        let kind = resource.id.resource_type().unwrap_or_else(|| GROUP_TYPE.to_owned());
        let verbs: &[&str] = match resource.definition {
            ResourceDefinition::Existing { .. } => &["read"],
            _ => &["read", "write", "delete"],
        };
        actions.extend(verbs.iter().map(|verb| format!("{kind}/{verb}")));
        actions.extend(join_actions(&kind).iter().map(|action| (*action).to_owned()));
    }
    actions
}

/// The control plane actions that destroying these resources needs, sorted. Resources of the user stay.
pub fn removal_actions(resources: &[DesiredResource]) -> BTreeSet<String> {
    let removed = resources
        .iter()
        .filter(|resource| !matches!(resource.definition, ResourceDefinition::Existing { .. }));
    removed
        .flat_map(|resource| {
            let kind = resource.id.resource_type().unwrap_or_else(|| GROUP_TYPE.to_owned());
            ["read", "delete"].map(|verb| format!("{kind}/{verb}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::VaultName;

    use super::*;
    use crate::keyvault_graph::{KeyvaultParameters, keyvault_resources};
    use crate::resource::PrincipalReference;

    #[test]
    fn vault_needs_actions_on_groups_vaults_and_roles() {
        let name: VaultName = "harbour".parse().unwrap();
        let parameters = KeyvaultParameters {
            subscription: "s".parse().unwrap(),
            resource_group: "g".to_owned(),
            location: "eastus".to_owned(),
            name,
            tenant: "t".parse().unwrap(),
            purge_protection: false,
            recover: false,
            administrator: Some(PrincipalReference::User(uuid::Uuid::from_u128(1))),
            secret_readers: Vec::new(),
        };
        let resources = keyvault_resources(&parameters);
        let actions = command_actions(&resources);
        let removal = removal_actions(&resources);
        let kinds = [
            "Microsoft.Authorization/roleAssignments",
            "Microsoft.KeyVault/vaults",
            "Microsoft.Resources/subscriptions/resourceGroups",
        ];
        let verbs = ["delete", "read", "write"];
        let expected = kinds.iter().flat_map(|kind| verbs.map(|verb| format!("{kind}/{verb}")));
        assert_eq!(actions.iter().cloned().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert_eq!(removal.len(), 6);
        assert!(removal.is_subset(&actions));
    }
}
