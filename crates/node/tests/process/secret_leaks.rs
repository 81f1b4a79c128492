//! Puts secrets into every part of a request and of a volume, and checks that none of them appears in logs,
//! errors or responses.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use lanyard_grpc::channel_to_socket;
use lanyard_grpc::provider::MountRequest;
use lanyard_grpc::provider::csi_driver_provider_client::CsiDriverProviderClient;
use lanyard_vocabulary::OutcomeCode;
use parking_lot::Mutex;
use tonic::Status;
use tracing_subscriber::fmt::MakeWriter;

use crate::fakes::{MARKER, NodeProcessFixture, TOKENS, forbidden_error, publish_request, tokens};

/// Captures everything that this process logs, of every crate, at `TRACE`.
#[derive(Debug, Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

static LOG: LazyLock<CapturedLog> = LazyLock::new(|| {
    let log = CapturedLog::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .init();
    log
});

#[track_caller]
fn assert_clean(what: &str, text: &str) {
    if let Some(at) = text.find(MARKER) {
        let start = (0..=at.saturating_sub(300)).rev().find(|it| text.is_char_boundary(*it));
        panic!("a secret is in {what}: {}", &text[start.unwrap_or(0)..at]);
    }
}

fn status_text(status: &Status) -> String {
    format!("{status} {status:?} {:?}", status.metadata())
}

#[tokio::test]
async fn no_secret_reaches_a_status_a_log_or_a_metric() {
    let log = LOG.clone();
    let node = NodeProcessFixture::start_registered().await;
    let mut texts = Vec::new();
    let spoil: [fn(&mut lanyard_grpc::csi::NodePublishVolumeRequest); 7] = [
        |_| (),
        |request| {
            request.secrets.insert("clientsecret".to_owned(), MARKER.to_owned());
        },
        |request| {
            request.secrets.clear();
            request.volume_context.insert(TOKENS.to_owned(), tokens());
        },
        |request| {
            request.secrets.insert(TOKENS.to_owned(), MARKER.to_owned());
        },
        |request| {
            request.secrets.insert(TOKENS.to_owned(), format!("{{\"a\":\"{MARKER}\"}}"));
        },
        |request| {
            request.volume_context.insert(TOKENS.to_owned(), format!("[\"{MARKER}\"]"));
            request.secrets.clear();
        },
        |request| {
            request.volume_context.insert("secretProviderClass".to_owned(), format!("{MARKER}/"));
        },
    ];
    for refuses in [false, true] {
        *node.vault.error.lock() = refuses.then(forbidden_error);
        for (number, spoil) in spoil.iter().enumerate() {
            let target = node.target(&format!("{number}-{refuses}"));
            let mut request = publish_request(&target);
            spoil(&mut request);
            texts.push(format!("{request:?} {request:#?}"));
            let answer = node.node_client().node_publish_volume(request).await;
            texts.extend(answer.err().as_ref().map(status_text));
            node.unpublish(&target).await.unwrap();
        }
        let attributes = format!("{{\"{TOKENS}\":\"{MARKER}\",\"x\":\"{MARKER}\"}}");
        for attributes in [attributes, MARKER.to_owned(), String::new()] {
            let mount = MountRequest {
                attributes,
                secrets: format!("{{\"clientsecret\":\"{MARKER}\"}}"),
                target_path: "/mnt".to_owned(),
                permission: "420".to_owned(),
                current_object_version: Vec::new(),
            };
            texts.push(format!("{mount:?}"));
            let socket = node.root.path().join("azure.sock");
            let answer =
                CsiDriverProviderClient::new(channel_to_socket(&socket)).mount(mount).await;
            texts.extend(answer.err().as_ref().map(status_text));
        }
    }
    for text in &texts {
        assert_clean("an error or a response", text);
    }
    assert_clean("the metrics", &node.page.render());
    node.shut_down().await;
    let log = String::from_utf8_lossy(&log.0.lock()).into_owned();
    assert_clean("the log", &log);
    let is_captured = log.contains(OutcomeCode::VaultForbidden.name()) && log.contains("TRACE h2");
    assert!(is_captured, "the log was not kept");
}
