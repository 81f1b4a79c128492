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
        .with_description("The status of the identities.")
        .optional_field(
            "observedGeneration",
            CrdSchema::unsigned_integer()
                .with_description("The generation of the HostedCluster that the operator observed last."),
        )
        .optional_field(
            "identities",
            CrdSchema::bounded_list(identity_status_schema(), 32)
                .into_map_list("component")
                .with_description("One entry per identity."),
        )
        .optional_field("conditions", conditions_schema())
        .optional_field(
            "drift",
            CrdSchema::bounded_list(drift_schema(), 100).with_description(
                "Differences between rendered and actual objects, and between mounted and loaded credentials.",
            ),
        );
    let schema = root_object_schema("The status of every identity of a hosted cluster.")
        .optional_field("status", status);
    crd_json(&names, &columns, schema)
}

fn identity_status_schema() -> CrdSchema {
    let text = |longest: u32, what: &str| CrdSchema::string(longest).with_description(what);
    let time = |what: &str| CrdSchema::date_time().with_description(what);
    CrdSchema::object()
        .with_description("The status of one identity.")
        .required_field(
            "component",
            text(63, "The component, named like its field in the HostedCluster API."),
        )
        .optional_field("clientID", text(36, "The client id."))
        .required_field(
            "secretProviderClass",
            text(253, "The SecretProviderClass of the credential."),
        )
        .required_field(
            "ready",
            CrdSchema::enumeration(&["True", "False", "Unknown"])
                .with_description("Whether the identity works; Unknown while no pod has reported."),
        )
        .required_field("reason", text(1024, "A machine-readable reason in CamelCase."))
        .optional_field(
            "message",
            text(32_768, "The failed operation, the response and the next step."),
        )
        .optional_field("lastGoodHop", text(63, "The last hop that succeeded."))
        .optional_field("failedHop", text(63, "The hop that failed."))
        .optional_field(
            "loadedVersion",
            text(IdentityStatus::MAX_VERSION_LENGTH.into(), LOADED_VERSION_DESCRIPTION),
        )
        .optional_field("notBefore", time("The start of the credential's validity."))
        .optional_field("notAfter", time("The end of the credential's validity."))
        .optional_field("renewAfter", time("The time after which a newer credential is expected."))
        .optional_field(
            "cannotRenewAfter",
            time("The time after which the identity cannot be renewed."),
        )
        .optional_field("since", time("The last time `ready` changed."))
}

const LOADED_VERSION_DESCRIPTION: &str = "The version of the vault secret that the component has loaded, or that is mounted if the loaded one is unknown.";

fn drift_schema() -> CrdSchema {
    let text = |longest: u32, what: &str| CrdSchema::string(longest).with_description(what);
    CrdSchema::object()
        .with_description(
            "A difference between rendered and actual objects, or between mounted and loaded credentials.",
        )
        .required_field("kind", text(1024, "A machine-readable reason in CamelCase."))
        .required_field("subject", text(1024, "The component, pod or object that differs."))
        .required_field("message", text(32_768, "The details of the condition, and the next step."))
        .required_field(
            "since",
            CrdSchema::date_time().with_description("The last time the condition changed."),
        )
}
