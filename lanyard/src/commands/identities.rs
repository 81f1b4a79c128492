//! `lanyard identities`: how every identity of every hosted cluster is.

mod table;

use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use serde::Serialize;

use super::kubectl::KubectlArgs;
use crate::exit::{CommandResult, Exit};
use crate::output::{self, Format};
use crate::settings::Environment;

/// Show how every identity of every hosted cluster is
///
/// Reads what the operator knows: for each identity whether it is ready, the last hop that is known
/// to be good, the version of its credential, and when that ends. What nobody reported is Unknown.
/// Ends with 0 when every identity is ready, and with 1 otherwise.
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
    identity: &'a IdentityStatus,
}

/// Prints every identity.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let found = args.kubectl.fetch_identities(&environment, args.name.as_deref()).await?;
    let rows = rows(&found);
    if rows.is_empty() {
        output::note("no identities found: no HostedCluster here, or no operator that reports");
    }
    output::print(&match args.output {
        Format::Table if rows.is_empty() => return Ok(Exit::Good),
        Format::Table => table::render(&rows),
        format => output::document(&rows, format),
    });
    let is_good = rows.iter().all(|row| row.identity.ready == "True");
    Ok(if is_good { Exit::Good } else { Exit::Failed })
}

fn rows(found: &[HostedClusterIdentities]) -> Vec<Row<'_>> {
    found.iter().flat_map(rows_of).collect()
}

fn rows_of(found: &HostedClusterIdentities) -> impl Iterator<Item = Row<'_>> {
    let HostedClusterIdentities { metadata, status, .. } = found;
    let identities = status.iter().flat_map(|status| &status.identities);
    identities.map(|identity| Row {
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        hosted_cluster: metadata.name.as_deref().unwrap_or_default(),
        identity,
    })
}
