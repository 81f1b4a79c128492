//! Who holds what in a seeded world: what rotation and drills need to find it again.

use std::collections::BTreeSet;

use jiff::Timestamp;
use lanyard_vocabulary::cloud::Endpoints;
use lanyard_vocabulary::{
    ArmResourceId, ClientId, Cloud, Component, ObjectEncoding, SecretName, TenantId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Bundle;
use super::plan::component_name;
use crate::drill::{Fault, other_encoding};
use crate::keys::SecretText;

/// The holders of credentials in a seeded world.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Roster {
    /// One row per component with an identity.
    pub(crate) holders: Vec<Holder>,
    /// Credentials for other people's clients.
    pub(crate) guests: Option<Guests>,
}

/// A component's identity, and where and how its credential is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// The component.
    #[serde(with = "component_name")]
    pub(crate) component: Component,
    /// The application id.
    pub(crate) client_id: ClientId,
    /// The object id of the service principal.
    pub(crate) object_id: Uuid,
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// The user-assigned identity.
    pub(crate) resource_id: ArmResourceId,
    /// The cloud.
    pub(crate) cloud: Cloud,
    /// The region.
    pub(crate) location: String,
    /// The host name of the vault.
    pub(crate) vault_host: String,
    /// The vault secret.
    pub(crate) secret_name: SecretName,
    /// The declared encoding of the secret.
    pub(crate) encoding: ObjectEncoding,
    /// The form of certificate and key.
    pub(crate) bundle: Bundle,
    /// `not_before` of the last credential.
    pub(crate) not_before: Option<Timestamp>,
    /// What is broken.
    #[serde(default)]
    pub(crate) faults: BTreeSet<Fault>,
}

/// Credentials for other people's clients, which have no component.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Guests {
    /// The tenant of all of them.
    pub(crate) tenant: TenantId,
    /// An application with a client secret; Owner of the subscription.
    pub(crate) secret_client: ClientId,
    /// Its secret.
    pub(crate) secret: SecretText,
    /// An application with a registered certificate.
    pub(crate) certificate_client: ClientId,
    /// Its key and certificate, PEM.
    pub(crate) certificate: SecretText,
    /// A user-assigned identity with a federated credential.
    pub(crate) federated_client: ClientId,
    /// The issuer of the subject tokens.
    pub(crate) issuer: String,
    /// The key id of the issuer.
    pub(crate) key_id: String,
    /// The subject of the federated credential.
    pub(crate) subject: String,
    /// Its audience.
    pub(crate) audience: String,
    /// The host name of their vault.
    pub(crate) vault_host: String,
    /// The secret that they may read, the certificate and the key beside it.
    pub(crate) secret_name: String,
    /// A secret beside it that they may not read.
    pub(crate) withheld_secret_name: String,
}

impl Roster {
    /// The row of a component.
    pub(crate) fn holder(&self, component: Component) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.component == component)
    }

    /// The row of a component, to change.
    pub(crate) fn holder_mut(&mut self, component: Component) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.component == component)
    }

    /// The rows whose credential is in the same vault secret as that of `row`.
    pub(crate) fn sharing(&self, row: &Holder) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|other| other.shares_secret(row))
    }

    /// The rows whose credential is in the same vault secret as that of `row`, to change.
    pub(crate) fn sharing_mut(&mut self, row: &Holder) -> impl Iterator<Item = &mut Holder> {
        self.holders.iter_mut().filter(|other| other.shares_secret(row))
    }

    /// The rows of a client id.
    pub(crate) fn of_client(&self, client: ClientId) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(move |holder| holder.client_id == client)
    }
}

impl Holder {
    /// Whether the credential is in the same vault secret as that of `other`.
    pub(crate) fn shares_secret(&self, other: &Self) -> bool {
        self.vault_host == other.vault_host
            && self.secret_name.as_str().eq_ignore_ascii_case(other.secret_name.as_str())
    }

    /// The encoding that the value is stored in.
    pub(super) fn stored_encoding(&self) -> ObjectEncoding {
        if self.faults.contains(&Fault::Encoding) {
            other_encoding(self.encoding)
        } else {
            self.encoding
        }
    }

    /// Whether the private key in the credential is not that of the certificate.
    pub(super) fn has_wrong_key(&self) -> bool {
        self.faults.contains(&Fault::KeyMismatch)
    }

    /// `authentication_endpoint` of the document.
    pub(super) fn authority_url(&self) -> String {
        if self.faults.contains(&Fault::Audience) {
            // The same service under a name that is no issuer of assertions' audiences.
            return "https://sts.windows.net/".to_owned();
        }
        self.cloud.endpoints().map(Endpoints::authority_url).unwrap_or_default()
    }
}
