//! The two hashes of HyperShift, byte for byte.
//!
//! Source: HyperShift's framework for control plane components.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// Annotation: the [`desired_state_hash`] of the object as last applied.
pub const DESIRED_STATE_HASH_ANNOTATION: &str = "hypershift.openshift.io/desired-state-hash";
/// Annotation of pod templates: the [`config_hash`] of the mounted configurations.
pub const CONFIG_HASH_ANNOTATION: &str = "component.hypershift.openshift.io/config-hash";

/// Metadata fields that the API server sets.
const SERVER_WRITTEN_METADATA: [&str; 5] =
    ["uid", "generation", "creationTimestamp", "resourceVersion", "managedFields"];

/// Returns the SHA-256 of an object as HyperShift computes it: over JSON with sorted keys and Go's
/// escapes, without server-written metadata, without the status, and without the annotation that
/// holds the hash.
pub fn desired_state_hash(object: &Value) -> String {
    desired_state_hash_with(object, object.get("metadata").cloned())
}

/// Returns the hash that an object would have with other metadata. Copies nothing else of the
/// object, because every object of every cluster is hashed at each reconcile.
pub(crate) fn desired_state_hash_with(object: &Value, mut metadata: Option<Value>) -> String {
    if let Some(metadata) = metadata.as_mut().and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_WRITTEN_METADATA.contains(&key.as_str()));
        remove_entry(metadata, "annotations", DESIRED_STATE_HASH_ANNOTATION);
    }
    let mut text = String::new();
    match object.as_object() {
        Some(fields) => {
            let metadata = metadata.as_ref();
            let fields = fields.iter().filter_map(|(key, value)| match key.as_str() {
                "status" => None,
                "metadata" => metadata.map(|metadata| (key.as_str(), metadata)),
                key => Some((key, value)),
            });
            write_go_map(fields.collect(), &mut text);
        }
        None => write_go_json(object, &mut text),
    }
    hex::encode(digest(&SHA256, text.as_bytes()))
}

/// Removes one entry from a map in `parent`, and the map if it becomes empty.
pub(crate) fn remove_entry(parent: &mut Map<String, Value>, map: &str, key: &str) {
    let Some(entries) = parent.get_mut(map).and_then(Value::as_object_mut) else { return };
    entries.remove(key);
    if entries.is_empty() {
        parent.remove(map);
    }
}

/// Writes JSON like Go's encoder: compact, with sorted keys and HTML escapes.
fn write_go_json(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            write_go_map(map.iter().map(|(key, value)| (key.as_str(), value)).collect(), text);
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_go_json(item, text);
            }
            text.push(']');
        }
        Value::String(string) => write_go_string(string, text),
        // Writing to a string cannot fail.
        scalar => drop(write!(text, "{scalar}")),
    }
}

/// Sorts the keys, because the map type of [`Value`] has another order if a crate in the build
/// enables `preserve_order`.
fn write_go_map(mut entries: Vec<(&str, &Value)>, text: &mut String) {
    entries.sort_unstable_by_key(|(key, _)| *key);
    text.push('{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_go_string(key, text);
        text.push(':');
        write_go_json(value, text);
    }
    text.push('}');
}

/// Returns a JSON string literal in Go's format.
pub(crate) fn go_json_string(string: &str) -> String {
    let mut text = String::new();
    write_go_string(string, &mut text);
    text
}

fn write_go_string(string: &str, text: &mut String) {
    if string.bytes().all(needs_no_escape) {
        text.push('"');
        text.push_str(string);
        text.push('"');
        return;
    }
    let quoted = Value::from(string).to_string();
    escape_html(&quoted, text);
}

/// Returns whether a byte needs no escape in JSON, including Go's HTML escapes.
const fn needs_no_escape(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&')
}

/// Adds the HTML escapes of Go's encoder to a JSON text.
pub(crate) fn escape_html(json: &str, text: &mut String) {
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            c => text.push(c),
        }
    }
}

/// A value of a `ConfigMap` or a Secret that a pod mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountedValue<'a> {
    /// A value of a `ConfigMap`.
    Text(&'a str),
    /// A value of a Secret.
    Bytes(&'a [u8]),
}

/// Returns the hash of the configurations that a pod mounts: the hash of each value, sorted and
/// joined.
///
/// `ConfigMap` values are hashed as bytes. Secret values are hashed as Go prints a byte slice:
/// decimal numbers, separated by spaces, in brackets. A missing object adds nothing.
pub fn config_hash<'a>(values: impl IntoIterator<Item = MountedValue<'a>>) -> String {
    let mut hashes: Vec<_> = values
        .into_iter()
        .map(|value| match value {
            MountedValue::Text(text) => fnv1a(text.as_bytes()),
            MountedValue::Bytes(bytes) => fnv1a(format_go_byte_slice(bytes).as_bytes()),
        })
        .collect();
    hashes.sort_unstable();
    hashes.concat()
}

fn format_go_byte_slice(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + bytes.len() * "255 ".len());
    text.push('[');
    for (index, byte) in bytes.iter().enumerate() {
        let blank = if index > 0 { " " } else { "" };
        // Writing to a string cannot fail.
        write!(text, "{blank}{byte}").unwrap_or_default();
    }
    text.push(']');
    text
}

/// Returns the 32-bit FNV-1a hash as eight hexadecimal digits.
pub(crate) fn fnv1a(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}
