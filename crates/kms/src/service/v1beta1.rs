//! Version 1, for API servers with the feature gate `KMSv1`.

use lanyard_grpc::kms_v1beta1::key_management_service_server::KeyManagementService;
use lanyard_grpc::kms_v1beta1::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, VersionRequest,
    VersionResponse,
};
use tonic::{Request, Response, Status};

use super::deadline::budget;
use super::{count, refusal};
use crate::error::PluginError;
use crate::metrics::Counted;
use crate::plugin::Plugin;

/// The version that is spoken.
pub(crate) const VERSION: &str = "v1beta1";

/// The name of the other plugins.
pub(crate) const RUNTIME_NAME: &str = "Microsoft AzureKMS";

/// Version 1 of the API. The version that a request names is not looked at: the API server checks
/// ours, once.
#[derive(Debug, Clone)]
pub(crate) struct V1(pub(crate) Plugin);

#[tonic::async_trait]
impl KeyManagementService for V1 {
    async fn version(
        &self,
        _request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        let Self(plugin) = self;
        count(plugin, Counted::GrpcVersion, plugin.clock().monotonic(), None);
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
        let given = budget(request.metadata());
        let cipher = plugin.encrypt_v1(&request.get_ref().plain, given).await;
        count(plugin, Counted::GrpcEncrypt, began, cipher.as_ref().err().map(PluginError::word));
        let cipher = cipher.map_err(|error| refusal("Encrypt of version 1", &error))?;
        Ok(Response::new(EncryptResponse { cipher }))
    }

    async fn decrypt(
        &self,
        request: Request<DecryptRequest>,
    ) -> Result<Response<DecryptResponse>, Status> {
        let Self(plugin) = self;
        let began = plugin.clock().monotonic();
        let given = budget(request.metadata());
        let plain = plugin.decrypt_v1(&request.get_ref().cipher, given).await;
        count(plugin, Counted::GrpcDecrypt, began, plain.as_ref().err().map(PluginError::word));
        let mut plain = plain.map_err(|error| refusal("Decrypt of version 1", &error))?;
        Ok(Response::new(DecryptResponse { plain: std::mem::take(&mut *plain) }))
    }
}
