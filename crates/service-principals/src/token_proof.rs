//! Proves that a credential document works, by a real token.

use azure_core::credentials::TokenCredential as _;
use lanyard_azure::PropagationWait;
use lanyard_credential::document::CredentialDocument;
use lanyard_credential::{ClientCertificateCredential, TokenError, TokenTransport};

use crate::error::ServicePrincipalError;

/// Requests tokens with credential documents.
#[derive(Debug, Clone)]
pub struct TokenProof {
    /// The scope of the tokens, which every application may request.
    pub scope: String,
    /// The HTTP client of the token requests.
    pub transport: TokenTransport,
    /// How long a request is repeated until Entra ID knows the certificate everywhere.
    pub propagation: PropagationWait,
}

/// The errors of Entra ID until it knows a new application, service principal or certificate everywhere.
const PROPAGATION_CODES: [&str; 3] = ["AADSTS700016", "AADSTS700027", "AADSTS7000229"];

impl TokenProof {
    /// Requests a token with the credential document that a component will read.
    pub(crate) async fn request_token(
        &self,
        name: &str,
        document: &str,
    ) -> Result<(), ServicePrincipalError> {
        let document = CredentialDocument::parse(document.as_bytes())
            .map_err(|source| ServicePrincipalError::Document { name: name.to_owned(), source })?;
        let request = || async {
            // A new credential for each attempt: it caches no earlier failure.
            let credential = ClientCertificateCredential::from_document(&document, &self.transport)
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
