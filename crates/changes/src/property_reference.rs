//! Values of a body that another resource of the graph provides, such as the client id of an identity.
//!
//! A reference is the JSON object `{"lanyard.dev/resource": KEY, "lanyard.dev/pointer": POINTER}` in the place of
//! the value. It never reaches Azure.

use serde_json::{Map, Value, json};

use crate::live_state::LiveState;
use crate::resource_key::ResourceKey;

const RESOURCE: &str = "lanyard.dev/resource";
const POINTER: &str = "lanyard.dev/pointer";

/// A reference to the value at `pointer` (RFC 6901) in the live body of a resource.
pub fn property_reference(key: &ResourceKey, pointer: &str) -> Value {
    json!({ RESOURCE: key.as_str(), POINTER: pointer })
}

/// Replaces the references in a body by the live values. The error is the first resource without the value.
pub(crate) fn resolve_references(body: &Value, live: &LiveState) -> Result<Value, ResourceKey> {
    match body {
        Value::Object(map) => resolve_object(map, live),
        Value::Array(items) => {
            let items = items.iter().map(|item| resolve_references(item, live));
            Ok(Value::Array(items.collect::<Result<_, _>>()?))
        }
        other => Ok(other.clone()),
    }
}

fn resolve_object(map: &Map<String, Value>, live: &LiveState) -> Result<Value, ResourceKey> {
    if let (Some(key), Some(pointer)) =
        (map.get(RESOURCE).and_then(Value::as_str), map.get(POINTER).and_then(Value::as_str))
    {
        let key = ResourceKey::new(key);
        let value = live.get(&key).and_then(|found| found.body.pointer(pointer)).cloned();
        return value.ok_or(key);
    }
    let entries = map
        .iter()
        .map(|(name, value)| Ok((name.clone(), resolve_references(value, live)?)))
        .collect::<Result<Map<_, _>, _>>()?;
    Ok(Value::Object(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation_evidence::CreationMark;
    use crate::live_state::LiveResource;

    #[test]
    fn references_become_live_values() {
        let key = ResourceKey::new("identity");
        let body = json!({ "a": [property_reference(&key, "/properties/clientId")], "b": 1 });
        let mut live = LiveState::default();
        assert_eq!(resolve_references(&body, &live), Err(key.clone()));
        let id = "/subscriptions/s/resourceGroups/g".parse().unwrap();
        let identity = json!({ "properties": { "clientId": "x" } });
        let (creation, has_tags) = (CreationMark::default(), true);
        let found = LiveResource { id, body: identity, creation, has_tags };
        live.set(key, Some(found));
        assert_eq!(resolve_references(&body, &live), Ok(json!({ "a": ["x"], "b": 1 })));
    }
}
