//! `HostedCluster` and `HostedControlPlane`. The fields that lanyard uses are validated; all other
//! fields are preserved unchecked.

use serde_json::Value;

use super::azure::azure_schema;
use super::encryption::secret_encryption_schema;
use super::schema::{CrdSchema, conditions_schema};
use super::validation_messages;
use super::{CrdNames, PrinterColumn, crd_json};

/// The default of `spec.issuerURL`.
pub const DEFAULT_ISSUER_URL: &str = "https://kubernetes.default.svc";

const GROUP: &str = "hypershift.openshift.io";
const VERSION: &str = "v1beta1";

pub(super) fn hosted_cluster_crd() -> Value {
    let names = CrdNames {
        group: GROUP,
        version: VERSION,
        kind: "HostedCluster",
        plural: "hostedclusters",
        singular: "hostedcluster",
        short_names: &["hc", "hcs"],
    };
    let columns = [
        PrinterColumn::of("Version", r#".status.version.history[?(@.state=="Completed")].version"#),
        PrinterColumn::condition_status("Available", "Available"),
        PrinterColumn::condition_status("Identities", "ValidAzureIdentities"),
        PrinterColumn::condition_status("KMS", "ValidAzureKMSConfig"),
        PrinterColumn::of("Location", ".spec.platform.azure.location").wide_only(),
        PrinterColumn::of(
            "Authentication",
            ".spec.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType",
        )
        .wide_only(),
        PrinterColumn::condition_message("Message", "Available").wide_only(),
        PrinterColumn::age(),
    ];
    let schema =
        root_object_schema("A cluster whose control plane runs as pods in a management cluster.")
            .required_field("spec", hosted_cluster_spec_schema())
            .optional_field("status", status_schema());
    crd_json(&names, &columns, schema)
}

pub(super) fn hosted_control_plane_crd() -> Value {
    let names = CrdNames {
        group: GROUP,
        version: VERSION,
        kind: "HostedControlPlane",
        plural: "hostedcontrolplanes",
        singular: "hostedcontrolplane",
        short_names: &["hcp", "hcps"],
    };
    let columns = [
        PrinterColumn::of("Version", ".status.versionStatus.history[0].version"),
        PrinterColumn::condition_status("Available", "Available"),
        PrinterColumn::condition_status("Identities", "ValidAzureIdentities"),
        PrinterColumn::condition_status("KMS", "ValidAzureKMSConfig"),
        PrinterColumn::condition_message("Message", "Available").wide_only(),
        PrinterColumn::age(),
    ];
    let spec = common_spec_schema()
        .with_description("The desired state of the control plane, copied from the HostedCluster.")
        .optional_field(
            "issuerURL",
            CrdSchema::string(255).with_description("The issuer of service account tokens."),
        )
        .optional_field("services", services_schema());
    let schema = root_object_schema("The control plane of a hosted cluster.")
        .required_field("spec", spec)
        .optional_field("status", status_schema());
    crd_json(&names, &columns, schema)
}

/// A top-level schema with `apiVersion`, `kind` and `metadata`, without `spec` and `status`.
pub(super) fn root_object_schema(description: &str) -> CrdSchema {
    CrdSchema::object()
        .with_description(description)
        .optional_field("apiVersion", CrdSchema::unbounded_string())
        .optional_field("kind", CrdSchema::unbounded_string())
        .optional_field("metadata", CrdSchema::object())
}

fn status_schema() -> CrdSchema {
    CrdSchema::preserved_object()
        .with_description("The observed state.")
        .optional_field("conditions", conditions_schema())
}

/// The spec fields that HostedCluster and HostedControlPlane share.
fn common_spec_schema() -> CrdSchema {
    let infra_id = CrdSchema::string(253)
        .with_minimum_size(1)
        .with_description("The unique ID that is part of the names of cloud resources.")
        .with_cel_rule(
            r"self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            validation_messages::INFRA_ID,
        )
        .with_cel_rule("oldSelf == '' || self == oldSelf", validation_messages::INFRA_ID_IMMUTABLE);
    let cluster_id = CrdSchema::string(36)
        .with_minimum_size(36)
        .with_description("The id of the cluster, a UUID.")
        .with_cel_rule(
            &format!("self.matches(r'{}')", validation_messages::CLIENT_ID_PATTERN),
            validation_messages::CLUSTER_ID,
        )
        .with_cel_rule(
            "oldSelf == '' || self == oldSelf",
            validation_messages::CLUSTER_ID_IMMUTABLE,
        );
    let platform = CrdSchema::preserved_object()
        .with_description("The platform of the cluster.")
        .required_field(
            "type",
            CrdSchema::string(255).with_description("The platform type; lanyard supports `Azure`."),
        )
        .optional_field("azure", azure_schema());
    CrdSchema::preserved_object()
        .optional_field("infraID", infra_id)
        .optional_field("clusterID", cluster_id)
        .required_field("platform", platform)
        .optional_field("secretEncryption", secret_encryption_schema())
        .optional_field("serviceAccountSigningKey", signing_key_schema())
        .optional_field("dns", dns_schema())
        .optional_field("capabilities", capabilities_schema())
}

/// The schema of `spec` in the HostedCluster CRD: the fields that it shares with HostedControlPlane, its own
/// fields, and the validation rules.
fn hosted_cluster_spec_schema() -> CrdSchema {
    let issuer_url = CrdSchema::string(255)
        .with_description("The issuer of service account tokens.")
        .with_default(DEFAULT_ISSUER_URL)
        .immutable(validation_messages::ISSUER_URL_IMMUTABLE)
        .with_cel_rule("isURL(self)", validation_messages::ISSUER_URL);
    let published = |service: &str, how: &str| {
        format!("self.services.exists(it, it.service == '{service}' && {how})")
    };
    let by_route = "it.servicePublishingStrategy.type == 'Route'";
    let route_or_balancer = "it.servicePublishingStrategy.type in ['Route', 'LoadBalancer']";
    let other = "self.platform.type != 'Azure'";
    let self_managed = "(has(self.platform.azure) && self.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType == 'WorkloadIdentities')";
    common_spec_schema()
        .with_description("The desired state of the cluster.")
        .optional_field("issuerURL", issuer_url)
        .required_field("services", services_schema())
        .with_cel_rule(
            "has(self.secretEncryption) || !has(oldSelf.secretEncryption)",
            validation_messages::ENCRYPTION_REMOVED,
        )
        .with_cel_rule(
            "self.services.size() >= (self.platform.type == 'IBMCloud' ? 3 : 4)",
            validation_messages::SERVICES_COUNT,
        )
        .with_cel_rule(
            "self.platform.type == 'IBMCloud' || self.services == oldSelf.services",
            validation_messages::SERVICES_IMMUTABLE,
        )
        .with_cel_rule(
            &format!("{other} || {self_managed} || {}", published("OAuthServer", by_route)),
            validation_messages::MANAGED_OAUTH,
        )
        .with_cel_rule(
            &format!(
                "{other} || !{self_managed} || {}",
                published("OAuthServer", route_or_balancer)
            ),
            validation_messages::SELF_MANAGED_OAUTH,
        )
        .with_cel_rule(
            &format!("{other} || {}", published("Konnectivity", by_route)),
            validation_messages::KONNECTIVITY_ROUTE,
        )
        .with_cel_rule(
            &format!("{other} || {}", published("Ignition", by_route)),
            validation_messages::IGNITION_ROUTE,
        )
        .with_cel_rule(
            "has(self.issuerURL) || !has(self.serviceAccountSigningKey)",
            validation_messages::SIGNING_KEY_ISSUER,
        )
}

/// How the services of the control plane are published.
fn services_schema() -> CrdSchema {
    let strategy = CrdSchema::preserved_object()
        .with_description("The publishing strategy of the service.")
        .required_field(
            "type",
            CrdSchema::enumeration(&["LoadBalancer", "NodePort", "Route", "None", "S3"]),
        );
    let known = ["APIServer", "OAuthServer", "OIDC", "Konnectivity", "Ignition", "OVNSbDb"];
    let service = CrdSchema::preserved_object()
        .with_description("One service.")
        .required_field("service", CrdSchema::enumeration(&known))
        .required_field("servicePublishingStrategy", strategy);
    CrdSchema::bounded_list(service, 6)
        .with_description("The publishing strategies of the control plane services.")
}

fn signing_key_schema() -> CrdSchema {
    CrdSchema::object()
        .with_description("The Secret with the signing key of service account tokens.")
        .optional_field(
            "name",
            CrdSchema::unbounded_string()
                .with_description("The name of the Secret.")
                .with_default(""),
        )
        .atomic()
}

fn dns_schema() -> CrdSchema {
    let text = |what: &str| CrdSchema::unbounded_string().with_description(what);
    CrdSchema::preserved_object()
        .with_description("The DNS settings of the cluster.")
        .optional_field("baseDomain", text("The base domain of the cluster's DNS names."))
        .optional_field("baseDomainPrefix", text("The label between the base domain and the name."))
}

fn capabilities_schema() -> CrdSchema {
    let list = |what: &str| {
        CrdSchema::unbounded_list(CrdSchema::unbounded_string()).with_description(what)
    };
    CrdSchema::preserved_object()
        .with_description("Enabled and disabled optional components of OpenShift.")
        .optional_field("enabled", list("Enabled capabilities that are disabled by default."))
        .optional_field("disabled", list("Disabled capabilities."))
}
