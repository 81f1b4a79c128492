//! A client of the control API of the local Azure, which changes its state as an Azure administrator would.

use std::borrow::Cow;
use std::net::SocketAddr;

use lanyard_clock::ErrorHint;
use lanyard_vocabulary::Component;

#[derive(Debug, Clone)]
pub(crate) struct AzureControlClient {
    base_url: String,
    client: reqwest::Client,
}

/// An error of a request to the control API.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AzureControlError {
    /// The HTTP client could not be built.
    #[error("could not build an HTTP client for the local Azure")]
    Client {
        /// The error of the HTTP client builder.
        #[source]
        source: reqwest::Error,
    },
    /// The request failed before a response arrived.
    #[error("the local Azure did not respond to `{path}`")]
    Unreachable {
        /// The path of the request.
        path: &'static str,
        /// The transport error.
        #[source]
        source: reqwest::Error,
    },
    /// The control API returned an error status.
    #[error("the local Azure refused `{path}`: {status} {body}")]
    Refused {
        /// The path of the request.
        path: &'static str,
        /// The HTTP status.
        status: u16,
        /// The response body.
        body: String,
    },
}

impl ErrorHint for AzureControlError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Client { .. } => "run again with --log debug",
            Self::Unreachable { .. } | Self::Refused { .. } => {
                "see the log of the local Azure with --log lanyard_emulator=debug"
            }
        }))
    }
}

impl AzureControlClient {
    pub(crate) fn new(address: SocketAddr) -> Result<Self, AzureControlError> {
        // Loopback needs no proxy, and the proxy of the environment may be the local Azure itself.
        let client = reqwest::Client::builder().no_proxy().build();
        let client = client.map_err(|source| AzureControlError::Client { source })?;
        Ok(Self { base_url: format!("http://{address}/lanyard/v1"), client })
    }

    /// Issues a new certificate for a component, and stores it as a new version of its secret.
    pub(crate) async fn rotate_certificate(
        &self,
        component: Component,
    ) -> Result<(), AzureControlError> {
        let path = "rotate";
        let body = serde_json::json!({ "component": component.name() }).to_string();
        let unreachable = |source| AzureControlError::Unreachable { path, source };
        let response = self
            .client
            .post(format!("{}/{path}", self.base_url))
            .header("x-lanyard-control", "1")
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let body = response.text().await.map_err(unreachable)?;
        Err(AzureControlError::Refused { path, status: status.as_u16(), body })
    }
}
