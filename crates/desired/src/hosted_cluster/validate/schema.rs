//! The rules of the schema alone, for every cluster that the API knows.
//!
//! They are those that the API server judges by (`lanyard_api::definitions`), with its messages, on
//! an object whose unknown fields do not count and whose defaults are filled in. Both are held to
//! the same verdicts by `conformance/cases/hosted_cluster.yaml`.

use lanyard_api::HostedCluster;
use lanyard_api::hosted_cluster::AzurePlatform;
use lanyard_vocabulary::Cloud;

use super::checker::FieldChecker;
use crate::problem::ValidationProblems;

mod authentication;
mod azure;
mod cluster;
mod encryption;
mod private;
mod subnet;
mod uri;

pub(super) use subnet::invalid_subnet_id_segments;

/// Everything in which a HostedCluster breaks the schema, whether it is one to bring identities to
/// or not. These are the rules about one object; [`super::validate_update`] knows those about a
/// change.
pub fn validate_schema(wire: &HostedCluster) -> ValidationProblems {
    let mut checker = FieldChecker::default();
    cluster::check_cluster_spec(&mut checker, &wire.spec.clone().unwrap_or_default());
    checker.problems
}

/// `cloud`, with its default.
pub(super) fn cloud_or_default(azure: &AzurePlatform) -> &str {
    azure.cloud.as_deref().unwrap_or(Cloud::default().name())
}

/// `resourceGroup`, with its default.
pub(super) fn resource_group_or_default(azure: &AzurePlatform) -> &str {
    azure.resource_group.as_deref().unwrap_or("default")
}
