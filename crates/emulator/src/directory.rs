//! The directory: tenants, principals with their credentials, and trusted issuers.
//!
//! A [`Principal`] is an application with its service principal, or a user-assigned identity. The two objects
//! of an application have separate ids, because clients look up one by the other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::keys::{RedactedText, RsaKey};
use crate::published_key::RsaPublicJwk;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EntraDirectory {
    /// The tenants with their signing keys.
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) principals: Vec<Principal>,
    /// Certificate authorities for subject name and issuer (SNI) authentication.
    pub(crate) authorities: BTreeMap<String, CertificateAuthority>,
    /// Trusted token issuers by their exact `iss`, with the content of their discovery documents.
    pub(crate) issuers: BTreeMap<String, TrustedIssuer>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tenant {
    /// The directory id.
    pub(crate) id: EntraTenantId,
    /// The domain names of the tenant.
    #[serde(default)]
    pub(crate) domains: Vec<String>,
    /// The `kid` of its signing key.
    pub(crate) key_id: String,
    /// The key that signs its tokens.
    pub(crate) key: RsaKey,
    /// The self-signed certificate of the key in DER, which the JWKS contains.
    pub(crate) certificate: Vec<u8>,
}

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
        /// The ARM resource id.
        resource_id: ArmResourceId,
    },
}

/// An identity that can obtain tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Principal {
    /// The object id of the service principal: the `oid` of its tokens, and the principal id of role
    /// assignments.
    pub(crate) object_id: Uuid,
    /// The application id.
    pub(crate) client_id: EntraClientId,
    /// The home tenant.
    pub(crate) tenant: EntraTenantId,
    pub(crate) display_name: String,
    /// Whether the principal may obtain tokens.
    pub(crate) enabled: bool,
    /// The kind of the principal.
    pub(crate) kind: PrincipalKind,
    /// Client secrets.
    #[serde(default)]
    pub(crate) secrets: Vec<ClientSecret>,
    /// Registered certificates.
    #[serde(default)]
    pub(crate) certificates: Vec<KeyCredential>,
    /// Subject name and issuer trust: any certificate of one subject from one authority (requires the chain).
    #[serde(default)]
    pub(crate) subject_name_issuer: Option<SubjectNameIssuer>,
    #[serde(default)]
    pub(crate) federated_credentials: Vec<FederatedCredential>,
}

/// A client secret of an application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientSecret {
    /// The secret.
    pub(crate) text: RedactedText,
    /// When the secret expires.
    pub(crate) expires: Timestamp,
}

/// A certificate that is registered with an application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeyCredential {
    /// The certificate in DER.
    pub(crate) certificate: Vec<u8>,
    /// When the registration expires.
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

/// A federated credential: tokens of another issuer that authenticate this principal.
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

/// A certificate authority, for example that of the MSI data plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CertificateAuthority {
    /// The certificate in DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: RsaKey,
}

/// An issuer of federated tokens, with the keys of its `jwks_uri`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TrustedIssuer {
    /// Key pairs of an emulated issuer, by `kid`.
    pub(crate) keys: BTreeMap<String, RsaKey>,
    /// Public keys of an external issuer, by `kid`.
    #[serde(default)]
    pub(crate) published: BTreeMap<String, RsaPublicJwk>,
}

impl TrustedIssuer {
    /// The public key with this `kid`, as `RSAPublicKey` DER. Without a `kid`, the issuer's only key.
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
    /// Finds a tenant by id or domain name, ignoring case.
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

    /// Like [`Self::by_client_id`], mutable.
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

    /// Like [`Self::by_resource_id`], mutable.
    pub(crate) fn by_resource_id_mut(
        &mut self,
        resource: &ArmResourceId,
    ) -> Option<&mut Principal> {
        self.principals.iter_mut().find(|principal| principal.resource_id() == Some(resource))
    }
}

impl Principal {
    /// The ARM resource of a managed identity.
    pub(crate) fn resource_id(&self) -> Option<&ArmResourceId> {
        match &self.kind {
            PrincipalKind::ManagedIdentity { resource_id } => Some(resource_id),
            PrincipalKind::Application { .. } => None,
        }
    }
}
