//! Properties of Graph resources as data: types, defaults, validation and selection.

use serde_json::{Map, Value, json};

use super::error::GraphError;

/// A property of a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct GraphProperty {
    pub(super) name: &'static str,
    pub(super) kind: PropertyKind,
    pub(super) access: PropertyAccess,
    /// Whether reads contain the property only if `$select` names it.
    pub(super) only_on_select: bool,
}

/// The type of a property, with its default.
#[derive(Debug, Clone, Copy)]
pub(super) enum PropertyKind {
    /// A text, or null.
    Text,
    /// A text with a default.
    TextOr(&'static str),
    /// One of these texts; the first is the default.
    OneOf(&'static [&'static str]),
    /// A boolean, or null.
    Boolean,
    /// A boolean with a default.
    BooleanOr(bool),
    /// An integer, or null.
    Integer,
    /// A list of texts, empty by default.
    TextList,
    /// A list of objects, stored as given, empty by default.
    ObjectList,
    /// An object, stored as given, or null.
    Object,
    /// A complex type: its properties are set one by one.
    Structure(&'static [GraphProperty]),
}

/// How a property is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PropertyAccess {
    Writable,
    /// Set when the object is created, constant afterwards.
    CreateOnly,
    ReadOnly,
    /// The operation itself parses and stores the property.
    Managed,
}

impl GraphProperty {
    pub(super) const fn writable(name: &'static str, kind: PropertyKind) -> Self {
        Self { name, kind, access: PropertyAccess::Writable, only_on_select: false }
    }

    pub(super) const fn create_only(name: &'static str, kind: PropertyKind) -> Self {
        Self { name, kind, access: PropertyAccess::CreateOnly, only_on_select: false }
    }

    pub(super) const fn read_only(name: &'static str, kind: PropertyKind) -> Self {
        Self { name, kind, access: PropertyAccess::ReadOnly, only_on_select: false }
    }

    pub(super) const fn managed(name: &'static str, kind: PropertyKind) -> Self {
        Self { name, kind, access: PropertyAccess::Managed, only_on_select: false }
    }

    /// Makes reads contain the property only if `$select` names it.
    pub(super) const fn only_on_select(mut self) -> Self {
        self.only_on_select = true;
        self
    }
}

impl PropertyKind {
    /// The value of a property that is not stored.
    pub(super) fn default_value(self) -> Value {
        match self {
            Self::Text | Self::Boolean | Self::Integer | Self::Object => Value::Null,
            Self::TextOr(text) => json!(text),
            Self::OneOf(texts) => json!(texts.first()),
            Self::BooleanOr(value) => json!(value),
            Self::TextList | Self::ObjectList => json!([]),
            Self::Structure(properties) => Value::Object(with_defaults(properties, &Map::new())),
        }
    }

    fn accepts(self, value: &Value) -> bool {
        let is_list_of = |is_item: fn(&Value) -> bool| {
            value.as_array().is_some_and(|items| items.iter().all(is_item))
        };
        match self {
            Self::Text | Self::TextOr(_) => value.is_string() || value.is_null(),
            Self::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
            Self::Boolean | Self::BooleanOr(_) => value.is_boolean() || value.is_null(),
            Self::Integer => value.is_i64() || value.is_null(),
            Self::TextList => is_list_of(Value::is_string),
            Self::ObjectList => is_list_of(Value::is_object),
            Self::Object | Self::Structure(_) => value.is_object() || value.is_null(),
        }
    }
}

/// Properties by name.
pub(super) fn properties<const N: usize>(properties: [(&str, Value); N]) -> Map<String, Value> {
    properties.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// The properties with their stored values, or their defaults.
pub(super) fn with_defaults(
    properties: &[GraphProperty],
    stored: &Map<String, Value>,
) -> Map<String, Value> {
    let value_of = |property: &GraphProperty| match (property.kind, stored.get(property.name)) {
        (PropertyKind::Structure(inner), Some(Value::Object(stored))) => {
            Value::Object(with_defaults(inner, stored))
        }
        (_, Some(value)) => value.clone(),
        (kind, None) => kind.default_value(),
    };
    properties.iter().map(|property| (property.name.to_owned(), value_of(property))).collect()
}

/// Stores the given properties after checking their names and types. Annotations (`@odata.type`) and managed
/// properties are skipped; null restores a default.
pub(super) fn store_properties(
    stored: &mut Map<String, Value>,
    given: &Map<String, Value>,
    properties: &'static [GraphProperty],
    resource: &str,
    is_new: bool,
) -> Result<(), GraphError> {
    for (name, value) in given.iter().filter(|(name, _)| !name.contains('@')) {
        let Some(property) = properties.iter().find(|property| property.name == name) else {
            return Err(GraphError::bad_request(format!("Invalid property '{name}'.")));
        };
        match property.access {
            PropertyAccess::Managed => continue,
            PropertyAccess::ReadOnly if value.is_null() => continue,
            PropertyAccess::ReadOnly => return Err(read_only_property(name)),
            PropertyAccess::CreateOnly if !is_new => return Err(read_only_property(name)),
            PropertyAccess::CreateOnly | PropertyAccess::Writable => {}
        }
        if !property.kind.accepts(value) {
            return Err(GraphError::invalid_value(name, resource));
        }
        match (property.kind, value) {
            (_, Value::Null) => {
                stored.remove(name);
            }
            (PropertyKind::Structure(inner), Value::Object(value)) => {
                let slot = stored.entry(name).or_insert_with(|| json!({}));
                if let Value::Object(slot) = slot {
                    store_properties(slot, value, inner, resource, is_new)?;
                }
            }
            _ => {
                stored.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(())
}

fn read_only_property(name: &str) -> GraphError {
    GraphError::bad_request(format!("Property '{name}' is read-only and cannot be set."))
}

/// A required text of a request's body.
pub(super) fn required_text<'a>(
    given: &'a Map<String, Value>,
    name: &str,
    resource: &str,
) -> Result<&'a str, GraphError> {
    match given.get(name) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
        Some(Value::String(_) | Value::Null) | None => {
            Err(GraphError::value_required(name, resource))
        }
        Some(_) => Err(GraphError::invalid_value(name, resource)),
    }
}

/// An optional text of a request's body that cannot be empty.
pub(super) fn optional_text<'a>(
    given: &'a Map<String, Value>,
    name: &str,
    resource: &str,
) -> Result<Option<&'a str>, GraphError> {
    given.get(name).map(|_| required_text(given, name, resource)).transpose()
}

/// An optional boolean of a request's body.
pub(super) fn optional_boolean(
    given: &Map<String, Value>,
    name: &str,
    resource: &str,
) -> Result<Option<bool>, GraphError> {
    match given.get(name) {
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(Value::Null) | None => Ok(None),
        Some(_) => Err(GraphError::invalid_value(name, resource)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &[GraphProperty] = &[
        GraphProperty::writable("homePageUrl", PropertyKind::Text),
        GraphProperty::writable("redirectUris", PropertyKind::TextList),
    ];
    const THING: &[GraphProperty] = &[
        GraphProperty::read_only("id", PropertyKind::Text),
        GraphProperty::managed("displayName", PropertyKind::Text),
        GraphProperty::create_only("uniqueName", PropertyKind::Text),
        GraphProperty::writable("tags", PropertyKind::TextList),
        GraphProperty::writable("audience", PropertyKind::OneOf(&["one", "many"])),
        GraphProperty::writable("web", PropertyKind::Structure(WEB)),
    ];

    fn store(stored: &mut Value, given: Value, is_new: bool) -> Result<(), String> {
        let (Value::Object(stored), Value::Object(given)) = (stored, given) else { panic!() };
        store_properties(stored, &given, THING, "Thing", is_new).map_err(|error| error.message)
    }

    #[test]
    fn complex_types_are_merged_and_lists_replaced() {
        let mut stored = json!({});
        store(&mut stored, json!({ "tags": ["a"], "web": { "homePageUrl": "h" } }), true).unwrap();
        store(&mut stored, json!({ "tags": ["b"], "web": { "redirectUris": ["r"] } }), false)
            .unwrap();
        assert_eq!(
            stored,
            json!({ "tags": ["b"], "web": { "homePageUrl": "h", "redirectUris": ["r"] } })
        );
        store(&mut stored, json!({ "web": null, "tags": [], "@odata.type": "x" }), false).unwrap();
        let Value::Object(stored) = stored else { panic!() };
        assert_eq!(
            Value::Object(with_defaults(THING, &stored)),
            json!({
                "id": null,
                "displayName": null,
                "uniqueName": null,
                "tags": [],
                "audience": "one",
                "web": { "homePageUrl": null, "redirectUris": [] },
            })
        );
    }

    #[test]
    fn unknown_read_only_and_mistyped_properties_are_rejected() {
        let cases = [
            (json!({ "other": 1 }), "Invalid property 'other'."),
            (json!({ "id": "x" }), "Property 'id' is read-only and cannot be set."),
            (json!({ "uniqueName": "x" }), "Property 'uniqueName' is read-only and cannot be set."),
            (
                json!({ "tags": "a" }),
                "Invalid value specified for property 'tags' of resource 'Thing'.",
            ),
            (
                json!({ "audience": "x" }),
                "Invalid value specified for property 'audience' of resource 'Thing'.",
            ),
            (json!({ "web": { "x": 1 } }), "Invalid property 'x'."),
        ];
        for (given, message) in cases {
            assert_eq!(
                store(&mut json!({}), given.clone(), false),
                Err(message.to_owned()),
                "{given}"
            );
        }
        assert_eq!(store(&mut json!({}), json!({ "uniqueName": "x", "id": null }), true), Ok(()));
    }
}
