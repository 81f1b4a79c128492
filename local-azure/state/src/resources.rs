//! The stored resources of Azure Resource Manager.

pub mod arm_settings;
pub mod cluster_settings;
mod deleted_resources;
pub mod deployment_store;
pub mod long_running_rule;
pub mod private_endpoint_connections;
pub mod resource_store;
pub mod stored_operation;
