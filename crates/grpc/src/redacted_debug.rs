//! `Debug` of the messages that may carry secrets: prints names and sizes, never values.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

use crate::csi::volume_capability::MountVolume;
use crate::csi::{CreateVolumeRequest, NodePublishVolumeRequest, Volume};
use crate::provider::{File, MountRequest};
use crate::{kms_v1beta1, kms_v2};

/// Prints the keys of a map whose values may be secret.
struct RedactedMap<'a>(&'a BTreeMap<String, String>);

impl Debug for RedactedMap<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

/// Prints the size of content that may be secret.
struct ByteCount(usize);

impl Debug for ByteCount {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{} bytes]", self.0)
    }
}

impl Debug for NodePublishVolumeRequest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("publish_context", &RedactedMap(&self.publish_context))
            .field("staging_target_path", &self.staging_target_path)
            .field("target_path", &self.target_path)
            .field("volume_capability", &self.volume_capability)
            .field("readonly", &self.readonly)
            .field("secrets", &RedactedMap(&self.secrets))
            .field("volume_context", &RedactedMap(&self.volume_context))
            .finish()
    }
}

impl Debug for MountVolume {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MountVolume")
            .field("fs_type", &self.fs_type)
            .field("mount_flags", &self.mount_flags.len())
            .field("volume_mount_group", &self.volume_mount_group)
            .finish()
    }
}

impl Debug for CreateVolumeRequest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CreateVolumeRequest")
            .field("name", &self.name)
            .field("capacity_range", &self.capacity_range)
            .field("volume_capabilities", &self.volume_capabilities)
            .field("parameters", &RedactedMap(&self.parameters))
            .finish()
    }
}

impl Debug for Volume {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Volume")
            .field("capacity_bytes", &self.capacity_bytes)
            .field("volume_id", &self.volume_id)
            .field("volume_context", &RedactedMap(&self.volume_context))
            .finish()
    }
}

impl Debug for MountRequest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MountRequest")
            .field("attributes", &ByteCount(self.attributes.len()))
            .field("secrets", &ByteCount(self.secrets.len()))
            .field("target_path", &self.target_path)
            .field("permission", &self.permission)
            .field("current_object_version", &self.current_object_version)
            .finish()
    }
}

impl Debug for File {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("File")
            .field("path", &self.path)
            .field("mode", &format_args!("{:#o}", self.mode))
            .field("contents", &ByteCount(self.contents.len()))
            .finish()
    }
}

impl Debug for kms_v2::EncryptRequest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EncryptRequest")
            .field("plaintext", &ByteCount(self.plaintext.len()))
            .field("uid", &self.uid)
            .finish()
    }
}

impl Debug for kms_v2::DecryptResponse {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DecryptResponse")
            .field("plaintext", &ByteCount(self.plaintext.len()))
            .finish()
    }
}

impl Debug for kms_v1beta1::EncryptRequest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EncryptRequest")
            .field("version", &self.version)
            .field("plain", &ByteCount(self.plain.len()))
            .finish()
    }
}

impl Debug for kms_v1beta1::DecryptResponse {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DecryptResponse")
            .field("plain", &ByteCount(self.plain.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::{VolumeCapability, volume_capability};
    use crate::provider::MountResponse;

    const MARKER: &str = "planted-4711";

    fn map_with_marker(key: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), MARKER.to_owned())])
    }

    fn capability() -> VolumeCapability {
        let mount = MountVolume {
            fs_type: "tmpfs".to_owned(),
            mount_flags: vec![MARKER.to_owned()],
            volume_mount_group: "2000".to_owned(),
        };
        VolumeCapability {
            access_type: Some(volume_capability::AccessType::Mount(mount)),
            access_mode: None,
        }
    }

    #[test]
    fn debug_output_of_messages_contains_no_secrets() {
        let publish = NodePublishVolumeRequest {
            volume_id: "csi-1".to_owned(),
            publish_context: map_with_marker("attached"),
            staging_target_path: String::new(),
            target_path: "/target".to_owned(),
            volume_capability: Some(capability()),
            readonly: true,
            secrets: map_with_marker("clientsecret"),
            volume_context: map_with_marker("csi.storage.k8s.io/serviceAccount.tokens"),
        };
        let create = CreateVolumeRequest {
            name: "volume".to_owned(),
            capacity_range: None,
            volume_capabilities: vec![capability()],
            parameters: map_with_marker("parameter"),
        };
        let volume = Volume {
            capacity_bytes: 0,
            volume_id: "volume".to_owned(),
            volume_context: map_with_marker("context"),
        };
        let mount = MountRequest {
            attributes: MARKER.to_owned(),
            secrets: MARKER.to_owned(),
            target_path: "/target".to_owned(),
            permission: "420".to_owned(),
            current_object_version: Vec::new(),
        };
        let file = File { path: "a".to_owned(), mode: 0o644, contents: MARKER.into() };
        let answer = MountResponse { object_version: vec![], error: None, files: vec![file] };
        let texts = [
            format!("{publish:#?}"),
            format!("{create:#?}"),
            format!("{volume:#?}"),
            format!("{mount:#?}"),
            format!("{answer:#?}"),
            format!("{answer:?}"),
            format!("{:?}", kms_v2::EncryptRequest { plaintext: MARKER.into(), uid: "u".into() }),
            format!("{:?}", kms_v2::DecryptResponse { plaintext: MARKER.into() }),
            format!(
                "{:?}",
                kms_v1beta1::EncryptRequest { version: "v1beta1".into(), plain: MARKER.into() }
            ),
            format!("{:?}", kms_v1beta1::DecryptResponse { plain: MARKER.into() }),
        ];
        for text in &texts {
            assert!(!text.contains(MARKER) && !text.contains("112, 108, 97"), "{text}");
        }
        assert!(texts[0].contains("\"clientsecret\"") && texts[0].contains("2000"));
        assert!(texts[3].contains("[12 bytes]") && texts[5].contains("mode: 0o644"));
        assert!(texts[6..].iter().all(|text| text.contains("[12 bytes]")));
    }
}
