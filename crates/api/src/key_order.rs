//! JSON values with sorted keys.

use std::collections::BTreeMap;

use serde_json::Value;

/// Sorts the keys of all objects in a JSON value, so that generated files have the same bytes in
/// every build. Which map type `serde_json` uses depends on the features that a build enables.
pub fn sort_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries: BTreeMap<_, _> =
                map.into_iter().map(|(key, value)| (key, sort_keys(value))).collect();
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sort_keys).collect()),
        value => value,
    }
}
