//! Version 1 of the KMS API, for API servers with the feature gate `KMSv1`.

use lanyard_grpc::kms_v1beta1::key_management_service_server::KeyManagementService;
use lanyard_grpc::kms_v1beta1::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, VersionRequest,
    VersionResponse,
};
use tonic::{Request, Response, Status};

use super::deadline::request_timeout;
use super::{error_status, record_call};
use crate::error::KmsPluginError;
use crate::metrics::MeasuredOperation;
use crate::plugin::KmsPlugin;

/// The version that the service reports.
pub(crate) const VERSION: &str = "v1beta1";

/// The runtime name that the other plugins also report.
pub(crate) const RUNTIME_NAME: &str = "Microsoft AzureKMS";

/// Version 1 of the KMS API. The service ignores the version in requests: the API server checks the
/// reported version once.
#[derive(Debug, Clone)]
pub(crate) struct KmsV1Service(pub(crate) KmsPlugin);

#[tonic::async_trait]
impl KeyManagementService for KmsV1Service {
    async fn version(
        &self,
        _request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        let Self(plugin) = self;
        record_call(plugin, MeasuredOperation::GrpcVersion, plugin.clock().monotonic(), None);
        Ok(Response::new(VersionResponse {
            version: VERSION.to_owned(),
            runtime_name: RUNTIME_NAME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        }))
    }

    async fn encrypt(
        &self,
        request: Request<EncryptRequest>,
    ) -> Result<Response<EncryptResponse>, Status> {
        let Self(plugin) = self;
        let began = plugin.clock().monotonic();
        let given = request_timeout(request.metadata());
        let cipher = plugin.encrypt_v1(&request.get_ref().plain, given).await;
        record_call(
            plugin,
            MeasuredOperation::GrpcEncrypt,
            began,
            cipher.as_ref().err().map(KmsPluginError::label),
        );
        let cipher = cipher.map_err(|error| error_status("Encrypt of version 1", &error))?;
        Ok(Response::new(EncryptResponse { cipher }))
    }

    async fn decrypt(
        &self,
        request: Request<DecryptRequest>,
    ) -> Result<Response<DecryptResponse>, Status> {
        let Self(plugin) = self;
        let began = plugin.clock().monotonic();
        let given = request_timeout(request.metadata());
        let plain = plugin.decrypt_v1(&request.get_ref().cipher, given).await;
        record_call(
            plugin,
            MeasuredOperation::GrpcDecrypt,
            began,
            plain.as_ref().err().map(KmsPluginError::label),
        );
        let mut plain = plain.map_err(|error| error_status("Decrypt of version 1", &error))?;
        Ok(Response::new(DecryptResponse { plain: std::mem::take(&mut *plain) }))
    }
}
