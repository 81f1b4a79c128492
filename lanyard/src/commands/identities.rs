//! `lanyard identities`: shows the status of every identity of every hosted cluster.

mod table;

use std::borrow::Cow;

use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_desired::status::VALID_AZURE_IDENTITIES;
use serde::Serialize;

use super::kubectl::{KubectlArgs, NO_IDENTITIES_FOUND};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard identities --all-namespaces
  lanyard identities harbour --namespace clusters -o json
  lanyard identities --input hostedclusteridentities.yaml";

/// Show the status of every identity of every hosted cluster
///
/// Reads the status that the operator reports: for each identity whether it is ready, the last hop that
/// succeeded, the version of its credential, and its expiry. An unreported identity is Unknown. Exits with 0
/// if every identity is ready, with 1 if one is not or if there are none, and with 2 if there is no cluster
/// of that name. A cluster without reported identities has one row, `*`.
///
/// As a kubectl plugin, under the name kubectl-lanyard: `kubectl lanyard identities -A`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The HostedCluster [default: all]
    name: Option<String>,
    #[command(flatten)]
    kubectl: KubectlArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One identity of one hosted cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdentityRow<'a> {
    namespace: &'a str,
    hosted_cluster: &'a str,
    #[serde(flatten)]
    identity: Cow<'a, IdentityStatus>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let found = args.kubectl.fetch_identities(&environment, args.name.as_deref()).await?;
    let rows = identity_rows(&found);
    if rows.is_empty() {
        output::print_stderr(NO_IDENTITIES_FOUND);
    }
    if rows.is_empty() && args.output.format == CliOutputFormat::Table {
        return Ok(CommandExit::Failed);
    }
    output::print_value(&rows, args.output.format, |line_width| table::render(&rows, line_width))?;
    // An empty list proves nothing, so it does not count as success.
    let is_good = !rows.is_empty() && rows.iter().all(|row| row.identity.ready == "True");
    Ok(if is_good { CommandExit::Success } else { CommandExit::Failed })
}

fn identity_rows(found: &[HostedClusterIdentities]) -> Vec<IdentityRow<'_>> {
    found.iter().flat_map(cluster_rows).collect()
}

fn cluster_rows(found: &HostedClusterIdentities) -> impl Iterator<Item = IdentityRow<'_>> {
    let HostedClusterIdentities { metadata, status, .. } = found;
    let reported = status.as_ref().map(|status| status.identities.as_slice()).unwrap_or_default();
    let unreported = reported.is_empty().then(|| Cow::Owned(unreported_status(found)));
    reported.iter().map(Cow::Borrowed).chain(unreported).map(|identity| IdentityRow {
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        hosted_cluster: metadata.name.as_deref().unwrap_or_default(),
        identity,
    })
}

/// The row of a cluster without reported identities: its HostedCluster is invalid, or no operator has
/// reconciled it.
fn unreported_status(found: &HostedClusterIdentities) -> IdentityStatus {
    let conditions = found.status.iter().flat_map(|status| &status.conditions);
    let condition = conditions.into_iter().find(|it| it.type_ == VALID_AZURE_IDENTITIES);
    let (ready, reason, message) = match condition {
        Some(condition) => {
            (condition.status.clone(), condition.reason.clone(), condition.message.clone())
        }
        None => (
            "Unknown".to_owned(),
            "NotReported".to_owned(),
            "no operator has reported a status for this cluster; see the operator's log".to_owned(),
        ),
    };
    let since = condition.map(|condition| condition.last_transition_time.0);
    IdentityStatus {
        component: "*".to_owned(),
        ready,
        reason,
        message,
        since,
        ..IdentityStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reported_identities(status: serde_json::Value) -> Vec<(String, String, String)> {
        let found = json!({
            "apiVersion": HostedClusterIdentities::API_VERSION,
            "kind": HostedClusterIdentities::KIND,
            "metadata": {"namespace": "clusters", "name": "harbour"},
            "status": status,
        });
        let found: HostedClusterIdentities = serde_json::from_value(found).unwrap();
        let rows = cluster_rows(&found).map(|row| row.identity.into_owned());
        rows.map(|it| (it.component, it.ready, it.reason)).collect()
    }

    fn reported_identity(component: &str, ready: &str, reason: &str) -> (String, String, String) {
        (component.to_owned(), ready.to_owned(), reason.to_owned())
    }

    #[test]
    fn cluster_without_reported_identities_has_a_row() {
        let unreported = [reported_identity("*", "Unknown", "NotReported")];
        assert_eq!(reported_identities(serde_json::Value::Null), unreported);
        assert_eq!(reported_identities(json!({"identities": []})), unreported);
        let invalid = json!({"conditions": [{
            "type": "ValidAzureIdentities", "status": "False", "reason": "InvalidHostedCluster",
            "message": "spec.infraID: Required value", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        assert_eq!(
            reported_identities(invalid),
            [reported_identity("*", "False", "InvalidHostedCluster")]
        );
        let one = json!({"identities": [{"component": "disk", "ready": "True", "reason": "AsExpected",
            "secretProviderClass": "managed-azure-disk-csi"}]});
        assert_eq!(reported_identities(one), [reported_identity("disk", "True", "AsExpected")]);
    }
}
