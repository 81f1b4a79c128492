//! The objects that the operator's chart renders.

use serde_json::Value;

/// A permission: API group, resource with subresource, and verb.
pub(crate) type RbacPermission = (String, String, String);

/// The objects of the operator chart's golden files.
pub(crate) struct RenderedOperatorChart {
    /// Rendered with `role: all`.
    pub(crate) all: Vec<Value>,
    /// Rendered with `role: identity-only`.
    pub(crate) identity_only: Vec<Value>,
    /// Rendered with `role: all` and every optional feature.
    pub(crate) all_features: Vec<Value>,
}

/// The permissions of a role, each with the names of its objects; an empty list means all objects.
pub(crate) fn role_permissions(role: &Value) -> Vec<(RbacPermission, Vec<String>)> {
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in string_items(&rule["apiGroups"]) {
            for resource in string_items(&rule["resources"]) {
                for verb in string_items(&rule["verbs"]) {
                    let right = (group.clone(), resource.clone(), verb);
                    rights.push((right, string_items(&rule["resourceNames"])));
                }
            }
        }
    }
    rights
}

fn string_items(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
