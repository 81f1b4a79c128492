//! Comparison of a live object with a desired one.

use serde_json::{Map, Value};

use super::field_path::{FieldPath, FieldPathSegment};
use super::quantity::same_quantity;

/// The lists whose items the API server identifies by key fields, with these fields; messages show
/// the first one. Foreign items in such a list are left alone. Every other list is compared as one
/// value.
const MAP_LISTS: [(&str, &[&str]); 10] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("ports", &["containerPort", "protocol"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("ownerReferences", &["uid"]),
];

/// Returns the fields of `desired` that `live` lacks or that differ. Additional fields of `live`
/// are ignored: the API server adds defaults, and other managers add their own fields.
pub(super) fn differences(live: &Value, desired: &Value) -> Vec<FieldPath> {
    let mut found = Vec::new();
    compare_values(Some(live), desired, &FieldPath::default(), &mut found);
    found
}

fn compare_values(
    live: Option<&Value>,
    desired: &Value,
    path: &FieldPath,
    found: &mut Vec<FieldPath>,
) {
    match (live, desired) {
        (Some(Value::Object(live)), Value::Object(desired)) => {
            for (name, value) in desired {
                compare_values(live.get(name), value, &path.child_field(name), found);
            }
        }
        (Some(Value::Array(live)), Value::Array(desired)) => match map_list_keys(path, desired) {
            Some(keys) => compare_map_lists(live, desired, keys, path, found),
            None => compare_list_items(live, desired, path, found),
        },
        // The API server omits empty values.
        (None | Some(Value::Null), desired) if is_empty(desired) => {}
        (Some(live), desired) if live == desired => {}
        (Some(live), desired) if is_quantity_field(path) && same_quantity(live, desired) => {}
        _ => found.push(path.clone()),
    }
}

fn compare_list_items(
    live: &[Value],
    desired: &[Value],
    path: &FieldPath,
    found: &mut Vec<FieldPath>,
) {
    if live.len() != desired.len() {
        found.push(path.clone());
        return;
    }
    for (index, (live, desired)) in live.iter().zip(desired).enumerate() {
        compare_values(Some(live), desired, &path.child(FieldPathSegment::Index(index)), found);
    }
}

fn compare_map_lists(
    live: &[Value],
    desired: &[Value],
    keys: &'static [&'static str],
    path: &FieldPath,
    found: &mut Vec<FieldPath>,
) {
    for item in desired {
        let key = keys[0];
        let value = item.get(key).map(key_text).unwrap_or_default();
        let path = path.child(FieldPathSegment::Item { key, value });
        let twin = live.iter().find(|live| keys.iter().all(|key| has_same_key(live, item, key)));
        match twin {
            Some(twin) => compare_values(Some(twin), item, &path, found),
            None => found.push(path),
        }
    }
}

/// Compares one key field; an absent `protocol` is `TCP`.
fn has_same_key(one: &Value, other: &Value, key: &str) -> bool {
    let of = |item: &Value| match item.get(key) {
        None if key == "protocol" => Some("TCP".to_owned()),
        value => value.map(key_text),
    };
    of(one) == of(other)
}

fn key_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the key fields of a list, if each of its items has the first one.
fn map_list_keys(path: &FieldPath, items: &[Value]) -> Option<&'static [&'static str]> {
    let (_, keys) = MAP_LISTS.iter().find(|(name, _)| *name == path.last_field())?;
    items.iter().all(|item| item.get(keys[0]).is_some()).then_some(*keys)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
    }
}

/// Returns whether the path is that of a quantity, such as `resources.limits.memory`.
fn is_quantity_field(path: &FieldPath) -> bool {
    let fields: Vec<_> = path
        .segments()
        .iter()
        .filter_map(|segment| match segment {
            FieldPathSegment::Field(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    matches!(fields.as_slice(), [.., "requests" | "limits", _] | [.., "sizeLimit"])
}

/// Returns the fields below `field` that only `live` has, at any depth of objects.
pub(super) fn unowned_fields(live: &Value, desired: &Value, field: &str) -> Vec<FieldPath> {
    let mut found = Vec::new();
    let none = Value::Object(Map::new());
    if let Some(live) = live.get(field) {
        let path = FieldPath::default().child_field(field);
        collect_unowned_fields(live, desired.get(field).unwrap_or(&none), &path, &mut found);
    }
    found
}

fn collect_unowned_fields(
    live: &Value,
    desired: &Value,
    path: &FieldPath,
    found: &mut Vec<FieldPath>,
) {
    let (Value::Object(live), Value::Object(desired)) = (live, desired) else { return };
    for (name, value) in live {
        let path = path.child_field(name);
        match desired.get(name) {
            Some(desired) => collect_unowned_fields(value, desired, &path, found),
            None if value.is_null() => {}
            None => found.push(path),
        }
    }
}

/// Merges `addition` into `target` like server-side apply: objects field by field, keyed lists item
/// by item, everything else as a whole.
#[cfg(test)]
pub(super) fn merge_applied(target: &mut Value, addition: &Value) {
    merge_applied_at(target, addition, &FieldPath::default());
}

#[cfg(test)]
fn merge_applied_at(target: &mut Value, addition: &Value, path: &FieldPath) {
    match (target, addition) {
        (Value::Object(target), Value::Object(addition)) => {
            for (name, value) in addition {
                let slot = target.entry(name).or_insert(Value::Null);
                merge_applied_at(slot, value, &path.child_field(name));
            }
        }
        (Value::Array(target), Value::Array(addition))
            if map_list_keys(path, addition).is_some() =>
        {
            let keys = map_list_keys(path, addition).unwrap_or_default();
            for item in addition {
                let twin = target
                    .iter_mut()
                    .find(|old| keys.iter().all(|key| has_same_key(old, item, key)));
                match twin {
                    Some(twin) => merge_applied_at(twin, item, path),
                    None => target.push(item.clone()),
                }
            }
        }
        (target, addition) => *target = addition.clone(),
    }
}
