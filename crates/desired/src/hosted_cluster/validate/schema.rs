//! The rules of the HostedCluster schema, for clusters on all platforms.
//!
//! The API server enforces the same rules through the CRDs in `lanyard_api::crd_definitions`. The rules
//! here produce the same messages, on an object without unknown fields and with defaults applied.
//! `conformance/cases/hosted_cluster.yaml` tests both implementations with the same cases.

use lanyard_api::HostedCluster;
use lanyard_api::hosted_cluster::AzurePlatform;
use lanyard_vocabulary::Cloud;

use super::checker::FieldChecker;
use crate::problem::ValidationProblems;

mod authentication;
mod azure;
mod cluster;
mod domain;
mod encryption;
mod private;
mod services;
mod subnet;
mod uri;

pub(super) use subnet::invalid_subnet_id_names;

/// Returns every schema violation of a HostedCluster, on any platform. These rules check one
/// object; [`super::validate_update`] checks changes.
pub fn validate_schema(wire: &HostedCluster) -> ValidationProblems {
    let mut checker = FieldChecker::default();
    cluster::check_cluster_spec(&mut checker, &wire.spec.clone().unwrap_or_default());
    checker.problems
}

/// Returns `cloud` or its default.
pub(super) fn cloud_or_default(azure: &AzurePlatform) -> &str {
    azure.cloud.as_deref().unwrap_or(Cloud::default().name())
}

/// Returns `resourceGroup` or its default.
pub(super) fn resource_group_or_default(azure: &AzurePlatform) -> &str {
    azure.resource_group.as_deref().unwrap_or("default")
}
