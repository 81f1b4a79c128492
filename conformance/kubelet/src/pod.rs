//! Pods with inline volumes.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// A pod of this node.
#[derive(Debug, Clone)]
pub struct PodSpec {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.serviceAccountName`.
    pub service_account: String,
    /// `spec.securityContext.fsGroup`.
    pub fs_group: Option<u32>,
    /// The CSI volumes of `spec.volumes`.
    pub volumes: Vec<InlineVolume>,
}

impl PodSpec {
    /// A pod of the ServiceAccount `default`, without volumes.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        uid: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            service_account: "default".to_owned(),
            fs_group: None,
            volumes: Vec::new(),
        }
    }

    /// Adds a volume.
    #[must_use]
    pub fn with_volume(mut self, volume: InlineVolume) -> Self {
        self.volumes.push(volume);
        self
    }
}

/// An inline CSI volume: the field `csi` of a pod's volume.
#[derive(Debug, Clone)]
pub struct InlineVolume {
    /// The name of the volume in the pod.
    pub name: String,
    /// `driver`.
    pub driver: String,
    /// `readOnly`.
    pub read_only: bool,
    /// `volumeAttributes`.
    pub attributes: BTreeMap<String, String>,
    /// The content of the Secret that `nodePublishSecretRef` names.
    pub publish_secrets: BTreeMap<String, RedactedString>,
}

impl InlineVolume {
    /// A read-only volume of a driver.
    pub fn new(name: impl Into<String>, driver: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            driver: driver.into(),
            read_only: true,
            attributes: BTreeMap::new(),
            publish_secrets: BTreeMap::new(),
        }
    }

    /// Adds a volume attribute.
    #[must_use]
    pub fn with_attribute(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(key.into(), value.into());
        self
    }

    /// Adds a key to the publish Secret.
    #[must_use]
    pub fn with_secret(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.publish_secrets.insert(key.into(), RedactedString::new(value));
        self
    }
}

/// A secret text. `Debug` redacts it, and dropping it wipes the memory.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedString(Zeroizing<String>);

impl RedactedString {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RedactedString {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RedactedString([redacted])")
    }
}
