//! The CSI Identity service: name, version and readiness of the driver.

use std::collections::BTreeMap;

use lanyard_grpc::csi::identity_server::Identity;
use lanyard_grpc::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
};
use lanyard_telemetry::ReadinessGate;
use tonic::{Request, Response, Status};

use super::DriverName;

/// Implements the CSI Identity service.
#[derive(Debug)]
pub(crate) struct CsiIdentityService {
    name: DriverName,
    version: String,
    registration_gate: ReadinessGate,
    capabilities: Vec<PluginCapability>,
}

impl CsiIdentityService {
    /// Creates the service of a driver. It reports ready when every gate except the registration's is open,
    /// because the kubelet registers only a ready driver.
    pub(crate) const fn new(
        name: DriverName,
        version: String,
        registration_gate: ReadinessGate,
    ) -> Self {
        Self { name, version, registration_gate, capabilities: Vec::new() }
    }

    /// Advertises the controller for csi-sanity.
    #[cfg(feature = "sanity")]
    pub(crate) fn with_controller(self) -> Self {
        Self { capabilities: vec![super::controller::capability()], ..self }
    }
}

#[tonic::async_trait]
impl Identity for CsiIdentityService {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.name.to_string(),
            vendor_version: self.version.clone(),
            manifest: BTreeMap::new(),
        }))
    }

    /// Returns no capability. Upstream advertises a controller service that does not work.
    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let capabilities = self.capabilities.clone();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(
        &self,
        _request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(self.registration_gate.others_are_open()) }))
    }
}
