//! Registers the driver with the kubelet, like `csi-node-driver-registrar`.
//!
//! The kubelet watches its plugin registry. When a socket appears there, the kubelet calls it, dials the CSI
//! socket, and adds the driver to the node's CSINode object. The server creates the registration socket only
//! when everything else is ready, so that the kubelet publishes no volume through a driver that cannot serve,
//! and removes it first at shutdown.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lanyard_clock::ErrorHint;
use lanyard_grpc::registration::registration_server::Registration;
use lanyard_grpc::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use lanyard_telemetry::ReadinessGate;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::csi::DriverName;

/// Where the kubelet finds the driver.
#[derive(Debug, Clone)]
pub struct RegistrationSettings {
    /// The kubelet's plugin registry: `<kubelet>/plugins_registry`.
    pub directory: PathBuf,
    /// The path of the CSI socket as the kubelet sees it.
    pub endpoint: PathBuf,
}

impl RegistrationSettings {
    /// Returns the path of the registration socket of `driver`.
    pub fn socket(&self, driver: &DriverName) -> PathBuf {
        self.directory.join(format!("{driver}-reg.sock"))
    }
}

/// The kubelet rejected the registration of the driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kubelet rejected the driver: {reason}")]
pub struct RegistrationRejectedError {
    /// The reason given by the kubelet.
    pub reason: String,
}

impl ErrorHint for RegistrationRejectedError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "check that `--kubelet-registration-path` is the CSI socket's path on the node, and that no \
         other driver has the name",
        ))
    }
}

/// Implements the kubelet's plugin registration service for the driver.
#[derive(Debug, Clone)]
pub(crate) struct RegistrationService {
    driver: DriverName,
    endpoint: PathBuf,
    gate: ReadinessGate,
    rejection: watch::Sender<Option<RegistrationRejectedError>>,
}

impl RegistrationService {
    /// Creates the service of a driver whose CSI socket the kubelet sees at `endpoint`. `gate` opens when the
    /// kubelet has registered the driver.
    pub(crate) fn new(driver: DriverName, endpoint: &Path, gate: ReadinessGate) -> Self {
        let rejection = watch::Sender::new(None);
        Self { driver, endpoint: endpoint.to_owned(), gate, rejection }
    }

    /// Waits until the kubelet rejects the driver. Cancel safe.
    pub(crate) async fn wait_for_rejection(&self) -> RegistrationRejectedError {
        let mut refused = self.rejection.subscribe();
        match refused.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(refused)) => refused,
            // The service holds a sender, and `wait_for` returns only once there is a value.
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
            tracing::error!(driver = %self.driver, reason, "the kubelet rejected the driver");
            self.gate.close(format!("the kubelet rejected the driver: {reason}"));
            self.rejection.send_replace(Some(RegistrationRejectedError { reason }));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// The plugin type (kubelet, `pluginregistration/v1`).
const KIND: &str = "CSIPlugin";

/// The CSI version that registrars report. The kubelet accepts every version with major version 1.
const CSI_VERSION: &str = "1.0.0";
