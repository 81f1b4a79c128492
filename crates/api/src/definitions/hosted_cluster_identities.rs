//! `HostedClusterIdentities`, our own kind. It has no `spec`: nobody but the operator writes it.

use serde_json::Value;

use super::hosted_cluster::object;
use super::schema::{Schema, conditions};
use super::{Column, Names, definition};
use crate::HostedClusterIdentities;
use crate::hosted_cluster_identities::IdentityStatus;

/// The definition of `HostedClusterIdentities`.
pub(super) fn hosted_cluster_identities() -> Value {
    let names = Names {
        group: "lanyard.dev",
        version: "v1alpha1",
        kind: HostedClusterIdentities::KIND,
        plural: HostedClusterIdentities::PLURAL,
        singular: HostedClusterIdentities::PLURAL,
        short: &["hci"],
    };
    let columns = [
        Column::condition("Ready", "ValidAzureIdentities"),
        Column::condition("KMS", "ValidAzureKMSConfig"),
        Column::of("Not ready", r#".status.identities[?(@.ready!="True")].component"#),
        Column::message("Message", "ValidAzureIdentities").wide(),
        Column::age(),
    ];
    let status = Schema::object()
        .describe("How the identities are.")
        .field(
            "observedGeneration",
            Schema::count().describe("The generation of the HostedCluster that this is about."),
        )
        .field(
            "identities",
            Schema::list(identity(), 32)
                .keyed_by("component")
                .describe("One entry for each identity."),
        )
        .field("conditions", conditions())
        .field(
            "drift",
            Schema::list(drift(), 100)
                .describe("What is not as it was rendered, or not in use as it is mounted."),
        );
    let schema = object("How every identity of a hosted cluster is.").field("status", status);
    definition(&names, &columns, schema)
}

fn identity() -> Schema {
    let text = |longest: u32, what: &str| Schema::text(longest).describe(what);
    let time = |what: &str| Schema::time().describe(what);
    Schema::object()
        .describe("How one identity is.")
        .required("component", text(63, "The component, as its field in the HostedCluster API."))
        .field("clientID", text(36, "The client id."))
        .required("secretProviderClass", text(253, "The class that brings the credential."))
        .required(
            "ready",
            Schema::choice(&["True", "False", "Unknown"])
                .describe("Whether the identity works; Unknown where nobody reported."),
        )
        .required("reason", text(1024, "A word for it."))
        .field("message", text(32_768, "What was tried, what came back and what to do next."))
        .field("lastGoodHop", text(63, "The last hop that is known to be good."))
        .field("failedHop", text(63, "The hop that is to blame."))
        .field("loadedVersion", text(IdentityStatus::LONGEST_VERSION.into(), LOADED_VERSION))
        .field("notBefore", time("When the credential begins."))
        .field("notAfter", time("When the credential ends."))
        .field("renewAfter", time("From when on a newer credential is to be expected."))
        .field("cannotRenewAfter", time("From when on the identity cannot be renewed any more."))
        .field("since", time("Since when the identity is as it is."))
}

const LOADED_VERSION: &str = "The version of the vault's secret that is loaded, or else mounted.";

fn drift() -> Schema {
    let text = |longest: u32, what: &str| Schema::text(longest).describe(what);
    Schema::object()
        .describe("Something that is not as it was rendered, or not in use as it is mounted.")
        .required("kind", text(1024, "A word for it."))
        .required("subject", text(1024, "What it is about: a component, a pod, an object."))
        .required("message", text(32_768, "What is so, and what to do next."))
        .required("since", Schema::time().describe("Since when it is known to be so."))
}
