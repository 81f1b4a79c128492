use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener as StdListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

use super::*;
use crate::registration::registration_client::RegistrationClient;
use crate::registration::registration_server::{Registration, RegistrationServer};
use crate::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Responds with its name and the authority of the request.
struct EchoRegistration(&'static str);

#[tonic::async_trait]
impl Registration for EchoRegistration {
    async fn get_info(
        &self,
        request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        let authority = request.extensions().get::<RequestAuthority>().map(|it| it.0.clone());
        let endpoint = authority.unwrap_or_default();
        let (r#type, supported_versions) = (String::new(), Vec::new());
        let name = self.0.to_owned();
        Ok(Response::new(PluginInfo { r#type, name, endpoint, supported_versions }))
    }

    async fn notify_registration_status(
        &self,
        _request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[derive(Debug, Clone)]
struct RequestAuthority(String);

struct RegistrationTestServer {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RegistrationTestServer {
    fn start(incoming: IncomingConnections, name: &'static str) -> Self {
        let note = |mut request: http::Request<tonic::body::Body>| {
            let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
            request.extensions_mut().insert(RequestAuthority(authority));
            request
        };
        let layer = tower::util::MapRequestLayer::new(note);
        let server = Server::builder()
            .layer(layer)
            .add_service(RegistrationServer::new(EchoRegistration(name)));
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let ended = async { drop(ended.await) };
            server.serve_with_incoming_shutdown(incoming, ended).await.unwrap();
        });
        Self { end, task }
    }

    async fn stop(self) {
        self.end.send(()).unwrap();
        self.task.await.unwrap();
    }
}

async fn call_get_info(channel: &Channel) -> Result<PluginInfo, Status> {
    let mut client = RegistrationClient::new(channel.clone());
    client.get_info(InfoRequest {}).await.map(Response::into_inner)
}

#[tokio::test]
async fn a_client_reaches_the_server_with_the_authority_localhost() {
    let directory = directory();
    let path = directory.path().join("a.sock");
    let (incoming, _file) = PrivateSocket::bind(&path).unwrap().split();
    let server = RegistrationTestServer::start(incoming, "first");
    let info = call_get_info(&channel_to_socket(&path)).await.unwrap();
    assert_eq!((info.name.as_str(), info.endpoint.as_str()), ("first", "localhost"));
    server.stop().await;
}

#[tokio::test]
async fn client_may_send_the_socket_path_as_authority() {
    const DATA: u8 = 0;
    let directory = directory();
    let path = directory.path().join("a.sock");
    let (incoming, _file) = PrivateSocket::bind(&path).unwrap().split();
    let server = RegistrationTestServer::start(incoming, "first");
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let authority = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fa.sock";
    stream.write_all(&authority_rewriter::tests::first_request(authority)).await.unwrap();
    // Read frames until the response; the server would answer a rejected request with RST_STREAM.
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        assert_ne!(head[3], 3, "the request was refused");
        if head[3] == DATA {
            assert!(payload.windows(9).any(|bytes| bytes == b"localhost"));
            break;
        }
    }
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn channel_reconnects_to_a_new_server_on_the_same_path() {
    let directory = directory();
    let path = directory.path().join("a.sock");
    let channel = channel_to_socket(&path);
    assert_eq!(call_get_info(&channel).await.unwrap_err().code(), Code::Unavailable);
    let (incoming, file) = PrivateSocket::bind(&path).unwrap().split();
    let server = RegistrationTestServer::start(incoming, "first");
    assert_eq!(call_get_info(&channel).await.unwrap().name, "first");
    server.stop().await;
    drop(file);
    let (incoming, _file) = PrivateSocket::bind(&path).unwrap().split();
    let server = RegistrationTestServer::start(incoming, "second");
    // The channel may notice only now that the first connection is dead; the kubelet retries, too.
    let mut answer = call_get_info(&channel).await;
    for _ in 0..50 {
        if answer.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        answer = call_get_info(&channel).await;
    }
    assert_eq!(answer.unwrap().name, "second");
    server.stop().await;
}

#[tokio::test]
async fn a_socket_is_private_whatever_the_umask() {
    let directory = directory();
    let path = directory.path().join("a.sock");
    // The umask is process-wide; the other tests create only private files.
    let before = rustix::process::umask(Mode::empty());
    let socket = PrivateSocket::bind(&path);
    rustix::process::umask(before);
    let (_incoming, file) = socket.unwrap().split();
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no hidden name is left");
    assert!(file.is_in_place());
}

#[tokio::test]
async fn stale_socket_of_a_dead_process_is_replaced() {
    let directory = directory();
    let path = directory.path().join("a.sock");
    drop(StdListener::bind(&path).unwrap());
    let stale = fs::symlink_metadata(&path).unwrap().ino();
    let (mut incoming, _file) = PrivateSocket::bind(&path).unwrap().split();
    assert_ne!(fs::symlink_metadata(&path).unwrap().ino(), stale);
    let _client = UnixStream::connect(&path).await.unwrap();
    assert!(incoming.next().await.unwrap().is_ok());
}

#[tokio::test]
async fn socket_of_a_listening_server_is_not_replaced() {
    let directory = directory();
    let path = directory.path().join("a.sock");
    let living = StdListener::bind(&path).unwrap();
    let error = PrivateSocket::bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::InUse { .. }), "{error:?}");
    // A server that is too busy to accept is not replaced either.
    let address = SocketAddrUnix::new(&path).unwrap();
    let mut waiting = Vec::new();
    loop {
        let socket = private_socket().unwrap();
        let full = rustix::net::connect(&socket, &address).is_err();
        waiting.push(socket);
        if full {
            break;
        }
    }
    let error = PrivateSocket::bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::InUse { .. }), "{error:?}");
    drop((living, waiting));
}

#[tokio::test]
async fn bind_removes_only_sockets() {
    let directory = directory();
    let elsewhere = directory.path().join("elsewhere.sock");
    drop(StdListener::bind(&elsewhere).unwrap());
    let [file, link, folder] = ["file", "link", "folder"].map(|it| directory.path().join(it));
    fs::write(&file, "mine").unwrap();
    symlink(&elsewhere, &link).unwrap();
    fs::create_dir(&folder).unwrap();
    for path in [&file, &link, &folder] {
        let error = PrivateSocket::bind(path).unwrap_err();
        assert!(matches!(error, SocketError::NotASocket { .. }), "{error:?}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
}

#[tokio::test]
async fn too_long_and_invalid_socket_paths_are_rejected() {
    let directory = directory();
    let max_name_length = MAX_SOCKET_PATH - directory.path().as_os_str().len() - 1;
    let longest = directory.path().join("x".repeat(max_name_length));
    drop(PrivateSocket::bind(&longest).unwrap());
    let path = directory.path().join("x".repeat(max_name_length + 1));
    let error = PrivateSocket::bind(&path).unwrap_err();
    assert!(error.to_string().ends_with("has 108 bytes, and a socket's path has 107 at most"));
    for nowhere in [Path::new("/"), Path::new("..")] {
        let error = PrivateSocket::bind(nowhere).unwrap_err();
        assert!(matches!(error, SocketError::NoName { .. }), "{error:?}");
    }
    let error = PrivateSocket::bind(&directory.path().join("no/a.sock")).unwrap_err();
    assert!(error.to_string().starts_with("could not open the directory of "), "{error}");
}

#[tokio::test]
async fn dropping_the_socket_file_keeps_a_replaced_socket() {
    let directory = directory();
    let path = directory.path().join("a.sock");
    let (_incoming, file) = PrivateSocket::bind(&path).unwrap().split();
    fs::remove_file(&path).unwrap();
    assert!(!file.is_in_place());
    let _other = StdListener::bind(&path).unwrap();
    assert!(!file.is_in_place());
    drop(file);
    assert!(path.exists());
}

#[tokio::test]
async fn recreated_directory_means_not_in_place() {
    let directory = directory();
    let registry = directory.path().join("registry");
    let path = registry.join("a.sock");
    fs::create_dir(&registry).unwrap();
    let (_incoming, file) = PrivateSocket::bind(&path).unwrap().split();
    fs::rename(&registry, directory.path().join("old")).unwrap();
    fs::create_dir(&registry).unwrap();
    assert!(!file.is_in_place());
}

#[tokio::test]
async fn temporary_socket_of_a_killed_process_is_removed() {
    let directory = directory();
    let location = SocketLocation::open(&directory.path().join("a.sock")).unwrap();
    drop(StdListener::bind(location.temporary_path()).unwrap());
    bind_temporary(&location).unwrap();
    drop(location.rename_into_place().unwrap());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
