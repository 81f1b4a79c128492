//! The infrastructure id of a new cluster.

use std::path::Path;

use lanyard_changes::{JournalCluster, JournalLocation};
use lanyard_infra::ClusterName;
use lanyard_vocabulary::InfraId;

use crate::commands::azure_resources::journal_args::{JournalContext, StateArgs, default_base};
use crate::exit::{CommandError, ExternalResult as _};

const MISSING: &str = "--infra-id is missing";

/// Generates an infrastructure id, unless the journal of --state or a journal of the default location records a
/// cluster with the name: an interrupted run without --infra-id must not lead to a second infrastructure.
pub(super) async fn new_infra_id(
    name: &ClusterName,
    state: &StateArgs,
    context: JournalContext<'_>,
) -> Result<InfraId, CommandError> {
    let found = match state.read_cluster(context).await {
        Some(cluster) => recorded_cluster(name, cluster?, context)?,
        None => find_infra_id(name, context).await?,
    };
    if let Some(found) = found {
        return Err(CommandError::invalid_input(format!(
            "{MISSING}: a journal records the infrastructure `{found}` of a cluster `{name}`"
        ))
        .with_hint(format!(
            "continue with --infra-id {found}, or create another infrastructure with another --infra-id"
        )));
    }
    Ok(InfraId::generate(name.as_str(), |count| fastrand::usize(..count)))
}

/// The infrastructure id of the cluster in the journal of --state.
fn recorded_cluster(
    name: &ClusterName,
    recorded: Option<JournalCluster>,
    context: JournalContext<'_>,
) -> Result<Option<InfraId>, CommandError> {
    match recorded {
        Some(it)
            if it.name != name.as_str()
                || !it.subscription.eq_ignore_ascii_case(context.account.subscription.as_str()) =>
        {
            Err(CommandError::invalid_input(format!(
                "--state: the journal belongs to the cluster `{it}`"
            ))
            .with_hint("choose another directory or prefix with --state"))
        }
        Some(it) => it.infra_id.parse().map(Some).or_invalid("--state: the journal"),
        None => Ok(None),
    }
}

/// The infrastructure id of a journal of the default location that records resources of a cluster with the name.
async fn find_infra_id(
    name: &ClusterName,
    context: JournalContext<'_>,
) -> Result<Option<InfraId>, CommandError> {
    let JournalLocation::Directory(base) = default_base(context.environment)? else {
        let reason = "journals in a container are not searched for an interrupted creation";
        return Err(CommandError::invalid_input(format!("{MISSING}: {reason}"))
            .with_hint("give an infrastructure id, such as the name with five random characters"));
    };
    let journals = base.join(context.account.subscription.as_str());
    Ok(recorded_infra_id(name, context, &journals).await)
}

/// The infrastructure id of a journal in the directory that records resources of a cluster with the name.
async fn recorded_infra_id(
    name: &ClusterName,
    context: JournalContext<'_>,
    journals: &Path,
) -> Option<InfraId> {
    for entry in std::fs::read_dir(journals).ok()?.flatten() {
        let Some(infra_id) = entry.file_name().to_str().and_then(|it| it.parse::<InfraId>().ok())
        else {
            continue;
        };
        let cluster = JournalCluster {
            name: name.to_string(),
            infra_id: infra_id.to_string(),
            subscription: context.account.subscription.to_string(),
        };
        let journal = StateArgs::default().journal(context, cluster, infra_id.as_str()).ok()?;
        // The journal of another cluster is an error.
        if let Ok(Some(recorded)) = journal.read().await
            && recorded.resources().next().is_some()
        {
            return Some(infra_id);
        }
    }
    None
}
