//! One application on many AKS clusters: a `fleet.yaml` to the resources of each cluster.
//!
//! [`Fleet::read`] parses the file, [`FleetTarget::resolve`] looks up what exists for one cluster, and the engine of
//! `lanyard-changes` plans and applies the result. Each cluster has a journal of its own, so that the failure of one
//! leaves the others as they are.

mod cluster_graph;
mod document_variables;
mod fleet;
mod fleet_document;
mod fleet_file;
mod fleet_label;
mod fleet_rules;
mod fleet_target;
mod live_cluster;
mod rollout;
mod unknown_fields;
mod vault_checks;
mod wave_rule;
mod waves;

pub use cluster_graph::{FLEET, identity_key};
pub use fleet::{Application, Fleet, FleetCluster, IdentityPlace, VaultSecrets};
pub use fleet_document::{OidcIssuerMode, fleet_schema};
pub use fleet_file::FleetFileError;
pub use fleet_label::{FleetLabel, ParseFleetLabelError};
pub use fleet_rules::{FleetRules, can_contain};
pub use fleet_target::{FleetTarget, FleetTargetError, journal_cluster};
pub use rollout::{Rollout, run_waves};
pub use waves::Wave;
