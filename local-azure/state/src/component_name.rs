//! Serializes components by their field in the HostedCluster API.

use lanyard_vocabulary::Component;
use serde::{Deserialize, Deserializer, Serializer, de};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub fn serialize<S: Serializer>(component: &Component, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(component.name())
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Component, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}
