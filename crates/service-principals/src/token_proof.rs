//! Proves that a certificate works, by a real token.

use lanyard_azure::PropagationWait;
use lanyard_credential::identity::Authority;
use lanyard_credential::{ClientCertificateCredential, TokenError, TokenTransport};
use lanyard_vocabulary::{EntraClientId, EntraTenantId};

use azure_core::credentials::TokenCredential as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::credential_json::CertificateSecret;
use crate::error::ServicePrincipalError;

/// Requests tokens with certificates.
#[derive(Debug, Clone)]
pub struct TokenProof {
    /// The token service.
    pub authority: Authority,
    /// The scope of the tokens, which every application may request.
    pub scope: String,
    /// The HTTP client of the token requests.
    pub transport: TokenTransport,
    /// How long a request is repeated until Entra ID knows the certificate everywhere.
    pub propagation: PropagationWait,
}

/// The errors of Entra ID until it knows a new application, service principal or certificate everywhere.
const PROPAGATION_CODES: [&str; 4] =
    ["AADSTS700016", "AADSTS700027", "AADSTS7000229", "AADSTS700030"];

impl TokenProof {
    /// Requests a token with the certificate.
    pub(crate) async fn request_token(
        &self,
        name: &str,
        client: EntraClientId,
        tenant: &EntraTenantId,
        secret: &CertificateSecret,
    ) -> Result<(), ServicePrincipalError> {
        let invalid = |text: &str| ServicePrincipalError::SignInId {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let tenant = tenant.as_str().parse().or(Err(invalid(tenant.as_str())))?;
        let content = Zeroizing::new(
            STANDARD
                .decode(secret.client_secret().as_bytes())
                .unwrap_or_else(|_| secret.value.as_bytes().to_vec()),
        );
        let request = || async {
            let id = client.to_string();
            let client = id.parse().or(Err(invalid(&id)))?;
            // A new credential for each attempt: it caches no earlier failure.
            let credential = ClientCertificateCredential::new(
                &tenant,
                client,
                &self.authority,
                &content,
                None,
                &self.transport,
            )
            .map_err(|source| ServicePrincipalError::Key { name: name.to_owned(), source })?;
            let token = credential.get_token(&[&self.scope], None).await;
            token.map(drop).map_err(|source| ServicePrincipalError::NoToken {
                name: name.to_owned(),
                source: Box::new(source),
            })
        };
        self.propagation.repeat(request, is_temporary).await
    }
}

fn is_temporary(error: &ServicePrincipalError) -> bool {
    let ServicePrincipalError::NoToken { source, .. } = error else { return false };
    let code = TokenError::of(source).map(TokenError::code);
    code.is_some_and(|code| PROPAGATION_CODES.contains(&code.as_ref()))
}
