//! Builds the request of a publish, without I/O.

use std::collections::BTreeMap;

use lanyard_grpc::csi::volume_capability::access_mode::Mode;
use lanyard_grpc::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, VolumeCapability};

use crate::directory::volume_id;
use crate::pod::{InlineVolume, PodSpec, RedactedString};
use crate::settings::CsiDriverObject;

/// The inputs of a publish request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishRequestInputs<'a> {
    pub(crate) pod: &'a PodSpec,
    pub(crate) volume: &'a InlineVolume,
    pub(crate) driver: &'a CsiDriverObject,
    /// The rendered tokens that the driver requests; `None` if it requests none.
    pub(crate) tokens: Option<&'a RedactedString>,
    /// Whether the driver has `VOLUME_MOUNT_GROUP`.
    pub(crate) supports_mount_group: bool,
    pub(crate) target: &'a str,
}

/// Builds the request as the kubelet does.
pub(crate) fn build_publish_request(publish: PublishRequestInputs<'_>) -> NodePublishVolumeRequest {
    let PublishRequestInputs {
        pod,
        volume,
        driver,
        tokens,
        supports_mount_group: takes_group,
        target,
    } = publish;
    let mut volume_context = volume.attributes.clone();
    if driver.pod_info_on_mount {
        // The pod's own values override what the user set under these keys.
        volume_context.extend(pod_info_attributes(pod));
    }
    let mut secrets: BTreeMap<String, String> = volume
        .publish_secrets
        .iter()
        .map(|(key, value)| (key.clone(), value.expose().to_owned()))
        .collect();
    if let Some(tokens) = tokens {
        let place = if driver.tokens_in_secrets { &mut secrets } else { &mut volume_context };
        place.insert(TOKENS_KEY.to_owned(), tokens.expose().to_owned());
    }
    let group = pod.fs_group.filter(|_| takes_group);
    let mount = MountVolume {
        fs_type: String::new(),
        mount_flags: Vec::new(),
        volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
    };
    NodePublishVolumeRequest {
        volume_id: volume_id(&pod.uid, &volume.name),
        publish_context: BTreeMap::new(),
        staging_target_path: String::new(),
        target_path: target.to_owned(),
        volume_capability: Some(VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Mount(mount)),
        }),
        readonly: volume.read_only,
        secrets,
        volume_context,
    }
}

fn pod_info_attributes(pod: &PodSpec) -> [(String, String); 5] {
    [
        ("pod.name", pod.name.as_str()),
        ("pod.namespace", &pod.namespace),
        ("pod.uid", &pod.uid),
        ("serviceAccount.name", &pod.service_account),
        ("ephemeral", "true"),
    ]
    .map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_owned()))
}

const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> PodSpec {
        let volume = InlineVolume::new("credentials", "secrets-store.csi.k8s.io")
            .with_attribute("secretProviderClass", "cpo")
            .with_attribute("csi.storage.k8s.io/pod.name", "another-pod")
            .with_secret("clientid", "id");
        PodSpec { fs_group: Some(2_000), ..PodSpec::new("ns", "pod", "uid") }.with_volume(volume)
    }

    fn request(driver: &CsiDriverObject, takes_group: bool) -> NodePublishVolumeRequest {
        let pod = pod();
        let tokens = RedactedString::new("{}");
        build_publish_request(PublishRequestInputs {
            pod: &pod,
            volume: &pod.volumes[0],
            driver,
            tokens: Some(&tokens),
            supports_mount_group: takes_group,
            target: "/target",
        })
    }

    fn group(request: &NodePublishVolumeRequest) -> &str {
        match request.volume_capability.as_ref().and_then(|it| it.access_type.as_ref()) {
            Some(AccessType::Mount(mount)) => &mount.volume_mount_group,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kubelet_attributes_override_user_attributes() {
        let request = request(&CsiDriverObject::new("d"), false);
        assert!(request.readonly && request.staging_target_path.is_empty());
        assert_eq!(request.target_path, "/target");
        let context = |key| request.volume_context.get(key).map(String::as_str);
        for (key, value) in [
            ("secretProviderClass", "cpo"),
            ("csi.storage.k8s.io/pod.name", "pod"),
            ("csi.storage.k8s.io/pod.namespace", "ns"),
            ("csi.storage.k8s.io/pod.uid", "uid"),
            ("csi.storage.k8s.io/serviceAccount.name", "default"),
            ("csi.storage.k8s.io/ephemeral", "true"),
            (TOKENS_KEY, "{}"),
        ] {
            assert_eq!(context(key), Some(value), "{key}");
        }
        assert_eq!(request.volume_context.len(), 7);
        assert_eq!(request.secrets.len(), 1);
        assert_eq!(group(&request), "");
    }

    #[test]
    fn tokens_in_secrets_are_not_in_the_volume_context() {
        let driver = CsiDriverObject { tokens_in_secrets: true, ..CsiDriverObject::new("d") };
        let request = request(&driver, false);
        assert!(!request.volume_context.contains_key(TOKENS_KEY));
        assert_eq!(request.secrets.keys().collect::<Vec<_>>(), ["clientid", TOKENS_KEY]);
    }

    #[test]
    fn fs_group_is_sent_to_drivers_with_volume_mount_group() {
        assert_eq!(group(&request(&CsiDriverObject::new("d"), true)), "2000");
    }

    #[test]
    fn driver_without_pod_info_on_mount_gets_no_pod_attributes() {
        let driver = CsiDriverObject { pod_info_on_mount: false, ..CsiDriverObject::new("d") };
        let request = request(&driver, false);
        let name = request.volume_context.get("csi.storage.k8s.io/pod.name");
        assert_eq!(name.map(String::as_str), Some("another-pod"));
        assert!(!request.volume_context.contains_key("csi.storage.k8s.io/pod.uid"));
    }
}
