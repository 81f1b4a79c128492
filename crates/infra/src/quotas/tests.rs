use lanyard_azure::ResourceUsageName;
use lanyard_changes::FindingSeverity::{Error, Warning};
use lanyard_changes::{AzureGraph, LiveState, OwnershipTags, Plan, RecordedState, arm_resource};
use lanyard_vocabulary::ArmResourceId;
use proptest::prelude::*;

use super::*;
use crate::aks_graph::{AksParameters, aks_resources};
use crate::iam_graph::{DataPlaneParameters, data_plane_resources};

fn aks(max_nodes: Option<u32>) -> Vec<AzureResource> {
    aks_resources(&AksParameters {
        subscription: "s".parse().unwrap(),
        prefix: "dev".to_owned(),
        location: "East US".to_owned(),
        persistent_group: "os4-common".to_owned(),
        nodes: 3,
        max_nodes,
        vm_size: "Standard_D4s_v4".to_owned(),
        vault: None,
    })
}

fn needs(resources: Vec<AzureResource>, live: &LiveState) -> QuotaNeeds {
    let graph = AzureGraph::new(resources).unwrap();
    let tags = OwnershipTags::new("dev", "dev");
    QuotaNeeds::of_plan(
        &Plan::new(&graph, live, &RecordedState::default(), &tags, |_| false),
        &graph,
    )
}

/// A live state with these resources, without properties.
fn live_resources<'a>(resources: impl Iterator<Item = &'a AzureResource>) -> LiveState {
    let mut live = LiveState::default();
    for resource in resources {
        let found = arm_resource(resource.id.clone(), serde_json::json!({}));
        live.set(resource.key.clone(), Some(found));
    }
    live
}

fn usage(name: &str, localized: &str, current_value: u64, limit: u64) -> ResourceUsage {
    let (value, localized_value) = (name.to_owned(), localized.to_owned());
    ResourceUsage { current_value, limit, name: ResourceUsageName { value, localized_value } }
}

#[test]
fn management_cluster_needs_machines_addresses_and_a_role() {
    for max in [None, Some(6)] {
        let needs = needs(aks(max), &LiveState::default());
        let (region, size) = ("eastus".to_owned(), "Standard_D4s_v4".to_owned());
        let machine = MachineNeed { region, size, count: 3, max: max.map(u64::from) };
        assert_eq!(needs.machines, [machine]);
        assert_eq!(needs.network["eastus"]["PublicIPAddresses"], 1);
        assert_eq!(needs.network["eastus"]["StandardSkuLoadBalancers"], 1);
        assert_eq!(needs.role_assignments, [("s".to_owned(), 1)].into());
    }
}

#[test]
fn worker_identities_need_credentials_by_identity() {
    let parameters = DataPlaneParameters {
        subscription: "s".parse().unwrap(),
        prefix: "dev".to_owned(),
        location: "eastus".to_owned(),
        resource_group: "os4-common".to_owned(),
        issuer: "https://issuer.example.com".to_owned(),
    };
    let resources = data_plane_resources(&parameters).unwrap();
    // The credentials of new identities are within the limit.
    let new = needs(resources.clone(), &LiveState::default());
    assert!(new.federated_credentials.is_empty());
    let identities = resources.iter().filter(|it| it.id.name().ends_with("-MI-dev"));
    let needs = needs(resources.clone(), &live_resources(identities));
    let counts: Vec<_> = needs.federated_credentials.values().copied().collect();
    assert_eq!(counts, [3, 3, 2]);
    assert!(needs.federated_credentials.keys().all(|id| id.parse::<ArmResourceId>().is_ok()));
    assert!(needs.network.is_empty() && needs.machines.is_empty());
}

#[test]
fn existing_resources_need_nothing() {
    let live = live_resources(aks(None).iter());
    assert_eq!(needs(aks(None), &live), QuotaNeeds::default());
}

#[test]
fn finding_names_use_need_limit_and_next_step() {
    let usage = usage("PublicIPAddresses", "Public IP Addresses", 3, 3);
    let finding = exceeded(&usage, "eastus", 1).unwrap();
    assert_eq!(
        finding.message,
        "`PublicIPAddresses` (Public IP Addresses) in eastus: 3 of 3 are used, and the plan needs 1"
    );
    assert!(finding.hint.contains("request a higher limit"), "{}", finding.hint);
}

#[test]
fn limit_of_basic_addresses_does_not_concern_standard_ones() {
    let usages = [
        usage("PublicIPAddresses", "Public IP Addresses - Basic", 0, 0),
        usage("standardskupublicipaddresses", "Public IP Addresses - Standard", 0, 10),
    ];
    assert_eq!(find_usage(&usages, "PublicIPAddresses"), None);
    assert_eq!(find_usage(&usages, "StandardSkuPublicIpAddresses"), Some(&usages[1]));
}

#[test]
fn autoscaler_that_reaches_the_limit_is_a_warning() {
    let sku = MachineSku {
        resource_type: "virtualMachines".to_owned(),
        name: "Standard_D4s_v4".to_owned(),
        family: "standardDSv4Family".to_owned(),
        capabilities: vec![lanyard_azure::SkuCapability {
            name: "vCPUs".to_owned(),
            value: "4".to_owned(),
        }],
        restrictions: Vec::new(),
    };
    let machine =
        MachineNeed { region: "eastus".to_owned(), size: sku.name.clone(), count: 3, max: Some(6) };
    let severity = |limit| {
        let usage = usage("cores", "Total Regional vCPUs", 0, limit);
        exceeded_vcpus(&usage, &machine, &sku).map(|it| it.severity)
    };
    assert_eq!((severity(11), severity(12), severity(24)), (Some(Error), Some(Warning), None));
}

proptest! {
    #[test]
    fn plan_is_within_a_limit_exactly_if_use_and_need_fit(
        used in 0_u64..50, limit in 0_u64..50, needed in 1_u64..50,
    ) {
        let usage = usage("LoadBalancers", "Load Balancers", used, limit);
        prop_assert_eq!(exceeded(&usage, "eastus", needed).is_none(), used + needed <= limit);
    }
}
