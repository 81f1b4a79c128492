//! JSON pointer patches, in the compact format of the file of cases.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

/// The values to set and the fields to remove, by JSON pointer (RFC 6901). An empty last segment
/// appends to a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonPointerPatch {
    #[serde(default)]
    pub(super) set: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) remove: Vec<String>,
}

/// A JSON pointer refers to a missing value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is nothing at `{0}`")]
pub struct JsonPointerPatchError(String);

impl JsonPointerPatch {
    /// Applies the patch to an object. A pointer without a leading slash is relative to `at`.
    pub(super) fn apply(&self, at: &str, object: &mut Value) -> Result<(), JsonPointerPatchError> {
        for pointer in &self.remove {
            remove_at_pointer(object, &absolute_pointer(at, pointer))?;
        }
        for (pointer, value) in &self.set {
            set_at_pointer(object, &absolute_pointer(at, pointer), expand_repetitions(value))?;
        }
        Ok(())
    }
}

fn absolute_pointer(at: &str, pointer: &str) -> String {
    if pointer.starts_with('/') { pointer.to_owned() } else { format!("{at}/{pointer}") }
}

/// Returns the collection that contains the target of a pointer, and the pointer's last segment.
fn parent_collection<'a, 'p>(
    object: &'a mut Value,
    pointer: &'p str,
) -> Result<(&'a mut Value, &'p str), JsonPointerPatchError> {
    let missing = || JsonPointerPatchError(pointer.to_owned());
    let (parent, last) = pointer.rsplit_once('/').ok_or_else(missing)?;
    Ok((object.pointer_mut(parent).ok_or_else(missing)?, last))
}

fn set_at_pointer(
    object: &mut Value,
    pointer: &str,
    value: Value,
) -> Result<(), JsonPointerPatchError> {
    let missing = || JsonPointerPatchError(pointer.to_owned());
    match parent_collection(object, pointer)? {
        (Value::Object(fields), last) => {
            fields.insert(last.to_owned(), value);
            Ok(())
        }
        (Value::Array(items), "") => {
            items.push(value);
            Ok(())
        }
        (Value::Array(items), last) => {
            let index: usize = last.parse().map_err(|_not_a_number| missing())?;
            *items.get_mut(index).ok_or_else(missing)? = value;
            Ok(())
        }
        _ => Err(missing()),
    }
}

fn remove_at_pointer(object: &mut Value, pointer: &str) -> Result<(), JsonPointerPatchError> {
    let missing = || JsonPointerPatchError(pointer.to_owned());
    match parent_collection(object, pointer)? {
        (Value::Object(fields), last) => fields.remove(last).map(drop).ok_or_else(missing),
        (Value::Array(items), last) => {
            let index: usize = last.parse().map_err(|_not_a_number| missing())?;
            (index < items.len()).then(|| drop(items.remove(index))).ok_or_else(missing)
        }
        _ => Err(missing()),
    }
}

/// Expands repetitions: `{$times: 3, $of: x}` is the string `xxx`; `{$times: 3, $item: x}` is a
/// list of three items.
fn expand_repetitions(value: &Value) -> Value {
    let count = value.get("$times").and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok());
    match (count, value) {
        (Some(count), value) => {
            match (value.get("$of").and_then(Value::as_str), value.get("$item")) {
                (Some(text), _) => json!(text.repeat(count)),
                (None, Some(item)) => json!(vec![item; count]),
                (None, None) => value.clone(),
            }
        }
        (None, Value::Object(fields)) => Value::Object(
            fields.iter().map(|(key, it)| (key.clone(), expand_repetitions(it))).collect(),
        ),
        (None, Value::Array(items)) => items.iter().map(expand_repetitions).collect(),
        (None, other) => other.clone(),
    }
}

/// Expands a template with `each: [a, b]` into one value per item, with every `$each` replaced by
/// the item.
pub(super) fn expand_each(template: &Value) -> Vec<Value> {
    let mut rest = template.clone();
    let each = rest.as_object_mut().and_then(|fields| fields.remove("each"));
    let Some(Value::Array(items)) = each else { return vec![rest] };
    let texts = items.iter().filter_map(Value::as_str);
    texts.map(|text| substitute_each(&rest, text)).collect()
}

fn substitute_each(value: &Value, each: &str) -> Value {
    match value {
        Value::String(text) => json!(text.replace("$each", each)),
        Value::Array(items) => items.iter().map(|item| substitute_each(item, each)).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| (key.replace("$each", each), substitute_each(value, each)))
                .collect(),
        ),
        other => other.clone(),
    }
}
