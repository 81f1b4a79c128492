//! JSON with its keys in their order.

use std::collections::BTreeMap;

use serde_json::Value;

/// The value with the keys of all its objects in their order, whatever map JSON values are made of in
/// this build: what is written into files has the same bytes in every build.
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
