//! JSON with its keys in their order.

use std::collections::BTreeMap;

use serde_json::Value;

/// The value with the keys of all its objects in their order, whatever map JSON values are made of in
/// this build: what is written into files has the same bytes in every build.
pub fn in_key_order(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries: BTreeMap<_, _> =
                map.into_iter().map(|(key, value)| (key, in_key_order(value))).collect();
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(in_key_order).collect()),
        value => value,
    }
}
