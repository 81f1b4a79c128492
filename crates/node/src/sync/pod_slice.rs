//! As much of a Pod as the synchronization reads.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// A Pod, without what nobody here reads.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct PodSlice {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: PodSpecSlice,
    #[serde(default)]
    pub(super) status: PodStatusSlice,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct PodSpecSlice {
    #[serde(default)]
    pub(super) volumes: Vec<VolumeSlice>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct VolumeSlice {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) csi: Option<CsiSlice>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CsiSlice {
    #[serde(default)]
    pub(super) driver: String,
    #[serde(default)]
    pub(super) volume_attributes: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct PodStatusSlice {
    #[serde(default)]
    pub(super) phase: Option<String>,
}

impl k8s_openapi::Resource for PodSlice {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Pod";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "pods";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for PodSlice {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
