use std::path::Path;

use lanyard_clock::ErrorHint as _;
use lanyard_grpc::csi::volume_capability::{AccessType, BlockVolume, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, VolumeCapability};
use proptest::prelude::*;

use super::*;
use crate::volume_attribute::{
    CLASS, EPHEMERAL, POD_NAME, POD_NAMESPACE, POD_UID, SERVICE_ACCOUNT, TOKENS,
};

const UID: &str = "6f1d1c1e-93c2-4a6e-8b3a-0f5a3f3e2d11";
const MARKER: &str = "planted-4711";

fn parser() -> VolumeRequestParser {
    VolumeRequestParser::new("/var/lib/kubelet")
}

fn target() -> String {
    format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/secrets/mount")
}

fn tokens(token: &str) -> String {
    let entry = format!(r#"{{"token":"{token}","expirationTimestamp":"2026-11-21T12:00:00Z"}}"#);
    format!(r#"{{"api://AzureADTokenExchange":{entry},"":{entry}}}"#)
}

/// A request of kubelet 1.36 for a pod with an `fsGroup`.
fn request() -> NodePublishVolumeRequest {
    let context = [
        (CLASS, "disk"),
        (POD_NAME, "controller-0"),
        (POD_NAMESPACE, "clusters-a"),
        (POD_UID, UID),
        (SERVICE_ACCOUNT, "controller"),
        (EPHEMERAL, "true"),
    ];
    NodePublishVolumeRequest {
        volume_id: "csi-0f3a".to_owned(),
        publish_context: BTreeMap::new(),
        staging_target_path: String::new(),
        target_path: target(),
        volume_capability: Some(mount_capability("2000")),
        readonly: true,
        secrets: BTreeMap::from([(TOKENS.to_owned(), tokens(MARKER))]),
        volume_context: context.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    }
}

fn mount_capability(group: &str) -> VolumeCapability {
    let mount = MountVolume { volume_mount_group: group.to_owned(), ..MountVolume::default() };
    VolumeCapability { access_type: Some(AccessType::Mount(mount)), access_mode: None }
}

#[track_caller]
fn rejection_texts(request: NodePublishVolumeRequest) -> Vec<String> {
    let refused = parser().parse_publish(request).unwrap_err();
    assert!(refused.hint().is_some());
    let texts = refused.problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    for text in texts.iter().chain([&format!("{refused:?}"), &refused.to_string()]) {
        assert!(!text.contains(MARKER), "{text}");
    }
    texts
}

#[test]
fn kubelet_publish_request_is_parsed() {
    let mut request = request();
    request.secrets.insert("clientid".to_owned(), MARKER.to_owned());
    let parsed = parser().parse_publish(request).unwrap();
    assert_eq!(parsed.volume_id, "csi-0f3a");
    assert_eq!(parsed.target, Path::new(&target()));
    assert_eq!(parsed.pod.to_string(), "clusters-a/controller-0");
    assert_eq!((parsed.pod.uid.as_str(), parsed.pod.service_account.as_str()), (UID, "controller"));
    assert_eq!((parsed.class_name.as_str(), parsed.group), ("disk", Some(2000)));
    assert_eq!(parsed.attributes.len(), 6);
    let tokens = &parsed.pod_credentials.tokens.0;
    let audiences: Vec<_> = tokens.keys().map(String::as_str).collect();
    assert_eq!(audiences, ["", "api://AzureADTokenExchange"]);
    let token = &tokens[""];
    assert_eq!(token.token.expose(), MARKER.as_bytes());
    assert_eq!(token.expires.to_string(), "2026-11-21T12:00:00Z");
    let secrets: Vec<_> = parsed.pod_credentials.secrets.0.keys().map(String::as_str).collect();
    assert_eq!(secrets, ["clientid"]);
    assert!(!format!("{parsed:?}").contains(MARKER));
}

#[test]
fn tokens_in_secrets_take_precedence_and_are_removed_from_both_maps() {
    let mut request = request();
    request.volume_context.insert(TOKENS.to_owned(), tokens("from-context"));
    let parsed = parser().parse_publish(request.clone()).unwrap();
    assert_eq!(parsed.pod_credentials.tokens.0[""].token.expose(), MARKER.as_bytes());
    assert!(!parsed.attributes.contains_key(TOKENS));
    request.secrets.clear();
    let parsed = parser().parse_publish(request).unwrap();
    assert_eq!(parsed.pod_credentials.tokens.0[""].token.expose(), b"from-context");
    assert!(!parsed.attributes.contains_key(TOKENS) && parsed.pod_credentials.secrets.0.is_empty());
}

#[test]
fn all_request_problems_are_reported_together() {
    let mut request = request();
    request.volume_id.clear();
    request.target_path = "/var/lib/kubelet/../shadow".to_owned();
    request.volume_capability = Some(mount_capability("wheel"));
    request.readonly = false;
    request.secrets.insert(TOKENS.to_owned(), format!("{{\"a\": \"{MARKER}\"}}"));
    request.volume_context.remove(CLASS);
    request.volume_context.insert(POD_NAME.to_owned(), "a/b".to_owned());
    let expected = [
        "`volume_capability.mount.volume_mount_group` is `wheel`, not a decimal group id",
        "`volume_id` is missing",
        "`readonly` is not true",
        "`secrets` has ServiceAccount tokens that cannot be read: not an object of `token` and \
         `expirationTimestamp` by audience at line 1, column 20",
        "`volume_context` has no `secretProviderClass`",
        "`volume_context` gives `csi.storage.k8s.io/pod.name` a value that is not a valid \
         Kubernetes object name",
        "`target_path` is not an absolute path without `.`, `..`, `//` and a trailing `/`",
    ];
    assert_eq!(rejection_texts(request), expected);
}

#[test]
fn an_empty_request_names_the_four_fields_that_every_publish_has() {
    let texts = rejection_texts(NodePublishVolumeRequest::default());
    for field in ["volume_capability", "volume_id", "volume_context", "target_path"] {
        assert!(texts.contains(&format!("`{field}` is missing")), "{field}: {texts:?}");
    }
}

#[test]
fn a_block_device_is_refused() {
    let mut request = request();
    let access_type = Some(AccessType::Block(BlockVolume {}));
    request.volume_capability = Some(VolumeCapability { access_type, access_mode: None });
    assert_eq!(
        rejection_texts(request),
        ["`volume_capability` requests a block device, but the volume holds files"]
    );
}

#[test]
fn a_group_is_a_decimal_number() {
    let cases = [
        ("", Some(None)),
        ("0", Some(Some(0))),
        ("4294967294", Some(Some(4_294_967_294))),
        ("4294967295", None),
        ("4294967296", None),
        ("+5", None),
        ("-1", None),
        (" 5", None),
        ("0x10", None),
    ];
    for (text, expected) in cases {
        let mut request = request();
        request.volume_capability = Some(mount_capability(text));
        assert_eq!(parser().parse_publish(request).ok().map(|it| it.group), expected, "{text}");
    }
}

#[test]
fn a_target_lies_below_the_kubelets_directory_and_in_its_own_pod() {
    let pods = "/var/lib/kubelet/pods";
    let cases = [
        (target(), None),
        ("/var/lib/kubelet/plugins/x".to_owned(), None),
        ("/var/lib/kubelet".to_owned(), Some("does not lie below")),
        ("/var/lib/kubelet2/pods/x".to_owned(), Some("does not lie below")),
        ("/etc".to_owned(), Some("does not lie below")),
        (format!("{pods}/other/volumes/kubernetes.io~csi/a/mount"), Some("another pod")),
        (format!("{}/", target()), Some("not an absolute path")),
        (format!("{pods}//{UID}/mount"), Some("not an absolute path")),
        (format!("{pods}/./{UID}/mount"), Some("not an absolute path")),
        (format!("{pods}/{UID}/../../../../../etc"), Some("not an absolute path")),
        ("var/lib/kubelet/pods/x".to_owned(), Some("not an absolute path")),
        (format!("{pods}/{UID}/a\0b"), Some("not an absolute path")),
        (format!("{pods}/{UID}/{}", "x".repeat(5000)), Some("not an absolute path")),
        (String::new(), Some("is missing")),
    ];
    for (path, expected) in cases {
        let mut request = request();
        request.target_path.clone_from(&path);
        match (parser().parse_publish(request), expected) {
            (Ok(parsed), None) => assert_eq!(parsed.target, Path::new(&path)),
            (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{error}"),
            (parsed, expected) => panic!("{path}: {parsed:?}, not {expected:?}"),
        }
    }
}

#[test]
fn tokens_are_read_strictly_and_never_shown() {
    let entry = format!(r#"{{"token":"{MARKER}","expirationTimestamp":"2026-11-21T12:00:00Z"}}"#);
    let cases = [
        (MARKER.to_owned(), "not JSON at line 1"),
        (String::new(), "not JSON at line 1"),
        (format!(r#"{{"a":{entry}"#), "not JSON at line 1"),
        (format!(r#"{{"a":{entry}}} {MARKER}"#), "not JSON at line 1"),
        (format!("[{entry}]"), "not an object"),
        (format!(r#"{{"a":{entry},"a":{entry}}}"#), "not an object"),
        (format!(r#"{{"a":{{"token":"{MARKER}"}}}}"#), "not an object"),
        (format!(r#"{{"a":{{"token":7,"expirationTimestamp":"{MARKER}"}}}}"#), "not an object"),
        (format!(r#"{{"a":{{"token":"t","expirationTimestamp":"{MARKER}"}}}}"#), "not an object"),
        (tokens(""), "a token is empty"),
    ];
    for (text, expected) in cases {
        let mut request = request();
        request.secrets.insert(TOKENS.to_owned(), text.clone());
        let texts = rejection_texts(request);
        assert!(texts.len() == 1 && texts[0].contains(expected), "{text}: {texts:?}");
    }
    let newer = format!(r#"{{"a":{{"issued":1,{}}}"#, entry.trim_start_matches('{'));
    let mut request = request();
    request.secrets.insert(TOKENS.to_owned(), newer);
    assert!(parser().parse_publish(request).is_ok());
}

#[test]
fn an_unpublish_needs_its_volume_and_a_target_of_the_kubelet() {
    let parse = |volume: &str, target: &str| parser().parse_unpublish(volume.into(), target.into());
    assert!(parse("csi-1", &target()).is_ok());
    let error = parse("", "").unwrap_err();
    assert_eq!(error.problems.len(), 2);
    assert!(parse("csi-1", "/etc").is_err());
    assert!(parse("csi-\n1", &target()).is_err());
}

proptest! {
    #[test]
    fn no_parsed_target_leaves_the_kubelet_directory(path in "[/a.]{0,24}") {
        let text = format!("/var/lib/kubelet{path}");
        let mut request = request();
        request.target_path = text;
        if let Ok(parsed) = parser().parse_publish(request) {
            let below = parsed.target.strip_prefix("/var/lib/kubelet").unwrap();
            let normal = |it| matches!(it, std::path::Component::Normal(_));
            prop_assert!(below.components().count() > 0 && below.components().all(normal));
        }
    }

    #[test]
    fn no_text_in_the_place_of_tokens_is_echoed(head in ".{0,40}", tail in ".{0,40}") {
        let mut request = request();
        request.secrets.insert(TOKENS.to_owned(), format!("{head}{MARKER}{tail}"));
        if let Err(error) = parser().parse_publish(request) {
            prop_assert!(!error.to_string().contains(MARKER));
        }
    }
}
