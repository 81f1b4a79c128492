//! Our provider under other people's drivers.

use std::sync::Arc;

use async_trait::async_trait;
use lanyard_clock::ManualClock;
use lanyard_grpc::provider::ObjectVersion as WireVersion;
use parking_lot::Mutex;

use super::*;
use crate::provider::{FillRequest, FilledFile, ObjectVersion};

/// Remembers what it was asked for, and gives one file.
#[derive(Debug, Default)]
struct Remembering {
    asked: Mutex<Vec<String>>,
    refusal: Option<Refusal>,
}

#[async_trait]
impl Provider for Remembering {
    async fn fill(&self, request: &FillRequest<'_>) -> Result<Filling, Refusal> {
        self.asked.lock().push(format!(
            "{} {} {:?} {:?} {:?}",
            request.pod,
            request.pod.service_account,
            request.class.metadata.name,
            request.class.spec.parameters.clone().unwrap_or_default(),
            request.urgency,
        ));
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let file = |path: &str, mode| FilledFile {
            path: path.parse().unwrap(),
            mode,
            content: b"content".to_vec().into(),
            object: None,
        };
        Ok(Filling {
            files: vec![file("a", None), file("b", Some(0o600))],
            versions: vec![ObjectVersion { id: "secret/a".to_owned(), version: "1".to_owned() }],
            stamps: std::collections::BTreeMap::new(),
            stale: None,
        })
    }
}

/// With the clock that it looks at.
fn serving(provider: Arc<dyn Provider>) -> (ServedProvider, ManualClock) {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    (ServedProvider::new(provider, NodeMemory::new(64 << 20), Arc::new(clock.clone())), clock)
}

fn message(attributes: &str) -> MountRequest {
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
async fn a_driver_is_answered_with_modes_from_the_file_or_the_request() {
    let provider = Arc::new(Remembering::default());
    let served = serving(Arc::<Remembering>::clone(&provider)).0;
    let attributes = format!(
        r#"{{{POD},"secretProviderClass":"c","csi.storage.k8s.io/serviceAccount.name":"s","csi.storage.k8s.io/ephemeral":"true","keyvaultName":"kv"}}"#
    );
    let answer = served.mount(Request::new(message(&attributes))).await.unwrap().into_inner();
    let modes: Vec<_> = answer.files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
    assert_eq!(modes, [("a", 0o644), ("b", 0o600)]);
    assert_eq!(answer.object_version.len(), 1);
    assert_eq!(*provider.asked.lock(), ["n/p s Some(\"c\") {\"keyvaultName\": \"kv\"} Mount"]);
}

#[tokio::test]
async fn an_answer_keeps_its_memory_until_it_is_sent() {
    let served = serving(Arc::new(Remembering::default())).0;
    let answer = served.mount(Request::new(message(&format!("{{{POD}}}")))).await.unwrap();
    let (_, _, extensions) = answer.into_parts();
    let mut response = http::Response::new(Body::from("encoded"));
    *response.extensions_mut() = extensions;
    let response = keep_memory(response).await;
    assert!(served.memory.used() > 0);
    let sent = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(sent, "encoded");
    assert_eq!(served.memory.used(), 0);
}

#[tokio::test]
async fn the_sync_controller_and_a_rotating_driver_are_served() {
    let provider = Arc::new(Remembering::default());
    let served = serving(Arc::<Remembering>::clone(&provider)).0;
    // A class of the sync controller cannot pass for another one.
    let mut controller = message(&format!(r#"{{{POD},"secretProviderClass":"trusted"}}"#));
    controller.secrets = "{}".to_owned();
    controller.target_path = "/mnt/secrets-store".to_owned();
    served.mount(Request::new(controller)).await.unwrap();
    let mut rotating = message(&format!("{{{POD}}}"));
    rotating.current_object_version =
        vec![WireVersion { id: "secret/a".to_owned(), version: "0".to_owned() }];
    served.mount(Request::new(rotating)).await.unwrap();
    assert_eq!(*provider.asked.lock(), ["n/p  None {} Mount", "n/p  None {} Rotation"]);
}

#[tokio::test]
async fn a_driver_that_never_says_what_is_mounted_is_rotating_once_its_volume_was_filled() {
    let mut provider = Remembering::default();
    let refusal = Refusal::new(OutcomeCode::VaultUnavailable, "planned");
    provider.refusal = Some(refusal);
    let failing = serving(Arc::new(provider)).0;
    let ask = |uid: &str, vault: &str, target: &str| {
        let attributes =
            format!(r#"{{{POD},"csi.storage.k8s.io/pod.uid":"{uid}","keyvaultName":"{vault}"}}"#);
        let mut message = message(&attributes);
        message.target_path = target.to_owned();
        message
    };
    failing.mount(Request::new(ask("u", "kv", "/target"))).await.unwrap_err();
    assert!(failing.filled.lock().known.is_empty(), "a pod that waits goes on waiting");

    let provider = Arc::new(Remembering::default());
    let (served, clock) = serving(Arc::<Remembering>::clone(&provider));
    for (uid, vault, target, after) in [
        ("u", "kv", "/target", 0),
        // The driver could not write it, and a pod goes on waiting.
        ("u", "kv", "/target", 59),
        ("u", "kv", "/target", 59),
        ("u", "kv", "/target", 60),
        ("u", "kv", "/other", 60),
        ("v", "kv", "/target", 60),
        // The class was changed, and somebody waits for it.
        ("u", "kv2", "/target", 60),
    ] {
        clock.advance(Duration::from_secs(after));
        served.mount(Request::new(ask(uid, vault, target))).await.unwrap();
    }
    let asked = provider.asked.lock();
    let urgencies: Vec<_> = asked.iter().filter_map(|asked| asked.split(' ').next_back()).collect();
    assert_eq!(urgencies, ["Mount", "Mount", "Mount", "Rotation", "Mount", "Mount", "Mount"]);
}

#[test]
fn what_was_filled_is_remembered_within_bounds() {
    let mut filled = FilledVolumes::default();
    let volume = |number: usize| {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&u64::try_from(number).unwrap().to_be_bytes());
        id
    };
    for number in 0..=REMEMBERED {
        filled.insert(volume(number), Duration::ZERO);
    }
    assert_eq!(filled.known.len(), REMEMBERED);
    assert!(!filled.known.contains_key(&volume(0)) && filled.known.contains_key(&volume(1)));
}

#[test]
fn the_first_problem_is_told_and_nothing_of_the_request_is_repeated() {
    let good = format!("{{{POD}}}");
    let tokens =
        |text: &str| format!(r#"{{{POD},"csi.storage.k8s.io/serviceAccount.tokens":"{text}"}}"#);
    let with = |field: fn(&mut MountRequest) -> &mut String, text: &str| {
        let mut request = message("{}");
        text.clone_into(field(&mut request));
        request
    };
    let cases = [
        (message("\"planted\""), "the attributes cannot be read"),
        (message("{\"a\":{\"planted\":1}}"), "the attributes cannot be read"),
        (with(|it| &mut it.secrets, "\"planted\""), "the secrets"),
        (with(|it| &mut it.permission, "planted"), "the permission"),
        (with(|it| &mut it.permission, "512"), "the permission"),
        (with(|it| &mut it.permission, "-1"), "the permission"),
        (message("{}"), "`csi.storage.k8s.io/pod.name` is missing"),
        (message(r#"{"csi.storage.k8s.io/pod.name":"p"}"#), "pod.namespace` is missing"),
        (message(&tokens("planted")), "serviceAccount.tokens` cannot be read"),
    ];
    for (request, expected) in cases {
        let problem = MountAsk::parse(request).unwrap_err();
        let text = format!("{problem} {problem:?}");
        assert!(text.contains(expected) && !text.contains("planted"), "{text}");
    }
    assert!(MountAsk::parse(message(&good)).is_ok());
    assert!(MountAsk::parse(message(&tokens(""))).is_ok());
}

#[tokio::test]
async fn a_refusal_becomes_a_status_that_says_code_cause_and_hint() {
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
        let refusal = Refusal { retry, ..Refusal::new(code, "what came back") };
        let provider = Remembering { refusal: Some(refusal), ..Remembering::default() };
        let served = serving(Arc::new(provider)).0;
        let status = served.mount(Request::new(message(&format!("{{{POD}}}")))).await.unwrap_err();
        assert_eq!(status.code(), expected);
        let heals = !status.message().contains("does not heal by itself");
        assert_eq!(heals, code.healing() == Healing::ByItself, "{}", status.message());
        for part in [code.name(), "what came back", "hint: "] {
            assert!(status.message().contains(part), "{}", status.message());
        }
    }
}
