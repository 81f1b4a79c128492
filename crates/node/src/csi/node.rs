//! The CSI Node service: publishes and unpublishes volumes for the kubelet.

use std::path::Path;
use std::sync::Arc;

use lanyard_clock::ErrorHint as _;
use lanyard_grpc::csi::node_server::Node;
use lanyard_grpc::csi::node_service_capability::{Rpc, Type, rpc};
use lanyard_grpc::csi::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest,
    NodeGetInfoResponse, NodePublishVolumeRequest, NodePublishVolumeResponse,
    NodeServiceCapability, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
};
use lanyard_vocabulary::OutcomeCode;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use crate::metrics::NodeMetrics;
use crate::publish_request::{InvalidPublishRequest, PublishRequest, VolumeRequestParser};
use crate::publisher::{PublishFailure, Publisher};

/// Implements the CSI Node service.
#[derive(Debug)]
pub(crate) struct CsiNodeService {
    publisher: Publisher,
    rules: VolumeRequestParser,
    node_id: String,
    metrics: NodeMetrics,
    publish_slots: Arc<Semaphore>,
}

impl CsiNodeService {
    /// Creates the service of the node `node_id`, whose volumes `publisher` publishes.
    pub(crate) fn new(
        publisher: Publisher,
        rules: VolumeRequestParser,
        node_id: String,
        metrics: NodeMetrics,
    ) -> Self {
        let publish_slots = Arc::new(Semaphore::new(MAX_CONCURRENT_PUBLISHES));
        Self { publisher, rules, node_id, metrics, publish_slots }
    }

    async fn publish(&self, publish_request: PublishRequest) -> Result<(), PublishFailure> {
        let target = publish_request.target.clone();
        // The semaphore is never closed; if it were, the publish would run without a permit. The permit
        // belongs to the publish, not to the call, because the caller may disconnect first.
        let permit = Arc::clone(&self.publish_slots).acquire_owned().await.ok();
        let result = self.publisher.publish_with_permit(publish_request, permit).await;
        match &result {
            Ok(()) => {
                let filled_by = self.publisher.state(&target).and_then(|it| it.provider.clone());
                self.metrics.record_publish(filled_by.as_deref(), Ok(()));
            }
            Err(failure) if failure.is_aborted_by_unpublish() => {}
            Err(failure) => {
                self.metrics.record_publish(failure.provider.as_deref(), Err(failure.code));
            }
        }
        result.inspect_err(|failure| log_failure("publish", failure))
    }

    async fn unpublish(&self, volume: &str, target: &Path) -> Result<(), PublishFailure> {
        let result = self.publisher.unpublish(volume, target).await;
        self.metrics.record_unpublish(result.is_ok());
        result.inspect_err(|failure| log_failure("unpublish", failure))
    }
}

#[tonic::async_trait]
impl Node for CsiNodeService {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let target = request.target_path.clone();
        let publish_request = match self.rules.parse_publish(request) {
            Ok(publish_request) => publish_request,
            Err(refused) => {
                self.metrics.record_publish(None, Err(OutcomeCode::InvalidRequest));
                let is_mounted = self.publisher.is_mounted(Path::new(&target)).await;
                return Err(invalid_request_status("publish", &refused, is_mounted));
            }
        };
        let (volume, pod) = (publish_request.volume_id.as_str(), publish_request.pod.to_string());
        let span =
            tracing::info_span!("csi.publish", volume, pod, class = publish_request.class_name);
        let published = self.publish(publish_request).instrument(span).await;
        published.map_err(|failure| failure.status())?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        let parsed = self.rules.parse_unpublish(volume_id, target_path);
        let (volume, target) = parsed.map_err(|refused| {
            self.metrics.record_unpublish(false);
            invalid_request_status("unpublish", &refused, false)
        })?;
        let span = tracing::info_span!("csi.unpublish", volume);
        let unpublished = self.unpublish(&volume, &target).instrument(span).await;
        unpublished.map_err(|failure| failure.status())?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    /// With `VOLUME_MOUNT_GROUP`, the kubelet passes the pod's `fsGroup` even for read-only inline volumes,
    /// and leaves ownership to the driver.
    async fn node_get_capabilities(
        &self,
        _request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let mount_group = Rpc { r#type: rpc::Type::VolumeMountGroup.into() };
        let capability = NodeServiceCapability { r#type: Some(Type::Rpc(mount_group)) };
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: vec![capability] }))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let node_id = self.node_id.clone();
        Ok(Response::new(NodeGetInfoResponse { node_id, max_volumes_per_node: 0 }))
    }
}

impl From<&InvalidPublishRequest> for PublishFailure {
    fn from(refused: &InvalidPublishRequest) -> Self {
        Self {
            code: refused.code(),
            message: refused.to_string(),
            hint: refused.hint().unwrap_or_default().into_owned(),
            grpc: tonic::Code::InvalidArgument,
            retry: lanyard_clock::RetryClass::Invalid,
            suppressed_for: None,
            provider: None,
        }
    }
}

/// Returns a status that the kubelet does not treat as final if the volume may be mounted: after a final
/// error, the kubelet would forget a volume that stays mounted.
fn invalid_request_status(
    call: &'static str,
    refused: &InvalidPublishRequest,
    is_mounted: bool,
) -> Status {
    let failure = PublishFailure::from(refused);
    let failure = if is_mounted { failure.into_non_final() } else { failure };
    log_failure(call, &failure);
    failure.status()
}

fn log_failure(call: &'static str, failure: &PublishFailure) {
    let PublishFailure { code, message, hint, .. } = failure;
    tracing::warn!(call, %code, hop = %code.hop(), hint, "{message}");
}

/// The maximum number of concurrent publishes. The kubelet publishes volumes in parallel; the limit bounds
/// memory, and further publishes wait.
const MAX_CONCURRENT_PUBLISHES: usize = 256;
