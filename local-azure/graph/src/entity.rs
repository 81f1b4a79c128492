//! The types of resources that can be read and listed, and their JSON.

use jiff::Timestamp;
use lanyard_emulator_state::directory::EntraDirectory;
use serde_json::{Map, Value};

use super::error::GraphError;
use super::filter::{FilterTarget, FilterValue};
use super::schema::GraphProperty;

/// A type of resource that can be read and listed.
pub(super) trait GraphEntity {
    /// How the type can be filtered.
    const TARGET: FilterTarget;
    /// Its properties, to check `$select`; empty for lists of several types.
    const PROPERTIES: &'static [GraphProperty];
    /// The properties that `$orderby` supports.
    const SORTABLE: &'static [&'static str] = &["displayName"];

    /// The id, unique within the list.
    fn id(&self) -> String;

    /// The value of a filterable property other than the id.
    fn filter_value<'a>(&'a self, directory: &'a EntraDirectory, property: &str)
    -> FilterValue<'a>;

    /// The value of a property that `$filter`, `$orderby` or `$search` names.
    fn query_value<'a>(&'a self, directory: &'a EntraDirectory, property: &str) -> FilterValue<'a> {
        match property {
            "id" => FilterValue::text(self.id()),
            other => self.filter_value(directory, other),
        }
    }

    /// All properties, including those that need `$select`.
    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value>;

    /// A relationship in `$expand`; `None` if it is not supported.
    fn expand(&self, _directory: &EntraDirectory, _relationship: &str) -> Option<Value> {
        None
    }
}

/// A time as Graph writes it, in seconds.
pub(super) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The JSON of a resource: the selected properties and the expanded relationships.
pub(super) fn selected_json<E: GraphEntity>(
    directory: &EntraDirectory,
    entity: &E,
    select: &[String],
    expand: &[String],
) -> Result<Map<String, Value>, GraphError> {
    let mut json = entity.to_json(directory);
    if select.is_empty() || select.iter().any(|name| name == "*") {
        for property in E::PROPERTIES.iter().filter(|property| property.only_on_select) {
            json.remove(property.name);
        }
    } else {
        json.retain(|name, _| {
            name == "@odata.type"
                || select.iter().any(|selected| selected.eq_ignore_ascii_case(name))
        });
    }
    if !select.iter().any(|name| name.eq_ignore_ascii_case("keyCredentials")) {
        hide_public_keys(&mut json);
    }
    for relationship in expand {
        let value = entity.expand(directory, relationship).ok_or_else(|| {
            GraphError::malformed(format!(
                "Parsing OData Select and Expand failed: Could not find a property named '{relationship}' on type 'microsoft.graph.{}'.",
                E::TARGET.type_name
            ))
        })?;
        json.insert(relationship.clone(), value);
    }
    Ok(json)
}

/// Public keys are null in reads that do not select `keyCredentials`.
fn hide_public_keys(json: &mut Map<String, Value>) {
    let credentials = json.get_mut("keyCredentials").and_then(Value::as_array_mut);
    for credential in credentials.into_iter().flatten() {
        if let Some(key) = credential.get_mut("key") {
            *key = Value::Null;
        }
    }
}
