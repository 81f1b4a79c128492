//! The differences between the properties that lanyard sets and those of a live resource. Does no I/O.
//!
//! Only properties in the desired body count: Azure adds defaults and states, and controllers add rules to load
//! balancers and subnets to virtual networks.

use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;
use serde_json::Value;

/// A property that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PropertyDifference {
    /// The path of the property, such as `properties.subnets[default].properties.addressPrefix`.
    pub path: String,
    /// The value that lanyard sets.
    pub desired: Value,
    /// The live value; null if the property is not set.
    pub live: Value,
}

/// The properties of `desired` that `live` lacks or has with another value, in the order of `desired`.
pub fn property_differences(desired: &Value, live: &Value) -> Vec<PropertyDifference> {
    let mut differences = Vec::new();
    compare(String::new(), desired, live, &mut differences);
    differences
}

fn compare(path: String, desired: &Value, live: &Value, differences: &mut Vec<PropertyDifference>) {
    match (desired, live) {
        (Value::Object(properties), Value::Object(_)) => {
            for (name, value) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(path, value, property(live, name).unwrap_or(&Value::Null), differences);
            }
        }
        (Value::Array(elements), Value::Array(live_elements)) if has_names(elements) => {
            for element in elements {
                let name = element_name(element).unwrap_or_default();
                let found = live_elements.iter().find(|it| has_name(it, name));
                let path = format!("{path}[{name}]");
                compare(path, element, found.unwrap_or(&Value::Null), differences);
            }
        }
        _ if is_equal(&path, desired, live) => {}
        _ => differences.push(PropertyDifference {
            path,
            desired: desired.clone(),
            live: live.clone(),
        }),
    }
}

/// The live body with the desired properties. Its differences from `desired` are empty, and everything else of
/// `live` stays.
pub(crate) fn merge_properties(desired: &Value, live: &Value) -> Value {
    match (desired, live) {
        (Value::Object(properties), Value::Object(live_properties)) => {
            let mut merged = live_properties.clone();
            for (name, value) in properties {
                let live_name = live_properties.keys().find(|it| it.eq_ignore_ascii_case(name));
                let before = property(live, name).unwrap_or(&Value::Null);
                let value = merge_properties(value, before);
                merged.insert(live_name.unwrap_or(name).clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(elements), Value::Array(live_elements)) if has_names(elements) => {
            let mut merged = live_elements.clone();
            for element in elements {
                let name = element_name(element).unwrap_or_default();
                match merged.iter_mut().find(|it| has_name(it, name)) {
                    Some(found) => *found = merge_properties(element, found),
                    None => merged.push(element.clone()),
                }
            }
            Value::Array(merged)
        }
        _ => desired.clone(),
    }
}

/// The live body with the values of `before` for the properties in which `before` differs from `desired`. Everything
/// else of `live` stays. Properties and named elements that `before` lacks are removed.
pub(crate) fn restore_properties(desired: &Value, before: &Value, live: &Value) -> Value {
    restore(String::new(), desired, before, live)
}

fn restore(path: String, desired: &Value, before: &Value, live: &Value) -> Value {
    match (desired, before, live) {
        (Value::Object(properties), Value::Object(_), Value::Object(live_properties)) => {
            let mut restored = live_properties.clone();
            for (name, value) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let live_name = live_properties.keys().find(|it| it.eq_ignore_ascii_case(name));
                let live_name = live_name.unwrap_or(name);
                let earlier = property(before, name).unwrap_or(&Value::Null);
                let live_value = property(live, name).unwrap_or(&Value::Null);
                match restore(path, value, earlier, live_value) {
                    Value::Null => drop(restored.remove(live_name)),
                    value => drop(restored.insert(live_name.clone(), value)),
                }
            }
            Value::Object(restored)
        }
        (Value::Array(elements), Value::Array(earlier), Value::Array(live_elements))
            if has_names(elements) =>
        {
            let mut restored = live_elements.clone();
            for element in elements {
                let name = element_name(element).unwrap_or_default();
                let path = format!("{path}[{name}]");
                let before = earlier.iter().find(|it| has_name(it, name)).unwrap_or(&Value::Null);
                let position = restored.iter().position(|it| has_name(it, name));
                let live = position.map_or(&Value::Null, |position| &restored[position]);
                let value = restore(path, element, before, live);
                match (position, value) {
                    (Some(position), Value::Null) => drop(restored.remove(position)),
                    (Some(position), value) => restored[position] = value,
                    (None, Value::Null) => {}
                    (None, value) => restored.push(value),
                }
            }
            Value::Array(restored)
        }
        // The run did not change the value.
        _ if is_equal(&path, desired, before) => live.clone(),
        _ => before.clone(),
    }
}

/// A property by its name, which Azure compares without case.
fn property<'a>(body: &'a Value, name: &str) -> Option<&'a Value> {
    let body = body.as_object()?;
    body.get(name).or_else(|| {
        body.iter().find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value))
    })
}

fn element_name(element: &Value) -> Option<&str> {
    element.get("name")?.as_str()
}

fn has_name(element: &Value, name: &str) -> bool {
    element_name(element).is_some_and(|it| it.eq_ignore_ascii_case(name))
}

fn has_names(elements: &[Value]) -> bool {
    !elements.is_empty() && elements.iter().all(|element| element_name(element).is_some())
}

fn is_equal(path: &str, desired: &Value, live: &Value) -> bool {
    if live.is_null() {
        // Azure omits what is off and what is empty. No property that lanyard sets is on when it is absent.
        return match desired {
            Value::Null | Value::Bool(false) => true,
            Value::Array(elements) => elements.is_empty(),
            Value::Object(properties) => properties.is_empty(),
            _ => false,
        };
    }
    let (Value::String(desired), Value::String(live)) = (desired, live) else {
        return desired == live;
    };
    let squeezed = |text: &str| text.replace(' ', "").to_ascii_lowercase();
    if path == "location" {
        // `East US` and `eastus` are the same region.
        return squeezed(desired) == squeezed(live);
    }
    let is_id = |text: &str| text.parse::<ArmResourceId>().is_ok();
    let is_uuid = |text: &str| text.parse::<uuid::Uuid>().is_ok();
    let ignores_case = (is_id(desired) && is_id(live)) || (is_uuid(desired) && is_uuid(live));
    desired == live || (ignores_case && desired.eq_ignore_ascii_case(live))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_property_is_equal_to_false_and_to_an_empty_value() {
        let desired = json!({ "off": false, "tags": {}, "list": [], "none": null });
        assert_eq!(property_differences(&desired, &json!({})), []);
        let desired = json!({ "on": true, "count": 0, "tags": { "a": "b" } });
        assert_eq!(property_differences(&desired, &json!({})).len(), 3);
    }

    #[test]
    fn only_desired_properties_are_compared() {
        let desired = json!({
            "location": "eastus",
            "properties": {
                "subnets": [{"name": "default", "properties": {"addressPrefix": "10.0.0.0/24",
                    "networkSecurityGroup": {"id": "/subscriptions/S/resourceGroups/G"}}}],
                "idleTimeoutInMinutes": 4,
            },
        });
        let mut live = json!({
            "location": "East US",
            "etag": "W/\"1\"",
            "properties": {
                "provisioningState": "Succeeded",
                "subnets": [
                    {"name": "nat", "properties": {"addressPrefix": "10.0.9.0/24"}},
                    {"name": "default", "properties": {"addressPrefix": "10.0.0.0/24",
                        "networkSecurityGroup": {"id": "/subscriptions/s/resourcegroups/g"}}},
                ],
                "idleTimeoutInMinutes": 4,
            },
        });
        assert_eq!(property_differences(&desired, &live), []);
        live["properties"]["subnets"][1]["properties"]["networkSecurityGroup"] = Value::Null;
        live["properties"]["idleTimeoutInMinutes"] = 9.into();
        let differences = property_differences(&desired, &live);
        let paths: Vec<_> = differences.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "properties.idleTimeoutInMinutes",
                "properties.subnets[default].properties.networkSecurityGroup",
            ]
        );
        let merged = merge_properties(&desired, &live);
        assert_eq!(property_differences(&desired, &merged), []);
        assert_eq!(merged["properties"]["subnets"][0]["name"], "nat");
        assert_eq!(merged["properties"]["provisioningState"], "Succeeded");
    }

    #[test]
    fn restored_properties_are_those_that_the_run_changed() {
        let desired = json!({ "rules": [{ "name": "ours", "ports": 1024 }, { "name": "new" }],
            "timeout": 4, "size": "b" });
        let before = json!({ "rules": [{ "name": "ours", "ports": 512 }], "timeout": 4 });
        let live = json!({ "rules": [{ "name": "ours", "ports": 1024 }, { "name": "new" },
            { "name": "controller" }], "timeout": 9, "size": "b", "other": true });
        let expected = json!({ "rules": [{ "name": "ours", "ports": 512 },
            { "name": "controller" }], "timeout": 9, "other": true });
        assert_eq!(restore_properties(&desired, &before, &live), expected);
        assert_eq!(restore_properties(&desired, &before, &expected), expected);
    }

    #[test]
    fn case_matters_except_in_ids() {
        let differs = |desired: &str, live: &str| {
            !property_differences(&json!({"x": desired}), &json!({"x": live})).is_empty()
        };
        assert!(differs("openshift", "OpenShift"));
        assert!(!differs("/subscriptions/s", "/subscriptions/S"));
        assert!(!differs(
            "b24988ac-6180-42a0-ab88-20f7382dd24c",
            "B24988AC-6180-42A0-AB88-20F7382DD24C"
        ));
    }

    fn any_body() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-e]", inner.clone(), 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                proptest::collection::btree_map("[a-c]", inner, 1..3).prop_map(|map| {
                    let element = |(name, value)| json!({"name": name, "value": value});
                    map.into_iter().map(element).collect()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn equal_bodies_have_no_differences(body in any_body()) {
            prop_assert_eq!(property_differences(&body, &body), vec![]);
        }

        #[test]
        fn restored_body_is_the_body_before_the_run(desired in any_body(), before in any_body()) {
            let changed = merge_properties(&desired, &before);
            let restored = restore_properties(&desired, &before, &changed);
            prop_assert_eq!(property_differences(&before, &restored), vec![]);
        }

        #[test]
        fn merged_body_has_no_differences(desired in any_body(), live in any_body()) {
            let merged = merge_properties(&desired, &live);
            prop_assert_eq!(property_differences(&desired, &merged), vec![]);
        }
    }
}
