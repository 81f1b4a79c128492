//! Entry point for fuzzing the parser of journals; not part of the public interface.

use lanyard_changes::fuzzing::parse_state;
use lanyard_changes::{AzureAccess, DestroyPlan, JournalCluster, RollBackPlan};

use crate::stacks::{AKS, CCOCTL, DNS, IAM, IDENTITIES, INFRA, KEYVAULT, KMS, OIDC, can_contain};

/// Parses the journal of the cluster `harbour` in the subscription `s`.
///
/// # Panics
///
/// If it lets a destroy command or a roll-back write a resource that its stack cannot contain.
pub fn read_journal(content: &str) {
    let (name, infra_id) = ("harbour".to_owned(), "harbour-x7k2p".to_owned());
    let cluster = JournalCluster { name, infra_id, subscription: "s".to_owned() };
    let Ok(state) = parse_state(content, &cluster, can_contain) else { return };
    for stack in [INFRA, IAM, KEYVAULT, AKS, DNS, OIDC, IDENTITIES, CCOCTL, KMS] {
        let stacks = [stack];
        let mut removed = DestroyPlan::new::<AzureAccess>(&state, &stacks).resources;
        if let Ok(plan) = RollBackPlan::new::<AzureAccess>(&state, &stacks) {
            removed.extend(plan.removed.resources);
            for restored in plan.restored {
                assert!(can_contain(&restored.stack, &restored.id, "s"), "{}", restored.id);
            }
        }
        for resource in removed {
            assert!(can_contain(&resource.stack, &resource.id, "s"), "{}", resource.id);
        }
    }
}
