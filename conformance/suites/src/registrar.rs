//! Registration of upstream's driver with the kubelet, which upstream leaves to a sidecar.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use lanyard_grpc::registration::registration_server::{Registration, RegistrationServer};
use lanyard_grpc::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use lanyard_grpc::{PrivateSocket, SocketError};
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Registers a driver with the kubelet until it is dropped.
#[derive(Debug)]
pub(crate) struct DriverRegistrar {
    server: JoinHandle<()>,
}

impl DriverRegistrar {
    /// Registers the driver at `socket` with the kubelet of this directory. Requires a Tokio runtime.
    pub(crate) fn start(kubelet: &Path, driver: &str, socket: &Path) -> Result<Self, SocketError> {
        let path = kubelet.join("plugins_registry").join(format!("{driver}-reg.sock"));
        let (incoming, file) = PrivateSocket::bind(&path)?.split();
        let shown = RegistrarService { driver: driver.to_owned(), socket: socket.to_path_buf() };
        let server = tokio::spawn(async move {
            let service = RegistrationServer::new(shown);
            // The socket file is removed with its server, so the kubelet deregisters the driver.
            let served = Server::builder().add_service(service).serve_with_incoming(incoming).await;
            drop((served, file));
        });
        Ok(Self { server })
    }
}

impl Drop for DriverRegistrar {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct RegistrarService {
    driver: String,
    socket: PathBuf,
}

#[async_trait]
impl Registration for RegistrarService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.driver.clone(),
            endpoint: self.socket.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
