//! `azureAuthenticationConfig`, and the identities wherever they stand.

use lanyard_vocabulary::component::FieldParent;
use lanyard_vocabulary::{Component, ObjectEncoding};

use super::message;
use super::schema::Schema;

/// `azureAuthenticationConfig`: a union. Its kind may change, as far as the API is concerned.
pub(super) fn authentication() -> Schema {
    let kinds = ["ManagedIdentities", "WorkloadIdentities"];
    Schema::object()
        .describe("How components authenticate.")
        .required("azureAuthenticationConfigType", Schema::choice(&kinds))
        .field("managedIdentities", managed_identities())
        .field("workloadIdentities", workload_identities())
        .rule(
            "has(self.managedIdentities) == (self.azureAuthenticationConfigType == 'ManagedIdentities')",
            message::MANAGED_MEMBER,
        )
        .rule(
            "has(self.workloadIdentities) == (self.azureAuthenticationConfigType == 'WorkloadIdentities')",
            message::WORKLOAD_MEMBER,
        )
}

/// The components whose identities stand in the authentication configuration.
fn components() -> impl Iterator<Item = Component> {
    Component::ALL.into_iter().filter(|it| it.facts().parent == FieldParent::ControlPlane)
}

fn managed_identities() -> Schema {
    let vault = Schema::object()
        .describe("The vault with the credentials of all of them.")
        .required("name", Schema::text(255).describe("The name of the vault."))
        .required("tenantID", Schema::text(255).describe("The tenant of the vault."));
    let control_plane = Schema::object()
        .describe("The identities of components on the management cluster.")
        .required("managedIdentitiesKeyVault", vault);
    let control_plane = components().fold(control_plane, |schema, component| {
        let facts = component.facts();
        let identity = managed_identity().describe(&format!("The identity of {}.", facts.title));
        if facts.optional {
            schema.field(facts.field, identity)
        } else {
            schema.required(facts.field, identity)
        }
    });
    let client = |of: &str| Schema::text(255).describe(&format!("The client id of {of}."));
    let data_plane = Schema::object()
        .describe("The identities of components on the nodes.")
        .required("imageRegistryMSIClientID", client("the image registry"))
        .required("diskMSIClientID", client("the disk driver"))
        .required("fileMSIClientID", client("the file driver"));
    Schema::object()
        .describe("The identities of managed Azure.")
        .required("controlPlane", control_plane)
        .required("dataPlane", data_plane)
}

/// The identities of self-managed Azure have the fields of the same components. Only the control
/// plane operator may be without one.
fn workload_identities() -> Schema {
    let schema = Schema::object().describe("The identities of self-managed Azure.");
    components().fold(schema, |schema, component| {
        let facts = component.facts();
        let identity = workload_identity().describe(&format!("The identity of {}.", facts.title));
        if component == Component::ControlPlaneOperator {
            schema.field(facts.field, identity)
        } else {
            schema.required(facts.field, identity)
        }
    })
}

/// A managed identity and the place of its credential.
pub(super) fn managed_identity() -> Schema {
    let secret = Schema::text(127)
        .at_least(1)
        .describe("The name of the vault's secret.")
        .pattern(message::SECRET_NAME_PATTERN);
    // Documentation promises a default here, and there is none.
    let encoding = Schema::choice(&ObjectEncoding::ALL.map(ObjectEncoding::name))
        .describe("How the credential is written into the secret.");
    Schema::object()
        .field("clientID", client_id())
        .required("credentialsSecretName", secret)
        .required("objectEncoding", encoding)
}

/// An identity with a federated credential.
pub(super) fn workload_identity() -> Schema {
    Schema::object().required("clientID", client_id())
}

fn client_id() -> Schema {
    Schema::text(36)
        .at_least(36)
        .describe("The client id.")
        .pattern(message::CLIENT_ID_PATTERN)
        .rule(&format!("self.matches(r'{}')", message::CLIENT_ID_PATTERN), message::CLIENT_ID)
}
