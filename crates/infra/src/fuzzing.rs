//! Entry point for fuzzing the parser of journals; not part of the public interface.

use crate::destroy::DestroyPlan;
use crate::journal::{JournalCluster, parse_state};
use crate::resource::ResourceStack;
use crate::roll_back::RollBackPlan;
use crate::stack_types::can_contain;

const STACKS: [ResourceStack; 9] = [
    ResourceStack::Infra,
    ResourceStack::Iam,
    ResourceStack::Keyvault,
    ResourceStack::Aks,
    ResourceStack::Dns,
    ResourceStack::Oidc,
    ResourceStack::Identities,
    ResourceStack::Ccoctl,
    ResourceStack::Kms,
];

/// Parses the journal of the cluster `harbour` in the subscription `s`.
///
/// # Panics
///
/// If it lets a destroy command or a roll-back write a resource that its stack cannot contain.
pub fn read_journal(content: &str) {
    let (Ok(name), Ok(infra_id)) = ("harbour".parse(), "harbour-x7k2p".parse()) else { return };
    let cluster = JournalCluster { name, infra_id, subscription: "s".to_owned() };
    let Ok(state) = parse_state(content, &cluster) else { return };
    for stack in STACKS {
        let mut removed = DestroyPlan::new(&state, &[stack]).resources;
        if let Ok(plan) = RollBackPlan::new(&state, &[stack]) {
            removed.extend(plan.removed.resources);
            for restored in plan.restored {
                assert!(can_contain(restored.stack, &restored.id, "s"), "{}", restored.id);
            }
        }
        for resource in removed {
            assert!(can_contain(resource.stack, &resource.id, "s"), "{}", resource.id);
        }
    }
}
