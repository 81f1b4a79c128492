//! External providers: valid, late, broken and hostile ones.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lanyard_api::SecretProviderClass;
use lanyard_clock::{Clock, ManualClock, RetryClass};
use lanyard_grpc::PrivateSocket;
use lanyard_grpc::provider::csi_driver_provider_server::{
    CsiDriverProvider, CsiDriverProviderServer,
};
use lanyard_grpc::provider::{Error, File, ObjectVersion as WireVersion, VersionResponse};
use lanyard_keyvault::{PodCredentials, ReadMemory, UnlimitedMemory, VolumePod};
use lanyard_provider::Urgency;
use lanyard_vocabulary::{OutcomeCode, format_error_chain};
use proptest::prelude::*;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::message::ProviderResponseProblem;
use super::*;
use crate::memory::MemoryAccount;
use crate::provider::tokens::{parse_secrets, parse_tokens};

const TOKENS: &str =
    r#"{"aud":{"token":"planted-token","expirationTimestamp":"2026-11-21T12:00:00Z"}}"#;

/// A provider with a scripted response.
struct FakeSocketProvider {
    calls: Arc<AtomicU32>,
    respond: Box<dyn Fn(u32, MountRequest) -> Result<MountResponse, Status> + Send + Sync>,
}

#[tonic::async_trait]
impl CsiDriverProvider for FakeSocketProvider {
    async fn version(
        &self,
        request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        let version = request.into_inner().version;
        Ok(Response::new(VersionResponse { version, ..VersionResponse::default() }))
    }

    async fn mount(
        &self,
        request: Request<MountRequest>,
    ) -> Result<Response<MountResponse>, Status> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        (self.respond)(call, request.into_inner()).map(Response::new)
    }
}

struct SocketProvidersFixture {
    directory: tempfile::TempDir,
    clock: ManualClock,
    providers: Arc<SocketProviders>,
    calls: Arc<AtomicU32>,
    servers: Vec<JoinHandle<()>>,
}

impl Drop for SocketProvidersFixture {
    fn drop(&mut self) {
        self.servers.iter().for_each(JoinHandle::abort);
    }
}

impl SocketProvidersFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let places = ["first", "second"].map(|name| directory.path().join(name));
        for path in &places {
            std::fs::create_dir(path).unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let settings = SocketProviderSettings {
            directories: places.into(),
            ..SocketProviderSettings::default()
        };
        let providers = Arc::new(SocketProviders::new(settings, Arc::new(clock.clone())));
        Self { directory, clock, providers, calls: Arc::default(), servers: Vec::new() }
    }

    fn serve(
        &mut self,
        path: &str,
        answer: impl Fn(u32, MountRequest) -> Result<MountResponse, Status> + Send + Sync + 'static,
    ) {
        let path = self.directory.path().join(path);
        let (incoming, file) = PrivateSocket::bind(&path).unwrap().split();
        let mock = FakeSocketProvider { calls: Arc::clone(&self.calls), respond: Box::new(answer) };
        self.servers.push(tokio::spawn(async move {
            let server = Server::builder().add_service(CsiDriverProviderServer::new(mock));
            server.serve_with_incoming(incoming).await.unwrap();
            drop(file);
        }));
    }

    async fn fetch(&self, provider: &str) -> Result<ProviderResponse, ProviderError> {
        self.fetch_with_memory(&UnlimitedMemory, provider).await
    }

    async fn fetch_with_memory(
        &self,
        memory: &dyn ReadMemory,
        provider: &str,
    ) -> Result<ProviderResponse, ProviderError> {
        let mut class = SecretProviderClass::default();
        class.spec.provider = Some(provider.to_owned());
        class.spec.parameters = Some([("of".to_owned(), "class".to_owned())].into());
        let [namespace, name, uid, service_account] = ["n", "p", "u", "s"].map(str::to_owned);
        let pod = VolumePod { namespace, name, uid, service_account };
        let attributes = [
            ("of".to_owned(), "pod".to_owned()),
            ("secretProviderClass".to_owned(), "c".to_owned()),
            ("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned()),
        ]
        .into();
        let pod_credentials = PodCredentials {
            tokens: parse_tokens(TOKENS).unwrap(),
            secrets: parse_secrets(r#"{"key":"planted-secret"}"#).unwrap(),
        };
        let request = ProviderRequest {
            class: &class,
            pod: &pod,
            attributes: &attributes,
            pod_credentials: &pod_credentials,
            target: "/target",
            urgency: Urgency::Mount,
            mounted: &[],
            memory,
        };
        self.providers.fetch(&request).await
    }

    /// Fetches, and advances the clock whenever a task sleeps beyond the deadline of the call.
    async fn fetch_advancing_clock(
        &self,
        provider: &str,
    ) -> Result<ProviderResponse, ProviderError> {
        let fill = self.fetch(provider);
        tokio::pin!(fill);
        loop {
            tokio::select! {
                biased;
                filled = &mut fill => return filled,
                () = tokio::task::yield_now() => {
                    if self.clock.time_until_next_deadline().is_some_and(|due| due <= RETRY_PAUSE) {
                        self.clock.advance(self.clock.time_until_next_deadline().unwrap_or_default());
                    }
                }
            }
        }
    }
}

fn file(path: &str, contents: &[u8]) -> File {
    file_with_mode(path, 0o644, contents)
}

fn file_with_mode(path: &str, mode: i32, contents: &[u8]) -> File {
    File { path: path.to_owned(), mode, contents: contents.to_vec() }
}

fn version(id: &str, version: &str) -> WireVersion {
    WireVersion { id: id.to_owned(), version: version.to_owned() }
}

fn valid_response() -> MountResponse {
    MountResponse {
        object_version: vec![version("a", "1")],
        error: None,
        files: vec![file("a", b"content")],
    }
}

#[tokio::test]
async fn request_carries_class_pod_and_proofs_and_response_the_files() {
    let mut node = SocketProvidersFixture::new();
    node.serve("second/mock.sock", |_, request| {
        let attributes: BTreeMap<String, String> =
            serde_json::from_str(&request.attributes).unwrap();
        let expected = [
            ("of", "class"),
            ("secretProviderClass", "c"),
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.name", "p"),
            ("csi.storage.k8s.io/pod.namespace", "n"),
            ("csi.storage.k8s.io/pod.uid", "u"),
            ("csi.storage.k8s.io/serviceAccount.name", "s"),
            ("csi.storage.k8s.io/serviceAccount.tokens", TOKENS),
        ];
        let expected = expected.map(|(key, text)| (key.to_owned(), text.to_owned()));
        assert_eq!(attributes, BTreeMap::from(expected));
        assert_eq!(request.secrets, r#"{"key":"planted-secret"}"#);
        assert_eq!((request.permission.as_str(), request.target_path.as_str()), ("420", "/target"));
        Ok(MountResponse {
            object_version: vec![version("b", "1"), version("a", "1"), version("b", "2")],
            error: Some(Error::default()),
            files: vec![file("a", b"content"), file_with_mode("d/b", 0, b"")],
        })
    });
    let response = node.fetch("mock").await.unwrap();
    let versions: Vec<_> =
        response.versions.iter().map(|it| format!("{}@{}", it.id, it.version)).collect();
    assert_eq!(versions, ["a@1", "b@2"]);
    let files: Vec<_> = response.files.iter().map(|it| (it.path.as_str(), it.mode)).collect();
    assert_eq!(files, [("a", Some(0o644)), ("d/b", None)]);
    assert_eq!(response.files[0].content.expose(), b"content");
}

#[tokio::test]
async fn the_first_directory_with_the_socket_wins() {
    let mut node = SocketProvidersFixture::new();
    for path in ["second/mock.sock", "first/mock.sock"] {
        node.serve(path, move |_, _| {
            Ok(MountResponse { object_version: vec![version(path, "1")], ..valid_response() })
        });
    }
    assert_eq!(node.fetch("mock").await.unwrap().versions[0].id, "first/mock.sock");
}

#[tokio::test]
async fn unavailable_provider_is_called_three_times() {
    let mut node = SocketProvidersFixture::new();
    node.serve("first/mock.sock", |call, _| {
        if call < 2 { Err(Status::unavailable("starting")) } else { Ok(valid_response()) }
    });
    assert!(node.fetch_advancing_clock("mock").await.is_ok());
    assert_eq!(node.calls.load(Ordering::SeqCst), 3);
    let waited = node.clock.monotonic();
    assert_eq!(waited, 2 * RETRY_PAUSE);

    let mut node = SocketProvidersFixture::new();
    node.serve("first/mock.sock", |_, _| Err(Status::unavailable("planted-token down")));
    let error = node.fetch_advancing_clock("mock").await.unwrap_err();
    assert_eq!(
        (error.code, error.retry),
        (OutcomeCode::ProviderUnavailable, RetryClass::Transient)
    );
    assert!(error.message.ends_with("answered 3 times Unavailable: [redacted] down"));
    assert_eq!(node.calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn call_waits_for_a_listener_then_reports_provider_unavailable() {
    let mut node = SocketProvidersFixture::new();
    let path = node.directory.path().join("first/mock.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = node.fetch_advancing_clock("mock").await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::ProviderUnavailable);
    assert!(error.message.contains("no process listens on"), "{}", error.message);
    assert!(node.clock.monotonic() >= Duration::from_secs(10));

    node.serve("first/mock.sock", |_, _| Ok(valid_response()));
    assert!(node.fetch("mock").await.is_ok());
}

#[tokio::test]
async fn a_provider_that_was_replaced_is_found_again() {
    let mut node = SocketProvidersFixture::new();
    node.serve("first/mock.sock", |_, _| Ok(valid_response()));
    assert!(node.fetch("mock").await.is_ok());
    assert!(node.providers.check_health().await.is_empty());
    let server = node.servers.pop().unwrap();
    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    node.serve("first/mock.sock", |_, _| Ok(valid_response()));
    assert!(node.fetch_advancing_clock("mock").await.is_ok());
}

#[tokio::test]
async fn missing_socket_and_invalid_name_have_outcome_codes() {
    let node = SocketProvidersFixture::new();
    let error = node.fetch("mock").await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::ProviderNotFound);
    assert!(error.message.contains("`mock.sock`") && error.message.contains("/second"));
    for name in ["", "../first/mock", "a b"] {
        assert_eq!(node.fetch(name).await.unwrap_err().code, OutcomeCode::InvalidProvider);
    }
}

#[tokio::test]
async fn untrusted_socket_receives_no_request() {
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let mut node = SocketProvidersFixture::new();
    node.serve("first/mock.sock", |_, _| Ok(valid_response()));
    let directory = node.directory.path().join("first");
    for mode in [0o777, 0o775, 0o1777] {
        set(&directory, mode);
        let error = node.fetch("mock").await.unwrap_err();
        assert_eq!((error.code, error.retry), (OutcomeCode::ProviderNotFound, RetryClass::Denied));
        let expected = format!("mode {mode:04o} lets others change it");
        assert!(error.message.contains(&expected), "{}", error.message);
    }
    set(&directory, 0o755);

    let planted = node.directory.path().join("planted");
    std::fs::write(&planted, "").unwrap();
    std::os::unix::fs::symlink(&planted, directory.join("link.sock")).unwrap();
    std::fs::write(directory.join("file.sock"), "").unwrap();
    for name in ["link", "file"] {
        let error = node.fetch(name).await.unwrap_err();
        assert!(error.message.contains("it is not a socket"), "{}", error.message);
    }
    assert_eq!(node.calls.load(Ordering::SeqCst), 0);
    assert!(node.fetch("mock").await.is_ok());
}

#[tokio::test]
async fn socket_of_another_user_receives_no_request() {
    let mut node = SocketProvidersFixture::new();
    node.serve("first/mock.sock", |_, _| Ok(valid_response()));
    let path = node.directory.path().join("first/mock.sock");
    let own = rustix::process::geteuid().as_raw();
    let refused = if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
        node.fetch("mock").await.unwrap_err().message
    } else {
        // Only root can change the owner of a file. The test checks as another user instead.
        format_error_chain(&trusted_socket::check_trust(&path, own + 1).unwrap_err())
    };
    assert!(refused.contains("it belongs to user"), "{refused}");
    assert_eq!(node.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn response_above_the_limit_names_the_limit() {
    let mut node = SocketProvidersFixture::new();
    node.serve("first/mock.sock", |_, _| {
        Ok(MountResponse { files: vec![file("a", &vec![7; 5 << 20])], ..valid_response() })
    });
    let error = node.fetch("mock").await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::ProviderAnswerInvalid);
    assert!(error.hint.contains("--max-call-recv-msg-size"), "{}", error.hint);
}

#[tokio::test]
async fn memory_is_reserved_by_response_size_not_by_the_limit() {
    let mut node = SocketProvidersFixture::new();
    let settings =
        SocketProviderSettings { max_response_bytes: 64 << 20, ..node.providers.settings.clone() };
    node.providers = Arc::new(SocketProviders::new(settings, Arc::new(node.clock.clone())));
    let memory = MemoryAccount::new(16 << 20);
    for (provider, size) in [("mock", 1 << 20), ("large", 7 << 20)] {
        node.serve(&format!("first/{provider}.sock"), move |_, _| {
            Ok(MountResponse { files: vec![file("a", &vec![7; size])], ..valid_response() })
        });
    }
    let clock: SharedClock = Arc::new(node.clock.clone());
    let fill = || memory.fetch_memory(Urgency::Mount, CALL_DEADLINE, &clock);
    node.fetch_with_memory(&fill(), "mock").await.unwrap();
    // 256 KiB, 1 MiB without the other fields, 4 MiB.
    assert_eq!(node.calls.swap(0, Ordering::SeqCst), 3);
    // A mount may reserve 12 MiB, which suffices for a message of 6 MiB and its content.
    let error = node.fetch_with_memory(&fill(), "large").await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::VolumeMemoryExhausted);
    assert_eq!(node.calls.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn the_wait_for_memory_does_not_shorten_the_time_of_the_provider() {
    let mut node = SocketProvidersFixture::new();
    let clock = node.clock.clone();
    node.serve("first/mock.sock", move |_, _| {
        clock.advance(Duration::from_secs(6));
        Ok(valid_response())
    });
    let clock: SharedClock = Arc::new(node.clock.clone());
    let memory = MemoryAccount::new(1 << 20);
    let fill = || memory.fetch_memory(Urgency::Mount, CALL_DEADLINE, &clock);
    let (other, own) = (fill(), fill());
    other.reserve_read_memory(400 << 10).await.unwrap();
    let mut filled = Box::pin(node.fetch_with_memory(&own, "mock"));
    assert!(futures::poll!(&mut filled).is_pending());
    node.clock.advance(Duration::from_secs(85));
    drop(other);
    filled.await.unwrap();
    assert_eq!(time_left(Duration::from_secs(95)), Duration::from_secs(3));
}

#[tokio::test]
async fn provider_messages_are_redacted() {
    let mut node = SocketProvidersFixture::new();
    node.serve("first/mock.sock", |_, request| {
        let text = format!("no: {} {}", request.attributes, request.secrets);
        Err(Status::permission_denied(text))
    });
    let error = node.fetch("mock").await.unwrap_err();
    assert_eq!((error.code, error.retry), (OutcomeCode::ProviderError, RetryClass::Denied));
    assert!(error.message.contains("PermissionDenied: no: "), "{}", error.message);
    assert!(!format!("{error:?}").contains("planted"), "{error:?}");
}

#[test]
fn all_response_problems_are_reported_together() {
    let answer = MountResponse {
        object_version: vec![version("", "1"), version("a", "\n")],
        error: None,
        files: vec![
            file("/etc/passwd", b""),
            file("../up", b""),
            file("..data", b""),
            file("a", b""),
            file("a", b""),
            file("a/b", b""),
            file_with_mode("c", 0o1777, b""),
            file_with_mode("d", -1, b""),
        ],
    };
    let problems = parse_response(answer).unwrap_err();
    let count =
        |test: fn(&ProviderResponseProblem) -> bool| problems.iter().filter(|it| test(it)).count();
    assert_eq!(count(|it| matches!(it, ProviderResponseProblem::InvalidVersion { .. })), 2);
    assert_eq!(count(|it| matches!(it, ProviderResponseProblem::InvalidPath { .. })), 3);
    assert_eq!(count(|it| matches!(it, ProviderResponseProblem::PathCollision { .. })), 2);
    assert_eq!(count(|it| matches!(it, ProviderResponseProblem::InvalidMode { .. })), 2);
}

#[test]
fn responses_without_files_or_versions_are_rejected() {
    let cases = [
        (MountResponse { files: Vec::new(), ..valid_response() }, ProviderResponseProblem::NoFiles),
        (
            MountResponse { object_version: Vec::new(), ..valid_response() },
            ProviderResponseProblem::NoObjectVersion,
        ),
        (
            MountResponse {
                error: Some(Error { code: "Broken\n".to_owned() }),
                ..valid_response()
            },
            ProviderResponseProblem::ReportedError { code: "Broken".to_owned() },
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(parse_response(answer).unwrap_err(), [expected]);
    }
}

#[test]
fn ten_thousand_problems_make_a_short_message() {
    let files = (0..10_000).map(|_| file(&"../".repeat(100), b"")).collect();
    let problems = parse_response(MountResponse { files, ..valid_response() }).unwrap_err();
    let error = call_error::invalid_response_error(&"mock".parse().unwrap(), &problems);
    assert!(error.message.len() < 3_000 && error.message.ends_with("and 9990 more"));
}

proptest! {
    #[test]
    fn accepted_response_can_be_published(
        paths in prop::collection::vec("[ab/.]{0,5}", 0..6),
        mode in -1_i32..600,
    ) {
        let files = paths.iter().map(|path| file_with_mode(path, mode, b"x")).collect();
        if let Ok(response) = parse_response(MountResponse { files, ..valid_response() }) {
            let entries: Vec<_> = response
                .files
                .iter()
                .map(|it| lanyard_volume::FileEntry::new(it.path.clone(), it.content.expose(), it.mode.unwrap_or(0o644)))
                .collect();
            prop_assert!(lanyard_volume::Payload::parse(&entries).is_ok());
        }
    }
}
