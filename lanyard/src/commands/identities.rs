//! `lanyard identities`: how every identity of every hosted cluster is.

mod table;

use std::borrow::Cow;

use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_desired::status::VALID_IDENTITIES;
use serde::Serialize;

use super::kubectl::{KubectlArgs, NOTHING_FOUND};
use crate::exit::{CommandResult, Exit};
use crate::output::{self, Format};
use crate::settings::Environment;

/// Show how every identity of every hosted cluster is
///
/// Reads what the operator knows: for each identity whether it is ready, the last hop that is known
/// to be good, the version of its credential, and when that ends. What nobody reported is Unknown.
/// Ends with 0 when every identity is ready, with 1 otherwise or when there is none at all, and with 2
/// when there is no cluster of that name. A cluster none of whose identities are known has one row, `*`.
///
/// As a kubectl plugin, under the name kubectl-lanyard: `kubectl lanyard identities -A`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The HostedCluster [default: all]
    name: Option<String>,
    #[command(flatten)]
    kubectl: KubectlArgs,
    /// The form of the output
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// One identity of one hosted cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    namespace: &'a str,
    hosted_cluster: &'a str,
    #[serde(flatten)]
    identity: Cow<'a, IdentityStatus>,
}

/// Prints every identity.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let found = args.kubectl.fetch_identities(&environment, args.name.as_deref()).await?;
    let rows = rows(&found);
    if rows.is_empty() {
        output::note(NOTHING_FOUND);
    }
    output::print(&match args.output {
        Format::Table if rows.is_empty() => return Ok(Exit::Failed),
        Format::Table => table::render(&rows),
        format => output::document(&rows, format),
    })?;
    // Where nothing was looked at, nothing is known to be well.
    let is_good = !rows.is_empty() && rows.iter().all(|row| row.identity.ready == "True");
    Ok(if is_good { Exit::Good } else { Exit::Failed })
}

fn rows(found: &[HostedClusterIdentities]) -> Vec<Row<'_>> {
    found.iter().flat_map(rows_of).collect()
}

fn rows_of(found: &HostedClusterIdentities) -> impl Iterator<Item = Row<'_>> {
    let HostedClusterIdentities { metadata, status, .. } = found;
    let told = status.as_ref().map(|status| status.identities.as_slice()).unwrap_or_default();
    let nobody = told.is_empty().then(|| Cow::Owned(unknown(found)));
    told.iter().map(Cow::Borrowed).chain(nobody).map(|identity| Row {
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        hosted_cluster: metadata.name.as_deref().unwrap_or_default(),
        identity,
    })
}

/// What is said about all identities of a cluster of which none is told: that it cannot be used, or
/// that no operator came to it.
fn unknown(found: &HostedClusterIdentities) -> IdentityStatus {
    let conditions = found.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.into_iter().find(|it| it.type_ == VALID_IDENTITIES);
    let (ready, reason, message) = match told {
        Some(told) => (told.status.clone(), told.reason.clone(), told.message.clone()),
        None => (
            "Unknown".to_owned(),
            "NotReported".to_owned(),
            "no operator has told anything about this cluster; see its log".to_owned(),
        ),
    };
    let since = told.map(|told| told.last_transition_time.0);
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

    fn told(status: serde_json::Value) -> Vec<(String, String, String)> {
        let found = json!({
            "apiVersion": HostedClusterIdentities::API_VERSION,
            "kind": HostedClusterIdentities::KIND,
            "metadata": {"namespace": "clusters", "name": "harbour"},
            "status": status,
        });
        let found: HostedClusterIdentities = serde_json::from_value(found).unwrap();
        let rows = rows_of(&found).map(|row| row.identity.into_owned());
        rows.map(|it| (it.component, it.ready, it.reason)).collect()
    }

    fn row(component: &str, ready: &str, reason: &str) -> (String, String, String) {
        (component.to_owned(), ready.to_owned(), reason.to_owned())
    }

    #[test]
    fn a_cluster_of_which_no_identity_is_told_is_not_left_out() {
        let nobody = [row("*", "Unknown", "NotReported")];
        assert_eq!(told(serde_json::Value::Null), nobody);
        assert_eq!(told(json!({"identities": []})), nobody);
        let invalid = json!({"conditions": [{
            "type": "ValidAzureIdentities", "status": "False", "reason": "InvalidHostedCluster",
            "message": "spec.infraID: Required value", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        assert_eq!(told(invalid), [row("*", "False", "InvalidHostedCluster")]);
        let one = json!({"identities": [{"component": "disk", "ready": "True", "reason": "AsExpected",
            "secretProviderClass": "managed-azure-disk-csi"}]});
        assert_eq!(told(one), [row("disk", "True", "AsExpected")]);
    }
}
