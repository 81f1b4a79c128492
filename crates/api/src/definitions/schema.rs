//! The words that structural schemas are written with.
//!
//! Source: `apiextensions.k8s.io/v1`, `JSONSchemaProps`.

use serde_json::{Map, Value, json};

/// A structural schema. Every text and list that a rule looks at is bounded, because the API server
/// refuses rules whose cost it cannot bound; what belongs to others is not bounded by us.
#[derive(Debug, Clone)]
pub(super) struct Schema(Map<String, Value>);

impl Schema {
    fn of(kind: &str) -> Self {
        Self(Map::from_iter([("type".to_owned(), json!(kind))]))
    }

    /// An object without fields yet.
    pub(super) fn object() -> Self {
        Self::of("object")
    }

    /// An object that others define: it is kept as it comes.
    pub(super) fn foreign() -> Self {
        Self::object().open()
    }

    /// A text of at most so many characters.
    pub(super) fn text(longest: u32) -> Self {
        Self::of("string").with("maxLength", json!(longest))
    }

    /// A text of any length, where the reference has no bound.
    pub(super) fn any_text() -> Self {
        Self::of("string")
    }

    /// One of several texts.
    pub(super) fn choice(values: &[&str]) -> Self {
        Self::of("string").with("enum", json!(values))
    }

    /// A point in time (RFC 3339).
    pub(super) fn time() -> Self {
        Self::of("string").with("format", json!("date-time"))
    }

    /// A whole number that is not negative.
    pub(super) fn count() -> Self {
        Self::of("integer").with("format", json!("int64")).with("minimum", json!(0))
    }

    /// A list of at most so many items.
    pub(super) fn list(items: Self, most: u32) -> Self {
        Self::of("array").with("items", items.into_value()).with("maxItems", json!(most))
    }

    /// A list of any length, where the reference has no bound.
    pub(super) fn any_list(items: Self) -> Self {
        Self::of("array").with("items", items.into_value())
    }

    fn with(mut self, key: &str, value: Value) -> Self {
        self.0.insert(key.to_owned(), value);
        self
    }

    fn push(mut self, key: &str, value: Value) -> Self {
        match self.0.get_mut(key) {
            Some(Value::Array(values)) => values.push(value),
            _ => return self.with(key, Value::Array(vec![value])),
        }
        self
    }

    pub(super) fn describe(self, description: &str) -> Self {
        self.with("description", json!(description))
    }

    /// A field that may be absent.
    pub(super) fn field(mut self, name: &str, schema: Self) -> Self {
        let fields = self.0.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(fields) = fields {
            fields.insert(name.to_owned(), schema.into_value());
        }
        self
    }

    /// A field that must be there.
    pub(super) fn required(self, name: &str, schema: Self) -> Self {
        self.field(name, schema).push("required", json!(name))
    }

    /// At least so many characters, items or fields.
    pub(super) fn at_least(self, count: u32) -> Self {
        let key = match self.0.get("type").and_then(Value::as_str) {
            Some("array") => "minItems",
            Some("object") => "minProperties",
            _ => "minLength",
        };
        self.with(key, json!(count))
    }

    /// A text that matches a regular expression (RE2, searched for anywhere in the text).
    pub(super) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", json!(pattern))
    }

    /// What stands there when nothing does.
    pub(super) fn default(self, value: &str) -> Self {
        self.with("default", json!(value))
    }

    /// A rule in CEL, and what is said when it is broken.
    pub(super) fn rule(self, rule: &str, message: &str) -> Self {
        self.push("x-kubernetes-validations", json!({"rule": rule, "message": message}))
    }

    /// A value that never changes once it is there.
    pub(super) fn immutable(self, message: &str) -> Self {
        self.rule("self == oldSelf", message)
    }

    /// Fields that the schema does not name are kept.
    pub(super) fn open(self) -> Self {
        self.with("x-kubernetes-preserve-unknown-fields", json!(true))
    }

    /// A list without duplicates.
    pub(super) fn set(self) -> Self {
        self.with("x-kubernetes-list-type", json!("set"))
    }

    /// A list whose items are known by a field, so that each can have another owner.
    pub(super) fn keyed_by(self, key: &str) -> Self {
        self.with("x-kubernetes-list-type", json!("map"))
            .with("x-kubernetes-list-map-keys", json!([key]))
    }

    /// An object that is replaced as a whole.
    pub(super) fn atomic(self) -> Self {
        self.with("x-kubernetes-map-type", json!("atomic"))
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// `status.conditions`, as `metav1.Condition` has it.
pub(super) fn conditions() -> Schema {
    let condition = Schema::object()
        .required("type", Schema::text(316).describe("What the condition is about."))
        .required("status", Schema::choice(&["True", "False", "Unknown"]))
        .required("reason", Schema::text(1024).at_least(1).describe("Why, in one word."))
        .required("message", Schema::text(32_768).describe("Why, for people."))
        .required("lastTransitionTime", Schema::time().describe("Since when the status is so."))
        .field("observedGeneration", Schema::count());
    Schema::list(condition, 100).keyed_by("type").describe("What was observed last.")
}
