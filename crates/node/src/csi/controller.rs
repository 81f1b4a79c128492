//! A CSI controller for csi-sanity only, whose life-cycle tests create each volume before they publish it. It
//! creates nothing and returns the parameters as the volume context.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use lanyard_grpc::csi::controller_server::Controller;
use lanyard_grpc::csi::controller_service_capability::{Rpc, Type, rpc};
use lanyard_grpc::csi::validate_volume_capabilities_response::Confirmed;
use lanyard_grpc::csi::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse,
    ControllerServiceCapability, CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, PluginCapability, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse, Volume, plugin_capability,
};
use parking_lot::Mutex;
use tonic::{Request, Response, Status};

/// The plugin capability that makes csi-sanity test the controller.
pub(super) fn capability() -> PluginCapability {
    let service = plugin_capability::Service {
        r#type: plugin_capability::service::Type::ControllerService.into(),
    };
    PluginCapability { r#type: Some(plugin_capability::Type::Service(service)) }
}

/// Stores the created volumes by name.
#[derive(Debug, Default)]
pub(crate) struct EchoController(Mutex<BTreeMap<String, Volume>>);

#[tonic::async_trait]
impl Controller for EchoController {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let CreateVolumeRequest { name, capacity_range, volume_capabilities, parameters } =
            request.into_inner();
        if name.is_empty() {
            return Err(Status::invalid_argument("`name` is missing"));
        }
        if volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("`volume_capabilities` is missing"));
        }
        let wanted = Volume {
            capacity_bytes: capacity_range.map_or(0, |range| range.required_bytes),
            volume_id: String::new(),
            volume_context: parameters,
        };
        let mut volumes = self.0.lock();
        // A name may be as long as an id, and may contain characters that an id must not.
        let volume_id = format!("csi-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let volume = volumes.entry(name).or_insert_with(|| Volume { volume_id, ..wanted.clone() });
        if volume.capacity_bytes != wanted.capacity_bytes {
            return Err(Status::already_exists("a volume of that name has another capacity"));
        }
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume.clone()) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let DeleteVolumeRequest { volume_id } = request.into_inner();
        if volume_id.is_empty() {
            return Err(Status::invalid_argument("`volume_id` is missing"));
        }
        self.0.lock().retain(|_, volume| volume.volume_id != volume_id);
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let ValidateVolumeCapabilitiesRequest { volume_id, volume_capabilities } =
            request.into_inner();
        if volume_id.is_empty() {
            return Err(Status::invalid_argument("`volume_id` is missing"));
        }
        if volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("`volume_capabilities` is missing"));
        }
        if !self.0.lock().values().any(|volume| volume.volume_id == volume_id) {
            return Err(Status::not_found("volume not found"));
        }
        let confirmed = Some(Confirmed { volume_capabilities });
        let message = String::new();
        Ok(Response::new(ValidateVolumeCapabilitiesResponse { confirmed, message }))
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let create_delete = Rpc { r#type: rpc::Type::CreateDeleteVolume.into() };
        let capability = ControllerServiceCapability { r#type: Some(Type::Rpc(create_delete)) };
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: vec![capability] }))
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);
