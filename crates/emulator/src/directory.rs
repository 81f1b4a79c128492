//! The directory: tenants, principals with their credentials, and the issuers that the world knows.
//!
//! One [`Principal`] stands for an application with its service principal, or for a user-assigned
//! identity. The ids of the two objects of an application stay apart: clients look one up by the
//! other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::keys::{RedactedText, RsaKey};
use crate::published_key::RsaPublicJwk;

/// Everything that Entra knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EntraDirectory {
    /// The tenants, with the keys that sign their tokens.
    pub(crate) tenants: Vec<Tenant>,
    /// The principals.
    pub(crate) principals: Vec<Principal>,
    /// Certificate authorities that subject-name-issuer trust can name.
    pub(crate) authorities: BTreeMap<String, CertificateAuthority>,
    /// Issuers of foreign tokens by their exact `iss`: what their discovery documents would say.
    pub(crate) issuers: BTreeMap<String, TrustedIssuer>,
}

/// A tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tenant {
    /// The directory id.
    pub(crate) id: EntraTenantId,
    /// Domain names that stand for it.
    #[serde(default)]
    pub(crate) domains: Vec<String>,
    /// The `kid` of its signing key.
    pub(crate) key_id: String,
    /// The key that signs its tokens.
    pub(crate) key: RsaKey,
    /// The self-signed certificate of that key, DER, as the JWKS publishes it.
    pub(crate) certificate: Vec<u8>,
}

/// What kind of object a principal is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub(crate) enum PrincipalKind {
    /// An application with its service principal.
    Application {
        /// The object id of the application (not of its service principal).
        application_object_id: Uuid,
    },
    /// A user-assigned managed identity.
    ManagedIdentity {
        /// The id of its Azure resource.
        resource_id: ArmResourceId,
    },
}

/// An identity that can obtain tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Principal {
    /// The object id of the service principal: `oid` of its tokens, and what roles are assigned to.
    pub(crate) object_id: Uuid,
    /// The application id.
    pub(crate) client_id: EntraClientId,
    /// The home tenant.
    pub(crate) tenant: EntraTenantId,
    /// The display name.
    pub(crate) display_name: String,
    /// Whether it may obtain tokens.
    pub(crate) enabled: bool,
    /// What kind of object it is.
    pub(crate) kind: PrincipalKind,
    /// Client secrets.
    #[serde(default)]
    pub(crate) secrets: Vec<ClientSecret>,
    /// Registered certificates.
    #[serde(default)]
    pub(crate) certificates: Vec<KeyCredential>,
    /// Trust in every certificate of one subject from one authority (the chain must be sent).
    #[serde(default)]
    pub(crate) subject_name_issuer: Option<SubjectNameIssuer>,
    /// Federated credentials.
    #[serde(default)]
    pub(crate) federated_credentials: Vec<FederatedCredential>,
}

/// A client secret of an application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientSecret {
    /// The secret.
    pub(crate) text: RedactedText,
    /// When it ends.
    pub(crate) expires: Timestamp,
}

/// A certificate that is registered with an application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeyCredential {
    /// The certificate, DER.
    pub(crate) certificate: Vec<u8>,
    /// When the registration ends.
    pub(crate) expires: Timestamp,
}

/// Trust in a subject name from an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubjectNameIssuer {
    /// The common name of the subject.
    pub(crate) subject: String,
    /// The name of the authority in [`EntraDirectory::authorities`].
    pub(crate) authority: String,
}

/// A federated credential: a foreign token that may stand for this principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FederatedCredential {
    /// The name, unique within the principal.
    pub(crate) name: String,
    /// The exact `iss`.
    pub(crate) issuer: String,
    /// The exact `sub`.
    pub(crate) subject: String,
    /// The accepted `aud` values.
    pub(crate) audiences: Vec<String>,
}

/// A certificate authority of the world, such as the one of the MSI data plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CertificateAuthority {
    /// Its certificate, DER.
    pub(crate) certificate: Vec<u8>,
    /// Its key.
    pub(crate) key: RsaKey,
}

/// An issuer of foreign tokens, with the keys that its `jwks_uri` would publish.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TrustedIssuer {
    /// The keys that this world signs with, by `kid`.
    pub(crate) keys: BTreeMap<String, RsaKey>,
    /// The keys of an issuer outside this world, by `kid`.
    #[serde(default)]
    pub(crate) published: BTreeMap<String, RsaPublicJwk>,
}

impl TrustedIssuer {
    /// The public key that verifies a token with this `kid`, as `RSAPublicKey` DER. Without one,
    /// the only key that there is.
    pub(crate) fn public_der(&self, kid: Option<&str>) -> Option<Vec<u8>> {
        let own = self.keys.iter().map(|(known, key)| (known, key.public_der().ok()));
        let others = self.published.iter().map(|(known, key)| (known, key.public_der()));
        let mut keys = own.chain(others);
        if let Some(kid) = kid {
            return keys.find(|(known, _)| *known == kid)?.1;
        }
        let (_, only) = keys.next()?;
        keys.next().is_none().then_some(only)?
    }
}

impl EntraDirectory {
    /// The tenant with this id or domain name, in any case.
    pub(crate) fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| {
            tenant.id.as_str().eq_ignore_ascii_case(name)
                || tenant.domains.iter().any(|domain| domain.eq_ignore_ascii_case(name))
        })
    }

    /// The principal with this client id.
    pub(crate) fn by_client_id(&self, client: EntraClientId) -> Option<&Principal> {
        self.principals.iter().find(|principal| principal.client_id == client)
    }

    /// The principal with this client id, to change.
    pub(crate) fn by_client_id_mut(&mut self, client: EntraClientId) -> Option<&mut Principal> {
        self.principals.iter_mut().find(|principal| principal.client_id == client)
    }

    /// The principal with this object id.
    pub(crate) fn by_object_id(&self, object: Uuid) -> Option<&Principal> {
        self.principals.iter().find(|principal| principal.object_id == object)
    }

    /// The managed identity of an Azure resource.
    pub(crate) fn by_resource_id(&self, resource: &ArmResourceId) -> Option<&Principal> {
        self.principals.iter().find(|principal| principal.resource_id() == Some(resource))
    }

    /// The managed identity of an Azure resource, to change.
    pub(crate) fn by_resource_id_mut(
        &mut self,
        resource: &ArmResourceId,
    ) -> Option<&mut Principal> {
        self.principals.iter_mut().find(|principal| principal.resource_id() == Some(resource))
    }
}

impl Principal {
    /// The Azure resource of a managed identity.
    pub(crate) fn resource_id(&self) -> Option<&ArmResourceId> {
        match &self.kind {
            PrincipalKind::ManagedIdentity { resource_id } => Some(resource_id),
            PrincipalKind::Application { .. } => None,
        }
    }
}
