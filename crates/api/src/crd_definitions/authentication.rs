//! The schemas of `azureAuthenticationConfig` and of the identity types.

use lanyard_vocabulary::component::IdentityFieldParent;
use lanyard_vocabulary::{Component, ObjectEncoding};

use super::schema::CrdSchema;
use super::validation_messages;

/// `azureAuthenticationConfig`: a union whose discriminator may change, according to the API.
pub(super) fn authentication_schema() -> CrdSchema {
    let kinds = ["ManagedIdentities", "WorkloadIdentities"];
    CrdSchema::object()
        .with_description("The authentication type of the components.")
        .required_field("azureAuthenticationConfigType", CrdSchema::enumeration(&kinds))
        .optional_field("managedIdentities", managed_identities_schema())
        .optional_field("workloadIdentities", workload_identities_schema())
        .with_cel_rule(
            "has(self.managedIdentities) == (self.azureAuthenticationConfigType == 'ManagedIdentities')",
            validation_messages::MANAGED_MEMBER,
        )
        .with_cel_rule(
            "has(self.workloadIdentities) == (self.azureAuthenticationConfigType == 'WorkloadIdentities')",
            validation_messages::WORKLOAD_MEMBER,
        )
}

/// The components whose identities are in the authentication configuration.
fn control_plane_components() -> impl Iterator<Item = Component> {
    Component::ALL
        .into_iter()
        .filter(|it| it.definition().parent == IdentityFieldParent::ControlPlane)
}

fn managed_identities_schema() -> CrdSchema {
    let vault = CrdSchema::object()
        .with_description("The vault that contains the credentials of all identities.")
        .required_field("name", CrdSchema::string(255).with_description("The name of the vault."))
        .required_field(
            "tenantID",
            CrdSchema::string(255).with_description("The tenant of the vault."),
        );
    let control_plane = CrdSchema::object()
        .with_description("The identities of components on the management cluster.")
        .required_field("managedIdentitiesKeyVault", vault);
    let control_plane = control_plane_components().fold(control_plane, |schema, component| {
        let facts = component.definition();
        let identity = managed_identity_schema()
            .with_description(&format!("The identity of {}.", facts.title));
        if facts.optional {
            schema.optional_field(facts.field, identity)
        } else {
            schema.required_field(facts.field, identity)
        }
    });
    let client =
        |of: &str| CrdSchema::string(255).with_description(&format!("The client id of {of}."));
    let data_plane = CrdSchema::object()
        .with_description("The identities of components on the nodes.")
        .required_field("imageRegistryMSIClientID", client("the image registry"))
        .required_field("diskMSIClientID", client("the disk driver"))
        .required_field("fileMSIClientID", client("the file driver"));
    CrdSchema::object()
        .with_description("The identities of managed Azure.")
        .required_field("controlPlane", control_plane)
        .required_field("dataPlane", data_plane)
}

/// The identities of self-managed Azure use the field names of the same components. Only the
/// control plane operator's identity is optional.
fn workload_identities_schema() -> CrdSchema {
    let schema = CrdSchema::object().with_description("The identities of self-managed Azure.");
    control_plane_components().fold(schema, |schema, component| {
        let facts = component.definition();
        let identity = workload_identity_schema()
            .with_description(&format!("The identity of {}.", facts.title));
        if component == Component::ControlPlaneOperator {
            schema.optional_field(facts.field, identity)
        } else {
            schema.required_field(facts.field, identity)
        }
    })
}

pub(super) fn managed_identity_schema() -> CrdSchema {
    let secret = CrdSchema::string(127)
        .with_minimum_size(1)
        .with_description("The name of the vault's secret.")
        .with_pattern(validation_messages::SECRET_NAME_PATTERN);
    // HyperShift's documentation mentions a default, but its schema has none.
    let encoding = CrdSchema::enumeration(&ObjectEncoding::ALL.map(ObjectEncoding::name))
        .with_description("The encoding of the credential in the secret.");
    CrdSchema::object()
        .optional_field("clientID", client_id_schema())
        .required_field("credentialsSecretName", secret)
        .required_field("objectEncoding", encoding)
}

pub(super) fn workload_identity_schema() -> CrdSchema {
    CrdSchema::object().required_field("clientID", client_id_schema())
}

fn client_id_schema() -> CrdSchema {
    CrdSchema::string(36)
        .with_minimum_size(36)
        .with_description("The client id.")
        .with_pattern(validation_messages::CLIENT_ID_PATTERN)
        .with_cel_rule(
            &format!("self.matches(r'{}')", validation_messages::CLIENT_ID_PATTERN),
            validation_messages::CLIENT_ID,
        )
}
