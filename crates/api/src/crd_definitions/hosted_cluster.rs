//! `HostedCluster` and `HostedControlPlane`. The fields that lanyard uses are validated; all other
//! fields are preserved unchecked.

use serde_json::{Value, json};

use super::azure::azure_schema;
use super::cluster_fields::{capabilities_schema, dns_schema};
use super::encryption::secret_encryption_schema;
use super::encryption_status::secret_encryption_status_schema;
use super::publishing::services_schema;
use super::schema::{CrdSchema, conditions_schema};
use super::validation_messages;
use super::{CrdNames, PrinterColumn, crd_json};

/// The default of `spec.issuerURL`.
pub const DEFAULT_ISSUER_URL: &str = "https://kubernetes.default.svc";

/// The default of `spec.etcd`.
pub fn default_etcd() -> Value {
    json!({
        "managementType": "Managed",
        "managed": {
            "storage": {"type": "PersistentVolume", "persistentVolume": {"size": "8Gi"}},
        },
    })
}

/// The default of `spec.networking`.
pub fn default_networking() -> Value {
    json!({
        "networkType": "OVNKubernetes",
        "clusterNetwork": [{"cidr": "10.132.0.0/14"}],
        "serviceNetwork": [{"cidr": "172.31.0.0/16"}],
    })
}

/// The values of `spec.platform.type`.
pub const PLATFORM_TYPES: [&str; 7] =
    ["AWS", "Azure", "IBMCloud", "KubeVirt", "Agent", "PowerVS", "None"];

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
            .optional_field("status", status_schema())
            .with_cel_rule(
                "has(self.spec.infraID) || !has(oldSelf.spec.infraID)",
                validation_messages::INFRA_ID_REMOVED,
            )
            .with_cel_rule(
                "has(self.spec.clusterID) || !has(oldSelf.spec.clusterID)",
                validation_messages::CLUSTER_ID_REMOVED,
            );
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
    let schema = root_object_schema("The control plane of a hosted cluster.")
        .required_field("spec", hosted_control_plane_spec_schema())
        .optional_field("status", control_plane_status_schema());
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
        .optional_field("secretEncryption", secret_encryption_status_schema())
}

/// `status` of a HostedControlPlane. Cluster API reads both flags.
fn control_plane_status_schema() -> CrdSchema {
    let flag = |what: &str| CrdSchema::boolean().with_description(what).with_default(false);
    status_schema()
        .required_field("ready", flag("Whether the API server answers requests."))
        .required_field("initialized", flag("Whether the control plane was ready once."))
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
            CrdSchema::enumeration(&PLATFORM_TYPES)
                .with_maximum_length(100)
                .with_description("The platform type; lanyard supports `Azure`.")
                .immutable(validation_messages::PLATFORM_TYPE_IMMUTABLE),
        )
        .optional_field("azure", azure_schema());
    CrdSchema::preserved_object()
        .optional_field("infraID", infra_id)
        .optional_field("clusterID", cluster_id)
        .required_field("platform", platform)
        .optional_field("secretEncryption", secret_encryption_schema())
        .optional_field(
            "serviceAccountSigningKey",
            CrdSchema::local_reference(
                "The Secret with the signing key of service account tokens.",
            ),
        )
        .optional_field("dns", dns_schema())
        .optional_field("capabilities", capabilities_schema())
        .required_field("etcd", CrdSchema::preserved_object().with_description("The etcd cluster."))
        .required_field(
            "pullSecret",
            CrdSchema::local_reference("The Secret with the credentials of image registries."),
        )
        .optional_field(
            "sshKey",
            CrdSchema::local_reference("The Secret with the public SSH keys of the nodes."),
        )
        .optional_field(
            "additionalTrustBundle",
            CrdSchema::local_reference("The ConfigMap with further certificate authorities."),
        )
        .required_field("services", services_schema())
        .with_cel_rule(
            "has(self.secretEncryption) || !has(oldSelf.secretEncryption)",
            validation_messages::ENCRYPTION_REMOVED,
        )
        .with_cel_rule(
            "self.services.size() >= (self.platform.type == 'IBMCloud' ? 3 : 4)",
            validation_messages::SERVICES_COUNT,
        )
}

/// The schema of `spec` in the HostedControlPlane CRD. It requires what HyperShift's requires.
fn hosted_control_plane_spec_schema() -> CrdSchema {
    common_spec_schema()
        .with_description("The desired state of the control plane, copied from the HostedCluster.")
        .required_field(
            "issuerURL",
            CrdSchema::string(255).with_description("The issuer of service account tokens."),
        )
        .required_field(
            "releaseImage",
            CrdSchema::string(255).with_description("The image of the release."),
        )
        .optional_field(
            "controlPlaneReleaseImage",
            CrdSchema::string(255).with_description(
                "The image of the release of the control plane, if it is another.",
            ),
        )
        .require(&["dns", "infraID", "sshKey"])
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
        .optional_field(
            "etcd",
            CrdSchema::preserved_object()
                .with_description("The etcd cluster.")
                .with_default(default_etcd()),
        )
        .required_field(
            "networking",
            CrdSchema::preserved_object()
                .with_description("The networks of the cluster.")
                .with_default(default_networking()),
        )
        .required_field("release", release_schema("The release of the cluster."))
        .optional_field(
            "controlPlaneRelease",
            release_schema("The release of the control plane, if it is another."),
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

fn release_schema(description: &str) -> CrdSchema {
    CrdSchema::object().with_description(description).required_field(
        "image",
        CrdSchema::string(253).with_minimum_size(1).with_description("The image of the release."),
    )
}
