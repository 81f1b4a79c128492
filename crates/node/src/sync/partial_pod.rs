//! The part of a Pod that the synchronization reads.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// A Pod without the fields that the synchronization does not read.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct PartialPod {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: PartialPodSpec,
    #[serde(default)]
    pub(super) status: PartialPodStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct PartialPodSpec {
    #[serde(default)]
    pub(super) volumes: Vec<PartialPodVolume>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct PartialPodVolume {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) csi: Option<PartialCsiSource>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartialCsiSource {
    #[serde(default)]
    pub(super) driver: String,
    #[serde(default)]
    pub(super) volume_attributes: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct PartialPodStatus {
    #[serde(default)]
    pub(super) phase: Option<String>,
}

impl k8s_openapi::Resource for PartialPod {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Pod";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "pods";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for PartialPod {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
