//! The built-in provider under other drivers.

use std::sync::Arc;

use async_trait::async_trait;
use lanyard_clock::ManualClock;
use lanyard_grpc::provider::ObjectVersion as WireVersion;
use lanyard_provider::{ProviderFile, ProviderObjectVersion, ProviderRequest};
use parking_lot::Mutex;

use super::*;

/// Records its requests and returns one file.
#[derive(Debug, Default)]
struct FakeFileProvider {
    requests: Mutex<Vec<String>>,
    error: Option<ProviderError>,
    warnings: Vec<String>,
}

#[async_trait]
impl Provider for FakeFileProvider {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        self.requests.lock().push(format!(
            "{} {} {:?} {:?} {:?}",
            request.pod,
            request.pod.service_account,
            request.class.metadata.name,
            request.class.spec.parameters.clone().unwrap_or_default(),
            request.urgency,
        ));
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let file = |path: &str, mode| ProviderFile {
            path: path.parse().unwrap(),
            mode,
            content: b"content".to_vec().into(),
            object: None,
        };
        Ok(ProviderResponse {
            files: vec![file("a", None), file("b", Some(0o600))],
            versions: vec![ProviderObjectVersion {
                id: "secret/a".to_owned(),
                version: "1".to_owned(),
            }],
            timestamps: std::collections::BTreeMap::new(),
            warnings: self.warnings.clone(),
            stale: None,
        })
    }
}

/// Returns the server and its clock.
fn provider_server(provider: Arc<dyn Provider>) -> (ProviderServer, ManualClock) {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    (ProviderServer::new(provider, MemoryAccount::new(64 << 20), Arc::new(clock.clone())), clock)
}

fn mount_message(attributes: &str) -> MountRequest {
    MountRequest {
        attributes: attributes.to_owned(),
        secrets: "null".to_owned(),
        target_path: "/target".to_owned(),
        permission: "420".to_owned(),
        current_object_version: Vec::new(),
    }
}

const POD: &str = r#""csi.storage.k8s.io/pod.name":"p","csi.storage.k8s.io/pod.namespace":"n""#;

#[tokio::test]
async fn file_mode_falls_back_to_the_request_permission() {
    let provider = Arc::new(FakeFileProvider::default());
    let served = provider_server(Arc::<FakeFileProvider>::clone(&provider)).0;
    let attributes = format!(
        r#"{{{POD},"secretProviderClass":"c","csi.storage.k8s.io/serviceAccount.name":"s","csi.storage.k8s.io/ephemeral":"true","keyvaultName":"kv"}}"#
    );
    let answer = served.mount(Request::new(mount_message(&attributes))).await.unwrap().into_inner();
    let modes: Vec<_> = answer.files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
    assert_eq!(modes, [("a", 0o644), ("b", 0o600)]);
    assert_eq!(answer.object_version.len(), 1);
    assert_eq!(*provider.requests.lock(), ["n/p s Some(\"c\") {\"keyvaultName\": \"kv\"} Mount"]);
}

#[tokio::test]
async fn warnings_about_content_are_logged() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(log.reopen().unwrap()));
    let _capture = tracing::subscriber::set_default(subscriber.finish());
    let warnings = vec!["an issuer is missing".to_owned()];
    let provider = FakeFileProvider { warnings, ..FakeFileProvider::default() };
    let served = provider_server(Arc::new(provider)).0;
    served.mount(Request::new(mount_message(&format!("{{{POD}}}")))).await.unwrap();
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert!(text.contains("WARN") && text.contains("an issuer is missing"), "{text}");
}

#[tokio::test]
async fn response_holds_its_memory_until_sent() {
    let served = provider_server(Arc::new(FakeFileProvider::default())).0;
    let answer = served.mount(Request::new(mount_message(&format!("{{{POD}}}")))).await.unwrap();
    let (_, _, extensions) = answer.into_parts();
    let mut response = http::Response::new(Body::from("encoded"));
    *response.extensions_mut() = extensions;
    let response = hold_memory_until_sent(response).await;
    assert!(served.memory.used() > 0);
    let sent = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(sent, "encoded");
    assert_eq!(served.memory.used(), 0);
}

#[tokio::test]
async fn the_sync_controller_and_a_rotating_driver_are_served() {
    let provider = Arc::new(FakeFileProvider::default());
    let served = provider_server(Arc::<FakeFileProvider>::clone(&provider)).0;
    // A class of the sync controller cannot pass for another class.
    let mut controller = mount_message(&format!(r#"{{{POD},"secretProviderClass":"trusted"}}"#));
    controller.secrets = "{}".to_owned();
    controller.target_path = "/mnt/secrets-store".to_owned();
    served.mount(Request::new(controller)).await.unwrap();
    let mut rotating = mount_message(&format!("{{{POD}}}"));
    rotating.current_object_version =
        vec![WireVersion { id: "secret/a".to_owned(), version: "0".to_owned() }];
    served.mount(Request::new(rotating)).await.unwrap();
    assert_eq!(*provider.requests.lock(), ["n/p  None {} Mount", "n/p  None {} Rotation"]);
}

#[tokio::test]
async fn repeated_request_without_versions_counts_as_rotation() {
    let mut provider = FakeFileProvider::default();
    let error = ProviderError::new(OutcomeCode::VaultUnavailable, "planned");
    provider.error = Some(error);
    let failing = provider_server(Arc::new(provider)).0;
    let ask = |uid: &str, vault: &str, target: &str| {
        let attributes =
            format!(r#"{{{POD},"csi.storage.k8s.io/pod.uid":"{uid}","keyvaultName":"{vault}"}}"#);
        let mut message = mount_message(&attributes);
        message.target_path = target.to_owned();
        message
    };
    failing.mount(Request::new(ask("u", "kv", "/target"))).await.unwrap_err();
    assert!(
        failing.served_volumes.lock().last_served.is_empty(),
        "a waiting pod keeps its priority"
    );

    let provider = Arc::new(FakeFileProvider::default());
    let (served, clock) = provider_server(Arc::<FakeFileProvider>::clone(&provider));
    for (uid, vault, target, after) in [
        ("u", "kv", "/target", 0),
        // The driver could not write the response, and a pod still waits.
        ("u", "kv", "/target", 59),
        ("u", "kv", "/target", 59),
        ("u", "kv", "/target", 60),
        ("u", "kv", "/other", 60),
        ("v", "kv", "/target", 60),
        // The class was changed, and a pod waits for it.
        ("u", "kv2", "/target", 60),
    ] {
        clock.advance(Duration::from_secs(after));
        served.mount(Request::new(ask(uid, vault, target))).await.unwrap();
    }
    let received = provider.requests.lock();
    let urgencies: Vec<_> =
        received.iter().filter_map(|received| received.split(' ').next_back()).collect();
    assert_eq!(urgencies, ["Mount", "Mount", "Mount", "Rotation", "Mount", "Mount", "Mount"]);
}

#[test]
fn served_volumes_are_bounded() {
    let mut filled = ServedVolumes::default();
    let volume = |number: usize| {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&u64::try_from(number).unwrap().to_be_bytes());
        id
    };
    for number in 0..=MAX_SERVED_VOLUMES {
        filled.insert(volume(number), Duration::ZERO);
    }
    assert_eq!(filled.last_served.len(), MAX_SERVED_VOLUMES);
    assert!(
        !filled.last_served.contains_key(&volume(0)) && filled.last_served.contains_key(&volume(1))
    );
}

#[test]
fn first_problem_is_reported_without_request_content() {
    let good = format!("{{{POD}}}");
    let tokens =
        |text: &str| format!(r#"{{{POD},"csi.storage.k8s.io/serviceAccount.tokens":"{text}"}}"#);
    let with = |field: fn(&mut MountRequest) -> &mut String, text: &str| {
        let mut request = mount_message("{}");
        text.clone_into(field(&mut request));
        request
    };
    let cases = [
        (mount_message("\"planted\""), "the attributes cannot be read"),
        (mount_message("{\"a\":{\"planted\":1}}"), "the attributes cannot be read"),
        (with(|it| &mut it.secrets, "\"planted\""), "the secrets"),
        (with(|it| &mut it.permission, "planted"), "the permission"),
        (with(|it| &mut it.permission, "512"), "the permission"),
        (with(|it| &mut it.permission, "-1"), "the permission"),
        (mount_message("{}"), "`csi.storage.k8s.io/pod.name` is missing"),
        (mount_message(r#"{"csi.storage.k8s.io/pod.name":"p"}"#), "pod.namespace` is missing"),
        (mount_message(&tokens("planted")), "serviceAccount.tokens` cannot be read"),
    ];
    for (request, expected) in cases {
        let problem = ParsedMountRequest::parse(request).unwrap_err();
        let text = format!("{problem} {problem:?}");
        assert!(text.contains(expected) && !text.contains("planted"), "{text}");
    }
    assert!(ParsedMountRequest::parse(mount_message(&good)).is_ok());
    assert!(ParsedMountRequest::parse(mount_message(&tokens(""))).is_ok());
}

#[tokio::test]
async fn provider_error_becomes_status_with_code_cause_and_hint() {
    let throttled = RetryClass::Throttled { after: None };
    let cases = [
        (OutcomeCode::VaultUnavailable, RetryClass::Transient, Code::Unavailable),
        (OutcomeCode::VaultThrottled, throttled, Code::ResourceExhausted),
        (OutcomeCode::VolumeMemoryExhausted, RetryClass::Transient, Code::ResourceExhausted),
        (OutcomeCode::VolumeMemoryExhausted, RetryClass::Invalid, Code::FailedPrecondition),
        (OutcomeCode::VaultForbidden, RetryClass::Denied, Code::PermissionDenied),
        (OutcomeCode::ObjectNotFound, RetryClass::Invalid, Code::NotFound),
        (OutcomeCode::SecretProviderClassInvalid, RetryClass::Invalid, Code::InvalidArgument),
        (OutcomeCode::PolicyDenied, RetryClass::Invalid, Code::PermissionDenied),
        (OutcomeCode::DecodeFailed, RetryClass::Invalid, Code::FailedPrecondition),
    ];
    for (code, retry, expected) in cases {
        let error = ProviderError { retry, ..ProviderError::new(code, "what came back") };
        let provider = FakeFileProvider { error: Some(error), ..FakeFileProvider::default() };
        let served = provider_server(Arc::new(provider)).0;
        let status =
            served.mount(Request::new(mount_message(&format!("{{{POD}}}")))).await.unwrap_err();
        assert_eq!(status.code(), expected);
        let can_recover = !status.message().contains("does not recover by itself");
        assert_eq!(
            can_recover,
            code.recovery_mode() == RecoveryMode::ByItself,
            "{}",
            status.message()
        );
        for part in [code.name(), "what came back", "hint: "] {
            assert!(status.message().contains(part), "{}", status.message());
        }
    }
}
