//! gRPC over a unix socket of lanyard, with the client of grpcio. It sends the path of the socket as authority.

use lanyard_grpc::PrivateSocket;
use lanyard_grpc::csi::identity_server::{Identity, IdentityServer};
use lanyard_grpc::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, ProbeRequest, ProbeResponse,
};
use libtest_mimic::Failed;
use serde_json::json;
use tokio::runtime::Runtime;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::client_program::ClientProgram;
use crate::suites::failed_with_causes;

/// A CSI driver that only has a name.
struct NamedDriver;

const DRIVER_NAME: &str = "named.driver.test";

#[tonic::async_trait]
impl Identity for NamedDriver {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let name = DRIVER_NAME.to_owned();
        Ok(Response::new(GetPluginInfoResponse { name, ..GetPluginInfoResponse::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Err(Status::unimplemented("only a name"))
    }

    async fn probe(
        &self,
        _request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        Err(Status::unimplemented("only a name"))
    }
}

/// The client calls the driver many times on one connection. The headers of the calls exceed the header table of
/// the connection, so that the client sends the authority several times.
pub(super) fn grpc_client_calls_a_unix_socket(
    program: &ClientProgram,
    runtime: &Runtime,
) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("csi.sock");
    let _guard = runtime.enter();
    let (incoming, _file) = PrivateSocket::bind(&socket).map_err(failed_with_causes)?.split();
    let service = IdentityServer::new(NamedDriver);
    let server =
        runtime.spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    let inputs = json!({ "socket": socket, "calls": 100 });
    let answer = program.run_case("grpc:unix-socket", &inputs).map_err(failed_with_causes);
    server.abort();
    let answer = answer?;
    let reply = answer["reply"].as_str().unwrap_or_default();
    if reply.ends_with(DRIVER_NAME) { Ok(()) } else { Err(format!("{answer}").into()) }
}
