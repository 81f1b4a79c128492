//! Requests to Azure Resource Manager.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::Url;
use lanyard_vocabulary::cloud::CloudEndpoints;

use crate::authenticated_client::{AuthenticatedClient, AzureCallError, AzureResponse, arm_scope};
use crate::transport::AzureTransport;

/// A client of Azure Resource Manager in one cloud, for one identity.
#[derive(Debug, Clone)]
pub struct ArmClient {
    endpoint: String,
    client: AuthenticatedClient,
}

impl ArmClient {
    /// Creates a client for `credential` in the cloud with these endpoints.
    pub fn new(
        endpoints: &CloudEndpoints,
        credential: Arc<dyn TokenCredential>,
        transport: &AzureTransport,
    ) -> Self {
        let client = AuthenticatedClient::new(Self::scope(endpoints), credential, transport);
        Self { endpoint: endpoints.arm_url(), client }
    }

    /// The scope of tokens for Azure Resource Manager.
    pub fn scope(endpoints: &CloudEndpoints) -> String {
        arm_scope(endpoints)
    }

    /// Sends a GET request for `path` (a resource id or a collection below one) in `api_version`.
    pub async fn fetch(
        &self,
        path: &str,
        api_version: &str,
    ) -> Result<AzureResponse, AzureCallError> {
        let mut url: Url = match format!("{}{path}", self.endpoint).parse() {
            Ok(url) if path.starts_with('/') => url,
            _ => return Err(AzureCallError::InvalidTarget { target: path.to_owned() }),
        };
        url.query_pairs_mut().append_pair("api-version", api_version);
        self.client.fetch(&url).await
    }
}
