//! `HostedClusterIdentities`, lanyard's own kind. It has no `spec`: only the operator writes it.

use serde_json::Value;

use super::hosted_cluster::root_object_schema;
use super::schema::{CrdSchema, conditions_schema};
use super::{CrdNames, PrinterColumn, crd_json};
use crate::HostedClusterIdentities;
use crate::hosted_cluster_identities::IdentityStatus;

pub(super) fn hosted_cluster_identities_crd() -> Value {
    let names = CrdNames {
        group: "lanyard.dev",
        version: "v1alpha1",
        kind: HostedClusterIdentities::KIND,
        plural: HostedClusterIdentities::PLURAL,
        singular: HostedClusterIdentities::PLURAL,
        short_names: &["hci"],
    };
    let columns = [
        PrinterColumn::condition_status("Ready", "ValidAzureIdentities"),
        PrinterColumn::condition_status("KMS", "ValidAzureKMSConfig"),
        PrinterColumn::of("Not ready", r#".status.identities[?(@.ready!="True")].component"#),
        PrinterColumn::condition_message("Message", "ValidAzureIdentities").wide_only(),
        PrinterColumn::age(),
    ];
    let status = CrdSchema::object()
        .with_description("How the identities are.")
        .optional_field(
            "observedGeneration",
            CrdSchema::unsigned_integer()
                .with_description("The generation of the HostedCluster that this is about."),
        )
        .optional_field(
            "identities",
            CrdSchema::bounded_list(identity_status_schema(), 32)
                .into_map_list("component")
                .with_description("One entry for each identity."),
        )
        .optional_field("conditions", conditions_schema())
        .optional_field(
            "drift",
            CrdSchema::bounded_list(drift_schema(), 100).with_description(
                "What is not as it was rendered, or not in use as it is mounted.",
            ),
        );
    let schema = root_object_schema("How every identity of a hosted cluster is.")
        .optional_field("status", status);
    crd_json(&names, &columns, schema)
}

fn identity_status_schema() -> CrdSchema {
    let text = |longest: u32, what: &str| CrdSchema::string(longest).with_description(what);
    let time = |what: &str| CrdSchema::date_time().with_description(what);
    CrdSchema::object()
        .with_description("How one identity is.")
        .required_field(
            "component",
            text(63, "The component, as its field in the HostedCluster API."),
        )
        .optional_field("clientID", text(36, "The client id."))
        .required_field("secretProviderClass", text(253, "The class that brings the credential."))
        .required_field(
            "ready",
            CrdSchema::enumeration(&["True", "False", "Unknown"])
                .with_description("Whether the identity works; Unknown where nobody reported."),
        )
        .required_field("reason", text(1024, "A word for it."))
        .optional_field(
            "message",
            text(32_768, "What was tried, what came back and what to do next."),
        )
        .optional_field("lastGoodHop", text(63, "The last hop that is known to be good."))
        .optional_field("failedHop", text(63, "The hop that is to blame."))
        .optional_field(
            "loadedVersion",
            text(IdentityStatus::MAX_VERSION_LENGTH.into(), LOADED_VERSION_DESCRIPTION),
        )
        .optional_field("notBefore", time("When the credential begins."))
        .optional_field("notAfter", time("When the credential ends."))
        .optional_field("renewAfter", time("From when on a newer credential is to be expected."))
        .optional_field(
            "cannotRenewAfter",
            time("From when on the identity cannot be renewed any more."),
        )
        .optional_field("since", time("Since when the identity is as it is."))
}

const LOADED_VERSION_DESCRIPTION: &str =
    "The version of the vault's secret that is loaded, or else mounted.";

fn drift_schema() -> CrdSchema {
    let text = |longest: u32, what: &str| CrdSchema::string(longest).with_description(what);
    CrdSchema::object()
        .with_description(
            "Something that is not as it was rendered, or not in use as it is mounted.",
        )
        .required_field("kind", text(1024, "A word for it."))
        .required_field("subject", text(1024, "What it is about: a component, a pod, an object."))
        .required_field("message", text(32_768, "What is so, and what to do next."))
        .required_field(
            "since",
            CrdSchema::date_time().with_description("Since when it is known to be so."),
        )
}
