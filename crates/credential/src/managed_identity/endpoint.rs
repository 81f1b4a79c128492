//! The protocols of the managed identity endpoints: URL, headers and retryable statuses.

use azure_core::http::headers::HeaderName;
use azure_core::http::{Method, RawResponse, Request, Url};

use super::endpoint_kind::ManagedIdentityEndpointKind;
use crate::secret::SecretText;
use crate::transport::sender::TokenExchange;

/// Selects one of several identities of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManagedIdentityId {
    /// By application (client) id.
    ClientId(String),
    /// By the object id of its service principal.
    ObjectId(String),
    /// By its ARM resource id.
    ResourceId(String),
}

/// A managed identity endpoint and its protocol.
#[derive(Debug)]
pub(crate) struct ManagedIdentityEndpoint {
    url: Url,
    secret: Option<SecretText>,
}

impl ManagedIdentityEndpoint {
    /// Creates an IMDS endpoint at its own address or at a replacement. Query and fragment of `authority` are not
    /// used.
    pub(crate) fn imds(authority: Url) -> Self {
        let mut url = authority.clone();
        // A replacement can serve several virtual machines below different paths, as the local Azure does.
        url.set_path(&format!("{}{IMDS_PATH}", authority.path().trim_end_matches('/')));
        url.set_query(None);
        url.set_fragment(None);
        Self { url, secret: None }
    }

    /// Creates an App Service endpoint from `IDENTITY_ENDPOINT` and the value of `IDENTITY_HEADER`.
    pub(crate) fn app_service(url: Url, header: SecretText) -> Self {
        Self { url, secret: Some(header) }
    }

    pub(crate) fn kind(&self) -> ManagedIdentityEndpointKind {
        if self.secret.is_some() {
            ManagedIdentityEndpointKind::AppService
        } else {
            ManagedIdentityEndpointKind::Imds
        }
    }

    /// The secret header value, which must never appear in an error.
    pub(crate) fn secret(&self) -> Option<&str> {
        self.secret.as_ref().map(SecretText::expose)
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The URL that requests a token for `resource`.
    pub(crate) fn token_url(&self, resource: &str, id: Option<&ManagedIdentityId>) -> Url {
        let mut url = self.url.clone();
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("api-version", self.kind().api_version())
                .append_pair("resource", resource);
            match id {
                Some(ManagedIdentityId::ClientId(id)) => query.append_pair("client_id", id),
                Some(ManagedIdentityId::ObjectId(id)) => query.append_pair("object_id", id),
                Some(ManagedIdentityId::ResourceId(id)) => {
                    query.append_pair(self.kind().resource_id_parameter(), id)
                }
                None => &mut query,
            };
        }
        url
    }
}

/// A token request to a managed identity endpoint.
pub(crate) struct ManagedIdentityRequest<'a> {
    pub(crate) endpoint: &'a ManagedIdentityEndpoint,
    pub(crate) url: Url,
}

impl TokenExchange for ManagedIdentityRequest<'_> {
    fn endpoint(&self) -> &Url {
        &self.url
    }

    fn request(&self) -> Request {
        let mut request = Request::new(self.url.clone(), Method::Get);
        match self.endpoint.secret() {
            None => request.insert_header(METADATA, "true"),
            Some(secret) => request.insert_header(IDENTITY_HEADER, secret.to_owned()),
        }
        request
    }

    fn is_retryable(&self, response: &RawResponse) -> bool {
        // 404: the endpoint is starting; 410: it is being updated, for up to 70 seconds.
        matches!(u16::from(response.status()), 404 | 408 | 410 | 429 | 500..)
    }
}

/// A link-local address: it is not routed beyond the host, and is the same on every virtual machine.
pub(crate) const IMDS_BASE_URL: &str = "http://169.254.169.254/";
const IMDS_PATH: &str = "/metadata/identity/oauth2/token";
/// Proves that no redirect or forwarded request reaches the endpoint.
const METADATA: HeaderName = HeaderName::from_static("metadata");
const IDENTITY_HEADER: HeaderName = HeaderName::from_static("x-identity-header");

#[cfg(test)]
mod tests {
    use super::*;

    fn url(endpoint: &ManagedIdentityEndpoint, id: Option<ManagedIdentityId>) -> String {
        endpoint.token_url("https://vault.azure.net", id.as_ref()).to_string()
    }

    #[test]
    fn imds_request_uses_the_imds_parameters() {
        let imds = ManagedIdentityEndpoint::imds(IMDS_BASE_URL.parse().unwrap());
        let base = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fvault.azure.net";
        assert_eq!(url(&imds, None), base);
        for (id, tail) in [
            (ManagedIdentityId::ClientId("c".to_owned()), "&client_id=c"),
            (ManagedIdentityId::ObjectId("o".to_owned()), "&object_id=o"),
            (ManagedIdentityId::ResourceId("/s/1".to_owned()), "&msi_res_id=%2Fs%2F1"),
        ] {
            assert_eq!(url(&imds, Some(id)), format!("{base}{tail}"));
        }
    }

    #[test]
    fn app_service_request_uses_the_app_service_parameters() {
        let endpoint = "http://127.0.0.1:41/msi/token/".parse().unwrap();
        let app_service = ManagedIdentityEndpoint::app_service(endpoint, "secret".into());
        let base = "http://127.0.0.1:41/msi/token/?api-version=2019-08-01&resource=https%3A%2F%2Fvault.azure.net";
        for (id, tail) in [
            (ManagedIdentityId::ClientId("c".to_owned()), "&client_id=c"),
            (ManagedIdentityId::ObjectId("o".to_owned()), "&object_id=o"),
            (ManagedIdentityId::ResourceId("r".to_owned()), "&mi_res_id=r"),
        ] {
            assert_eq!(url(&app_service, Some(id)), format!("{base}{tail}"));
        }
        let question = ManagedIdentityRequest {
            url: app_service.token_url("r", None),
            endpoint: &app_service,
        };
        let request = question.request();
        assert_eq!(request.headers().get_optional_str(&IDENTITY_HEADER), Some("secret"));
        assert_eq!(request.headers().get_optional_str(&METADATA), None);
    }

    #[test]
    fn imds_override_keeps_its_port_and_its_path() {
        for (host, base) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/nodes/empty/", "http://127.0.0.1:8080/nodes/empty"),
        ] {
            let imds = ManagedIdentityEndpoint::imds(host.parse().unwrap());
            let expected = format!("{base}/metadata/identity/oauth2/token?");
            assert!(url(&imds, None).starts_with(&expected), "{host}");
        }
    }
}
