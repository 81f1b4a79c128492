//! Serializes components by their field in the HostedCluster API.

use lanyard_vocabulary::Component;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes the name of a component.
///
/// # Errors
///
/// Returns the error of the serializer.
pub fn serialize<S: Serializer>(component: &Component, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(component.name())
}

/// Reads a component by its name.
///
/// # Errors
///
/// Returns an error for a text that names no component.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Component, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}
