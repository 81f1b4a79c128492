//! An HTTP client for the servers on loopback.

use std::time::Duration;

use reqwest::{Certificate, Client, Identity};
use serde_json::Value;

use crate::error::ClusterError;
use crate::layout::ClusterLayout;

/// An HTTP client that authenticates as the cluster's administrator.
#[derive(Debug, Clone)]
pub(crate) struct ClusterHttpClient {
    client: Client,
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

impl ClusterHttpClient {
    /// Creates a client with the administrator's certificate, which trusts only the cluster's CA.
    pub(crate) fn connect_as_administrator(layout: &ClusterLayout) -> Result<Self, ClusterError> {
        let read = |name: &str| {
            let path = layout.certificate_file(name);
            std::fs::read(&path).map_err(ClusterError::file("read", &path))
        };
        let mut identity = read("administrator.key")?;
        identity.extend(read("administrator.crt")?);
        let authority =
            Certificate::from_pem(&read("ca.crt")?).map_err(ClusterError::BuildClient)?;
        let client = Client::builder()
            .no_proxy()
            .timeout(REQUEST_TIMEOUT)
            .tls_certs_only([authority])
            .identity(Identity::from_pem(&identity).map_err(ClusterError::BuildClient)?);
        client.build().map(|client| Self { client }).map_err(ClusterError::BuildClient)
    }

    /// Sends a GET request and returns the status and body.
    pub(crate) async fn fetch(&self, url: &str) -> Result<(u16, String), ClusterError> {
        let failed = |source| ClusterError::Request { path: url.to_owned(), source };
        let answer = self.client.get(url).send().await.map_err(failed)?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(failed)?))
    }

    /// Fetches a JSON document.
    pub(crate) async fn fetch_json(&self, url: &str) -> Result<Value, ClusterError> {
        let (status, text) = self.fetch(url).await?;
        if status != 200 {
            return Err(ClusterError::ErrorResponse {
                path: url.to_owned(),
                status,
                message: text,
            });
        }
        serde_json::from_str(&text).map_err(|source| ClusterError::InvalidRecord {
            path: url.into(),
            what: "a document of the API server",
            source,
        })
    }
}
