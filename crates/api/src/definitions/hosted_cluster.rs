//! `HostedCluster` and `HostedControlPlane`: the part that identities travel through has its rules,
//! and everything else is kept as it comes.

use serde_json::Value;

use super::azure::azure;
use super::encryption::secret_encryption;
use super::message;
use super::schema::{Schema, conditions};
use super::{Column, Names, definition};

/// What the API fills in for `spec.issuerURL`.
pub const DEFAULT_ISSUER_URL: &str = "https://kubernetes.default.svc";

const GROUP: &str = "hypershift.openshift.io";
const VERSION: &str = "v1beta1";

/// The definition of `HostedCluster`.
pub(super) fn hosted_cluster() -> Value {
    let names = Names {
        group: GROUP,
        version: VERSION,
        kind: "HostedCluster",
        plural: "hostedclusters",
        singular: "hostedcluster",
        short: &["hc", "hcs"],
    };
    let columns = [
        Column::of("Version", r#".status.version.history[?(@.state=="Completed")].version"#),
        Column::condition("Available", "Available"),
        Column::condition("Identities", "ValidAzureIdentities"),
        Column::condition("KMS", "ValidAzureKMSConfig"),
        Column::of("Location", ".spec.platform.azure.location").wide(),
        Column::of(
            "Authentication",
            ".spec.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType",
        )
        .wide(),
        Column::message("Message", "Available").wide(),
        Column::age(),
    ];
    let schema = object("A cluster whose control plane runs as pods of a management cluster.")
        .required("spec", cluster_spec())
        .field("status", status());
    definition(&names, &columns, schema)
}

/// The definition of `HostedControlPlane`.
pub(super) fn hosted_control_plane() -> Value {
    let names = Names {
        group: GROUP,
        version: VERSION,
        kind: "HostedControlPlane",
        plural: "hostedcontrolplanes",
        singular: "hostedcontrolplane",
        short: &["hcp", "hcps"],
    };
    let columns = [
        Column::of("Version", ".status.versionStatus.history[0].version"),
        Column::condition("Available", "Available"),
        Column::condition("Identities", "ValidAzureIdentities"),
        Column::condition("KMS", "ValidAzureKMSConfig"),
        Column::message("Message", "Available").wide(),
        Column::age(),
    ];
    let spec = spec()
        .describe("What the control plane is made from, copied from the HostedCluster.")
        .field("issuerURL", Schema::text(255).describe("The issuer of service account tokens."))
        .field("services", services());
    let schema = object("The control plane of a hosted cluster.")
        .required("spec", spec)
        .field("status", status());
    definition(&names, &columns, schema)
}

/// An object of the API without what it is about.
pub(super) fn object(description: &str) -> Schema {
    Schema::object()
        .describe(description)
        .field("apiVersion", Schema::any_text())
        .field("kind", Schema::any_text())
        .field("metadata", Schema::object())
}

fn status() -> Schema {
    Schema::foreign().describe("What was observed.").field("conditions", conditions())
}

/// What both kinds have.
fn spec() -> Schema {
    let infra_id = Schema::text(253)
        .at_least(1)
        .describe("The unique id that names of cloud resources are made of.")
        .rule(r"self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", message::INFRA_ID)
        .rule("oldSelf == '' || self == oldSelf", message::INFRA_ID_IMMUTABLE);
    let cluster_id = Schema::text(36)
        .at_least(36)
        .describe("The id of the cluster, a UUID.")
        .rule(&format!("self.matches(r'{}')", message::CLIENT_ID_PATTERN), message::CLUSTER_ID)
        .rule("oldSelf == '' || self == oldSelf", message::CLUSTER_ID_IMMUTABLE);
    let platform = Schema::foreign()
        .describe("Where the cluster runs.")
        .required("type", Schema::text(255).describe("The platform, `Azure` here."))
        .field("azure", azure());
    Schema::foreign()
        .field("infraID", infra_id)
        .field("clusterID", cluster_id)
        .required("platform", platform)
        .field("secretEncryption", secret_encryption())
        .field("serviceAccountSigningKey", signing_key())
        .field("dns", dns())
        .field("capabilities", capabilities())
}

fn cluster_spec() -> Schema {
    let issuer_url = Schema::text(255)
        .describe("The issuer of service account tokens.")
        .default(DEFAULT_ISSUER_URL)
        .immutable(message::ISSUER_URL_IMMUTABLE)
        .rule("isURL(self)", message::ISSUER_URL);
    let published = |service: &str, how: &str| {
        format!("self.services.exists(it, it.service == '{service}' && {how})")
    };
    let by_route = "it.servicePublishingStrategy.type == 'Route'";
    let route_or_balancer = "it.servicePublishingStrategy.type in ['Route', 'LoadBalancer']";
    let other = "self.platform.type != 'Azure'";
    let self_managed = "(has(self.platform.azure) && self.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType == 'WorkloadIdentities')";
    spec()
        .describe("What the cluster should be.")
        .field("issuerURL", issuer_url)
        .required("services", services())
        .rule(
            "has(self.secretEncryption) || !has(oldSelf.secretEncryption)",
            message::ENCRYPTION_REMOVED,
        )
        .rule(
            "self.services.size() >= (self.platform.type == 'IBMCloud' ? 3 : 4)",
            message::SERVICES_COUNT,
        )
        .rule(
            "self.platform.type == 'IBMCloud' || self.services == oldSelf.services",
            message::SERVICES_IMMUTABLE,
        )
        .rule(
            &format!("{other} || {self_managed} || {}", published("OAuthServer", by_route)),
            message::MANAGED_OAUTH,
        )
        .rule(
            &format!(
                "{other} || !{self_managed} || {}",
                published("OAuthServer", route_or_balancer)
            ),
            message::SELF_MANAGED_OAUTH,
        )
        .rule(
            &format!("{other} || {}", published("Konnectivity", by_route)),
            message::KONNECTIVITY_ROUTE,
        )
        .rule(&format!("{other} || {}", published("Ignition", by_route)), message::IGNITION_ROUTE)
        .rule(
            "has(self.issuerURL) || !has(self.serviceAccountSigningKey)",
            message::SIGNING_KEY_ISSUER,
        )
}

/// How the services of the control plane are published.
fn services() -> Schema {
    let strategy = Schema::foreign()
        .describe("How the service is published.")
        .required("type", Schema::choice(&["LoadBalancer", "NodePort", "Route", "None", "S3"]));
    let known = ["APIServer", "OAuthServer", "OIDC", "Konnectivity", "Ignition", "OVNSbDb"];
    let service = Schema::foreign()
        .describe("One service.")
        .required("service", Schema::choice(&known))
        .required("servicePublishingStrategy", strategy);
    Schema::list(service, 6).describe("How the services of the control plane are published.")
}

fn signing_key() -> Schema {
    Schema::object()
        .describe("The Secret with the key that signs service account tokens.")
        .field("name", Schema::any_text().describe("The name of the Secret.").default(""))
        .atomic()
}

fn dns() -> Schema {
    let text = |what: &str| Schema::any_text().describe(what);
    Schema::foreign()
        .describe("The names of the cluster.")
        .field("baseDomain", text("The domain below which the cluster's names are."))
        .field("baseDomainPrefix", text("The label between the base domain and the name."))
}

fn capabilities() -> Schema {
    let list = |what: &str| Schema::any_list(Schema::any_text()).describe(what);
    Schema::foreign()
        .describe("Parts of OpenShift that are switched on or off.")
        .field("enabled", list("Capabilities that are on although they are off by default."))
        .field("disabled", list("Capabilities that are off."))
}
