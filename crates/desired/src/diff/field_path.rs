//! Paths of fields in JSON objects.

use std::fmt;

use serde_json::{Map, Value, json};

/// The path of a field in an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<FieldPathSegment>);

/// A segment of a [`FieldPath`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldPathSegment {
    /// A field of an object.
    Field(String),
    /// An item of a list whose items are identified by a field.
    Item {
        /// The name of the identifying field.
        key: &'static str,
        /// The value of the identifying field.
        value: String,
    },
    /// The list item with this index, from 0.
    Index(usize),
}

impl FieldPath {
    /// Returns the segments, from the root.
    pub fn segments(&self) -> &[FieldPathSegment] {
        &self.0
    }

    pub(super) fn child(&self, segment: FieldPathSegment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    pub(super) fn child_field(&self, name: &str) -> Self {
        self.child(FieldPathSegment::Field(name.to_owned()))
    }

    /// Returns the value at the path, if the object has it.
    pub fn value_in<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, segment| match segment {
            FieldPathSegment::Field(name) => value.get(name),
            FieldPathSegment::Index(index) => value.get(index),
            FieldPathSegment::Item { key, value: text } => {
                let is_item = |item: &&Value| match item.get(key) {
                    Some(Value::String(found)) => found == text,
                    Some(found) => found.to_string().as_str() == text,
                    None => false,
                };
                value.as_array()?.iter().find(is_item)
            }
        })
    }

    /// Returns the last field of the path, ignoring trailing list items.
    pub(super) fn last_field(&self) -> &str {
        let fields = self.0.iter().rev().find_map(|segment| match segment {
            FieldPathSegment::Field(name) => Some(name.as_str()),
            _ => None,
        });
        fields.unwrap_or_default()
    }
}

/// Formats the path, such as `spec.template.spec.containers[name=manager].env[name=A].value`. A
/// name that contains a dot is in brackets.
impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            match segment {
                FieldPathSegment::Field(name) if name.contains('.') => {
                    write!(formatter, "[{name}]")?;
                }
                FieldPathSegment::Field(name) if index == 0 => formatter.write_str(name)?,
                FieldPathSegment::Field(name) => write!(formatter, ".{name}")?,
                FieldPathSegment::Item { key, value } => write!(formatter, "[{key}={value}]")?,
                FieldPathSegment::Index(index) => write!(formatter, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Returns the JSON merge patch that removes fields from the object at this resource version. Paths
/// into lists are skipped, because a merge patch cannot remove list items.
pub fn removal_patch(paths: &[FieldPath], resource_version: &str) -> Value {
    let mut patch = json!({"metadata": {"resourceVersion": resource_version}});
    for path in paths {
        let fields: Option<Vec<_>> = path
            .segments()
            .iter()
            .map(|segment| match segment {
                FieldPathSegment::Field(name) => Some(name.as_str()),
                FieldPathSegment::Item { .. } | FieldPathSegment::Index(_) => None,
            })
            .collect();
        if let Some(fields) = fields {
            set_null(&mut patch, &fields);
        }
    }
    patch
}

fn set_null(patch: &mut Value, fields: &[&str]) {
    let Some((first, rest)) = fields.split_first() else {
        *patch = Value::Null;
        return;
    };
    if let Some(map) = patch.as_object_mut() {
        set_null(map.entry(*first).or_insert_with(|| Value::Object(Map::new())), rest);
    }
}
