//! The nodes of the metadata service.

use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::imds_node::{ImdsMachine, ImdsNode, ImdsState};

use crate::seed::plan::{NodePlan, SeedPlan};

/// Adds the first node of a plan, in its managed resource group, and further nodes on similar VMs.
pub(crate) fn add_nodes(imds: &mut ImdsState, plan: &SeedPlan, ids: &mut IdGenerator) {
    imds.default_node.machine = first_machine(plan, ids);
    add_planned_nodes(imds, &plan.nodes, ids);
}

fn first_machine(plan: &SeedPlan, ids: &mut IdGenerator) -> ImdsMachine {
    ImdsMachine {
        name: format!("{}-node-0", plan.infra_id),
        location: plan.location.clone(),
        subscription: plan.subscription.to_string(),
        resource_group: plan.managed_resource_group.clone(),
        id: ids.next_uuid(),
        cloud: plan.cloud,
    }
}

fn add_planned_nodes(imds: &mut ImdsState, plans: &[NodePlan], ids: &mut IdGenerator) {
    for plan in plans {
        let node = ImdsNode {
            assigned: plan.identities.clone(),
            machine: ImdsMachine {
                name: plan.name.clone(),
                id: ids.next_uuid(),
                ..imds.default_node.machine.clone()
            },
            client_addresses: plan.client_addresses.clone(),
        };
        imds.nodes.insert(plan.name.clone(), node);
    }
}
