//! The identities of a seeded state, which rotation and fault plans look up.

use std::collections::BTreeSet;

use jiff::Timestamp;
use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{
    ArmResourceId, Cloud, Component, EntraClientId, EntraTenantId, ObjectEncoding, SecretName,
    SubscriptionId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::certificate_bundle::CredentialBundleFormat;
use crate::identity_fault::{IdentityFault, mismatched_encoding};
use crate::keys::RedactedText;

/// The identities of a seeded state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IdentityRegistry {
    /// One entry per component with an identity.
    pub holders: Vec<ComponentIdentity>,
    /// Credentials for test clients.
    #[serde(rename = "testClients")]
    pub test_clients: Option<TestClients>,
}

/// A component's identity, and the location and format of its credential.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComponentIdentity {
    #[serde(with = "crate::component_name")]
    pub component: Component,
    /// The application id.
    pub client_id: EntraClientId,
    /// The object id of the service principal.
    pub object_id: Uuid,
    pub tenant: EntraTenantId,
    /// The ARM id of the user-assigned identity.
    pub resource_id: ArmResourceId,
    pub cloud: Cloud,
    /// The region.
    pub location: String,
    /// The host name of the vault.
    pub vault_host: String,
    /// The name of the vault secret with the credential.
    pub secret_name: SecretName,
    /// The declared encoding of the secret.
    pub encoding: ObjectEncoding,
    /// The format of certificate and key.
    pub bundle: CredentialBundleFormat,
    /// `not_before` of the last credential.
    pub not_before: Option<Timestamp>,
    /// The active faults.
    #[serde(default)]
    pub faults: BTreeSet<IdentityFault>,
}

/// Credentials for test clients, which belong to no component.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TestClients {
    /// The tenant of the test clients.
    pub tenant: EntraTenantId,
    /// The subscription that the administrator and the application with a client secret own.
    pub subscription: SubscriptionId,
    /// The object id of the administrator.
    pub user_object_id: Uuid,
    pub user_principal_name: String,
    pub user_password: RedactedText,
    /// An application with a client secret, and the Owner role on the subscription.
    pub secret_client: EntraClientId,
    /// The client secret.
    pub secret: RedactedText,
    /// An application with a registered certificate.
    pub certificate_client: EntraClientId,
    /// The key and certificate of the application, in PEM.
    pub certificate: RedactedText,
    /// A user-assigned identity with a federated credential.
    pub federated_client: EntraClientId,
    /// The issuer of the subject tokens.
    pub issuer: String,
    /// The id of the issuer's key.
    pub key_id: String,
    /// The subject of the federated credential.
    pub subject: String,
    /// The audience of the federated credential.
    pub audience: String,
    /// The host name of the test clients' vault.
    pub vault_host: String,
    /// The name of the readable secret; a certificate and a key are in the same vault.
    pub secret_name: String,
    /// The name of a secret that the test clients may not read.
    pub withheld_secret_name: String,
}

impl IdentityRegistry {
    pub fn component_identity(&self, component: Component) -> Option<&ComponentIdentity> {
        self.holders.iter().find(|holder| holder.component == component)
    }

    /// Like [`Self::component_identity`], mutable.
    pub fn component_identity_mut(
        &mut self,
        component: Component,
    ) -> Option<&mut ComponentIdentity> {
        self.holders.iter_mut().find(|holder| holder.component == component)
    }

    /// The identities whose credential is in the same vault secret as that of `row`.
    pub fn identities_sharing_secret(
        &self,
        row: &ComponentIdentity,
    ) -> impl Iterator<Item = &ComponentIdentity> {
        self.holders.iter().filter(|other| other.shares_secret(row))
    }

    /// Like [`Self::identities_sharing_secret`], mutable.
    pub fn identities_sharing_secret_mut(
        &mut self,
        row: &ComponentIdentity,
    ) -> impl Iterator<Item = &mut ComponentIdentity> {
        self.holders.iter_mut().filter(|other| other.shares_secret(row))
    }

    /// The identities with a client id.
    pub fn identities_of_client(
        &self,
        client: EntraClientId,
    ) -> impl Iterator<Item = &ComponentIdentity> {
        self.holders.iter().filter(move |holder| holder.client_id == client)
    }
}

impl ComponentIdentity {
    /// Whether both credentials are in the same vault secret.
    pub fn shares_secret(&self, other: &Self) -> bool {
        self.vault_host == other.vault_host
            && self.secret_name.as_str().eq_ignore_ascii_case(other.secret_name.as_str())
    }

    /// The actual encoding of the secret's value.
    pub fn stored_encoding(&self) -> ObjectEncoding {
        if self.faults.contains(&IdentityFault::Encoding) {
            mismatched_encoding(self.encoding)
        } else {
            self.encoding
        }
    }

    /// Whether the private key in the credential does not match the certificate.
    pub fn has_wrong_key(&self) -> bool {
        self.faults.contains(&IdentityFault::KeyMismatch)
    }

    /// `authentication_endpoint` of the document.
    pub fn authority_url(&self) -> String {
        if self.faults.contains(&IdentityFault::Audience) {
            // The same service under a name that assertions must not have as their audience.
            return "https://sts.windows.net/".to_owned();
        }
        self.cloud.endpoints().map(CloudEndpoints::authority_url).unwrap_or_default()
    }
}
