//! The credential of an application that has a certificate in a file that does not rotate.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::assertion::{AssertionError, AssertionOptions, AssertionSigner};
use crate::bundle::{BundleError, CertificateBundle};
use crate::document::CredentialDocument;
use crate::entra::exchange::exchange_signed;
use crate::identity::{Authority, ClientId, EntraApplication, TenantId};
use crate::secret::SecretText;
use crate::token::engine::TokenEngine;
use crate::token::engine_credential::engine_credential;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::source::{IssuedToken, TokenSource};
use crate::transport::sender::TokenTransport;

/// Authenticates an application with a certificate and its private key (RFC 7523), as the variables
/// `AZURE_CLIENT_CERTIFICATE_PATH` and `AZURE_CLIENT_CERTIFICATE_PASSWORD` of the Azure SDKs name them.
///
/// For certificates that rotate, use [`ReloadingCertificateCredential`](crate::ReloadingCertificateCredential).
#[derive(Debug)]
pub struct ClientCertificateCredential {
    engine: TokenEngine<ClientCertificateSource>,
}

/// A certificate file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientCertificateError {
    /// The file contains no usable certificate with its key.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The key cannot sign assertions.
    #[error(transparent)]
    Assertion(#[from] AssertionError),
}

impl ClientCertificateCredential {
    /// Creates a credential for the application `client` in `tenant` from the content of a PEM or PKCS#12 file.
    ///
    /// # Errors
    ///
    /// [`ClientCertificateError`] if the content has no RSA key with its certificate.
    pub fn new(
        tenant: &TenantId,
        client: ClientId,
        authority: &Authority,
        content: &[u8],
        password: Option<&SecretText>,
        transport: &TokenTransport,
    ) -> Result<Arc<Self>, ClientCertificateError> {
        let encoded = Zeroizing::new(STANDARD.encode(content));
        let bundle =
            CertificateBundle::parse_with_password(&SecretText::from(encoded.as_str()), password)?;
        Self::with_bundle(tenant, client, authority, bundle, transport)
    }

    /// Creates a credential from a credential document that no file contains.
    ///
    /// # Errors
    ///
    /// [`ClientCertificateError`] if the document's bundle has no RSA key with its certificate.
    pub fn from_document(
        document: &CredentialDocument,
        transport: &TokenTransport,
    ) -> Result<Arc<Self>, ClientCertificateError> {
        let bundle = CertificateBundle::parse(document.client_secret())?;
        let client = document.client_id().clone();
        let authority = document.authentication_endpoint();
        Self::with_bundle(document.tenant_id(), client, authority, bundle, transport)
    }

    fn with_bundle(
        tenant: &TenantId,
        client: ClientId,
        authority: &Authority,
        bundle: CertificateBundle,
        transport: &TokenTransport,
    ) -> Result<Arc<Self>, ClientCertificateError> {
        let source = ClientCertificateSource {
            application: EntraApplication::new(tenant.clone(), client, authority.clone()),
            signer: AssertionSigner::new(bundle, AssertionOptions::default())?,
            transport: transport.clone(),
        };
        Ok(Arc::new(Self { engine: TokenEngine::new(source, transport) }))
    }
}

engine_credential!(ClientCertificateCredential);

#[derive(Debug)]
struct ClientCertificateSource {
    application: EntraApplication,
    signer: AssertionSigner,
    transport: TokenTransport,
}

#[async_trait]
impl TokenSource for ClientCertificateSource {
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError> {
        exchange_signed(&self.application, &self.signer, key, 0, &self.transport).await
    }
}
