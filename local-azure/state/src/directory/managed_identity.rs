//! Managed identities: their principals by Azure resource, their credentials, and their certificates.

use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::service_principal::{ServicePrincipal, ServicePrincipalKind, SubjectNameIssuer};
use super::{EntraDirectory, resource_key};
use crate::certificate_bundle::CredentialBundleFormat;
use crate::client_certificate::{
    ClientCertificateError, LeafCertificateSpec, issue_leaf_certificate,
};
use crate::id_generator::IdGenerator;
use crate::keys::RsaKey;
use crate::managed_identity_credential::{
    MSI_AUTHORITY, ManagedIdentityCredential, certificate_subject,
};

/// The resource type of user-assigned identities.
const USER_ASSIGNED_IDENTITY: &str = "Microsoft.ManagedIdentity/userAssignedIdentities";

impl ServicePrincipal {
    /// The Azure resource of a user-assigned identity; `None` for other service principals.
    pub fn user_assigned_identity(&self) -> Option<&ArmResourceId> {
        self.resource_id().filter(|id| id.has_type(USER_ASSIGNED_IDENTITY))
    }
}

impl EntraDirectory {
    /// The managed identity of an Azure resource; `None` if the resource has none.
    pub fn managed_identity(&self, resource: &ArmResourceId) -> Option<&ServicePrincipal> {
        let object_id = self.index.principals_by_resource_id.get(&resource_key(resource))?;
        self.service_principals.get(object_id)
    }

    /// Like [`Self::managed_identity`], mutable.
    pub fn managed_identity_mut(
        &mut self,
        resource: &ArmResourceId,
    ) -> Option<&mut ServicePrincipal> {
        let object_id = self.index.principals_by_resource_id.get(&resource_key(resource))?;
        self.service_principals.get_mut(object_id)
    }

    /// Creates the managed identity of a resource, and returns its principal.
    pub fn create_managed_identity(
        &mut self,
        resource: &ArmResourceId,
        tenant: EntraTenantId,
        ids: &mut IdGenerator,
        now: Timestamp,
    ) -> ServicePrincipal {
        let (object_id, client_id) = (ids.next_uuid(), EntraClientId::from(ids.next_uuid()));
        let kind = ServicePrincipalKind::ManagedIdentity { resource_id: resource.clone() };
        let principal = ServicePrincipal::new(object_id, client_id, tenant, resource.name(), kind)
            .created_at(now);
        self.insert_service_principal(principal.clone());
        principal
    }

    /// Moves the managed identity of a resource to another resource id.
    pub fn move_managed_identity(&mut self, from: &ArmResourceId, to: &ArmResourceId) {
        let Some(object_id) = self.index.principals_by_resource_id.remove(&resource_key(from))
        else {
            return;
        };
        if let Some(principal) = self.service_principals.get_mut(&object_id) {
            principal.kind = ServicePrincipalKind::ManagedIdentity { resource_id: to.clone() };
        }
        self.index.principals_by_resource_id.insert(resource_key(to), object_id);
    }

    /// Trusts the certificates of the platform for a managed identity, as Entra does for every one.
    pub fn trust_platform_certificates(&mut self, object_id: Uuid) {
        if let Some(principal) = self.service_principals.get_mut(&object_id) {
            principal.subject_name_issuer = Some(SubjectNameIssuer {
                subject: certificate_subject(principal.client_id),
                authority: MSI_AUTHORITY.to_owned(),
            });
        }
    }

    /// The current credential of a managed identity.
    pub fn managed_identity_credential(
        &self,
        object_id: Uuid,
    ) -> Option<&ManagedIdentityCredential> {
        self.managed_identity_credentials.get(&object_id)
    }

    /// Replaces the current credential of a managed identity. Entra accepts earlier ones until they expire.
    pub fn insert_managed_identity_credential(
        &mut self,
        object_id: Uuid,
        credential: ManagedIdentityCredential,
    ) {
        self.managed_identity_credentials.insert(object_id, credential);
    }
}

/// The certificate of a managed identity could not be issued.
#[derive(Debug, thiserror::Error)]
pub enum CredentialIssueError {
    /// The directory has no certificate authority for managed identities.
    #[error("the directory has no authority for the certificates of managed identities")]
    AuthorityMissing,
    #[error(transparent)]
    Certificate(#[from] ClientCertificateError),
    /// The PKCS#12 file could not be written.
    #[error("a PKCS#12 file could not be written")]
    Pkcs12(#[source] p12_keystore::error::Error),
}

/// What a bundle contains besides the certificate of the authority.
#[derive(Debug, Clone, Copy)]
pub struct BundleContent<'a> {
    pub format: CredentialBundleFormat,
    /// The private key: that of the certificate, unless the credential must be broken.
    pub key: &'a RsaKey,
    /// Whether the bundle contains the certificate of the key.
    pub has_leaf: bool,
}

/// Issues a certificate for a managed identity, and encodes it with a key and the certificate of the authority.
pub fn issue_certificate_bundle(
    directory: &EntraDirectory,
    leaf: &LeafCertificateSpec<'_>,
    bundle: BundleContent<'_>,
) -> Result<Zeroizing<Vec<u8>>, CredentialIssueError> {
    let authority =
        directory.authorities.get(MSI_AUTHORITY).ok_or(CredentialIssueError::AuthorityMissing)?;
    let certificate = issue_leaf_certificate(MSI_AUTHORITY, authority, leaf)?;
    let chain = [certificate.as_slice(), authority.certificate.as_slice()];
    let chain = if bundle.has_leaf { &chain[..] } else { &chain[1..] };
    bundle.format.encode(bundle.key.pkcs8(), chain).map_err(CredentialIssueError::Pkcs12)
}
