//! The approximate monthly cost of the resources that a plan creates, from an offline table.

use lanyard_changes::{Plan, ResourceChange};
use serde::Serialize;

/// The month of the prices in the table.
pub const PRICES_OF: &str = "2026-11";

/// The hours of an average month, as Azure's price pages count.
const HOURS_PER_MONTH: u64 = 730;

/// The cost of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceCost {
    /// The resource type.
    pub resource_type: String,
    /// The number of resources.
    pub count: u64,
    /// The cost of all of them in US cents for a month.
    pub cents_per_month: u64,
}

/// List prices in US dollars for East US, without traffic and without discounts.
struct Price {
    resource_type: &'static str,
    /// Thousandths of a cent for each hour.
    millicents_per_hour: u64,
    /// Cents for each month.
    cents_per_month: u64,
}

const PRICES: [Price; 4] = [
    // Standard load balancer with up to five rules: $0.025 per hour.
    Price {
        resource_type: "Microsoft.Network/loadBalancers",
        millicents_per_hour: 2_500,
        cents_per_month: 0,
    },
    // Standard static IPv4 address: $0.005 per hour.
    Price {
        resource_type: "Microsoft.Network/publicIPAddresses",
        millicents_per_hour: 500,
        cents_per_month: 0,
    },
    // DNS zones, public and private: $0.50 per month.
    Price {
        resource_type: "Microsoft.Network/privateDnsZones",
        millicents_per_hour: 0,
        cents_per_month: 50,
    },
    Price {
        resource_type: "Microsoft.Network/dnsZones",
        millicents_per_hour: 0,
        cents_per_month: 50,
    },
];

/// The cost of the resources that the plan creates. Types that cost nothing or depend on their use are not listed.
pub fn monthly_cost(plan: &Plan) -> Vec<ResourceCost> {
    let created = |resource_type: &str| {
        let of_type = plan.resources.iter().filter(|it| it.id.has_type(resource_type));
        of_type.filter(|it| matches!(it.change, ResourceChange::Create)).count()
    };
    let costs = PRICES.iter().filter_map(|price| {
        let count = u64::try_from(created(price.resource_type)).ok().filter(|count| *count > 0)?;
        let hourly = price.millicents_per_hour * HOURS_PER_MONTH / 1_000;
        let cents_per_month = count * (hourly + price.cents_per_month);
        Some(ResourceCost { resource_type: price.resource_type.to_owned(), count, cents_per_month })
    });
    costs.collect()
}

#[cfg(test)]
mod tests {
    use lanyard_changes::{Ownership, PlannedResource, ResourceKey};

    use super::*;
    use crate::stacks;

    #[test]
    fn only_new_resources_with_a_price_count() {
        let planned = |kind: &str, change| PlannedResource {
            key: ResourceKey::new(kind),
            stack: stacks::INFRA,
            id: format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/{kind}/x")
                .parse()
                .unwrap(),
            change,
        };
        let ownership = Ownership::Created;
        let plan = Plan {
            resources: vec![
                planned("loadBalancers", ResourceChange::Create),
                planned("publicIPAddresses", ResourceChange::Create),
                planned("privateDnsZones", ResourceChange::None { ownership }),
                planned("virtualNetworks", ResourceChange::Create),
            ],
        };
        let costs: Vec<_> = monthly_cost(&plan)
            .into_iter()
            .map(|it| (it.resource_type, it.cents_per_month))
            .collect();
        assert_eq!(
            costs,
            [
                ("Microsoft.Network/loadBalancers".to_owned(), 1_825),
                ("Microsoft.Network/publicIPAddresses".to_owned(), 365),
            ]
        );
    }
}
