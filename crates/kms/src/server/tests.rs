use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use jiff::Timestamp;
use lanyard_clock::{Clock as _, ManualClock, SharedClock, SystemClock};
use lanyard_grpc::kms_v1beta1::key_management_service_client::KeyManagementServiceClient as ClientV1;
use lanyard_grpc::kms_v2::key_management_service_client::KeyManagementServiceClient as ClientV2;
use lanyard_grpc::{kms_v1beta1, kms_v2};
use lanyard_telemetry::Readiness;
use prost::Message;
use tonic::Code;
use tower::ServiceExt;

use super::*;
use crate::fake_vault::{FakeKmsVault, FakeVaultFault, test_vector_key, test_vector_text};
use crate::health::KmsHealthEndpoints;
use crate::layout::CiphertextLayout;
use crate::metrics::KmsMetrics;
use crate::plugin::KmsPluginParts;

fn new_server(
    socket: &Path,
    vault: &Arc<FakeKmsVault>,
    readiness: &Readiness,
    plugin_clock: SharedClock,
) -> KmsServer {
    let parts = KmsPluginParts {
        key: test_vector_key(),
        layout: CiphertextLayout::Upstream,
        vault: Arc::<FakeKmsVault>::clone(vault),
        metrics: KmsMetrics::default(),
        clock: plugin_clock,
    };
    KmsServer {
        socket: socket.to_owned(),
        plugin: KmsPlugin::new(parts),
        gate: readiness.add_gate("socket", "not there yet"),
        drain: Duration::from_secs(5),
        clock: SystemClock::shared(),
    }
}

struct KmsServerFixture {
    vault: Arc<FakeKmsVault>,
    readiness: Readiness,
    directory: tempfile::TempDir,
    stop_sender: oneshot::Sender<()>,
    task: JoinHandle<Result<(), KmsServeError>>,
}

impl KmsServerFixture {
    async fn start() -> Self {
        Self::start_with_plugin_clock(SystemClock::shared()).await
    }

    async fn start_with_plugin_clock(clock: SharedClock) -> Self {
        let vault = Arc::new(FakeKmsVault::with_test_vector_key());
        let readiness = Readiness::default();
        let directory = tempfile::tempdir().unwrap();
        let server = new_server(&directory.path().join("kms.socket"), &vault, &readiness, clock);
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(server.run(async { drop(ended.await) }));
        let served = Self { vault, readiness, directory, stop_sender: end, task };
        served.wait_until_ready().await;
        served
    }

    async fn wait_until_ready(&self) {
        while !self.readiness.is_ready() {
            tokio::task::yield_now().await;
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("kms.socket")
    }

    fn v2_client(&self) -> ClientV2<tonic::transport::Channel> {
        ClientV2::new(lanyard_grpc::channel_to_socket(&self.socket()))
    }

    fn v1_client(&self) -> ClientV1<tonic::transport::Channel> {
        ClientV1::new(lanyard_grpc::channel_to_socket(&self.socket()))
    }

    fn health_endpoints(&self) -> KmsHealthEndpoints {
        KmsHealthEndpoints {
            socket: self.socket(),
            readiness: self.readiness.clone(),
            key_id: test_vector_key().id().to_owned(),
            timeout: Duration::from_secs(20),
            clock: SystemClock::shared(),
        }
    }

    async fn get_health_page(&self, method: Method, path: &str) -> (StatusCode, String) {
        request_health_page(self.health_endpoints(), method, path).await
    }

    async fn stop(self) {
        let socket = self.socket();
        self.stop_sender.send(()).unwrap();
        self.task.await.unwrap().unwrap();
        assert!(!socket.exists());
    }
}

async fn request_health_page(
    health: KmsHealthEndpoints,
    method: Method,
    path: &str,
) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let reply = health.routes("/healthz").oneshot(request).await.unwrap();
    let status = reply.status();
    let body = axum::body::to_bytes(reply.into_body(), 4096).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn status_response_is_byte_identical_to_upstream() {
    let served = KmsServerFixture::start().await;
    let status = served.v2_client().status(kms_v2::StatusRequest {}).await.unwrap().into_inner();
    let mut expected = b"\x0a\x07v2beta1\x12\x02ok\x1a\x40".to_vec();
    expected.extend(test_vector_text("/keyId").bytes());
    assert_eq!(status.encode_to_vec(), expected);
    assert_eq!(expected.len(), 79);
    served.stop().await;
}

#[test]
fn an_annotation_has_its_field_numbers() {
    let annotations = [("version.azure.akv.io".to_owned(), b"1".to_vec())].into();
    let request = kms_v2::DecryptRequest { annotations, ..kms_v2::DecryptRequest::default() };
    let mut expected = b"\x22\x19\x0a\x14version.azure.akv.io".to_vec();
    expected.extend(b"\x12\x01\x31");
    assert_eq!(request.encode_to_vec(), expected);
}

#[tokio::test]
async fn both_versions_are_served_on_one_socket() {
    let served = KmsServerFixture::start().await;
    let plaintext: Vec<u8> = (0..32).collect();
    let request = kms_v2::EncryptRequest { plaintext: plaintext.clone(), uid: "u".to_owned() };
    let mut v2 = served.v2_client();
    let new = v2.encrypt(request).await.unwrap().into_inner();
    assert_eq!((new.annotations.len(), new.ciphertext.len()), (5, 342));
    let kms_v2::EncryptResponse { ciphertext, key_id, annotations } = new;
    let request = kms_v2::DecryptRequest { ciphertext, uid: "u".to_owned(), key_id, annotations };
    assert_eq!(v2.decrypt(request).await.unwrap().get_ref().plaintext, plaintext);

    let mut v1 = served.v1_client();
    let version = kms_v1beta1::VersionRequest { version: "v1beta1".to_owned() };
    let version = v1.version(version).await.unwrap().into_inner();
    assert_eq!((&*version.version, &*version.runtime_name), ("v1beta1", "Microsoft AzureKMS"));
    let cipher = test_vector_text("/v1/ciphertext").into_bytes();
    let request = kms_v1beta1::DecryptRequest { version: String::new(), cipher };
    assert_eq!(v1.decrypt(request).await.unwrap().get_ref().plain, plaintext);
    served.stop().await;
}

#[tokio::test]
async fn error_has_upstream_code_and_hint() {
    let served = KmsServerFixture::start().await;
    let refused = served.v2_client().decrypt(kms_v2::DecryptRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown);
    assert!(refused.message().starts_with("invalid annotations, annotations cannot be empty ("));
    served.vault.inject_faults([FakeVaultFault::Status(403)]);
    let refused = served.v2_client().status(kms_v2::StatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown);
    let message =
        "failed to encrypt, error: the key cannot be used: 403 KeyDisabled: scripted (enable this";
    assert!(refused.message().starts_with(message), "{}", refused.message());
    served.stop().await;
}

#[tokio::test]
async fn caller_deadline_is_honoured() {
    // The client's timeout uses real time and the plugin's uses `clock`, so the plugin's ends first.
    let (clock, timeout) =
        (ManualClock::starting_at(Timestamp::UNIX_EPOCH), Duration::from_secs(30));
    let served = KmsServerFixture::start_with_plugin_clock(Arc::new(clock.clone())).await;
    served.vault.inject_faults((0..9).map(|_| FakeVaultFault::NoReply));
    let mut request = tonic::Request::new(kms_v2::EncryptRequest::default());
    request.set_timeout(timeout);
    let mut client = served.v2_client();
    let reply = tokio::spawn(async move { client.encrypt(request).await });
    while !reply.is_finished() {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        if let Some(due) = clock.time_until_next_deadline() {
            clock.advance(due);
        }
    }
    let refused = reply.await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::Unknown, "{refused}");
    assert!(refused.message().contains("no reply from the vault within"), "{refused}");
    // The plugin keeps 100 ms for its reply.
    assert_eq!(clock.monotonic(), Duration::from_millis(29_900));
    served.stop().await;
}

#[tokio::test]
async fn health_and_liveness_pages_differ_for_vault_failure() {
    let served = KmsServerFixture::start().await;
    let good = (StatusCode::OK, "ok".to_owned());
    assert_eq!(served.get_health_page(Method::GET, "/healthz").await, good);
    assert_eq!(served.get_health_page(Method::POST, "/healthz").await, good);
    assert_eq!(served.get_health_page(Method::GET, "/other").await.0, StatusCode::NOT_FOUND);
    assert_eq!(served.vault.request_count(), 2, "the second probe shares the first one's proof");
    assert_eq!(served.get_health_page(Method::GET, "/livez").await, good);
    assert_eq!(served.vault.request_count(), 2);
    served.stop().await;

    let served = KmsServerFixture::start().await;
    served.vault.inject_faults([FakeVaultFault::Status(403)]);
    let (status, message) = served.get_health_page(Method::GET, "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(message.starts_with("failed to encrypt, error: the key cannot be used"), "{message}");
    assert_eq!(served.get_health_page(Method::GET, "/livez").await, good);
    assert_eq!(
        served.get_health_page(Method::GET, "/healthz").await,
        good,
        "it recovers without a restart"
    );
    served.stop().await;
}

#[tokio::test]
async fn health_pages_reject_socket_of_other_instance() {
    let served = KmsServerFixture::start().await;
    let readiness = Readiness::default();
    let second = new_server(&served.socket(), &served.vault, &readiness, SystemClock::shared());
    let (end, ended) = oneshot::channel();
    let second = tokio::spawn(second.run(async { drop(ended.await) }));
    let taken = format!("socket: another process already listens on {}", served.socket().display());
    while readiness.problems()[0].to_string() != taken {
        tokio::task::yield_now().await;
    }
    for path in ["/healthz", "/livez"] {
        let health =
            KmsHealthEndpoints { readiness: readiness.clone(), ..served.health_endpoints() };
        let message = request_health_page(health, Method::GET, path).await;
        assert_eq!(message, (StatusCode::SERVICE_UNAVAILABLE, taken.clone()));
        assert_eq!(
            served.get_health_page(Method::GET, path).await,
            (StatusCode::OK, "ok".to_owned())
        );
    }
    end.send(()).unwrap();
    second.await.unwrap().unwrap();

    let other = KmsHealthEndpoints { key_id: "0123".to_owned(), ..served.health_endpoints() };
    let (status, message) = request_health_page(other, Method::GET, "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        message.contains(&test_vector_text("/keyId")) && message.ends_with("is 0123"),
        "{message}"
    );
    served.stop().await;
}

#[tokio::test]
async fn unbindable_socket_fails_at_start_and_retries_later() {
    let directory = tempfile::tempdir().unwrap();
    let vault = Arc::new(FakeKmsVault::with_test_vector_key());
    let nowhere = directory.path().join("nowhere/kms.socket");
    let readiness = Readiness::default();
    let server = new_server(&nowhere, &vault, &readiness, SystemClock::shared());
    let waits = async {
        while !readiness.problems()[0].reason.contains("could not") {
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::select! {
        ended = server.run(std::future::pending()) => ended.unwrap_err(),
        () = waits => panic!("it waits for a directory that never existed"),
    };
    assert!(matches!(error, KmsServeError::Socket(SocketError::Io { .. })), "{error}");
    assert_eq!(error.hint().as_deref(), Some("see that the directory exists and can be written"));

    let served = KmsServerFixture::start().await;
    let (place, away) = (served.directory.path().to_owned(), directory.path().join("away"));
    std::fs::rename(&place, &away).unwrap();
    served.readiness.wait_until_not_ready().await;
    while !served.readiness.problems()[0].reason.contains("could not") {
        assert!(!served.task.is_finished());
        tokio::task::yield_now().await;
    }
    std::fs::rename(&away, &place).unwrap();
    served.wait_until_ready().await;
    served.v2_client().status(kms_v2::StatusRequest {}).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn removed_socket_is_recreated() {
    let served = KmsServerFixture::start().await;
    std::fs::remove_file(served.socket()).unwrap();
    while !served.socket().exists() {
        tokio::task::yield_now().await;
    }
    served.v2_client().status(kms_v2::StatusRequest {}).await.unwrap();
    served.stop().await;
}
