//! Finds fields that a `fleet.yaml` cannot have, and names the nearest known one.

use serde_json::{Map, Value};

use crate::fleet_document::{fleet_schema, schema_fields, schema_items};

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
