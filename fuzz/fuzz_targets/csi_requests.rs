//! Fuzzes the request parser of the CSI socket: the input is a message, or texts on separate lines (target,
//! token JSON, group, pod uid), so that mutations reach the fields. A parsed target is always below the
//! kubelet's directory, and an error never contains the tokens.
#![no_main]

use std::collections::BTreeMap;
use std::path::{Component, Path};

use lanyard_grpc::csi::volume_capability::{AccessType, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability};
use lanyard_node::VolumeRequestParser;
use libfuzzer_sys::fuzz_target;
use prost::Message;

const KUBELET_DIR: &str = "/var/lib/kubelet";
const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";
const SECRET_MARKER: &str = "planted-4711-marker";

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = NodePublishVolumeRequest::decode(bytes) {
        check_publish(request);
    }
    if let Ok(request) = NodeUnpublishVolumeRequest::decode(bytes) {
        let rules = VolumeRequestParser::new(KUBELET_DIR);
        if let Ok((_, target)) = rules.parse_unpublish(request.volume_id, request.target_path) {
            assert_below_kubelet_dir(&target);
        }
    }
    check_publish(publish_request_from_lines(&String::from_utf8_lossy(bytes)));
});

fn check_publish(request: NodePublishVolumeRequest) {
    match VolumeRequestParser::new(KUBELET_DIR).parse_publish(request) {
        Ok(order) => {
            assert_below_kubelet_dir(&order.target);
            assert!(!order.attributes.contains_key(TOKENS_KEY));
            assert!(!format!("{order:?}").contains(SECRET_MARKER));
        }
        Err(refused) => assert!(!format!("{refused} {refused:?}").contains(SECRET_MARKER)),
    }
}

fn assert_below_kubelet_dir(target: &Path) {
    let below =
        target.strip_prefix(KUBELET_DIR).expect("every target is below the kubelet's directory");
    assert!(below.components().next().is_some());
    assert!(below.components().all(|it| matches!(it, Component::Normal(_))), "{target:?}");
}

fn publish_request_from_lines(text: &str) -> NodePublishVolumeRequest {
    let mut lines = text.splitn(4, '\n').map(str::to_owned);
    let mut line = || lines.next().unwrap_or_default();
    let (target, tokens, group, uid) = (line(), line(), line(), line());
    let mount = MountVolume { volume_mount_group: group, ..MountVolume::default() };
    let context = [
        ("secretProviderClass", "class"),
        ("csi.storage.k8s.io/pod.name", "pod"),
        ("csi.storage.k8s.io/pod.namespace", "namespace"),
        ("csi.storage.k8s.io/pod.uid", uid.as_str()),
    ];
    let mut volume_context: BTreeMap<String, String> =
        context.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    volume_context.insert(TOKENS_KEY.to_owned(), format!("{tokens}{SECRET_MARKER}"));
    NodePublishVolumeRequest {
        volume_id: "csi-1".to_owned(),
        publish_context: BTreeMap::new(),
        staging_target_path: String::new(),
        target_path: target,
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(mount)),
            access_mode: None,
        }),
        readonly: true,
        secrets: BTreeMap::from([(TOKENS_KEY.to_owned(), tokens)]),
        volume_context,
    }
}
