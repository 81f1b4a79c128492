//! The token request: a form-encoded POST.

use azure_core::Bytes;
use azure_core::http::headers::{self, ACCEPT, CONTENT_TYPE, HeaderName, content_type};
use azure_core::http::{Method, Request, Url};
use url::form_urlencoded::Serializer;
use uuid::Uuid;
use zeroize::Zeroizing;

/// The client's authentication: a secret in either form.
#[derive(Clone, Copy)]
pub(crate) enum ClientAuthentication<'a> {
    /// A signed JWT (RFC 7523 section 2.2).
    Assertion(&'a str),
    /// A shared secret (RFC 6749 section 2.3.1).
    Secret(&'a str),
}

impl<'a> ClientAuthentication<'a> {
    /// The secret. It must not appear anywhere but in the request.
    pub(crate) fn expose(self) -> &'a str {
        match self {
            Self::Assertion(text) | Self::Secret(text) => text,
        }
    }
}

/// The parameters of a token request.
pub(crate) struct TokenRequestForm<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) authentication: ClientAuthentication<'a>,
    pub(crate) claims: Option<&'a str>,
}

impl TokenRequestForm<'_> {
    /// Builds the request. Its body contains the secret and is wiped when the last copy is dropped.
    pub(crate) fn to_request(&self, endpoint: &Url, request_id: Uuid) -> Request {
        let mut request = Request::new(endpoint.clone(), Method::Post);
        request.insert_header(CONTENT_TYPE, content_type::APPLICATION_X_WWW_FORM_URLENCODED);
        request.insert_header(ACCEPT, "application/json");
        // The pipeline adds an id of its own under the general name unless one is set.
        for name in [CLIENT_REQUEST_ID, headers::CLIENT_REQUEST_ID] {
            request.insert_header(name, request_id.to_string());
        }
        request.insert_header(RETURN_CLIENT_REQUEST_ID, "true");
        let body = Zeroizing::new(self.encode().into_bytes());
        request.set_body(Bytes::from_owner(body));
        request
    }

    fn encode(&self) -> String {
        // Allocate the full capacity once: a buffer that grows leaves copies of the secret behind.
        let claims = self.claims.unwrap_or_default();
        let lengths = [self.client_id, self.scope, self.authentication.expose(), claims];
        let capacity = 512 + 3 * lengths.iter().map(|text| text.len()).sum::<usize>();
        let mut form = Serializer::new(String::with_capacity(capacity));
        form.append_pair("client_id", self.client_id)
            .append_pair("grant_type", "client_credentials")
            .append_pair("scope", self.scope);
        match self.authentication {
            ClientAuthentication::Assertion(assertion) => form
                .append_pair("client_assertion_type", ASSERTION_TYPE)
                .append_pair("client_assertion", assertion),
            ClientAuthentication::Secret(secret) => form.append_pair("client_secret", secret),
        };
        if let Some(claims) = self.claims {
            form.append_pair("claims", claims);
        }
        form.finish()
    }
}

/// Entra's own header name, without `x-ms-`: Microsoft support asks for this id.
pub(crate) const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("client-request-id");
const RETURN_CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("return-client-request-id");
/// RFC 7523 2.2.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(claims: Option<&str>) -> String {
        let (scope, proof) = ("https://x/.default", ClientAuthentication::Assertion("a.b.c"));
        TokenRequestForm { client_id: "client", scope, authentication: proof, claims }.encode()
    }

    #[test]
    fn the_form_holds_the_fields_of_a_v2_request() {
        assert_eq!(
            encoded(None),
            "client_id=client&grant_type=client_credentials&scope=https%3A%2F%2Fx%2F.default&\
             client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&\
             client_assertion=a.b.c"
        );
        assert!(encoded(Some("{}")).ends_with("&claims=%7B%7D"));
    }

    #[test]
    fn a_secret_is_sent_in_the_place_of_an_assertion() {
        let proof = ClientAuthentication::Secret("p&w");
        let form =
            TokenRequestForm { client_id: "c", scope: "s", authentication: proof, claims: None };
        assert_eq!(
            form.encode(),
            "client_id=c&grant_type=client_credentials&scope=s&client_secret=p%26w"
        );
    }

    #[test]
    fn form_is_encoded_without_reallocating() {
        let text = "%".repeat(4_000);
        let proof = ClientAuthentication::Assertion(&text);
        let form = TokenRequestForm {
            client_id: "c",
            scope: "s",
            authentication: proof,
            claims: Some(&text),
        };
        let encoded = form.encode();
        assert_eq!(encoded.capacity(), 512 + 3 * 8_002);
    }

    #[test]
    fn request_carries_the_client_request_id() {
        let form = TokenRequestForm {
            client_id: "c",
            scope: "s",
            authentication: ClientAuthentication::Assertion("a"),
            claims: None,
        };
        let endpoint = "https://login.example/t/oauth2/v2.0/token".parse().unwrap();
        let request = form.to_request(&endpoint, Uuid::from_u128(7));
        assert_eq!(
            request.headers().get_optional_str(&CLIENT_REQUEST_ID),
            Some("00000000-0000-0000-0000-000000000007")
        );
    }
}
