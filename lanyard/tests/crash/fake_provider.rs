//! A fake provider, which serves the content of the volumes on a socket.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use lanyard_grpc::PrivateSocket;
use lanyard_grpc::provider::csi_driver_provider_server::{
    CsiDriverProvider, CsiDriverProviderServer,
};
use lanyard_grpc::provider::{
    File, MountRequest, MountResponse, ObjectVersion, VersionRequest, VersionResponse,
};
use libtest_mimic::Failed;
use parking_lot::Mutex;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// A provider that returns the files of the current version, or an error if there is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeVersionProvider(Arc<Mutex<Option<String>>>);

impl FakeVersionProvider {
    /// Serves on a socket until the runtime ends.
    pub(crate) fn serve(&self, socket: &Path) -> Result<(), Failed> {
        let (incoming, file) = PrivateSocket::bind(socket)?.split();
        let server = Server::builder().add_service(CsiDriverProviderServer::new(self.clone()));
        tokio::spawn(async move {
            let _file = file;
            server.serve_with_incoming(incoming).await
        });
        Ok(())
    }

    pub(crate) fn set_version(&self, version: Option<&str>) {
        *self.0.lock() = version.map(str::to_owned);
    }
}

/// The files of a version, by path. Later versions are larger, so that the tmpfs must grow.
pub(crate) fn files_of_version(version: &str) -> BTreeMap<&'static str, String> {
    let size = 50_000 * version.parse::<usize>().unwrap_or(0);
    BTreeMap::from([
        ("cert", format!("cert {version}")),
        ("large", format!("{version}{}", "x".repeat(size))),
        ("tls/key", format!("key {version}")),
        ("tls/chain/root", format!("root {version}")),
        if version == "1" { ("old", "1".to_owned()) } else { ("new", version.to_owned()) },
    ])
}

#[async_trait]
impl CsiDriverProvider for FakeVersionProvider {
    async fn version(
        &self,
        _request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(VersionResponse {
            version: "v1alpha1".to_owned(),
            runtime_name: "crash".to_owned(),
            runtime_version: "0".to_owned(),
        }))
    }

    async fn mount(
        &self,
        _request: Request<MountRequest>,
    ) -> Result<Response<MountResponse>, Status> {
        let Some(version) = self.0.lock().clone() else {
            return Err(Status::failed_precondition("the provider has no content"));
        };
        let file = |(path, text): (&str, String)| File {
            path: path.to_owned(),
            mode: 0o644,
            contents: text.into_bytes(),
        };
        Ok(Response::new(MountResponse {
            files: files_of_version(&version).into_iter().map(file).collect(),
            object_version: vec![ObjectVersion { id: "secret/one".to_owned(), version }],
            error: None,
        }))
    }
}
