//! The control API of the local Azure: how a world is changed from outside, as an operator of
//! Azure would change it behind our backs.

use std::net::SocketAddr;

use lanyard_vocabulary::Component;

/// A client of the control API.
#[derive(Debug, Clone)]
pub(crate) struct AzureControlClient {
    base_url: String,
    client: reqwest::Client,
}

/// The control API did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AzureControlError {
    /// There is no client to ask with.
    #[error("could not make a client of the local Azure")]
    Client {
        /// What is missing.
        #[source]
        source: reqwest::Error,
    },
    /// The request got no answer.
    #[error("the local Azure did not answer {path}")]
    Unreachable {
        /// The path that was asked for.
        path: &'static str,
        /// What broke.
        #[source]
        source: reqwest::Error,
    },
    /// The request was refused.
    #[error("the local Azure refused {path}: {status} {body}")]
    Refused {
        /// The path that was asked for.
        path: &'static str,
        /// The HTTP status.
        status: u16,
        /// The reply.
        body: String,
    },
}

impl AzureControlError {
    /// What to do next.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::Client { .. } => "run again with --log debug",
            Self::Unreachable { .. } | Self::Refused { .. } => {
                "see what the local Azure logs with --log lanyard_emulator=debug"
            }
        }
    }
}

impl AzureControlClient {
    pub(crate) fn new(address: SocketAddr) -> Result<Self, AzureControlError> {
        // Loopback needs no proxy, and the environment's proxy may be the local Azure itself.
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
