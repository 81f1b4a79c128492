//! The control plane actions that a command needs, derived from its resources.

use std::collections::BTreeSet;

use lanyard_changes::{AzureResource, Effect as _, EffectUsage};

use crate::preflight::{GROUP_TYPE, join_actions};

/// The action that lists the resources of a group. A command that deletes a group first lists them.
const LIST_GROUP: &str = "Microsoft.Resources/subscriptions/resourceGroups/resources/read";

/// The control plane actions that creating and destroying these resources needs, sorted.
///
/// Resources that must exist already are only read.
pub(crate) fn command_actions(resources: &[AzureResource]) -> BTreeSet<String> {
    let mut actions = removal_actions(resources);
    actions.extend(read_actions(resources));
    for resource in resources {
        let kind = type_of(resource);
        if !is_existing(resource) {
            actions.insert(format!("{kind}/write"));
        }
        actions.extend(join_actions(&kind).iter().map(|action| (*action).to_owned()));
    }
    actions
}

/// The control plane actions that destroying these resources needs, sorted. Resources of the user stay.
pub(crate) fn removal_actions(resources: &[AzureResource]) -> BTreeSet<String> {
    let mut actions = BTreeSet::new();
    for resource in resources.iter().filter(|resource| !is_existing(resource)) {
        let kind = type_of(resource);
        actions.extend(["read", "delete"].map(|verb| format!("{kind}/{verb}")));
        if kind == GROUP_TYPE {
            actions.insert(LIST_GROUP.to_owned());
        }
    }
    actions
}

/// The control plane actions that reading these resources needs, sorted.
pub(crate) fn read_actions(resources: &[AzureResource]) -> BTreeSet<String> {
    resources.iter().map(|resource| format!("{}/read", type_of(resource))).collect()
}

fn type_of(resource: &AzureResource) -> String {
    resource.id.resource_type().unwrap_or_else(|| GROUP_TYPE.to_owned())
}

/// Whether the resource belongs to the user.
fn is_existing(resource: &AzureResource) -> bool {
    resource.effect.usage() == EffectUsage::Existing
}

#[cfg(test)]
mod tests {
    use lanyard_changes::PrincipalReference;
    use lanyard_vocabulary::VaultName;

    use super::*;
    use crate::keyvault_graph::{KeyvaultParameters, keyvault_resources};

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
        assert_eq!(actions, expected.chain([LIST_GROUP.to_owned()]).collect::<BTreeSet<_>>());
        assert_eq!(removal.len(), 7);
        assert!(removal.is_subset(&actions));
        let reads: Vec<_> = read_actions(&resources).into_iter().collect();
        assert_eq!(reads, kinds.map(|kind| format!("{kind}/read")));
    }
}
