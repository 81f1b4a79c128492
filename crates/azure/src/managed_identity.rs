//! User-assigned managed identities and their federated credentials.

use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::arm_body::{ArmBody, ResourceTags};

/// A new user-assigned managed identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedIdentityBody {
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
}

/// A live user-assigned managed identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedIdentity {
    /// The id.
    pub id: ArmResourceId,
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// Client, principal and tenant.
    pub properties: ManagedIdentityProperties,
}

/// The properties of a [`ManagedIdentity`]. An identity that is deleted and created has new ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedIdentityProperties {
    /// The client id, for tokens.
    pub client_id: EntraClientId,
    /// The object id of the service principal, for role assignments.
    pub principal_id: Uuid,
    /// The tenant.
    pub tenant_id: EntraTenantId,
}

impl ArmBody for ManagedIdentityBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.ManagedIdentity/userAssignedIdentities";
    const API_VERSION: &'static str = "2024-11-30";
}

impl ManagedIdentityBody {
    /// An identity in `location` with these tags.
    pub fn new(location: impl Into<String>, tags: ResourceTags) -> Self {
        Self { location: location.into(), tags }
    }
}

/// A federated credential: a child of an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FederatedCredentialBody {
    /// The name; Azure sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Issuer, subject and audiences.
    pub properties: FederatedCredentialProperties,
}

/// The properties of a [`FederatedCredentialBody`]. Entra compares them exactly. Two credentials of an identity
/// differ in issuer or subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FederatedCredentialProperties {
    /// The issuer of the tokens.
    pub issuer: String,
    /// The subject of the tokens.
    pub subject: String,
    /// The audience of the tokens; exactly one.
    pub audiences: Vec<String>,
}

impl ArmBody for FederatedCredentialBody {
    const RESOURCE_TYPE: &'static str =
        "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials";
    const API_VERSION: &'static str = ManagedIdentityBody::API_VERSION;
}

impl FederatedCredentialBody {
    /// The maximum number of credentials of an identity.
    pub const LIMIT: usize = 20;

    /// A credential with one audience.
    pub fn new(
        issuer: impl Into<String>,
        subject: impl Into<String>,
        audience: impl Into<String>,
    ) -> Self {
        let audiences = vec![audience.into()];
        let (issuer, subject) = (issuer.into(), subject.into());
        let properties = FederatedCredentialProperties { issuer, subject, audiences };
        Self { name: None, properties }
    }

    /// The id of the credential `name` of an identity.
    pub fn id(identity: &ArmResourceId, name: &str) -> ArmResourceId {
        identity.child("federatedIdentityCredentials", name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn identity_and_credential_have_this_json() {
        let identity = ManagedIdentityBody::new("westeurope", ResourceTags::new());
        assert_body(&identity, json!({ "location": "westeurope", "tags": {} }));
        let subject = "system:serviceaccount:kube-system:azure-cloud-provider";
        let credential =
            FederatedCredentialBody::new("https://oidc.example/c", subject, "openshift");
        assert_body(
            &credential,
            json!({ "properties": {
                "issuer": "https://oidc.example/c",
                "subject": subject,
                "audiences": ["openshift"],
            } }),
        );
    }

    #[test]
    fn live_identity_has_client_principal_and_tenant() {
        let id = resource_id("Microsoft.ManagedIdentity/userAssignedIdentities/i");
        let identity: ManagedIdentity = serde_json::from_value(json!({
            "id": id,
            "location": "westeurope",
            "properties": {
                "clientId": "11111111-2222-3333-4444-555555555555",
                "principalId": "66666666-7777-8888-9999-000000000000",
                "tenantId": "contoso.onmicrosoft.com",
            },
        }))
        .unwrap();
        let properties = identity.properties;
        assert_eq!(properties.client_id.to_string(), "11111111-2222-3333-4444-555555555555");
        assert_eq!(properties.tenant_id.as_str(), "contoso.onmicrosoft.com");
    }
}
