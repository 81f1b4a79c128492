//! Making the driver known to the kubelet, as `csi-node-driver-registrar` does.
//!
//! The kubelet watches its plugin registry. When a socket appears there it asks what listens, dials
//! the CSI socket, and writes the driver into the node's CSINode object. We let the socket appear
//! when everything else is ready, so that no pod meets a driver that cannot serve, and take it away
//! before anything else at the end.

use std::path::{Path, PathBuf};

use lanyard_grpc::registration::registration_server::Registration;
use lanyard_grpc::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use lanyard_telemetry::ReadinessGate;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::csi::DriverName;

/// How the kubelet finds the driver.
#[derive(Debug, Clone)]
pub struct RegistrationSettings {
    /// The kubelet's plugin registry: `<kubelet>/plugins_registry`.
    pub directory: PathBuf,
    /// The CSI socket by the path that the kubelet sees.
    pub endpoint: PathBuf,
}

impl RegistrationSettings {
    /// The socket in the registry.
    pub fn socket(&self, driver: &DriverName) -> PathBuf {
        self.directory.join(format!("{driver}-reg.sock"))
    }
}

/// The kubelet did not take the driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kubelet refused to register the driver: {reason}")]
pub struct RegistrationRejectedError {
    /// What the kubelet said.
    pub reason: String,
}

impl RegistrationRejectedError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        "see that `--kubelet-registration-path` is the CSI socket's path on the node, and that no \
         other driver has the name"
    }
}

/// Answers the kubelet's questions about the driver.
#[derive(Debug, Clone)]
pub(crate) struct RegistrationService {
    driver: DriverName,
    endpoint: PathBuf,
    gate: ReadinessGate,
    rejection: watch::Sender<Option<RegistrationRejectedError>>,
}

impl RegistrationService {
    /// A driver whose CSI socket is `endpoint` for the kubelet; `gate` opens when it is registered.
    pub(crate) fn new(driver: DriverName, endpoint: &Path, gate: ReadinessGate) -> Self {
        let rejection = watch::Sender::new(None);
        Self { driver, endpoint: endpoint.to_owned(), gate, rejection }
    }

    /// Returns when the kubelet has refused the driver. Nothing is lost if it is dropped.
    pub(crate) async fn wait_for_rejection(&self) -> RegistrationRejectedError {
        let mut refused = self.rejection.subscribe();
        match refused.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(refused)) => refused,
            // We hold a sender, and what is waited for is there.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(
        &self,
        _request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: KIND.to_owned(),
            name: self.driver.to_string(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec![CSI_VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            tracing::info!(driver = %self.driver, "registered with the kubelet");
            self.gate.open();
        } else {
            let reason: String = error.chars().filter(|it| !it.is_control()).take(500).collect();
            tracing::error!(driver = %self.driver, reason, "the kubelet refused the driver");
            self.gate.close(format!("the kubelet refused the driver: {reason}"));
            self.rejection.send_replace(Some(RegistrationRejectedError { reason }));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// The kind of plugin (kubelet, `pluginregistration/v1`).
const KIND: &str = "CSIPlugin";

/// The version of CSI that registrars name; the kubelet takes any of major version 1.
const CSI_VERSION: &str = "1.0.0";
