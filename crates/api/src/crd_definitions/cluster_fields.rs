//! `spec.dns` and `spec.capabilities`.

use super::schema::CrdSchema;
use super::validation_messages;

/// The capabilities that can be enabled and disabled.
pub const CAPABILITIES: [&str; 7] = [
    "ImageRegistry",
    "openshift-samples",
    "Insights",
    "baremetal",
    "Console",
    "NodeTuning",
    "Ingress",
];

/// The DNS settings of the cluster.
pub(super) fn dns_schema() -> CrdSchema {
    const NAME: &str =
        r"self == '' || self.matches(r'^(?:(?:[a-zA-Z0-9-]+\.)+[a-zA-Z]{2,}|[a-zA-Z0-9-]+)$')";
    const CHANGE: &str = "oldSelf == '' || self == oldSelf";
    let zone = |what: &str, longest: u32, message: &str| {
        CrdSchema::string(longest)
            .with_minimum_size(1)
            .with_description(what)
            .with_cel_rule(CHANGE, message)
    };
    CrdSchema::object()
        .with_description("The DNS settings of the cluster.")
        .required_field(
            "baseDomain",
            CrdSchema::string(253)
                .with_description("The base domain of the cluster's DNS names.")
                .with_cel_rule(NAME, validation_messages::BASE_DOMAIN)
                .with_cel_rule(CHANGE, validation_messages::BASE_DOMAIN_IMMUTABLE),
        )
        .optional_field(
            "baseDomainPrefix",
            CrdSchema::string(253)
                .with_description("The label between the base domain and the name.")
                .with_cel_rule(NAME, validation_messages::BASE_DOMAIN_PREFIX)
                .immutable(validation_messages::BASE_DOMAIN_PREFIX_IMMUTABLE),
        )
        .optional_field(
            "publicZoneID",
            zone("The id of the public DNS zone.", 258, validation_messages::PUBLIC_ZONE_IMMUTABLE),
        )
        .optional_field(
            "privateZoneID",
            zone(
                "The id of the private DNS zone.",
                265,
                validation_messages::PRIVATE_ZONE_IMMUTABLE,
            ),
        )
}

/// The optional components of OpenShift.
pub(super) fn capabilities_schema() -> CrdSchema {
    let list = |what: &str, message: &str| {
        CrdSchema::bounded_list(CrdSchema::enumeration(&CAPABILITIES), 25)
            .into_atomic_list()
            .with_description(what)
            .immutable(message)
    };
    let disabled = list("Disabled capabilities.", validation_messages::DISABLED_IMMUTABLE)
        .with_cel_rule(
            "!('Ingress' in self) || 'Console' in self",
            validation_messages::INGRESS_WITHOUT_CONSOLE,
        );
    CrdSchema::object()
        .with_description("Enabled and disabled optional components of OpenShift.")
        .with_default(serde_json::json!({}))
        .optional_field(
            "enabled",
            list(
                "Enabled capabilities that are disabled by default.",
                validation_messages::ENABLED_IMMUTABLE,
            ),
        )
        .optional_field("disabled", disabled)
        .with_cel_rule(
            "!has(self.enabled) || !has(self.disabled) || self.enabled.all(it, !(it in self.disabled))",
            validation_messages::CAPABILITY_CONTRADICTION,
        )
        .immutable(validation_messages::CAPABILITIES_IMMUTABLE)
}
