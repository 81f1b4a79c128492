//! Version 2 of the KMS API.

use lanyard_grpc::kms_v2::key_management_service_server::KeyManagementService;
use lanyard_grpc::kms_v2::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use tonic::{Request, Response, Status};

use super::deadline::request_timeout;
use super::{error_status, record_call};
use crate::error::KmsPluginError;
use crate::metrics::MeasuredOperation;
use crate::plugin::{EncryptedValue, KmsPlugin};

/// The version that the other plugins report. `v2` would also work, but an API server treats a
/// change of the version as an error, and plugins are replaced while API servers run.
const VERSION: &str = "v2beta1";

/// The only value that the API server considers healthy.
const HEALTHY: &str = "ok";

/// Version 2 of the API.
#[derive(Debug, Clone)]
pub(crate) struct KmsV2Service(pub(crate) KmsPlugin);

#[tonic::async_trait]
impl KeyManagementService for KmsV2Service {
    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let Self(plugin) = self;
        let began = plugin.clock().monotonic();
        let proved = plugin.prove(request_timeout(request.metadata())).await;
        let word = proved.as_ref().err().map(|error| error.label());
        record_call(plugin, MeasuredOperation::GrpcStatus, began, word);
        proved.map_err(|error| error_status("Status", &error))?;
        Ok(Response::new(StatusResponse {
            version: VERSION.to_owned(),
            healthz: HEALTHY.to_owned(),
            key_id: plugin.key().id().to_owned(),
        }))
    }

    async fn encrypt(
        &self,
        request: Request<EncryptRequest>,
    ) -> Result<Response<EncryptResponse>, Status> {
        let Self(plugin) = self;
        let began = plugin.clock().monotonic();
        let given = request_timeout(request.metadata());
        let request = request.into_inner();
        let sealed = plugin.encrypt(&request.plaintext, given).await;
        record_call(
            plugin,
            MeasuredOperation::GrpcEncrypt,
            began,
            sealed.as_ref().err().map(KmsPluginError::label),
        );
        let sealed = sealed.map_err(|error| error_status("Encrypt", &error))?;
        tracing::debug!(uid = request.uid, "encrypted");
        let EncryptedValue { ciphertext, key_id, annotations } = sealed;
        Ok(Response::new(EncryptResponse { ciphertext, key_id, annotations }))
    }

    async fn decrypt(
        &self,
        request: Request<DecryptRequest>,
    ) -> Result<Response<DecryptResponse>, Status> {
        let Self(plugin) = self;
        let began = plugin.clock().monotonic();
        let given = request_timeout(request.metadata());
        let DecryptRequest { ciphertext, uid, key_id, annotations } = request.into_inner();
        let sealed = EncryptedValue { ciphertext, key_id, annotations };
        let plaintext = plugin.decrypt(&sealed, given).await;
        record_call(
            plugin,
            MeasuredOperation::GrpcDecrypt,
            began,
            plaintext.as_ref().err().map(KmsPluginError::label),
        );
        let mut plaintext = plaintext.map_err(|error| error_status("Decrypt", &error))?;
        tracing::debug!(uid, "decrypted");
        Ok(Response::new(DecryptResponse { plaintext: std::mem::take(&mut *plaintext) }))
    }
}
