use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use lanyard_clock::SystemClock;
use lanyard_grpc::kms_v1beta1::key_management_service_client::KeyManagementServiceClient as ClientV1;
use lanyard_grpc::kms_v2::key_management_service_client::KeyManagementServiceClient as ClientV2;
use lanyard_grpc::{kms_v1beta1, kms_v2};
use lanyard_telemetry::Readiness;
use prost::Message;
use tonic::Code;
use tower::ServiceExt;

use super::*;
use crate::health::Health;
use crate::layout::Layout;
use crate::metrics::KmsMetrics;
use crate::plugin::PluginParts;
use crate::software::{Instead, SoftwareVault, pinned, text};

fn server(socket: &Path, vault: &Arc<SoftwareVault>, readiness: &Readiness) -> KmsServer {
    let parts = PluginParts {
        key: pinned(),
        layout: Layout::Upstream,
        vault: Arc::<SoftwareVault>::clone(vault),
        metrics: KmsMetrics::default(),
        clock: SystemClock::shared(),
    };
    KmsServer {
        socket: socket.to_owned(),
        plugin: Plugin::new(parts),
        gate: readiness.gate("socket", "not there yet"),
        drain: Duration::from_secs(5),
        clock: SystemClock::shared(),
    }
}

struct Served {
    vault: Arc<SoftwareVault>,
    readiness: Readiness,
    directory: tempfile::TempDir,
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Served {
    async fn start() -> Self {
        let vault = Arc::new(SoftwareVault::of_vector());
        let readiness = Readiness::default();
        let directory = tempfile::tempdir().unwrap();
        let server = server(&directory.path().join("kms.socket"), &vault, &readiness);
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(server.run(async { drop(ended.await) }));
        let served = Self { vault, readiness, directory, end, task };
        served.is_ready().await;
        served
    }

    async fn is_ready(&self) {
        while !self.readiness.is_ready() {
            tokio::task::yield_now().await;
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("kms.socket")
    }

    fn v2(&self) -> ClientV2<tonic::transport::Channel> {
        ClientV2::new(lanyard_grpc::connect(&self.socket()))
    }

    fn v1(&self) -> ClientV1<tonic::transport::Channel> {
        ClientV1::new(lanyard_grpc::connect(&self.socket()))
    }

    fn health(&self) -> Health {
        Health {
            socket: self.socket(),
            readiness: self.readiness.clone(),
            key_id: pinned().id().to_owned(),
            limit: Duration::from_secs(20),
            clock: SystemClock::shared(),
        }
    }

    async fn page(&self, method: Method, path: &str) -> (StatusCode, String) {
        page(self.health(), method, path).await
    }

    async fn end(self) {
        let socket = self.socket();
        self.end.send(()).unwrap();
        self.task.await.unwrap().unwrap();
        assert!(!socket.exists());
    }
}

async fn page(health: Health, method: Method, path: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let reply = health.routes("/healthz").oneshot(request).await.unwrap();
    let status = reply.status();
    let body = axum::body::to_bytes(reply.into_body(), 4096).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_status_is_byte_by_byte_that_of_the_other_plugins() {
    let served = Served::start().await;
    let status = served.v2().status(kms_v2::StatusRequest {}).await.unwrap().into_inner();
    let mut expected = b"\x0a\x07v2beta1\x12\x02ok\x1a\x40".to_vec();
    expected.extend(text("/keyId").bytes());
    assert_eq!(status.encode_to_vec(), expected);
    assert_eq!(expected.len(), 79);
    served.end().await;
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
    let served = Served::start().await;
    let plaintext: Vec<u8> = (0..32).collect();
    let request = kms_v2::EncryptRequest { plaintext: plaintext.clone(), uid: "u".to_owned() };
    let mut v2 = served.v2();
    let new = v2.encrypt(request).await.unwrap().into_inner();
    assert_eq!((new.annotations.len(), new.ciphertext.len()), (5, 342));
    let kms_v2::EncryptResponse { ciphertext, key_id, annotations } = new;
    let request = kms_v2::DecryptRequest { ciphertext, uid: "u".to_owned(), key_id, annotations };
    assert_eq!(v2.decrypt(request).await.unwrap().get_ref().plaintext, plaintext);

    let mut v1 = served.v1();
    let version = kms_v1beta1::VersionRequest { version: "v1beta1".to_owned() };
    let version = v1.version(version).await.unwrap().into_inner();
    assert_eq!((&*version.version, &*version.runtime_name), ("v1beta1", "Microsoft AzureKMS"));
    let cipher = text("/v1/ciphertext").into_bytes();
    let request = kms_v1beta1::DecryptRequest { version: String::new(), cipher };
    assert_eq!(v1.decrypt(request).await.unwrap().get_ref().plain, plaintext);
    served.end().await;
}

#[tokio::test]
async fn an_error_has_the_code_of_the_other_plugins_and_says_what_to_do() {
    let served = Served::start().await;
    let refused = served.v2().decrypt(kms_v2::DecryptRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown);
    assert!(refused.message().starts_with("invalid annotations, annotations cannot be empty ("));
    served.vault.is_to([Instead::Status(403)]);
    let refused = served.v2().status(kms_v2::StatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown);
    let told = "failed to encrypt, error: the key cannot be used: 403: scripted (enable this";
    assert!(refused.message().starts_with(told), "{}", refused.message());
    served.end().await;
}

#[tokio::test]
async fn a_caller_that_waits_no_longer_gets_an_answer_in_time() {
    let served = Served::start().await;
    served.vault.is_to((0..9).map(|_| Instead::Hang));
    let mut request = tonic::Request::new(kms_v2::EncryptRequest::default());
    request.set_timeout(Duration::from_millis(700));
    let refused = served.v2().encrypt(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown, "{refused}");
    assert!(refused.message().contains("no reply from the vault within"), "{refused}");
    served.end().await;
}

#[tokio::test]
async fn the_pages_tell_a_broken_vault_from_a_broken_process() {
    let served = Served::start().await;
    let good = (StatusCode::OK, "ok".to_owned());
    assert_eq!(served.page(Method::GET, "/healthz").await, good);
    assert_eq!(served.page(Method::POST, "/healthz").await, good);
    assert_eq!(served.page(Method::GET, "/other").await.0, StatusCode::NOT_FOUND);
    assert_eq!(served.vault.count(), 2, "the second probe shares the first one's proof");
    assert_eq!(served.page(Method::GET, "/livez").await, good);
    assert_eq!(served.vault.count(), 2);
    served.end().await;

    let served = Served::start().await;
    served.vault.is_to([Instead::Status(403)]);
    let (status, told) = served.page(Method::GET, "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(told.starts_with("failed to encrypt, error: the key cannot be used"), "{told}");
    assert_eq!(served.page(Method::GET, "/livez").await, good);
    assert_eq!(served.page(Method::GET, "/healthz").await, good, "it is back without a restart");
    served.end().await;
}

#[tokio::test]
async fn the_pages_of_an_instance_do_not_vouch_for_another_one_that_has_its_socket() {
    let served = Served::start().await;
    let readiness = Readiness::default();
    let second = server(&served.socket(), &served.vault, &readiness);
    let (end, ended) = oneshot::channel();
    let second = tokio::spawn(second.run(async { drop(ended.await) }));
    let taken = format!("socket: somebody listens on {} already", served.socket().display());
    while readiness.problems()[0].to_string() != taken {
        tokio::task::yield_now().await;
    }
    for path in ["/healthz", "/livez"] {
        let health = Health { readiness: readiness.clone(), ..served.health() };
        let told = page(health, Method::GET, path).await;
        assert_eq!(told, (StatusCode::SERVICE_UNAVAILABLE, taken.clone()));
        assert_eq!(served.page(Method::GET, path).await, (StatusCode::OK, "ok".to_owned()));
    }
    end.send(()).unwrap();
    second.await.unwrap().unwrap();

    let other = Health { key_id: "0123".to_owned(), ..served.health() };
    let (status, told) = page(other, Method::GET, "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(told.contains(&text("/keyId")) && told.ends_with("is 0123"), "{told}");
    served.end().await;
}

#[tokio::test]
async fn a_socket_that_cannot_be_ends_the_start_and_is_waited_for_later() {
    let directory = tempfile::tempdir().unwrap();
    let vault = Arc::new(SoftwareVault::of_vector());
    let nowhere = directory.path().join("nowhere/kms.socket");
    let readiness = Readiness::default();
    let server = server(&nowhere, &vault, &readiness);
    let waits = async {
        while !readiness.problems()[0].reason.contains("could not") {
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::select! {
        ended = server.run(std::future::pending()) => ended.unwrap_err(),
        () = waits => panic!("it waits for a directory that was never there"),
    };
    assert!(matches!(error, ServeError::Socket(SocketError::Io { .. })), "{error}");
    assert_eq!(error.hint(), "see that the directory exists and can be written");

    let served = Served::start().await;
    let (place, away) = (served.directory.path().to_owned(), directory.path().join("away"));
    std::fs::rename(&place, &away).unwrap();
    served.readiness.not_ready().await;
    while !served.readiness.problems()[0].reason.contains("could not") {
        assert!(!served.task.is_finished());
        tokio::task::yield_now().await;
    }
    std::fs::rename(&away, &place).unwrap();
    served.is_ready().await;
    served.v2().status(kms_v2::StatusRequest {}).await.unwrap();
    served.end().await;
}

#[tokio::test]
async fn a_socket_that_is_removed_is_made_again() {
    let served = Served::start().await;
    std::fs::remove_file(served.socket()).unwrap();
    while !served.socket().exists() {
        tokio::task::yield_now().await;
    }
    served.v2().status(kms_v2::StatusRequest {}).await.unwrap();
    served.end().await;
}
