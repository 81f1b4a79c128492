//! The two hashes of the reference, byte for byte.
//!
//! Source: HyperShift's framework for control plane components.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// Annotation: what the writer last asked for, as [`desired_state_hash`].
pub const DESIRED_STATE_HASH_ANNOTATION: &str = "hypershift.openshift.io/desired-state-hash";
/// Annotation of pod templates: what the configurations in its volumes say, as [`config_hash`].
pub const CONFIG_HASH_ANNOTATION: &str = "component.hypershift.openshift.io/config-hash";

/// Metadata that the API server writes.
const SERVER_WRITTEN_METADATA: [&str; 5] =
    ["uid", "generation", "creationTimestamp", "resourceVersion", "managedFields"];

/// SHA-256 of an object as the reference hashes it: JSON with sorted keys and Go's escapes, without
/// what the API server writes, without status, and without the annotation that holds the hash.
pub fn desired_state_hash(object: &Value) -> String {
    desired_state_hash_with(object, object.get("metadata").cloned())
}

/// The hash that an object would have with other metadata. Nothing else of it is copied: every object
/// of every cluster is hashed at each look.
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

/// Takes one entry out of a map in `parent`, and the map when nothing else is in it.
pub(crate) fn remove_entry(parent: &mut Map<String, Value>, map: &str, key: &str) {
    let Some(entries) = parent.get_mut(map).and_then(Value::as_object_mut) else { return };
    entries.remove(key);
    if entries.is_empty() {
        parent.remove(map);
    }
}

/// JSON as Go's encoder writes it: compact, keys sorted, and with what HTML would read escaped.
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

/// Keys are sorted here, because the map behind [`Value`] keeps another order when a crate of the
/// build asks for it.
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

/// A text as Go writes it in JSON.
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

/// Whether a byte stands for itself in JSON, in Go's as in any other.
const fn needs_no_escape(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&')
}

/// The escapes of Go's encoder, in a text that is JSON already.
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

/// The hash of the configurations that a pod mounts: the hash of each value, sorted and joined.
///
/// Texts are hashed as their bytes, values of Secrets as Go prints a slice of bytes: in decimal
/// numbers, with a space between and brackets around them. An object that is not there has no
/// value and adds nothing.
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

/// FNV-1a with 32 bits, as eight hexadecimal digits.
pub(crate) fn fnv1a(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}
