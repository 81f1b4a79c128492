//! The resource providers of Azure Resource Manager.
//!
//! Each of them registers its resource types and operations; `lanyard_emulator_arm` stores the
//! resources.

use lanyard_emulator_arm::resource_type::ResourceType;
use lanyard_emulator_core::emulated_service::EmulatedService;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::azure_service::AzureService;

mod compute;
mod container_service;
mod key_vault;
mod managed_identity;
mod network;
mod quotas;
mod storage;

/// The operations of the resource providers.
pub const SERVICE: EmulatedService = EmulatedService {
    check_settings: quotas::check_quotas,
    ..EmulatedService::new(AzureService::Arm, OPERATIONS)
};

/// The token issuers of managed clusters.
pub const OIDC_ISSUER_SERVICE: EmulatedService = container_service::issuer_documents::SERVICE;

const OPERATIONS: &[&[ServiceOperation]] = &[
    managed_identity::IDENTITIES,
    managed_identity::OPERATIONS,
    key_vault::VAULTS,
    key_vault::OPERATIONS,
    key_vault::VAULT_KEYS,
    key_vault::MANAGED_HSM_OPERATIONS,
    network::VIRTUAL_NETWORKS,
    network::SUBNETS,
    network::SECURITY_GROUPS,
    network::SECURITY_RULES,
    network::ROUTE_TABLES,
    network::ROUTES,
    network::PUBLIC_IP_ADDRESSES,
    network::NAT_GATEWAYS,
    network::LOAD_BALANCERS,
    network::NETWORK_INTERFACES,
    network::PRIVATE_ENDPOINTS,
    network::PRIVATE_LINK_SERVICES,
    network::PUBLIC_ZONES,
    network::PRIVATE_ZONES,
    network::VIRTUAL_NETWORK_LINKS,
    network::ITEMS,
    network::RECORD_SETS,
    compute::DISKS,
    compute::IMAGES,
    compute::VIRTUAL_MACHINES,
    compute::SKU_OPERATIONS,
    quotas::OPERATIONS,
    container_service::CLUSTERS,
    container_service::AGENT_POOLS,
    container_service::ACTIONS,
    storage::OPERATIONS,
];

/// The resource types that clients can write, one table for each resource provider.
pub const TYPES: &[&[ResourceType]] = &[
    managed_identity::TYPES,
    network::TYPES,
    network::RECORD_TYPES,
    compute::TYPES,
    container_service::TYPES,
    key_vault::TYPES,
    storage::TYPES,
];

#[cfg(test)]
mod tests {
    use jiff::civil::Date;

    use super::TYPES;

    #[test]
    fn every_type_is_listed_once_with_a_valid_api_version() {
        let types = || TYPES.iter().copied().flatten();
        let mut names: Vec<_> = types().map(|known| known.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for known in types() {
            let date = known.oldest_api_version.get(..10).map(str::parse::<Date>);
            assert!(matches!(date, Some(Ok(_))), "{}", known.name);
        }
    }
}
