//! A builder for structural schemas.
//!
//! Source: `apiextensions.k8s.io/v1`, `JSONSchemaProps`.

use serde_json::{Map, Value, json};

/// A structural schema. Every string and list that a CEL rule uses has a bound, because the API
/// server rejects rules whose cost it cannot bound. Fields that HyperShift leaves unbounded stay
/// unbounded.
#[derive(Debug, Clone)]
pub(super) struct CrdSchema(Map<String, Value>);

impl CrdSchema {
    fn of_type(kind: &str) -> Self {
        Self(Map::from_iter([("type".to_owned(), json!(kind))]))
    }

    /// An object without fields.
    pub(super) fn object() -> Self {
        Self::of_type("object")
    }

    /// An object whose fields are preserved unchecked.
    pub(super) fn preserved_object() -> Self {
        Self::object().preserve_unknown_fields()
    }

    /// A string of at most `longest` characters.
    pub(super) fn string(longest: u32) -> Self {
        Self::of_type("string").with_keyword("maxLength", json!(longest))
    }

    /// A string of any length, for fields that HyperShift does not bound.
    pub(super) fn unbounded_string() -> Self {
        Self::of_type("string")
    }

    /// An enumeration of strings.
    pub(super) fn enumeration(values: &[&str]) -> Self {
        Self::of_type("string").with_keyword("enum", json!(values))
    }

    /// A point in time (RFC 3339).
    pub(super) fn date_time() -> Self {
        Self::of_type("string").with_keyword("format", json!("date-time"))
    }

    /// A non-negative integer.
    pub(super) fn unsigned_integer() -> Self {
        Self::of_type("integer")
            .with_keyword("format", json!("int64"))
            .with_keyword("minimum", json!(0))
    }

    /// An integer in a range.
    pub(super) fn integer_between(least: i64, most: i64) -> Self {
        Self::of_type("integer")
            .with_keyword("minimum", json!(least))
            .with_keyword("maximum", json!(most))
    }

    /// An integer of 32 bits.
    pub(super) fn integer_32_bits() -> Self {
        Self::of_type("integer").with_keyword("format", json!("int32"))
    }

    /// A boolean.
    pub(super) fn boolean() -> Self {
        Self::of_type("boolean")
    }

    /// A reference to an object in the same namespace.
    pub(super) fn local_reference(description: &str) -> Self {
        Self::object()
            .with_description(description)
            .optional_field(
                "name",
                Self::unbounded_string()
                    .with_description("The name of the object.")
                    .with_default(""),
            )
            .atomic()
    }

    /// A list of at most `most` items.
    pub(super) fn bounded_list(items: Self, most: u32) -> Self {
        Self::of_type("array")
            .with_keyword("items", items.into_value())
            .with_keyword("maxItems", json!(most))
    }

    fn with_keyword(mut self, key: &str, value: Value) -> Self {
        self.0.insert(key.to_owned(), value);
        self
    }

    fn push_to_keyword(mut self, key: &str, value: Value) -> Self {
        match self.0.get_mut(key) {
            Some(Value::Array(values)) => values.push(value),
            _ => return self.with_keyword(key, Value::Array(vec![value])),
        }
        self
    }

    pub(super) fn with_description(self, description: &str) -> Self {
        self.with_keyword("description", json!(description))
    }

    /// Adds an optional field.
    pub(super) fn optional_field(mut self, name: &str, schema: Self) -> Self {
        let fields = self.0.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(fields) = fields {
            fields.insert(name.to_owned(), schema.into_value());
        }
        self
    }

    /// Adds a required field.
    pub(super) fn required_field(self, name: &str, schema: Self) -> Self {
        self.optional_field(name, schema).push_to_keyword("required", json!(name))
    }

    /// Requires fields that were added as optional ones.
    pub(super) fn require(self, names: &[&str]) -> Self {
        names.iter().fold(self, |schema, name| schema.push_to_keyword("required", json!(name)))
    }

    /// Requires at least `count` characters, items or fields.
    pub(super) fn with_minimum_size(self, count: u32) -> Self {
        let key = match self.0.get("type").and_then(Value::as_str) {
            Some("array") => "minItems",
            Some("object") => "minProperties",
            _ => "minLength",
        };
        self.with_keyword(key, json!(count))
    }

    /// Requires a match of a regular expression (RE2, not anchored).
    pub(super) fn with_pattern(self, pattern: &str) -> Self {
        self.with_keyword("pattern", json!(pattern))
    }

    /// Sets the default.
    pub(super) fn with_default(self, value: impl Into<Value>) -> Self {
        self.with_keyword("default", value.into())
    }

    /// Limits the length of a string that has an enumeration.
    pub(super) fn with_maximum_length(self, longest: u32) -> Self {
        self.with_keyword("maxLength", json!(longest))
    }

    /// Adds a CEL rule and its message.
    pub(super) fn with_cel_rule(self, rule: &str, message: &str) -> Self {
        self.push_to_keyword("x-kubernetes-validations", json!({"rule": rule, "message": message}))
    }

    /// Forbids changes of a value that is set.
    pub(super) fn immutable(self, message: &str) -> Self {
        self.with_cel_rule("self == oldSelf", message)
    }

    pub(super) fn preserve_unknown_fields(self) -> Self {
        self.with_keyword("x-kubernetes-preserve-unknown-fields", json!(true))
    }

    /// Makes a list a set: the API server rejects duplicates.
    pub(super) fn into_set(self) -> Self {
        self.with_keyword("x-kubernetes-list-type", json!("set"))
    }

    /// Makes a list atomic: it is replaced as a whole.
    pub(super) fn into_atomic_list(self) -> Self {
        self.with_keyword("x-kubernetes-list-type", json!("atomic"))
    }

    /// Makes a list a map keyed by a field, so that each item can have another field manager.
    pub(super) fn into_map_list(self, key: &str) -> Self {
        self.with_keyword("x-kubernetes-list-type", json!("map"))
            .with_keyword("x-kubernetes-list-map-keys", json!([key]))
    }

    /// Makes an object atomic: it is replaced as a whole.
    pub(super) fn atomic(self) -> Self {
        self.with_keyword("x-kubernetes-map-type", json!("atomic"))
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// `status.conditions`: a list of `metav1.Condition`.
pub(super) fn conditions_schema() -> CrdSchema {
    let condition = CrdSchema::object()
        .required_field(
            "type",
            CrdSchema::string(316).with_description("The type of the condition."),
        )
        .required_field("status", CrdSchema::enumeration(&["True", "False", "Unknown"]))
        .required_field(
            "reason",
            CrdSchema::string(1024)
                .with_minimum_size(1)
                .with_description("A machine-readable reason in CamelCase."),
        )
        .required_field(
            "message",
            CrdSchema::string(32_768).with_description("A human-readable explanation."),
        )
        .required_field(
            "lastTransitionTime",
            CrdSchema::date_time().with_description(
                "The last time the condition changed from one status to another.",
            ),
        )
        .optional_field("observedGeneration", CrdSchema::unsigned_integer());
    CrdSchema::bounded_list(condition, 100)
        .into_map_list("type")
        .with_description("The last observed state.")
}
