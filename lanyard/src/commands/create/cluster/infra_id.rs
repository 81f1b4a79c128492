//! The infrastructure id of a new cluster.

use std::path::Path;

use lanyard_infra::{ClusterName, JournalCluster, generate_infra_id, read_directory};
use lanyard_vocabulary::{InfraId, SubscriptionId};

use crate::exit::CommandError;

/// Generates an infrastructure id, unless the journals record resources of a cluster with the name: an interrupted
/// run without --infra-id must not lead to a second infrastructure.
pub(super) fn new_infra_id(
    name: &ClusterName,
    subscription: &SubscriptionId,
    state_directory: Option<&Path>,
) -> Result<InfraId, CommandError> {
    let journals = state_directory.map(|it| it.join("lanyard").join(subscription.as_str()));
    if let Some(found) = journals.and_then(|it| recorded_infra_id(name, subscription, &it)) {
        return Err(CommandError::invalid_input(format!(
            "--infra-id is missing: a journal records the infrastructure `{found}` of a cluster `{name}`"
        ))
        .with_hint(format!(
            "continue with --infra-id {found}, or create another infrastructure with another --infra-id"
        )));
    }
    generate_infra_id(name, |count| fastrand::usize(..count)).parse().map_err(
        |error: lanyard_vocabulary::ParseIdentifierError| {
            CommandError::invalid_input("--name cannot be used for an infrastructure id")
                .with_cause(&error)
        },
    )
}

/// The infrastructure id of a journal in the directory that records resources of a cluster with the name.
fn recorded_infra_id(
    name: &ClusterName,
    subscription: &SubscriptionId,
    journals: &Path,
) -> Option<InfraId> {
    let entries = std::fs::read_dir(journals).ok()?;
    entries.flatten().find_map(|entry| {
        let infra_id: InfraId = entry.file_name().to_str()?.parse().ok()?;
        let cluster = JournalCluster {
            name: name.clone(),
            infra_id: infra_id.clone(),
            subscription: subscription.to_string(),
        };
        // The journal of another cluster is an error.
        let recorded = read_directory(&entry.path(), &cluster).ok()?;
        recorded.resources().next().is_some().then_some(infra_id)
    })
}
