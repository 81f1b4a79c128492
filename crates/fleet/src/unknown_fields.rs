//! Finds fields that a `fleet.yaml` cannot have, and names the nearest known one.

use serde_json::{Map, Value};

use crate::fleet_document::fleet_schema;

/// The problems with unknown fields, one for each.
pub(crate) fn find_unknown_fields(document: &Value) -> Vec<String> {
    let schema = fleet_schema().to_value();
    let mut problems = Vec::new();
    visit(document, &schema, &schema, "", &mut problems);
    problems
}

fn visit(value: &Value, schema: &Value, root: &Value, path: &str, problems: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            let Some(known) = schema_fields(schema, root) else { return };
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(schema) => visit(value, schema, root, &path, problems),
                    None => {
                        problems.push(format!("`{path}` is unknown{}", suggestion(name, known)));
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema_items(schema, root) else { return };
            for (index, item) in items.iter().enumerate() {
                visit(item, schema, root, &format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

/// The known field with the nearest name, if one is near; otherwise all of them.
fn suggestion(name: &str, known: &Map<String, Value>) -> String {
    let distance = |it: &&String| strsim::osa_distance(&name.to_lowercase(), &it.to_lowercase());
    let nearest = known.keys().min_by_key(distance).filter(|it| distance(it) <= 3);
    if let Some(nearest) = nearest {
        return format!("; did you mean `{nearest}`?");
    }
    let names: Vec<_> = known.keys().map(|name| format!("`{name}`")).collect();
    format!("; the fields are {}", names.join(", "))
}

/// The fields of an object by the JSON Schema, following references within the schema. `None` if any field is allowed.
fn schema_fields<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Map<String, Value>> {
    resolve(schema, root).get("properties")?.as_object()
}

/// The schema of the items of an array.
fn schema_items<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Value> {
    resolve(schema, root).get("items")
}

/// The schema to which a reference within the schema points, also one of an optional value.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let one_of = schema.get("anyOf").and_then(Value::as_array);
    let schema = one_of.and_then(|schemas| schemas.first()).unwrap_or(schema);
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
