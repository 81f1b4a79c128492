//! Operations on the JSON values of a template.

use serde_json::Value;

/// Returns the items of an array; empty for any other value.
pub(super) fn array_items(list: Option<Value>) -> Vec<Value> {
    match list {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Removes null fields: a null in a template means an absent field.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
