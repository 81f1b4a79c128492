//! What the operator's chart renders.

use serde_json::Value;

/// A right: API group, resource with its subresource, verb.
pub(crate) type RbacPermission = (String, String, String);

/// The objects that the operator's chart renders.
pub(crate) struct RenderedOperatorChart {
    /// With `role: all`.
    pub(crate) all: Vec<Value>,
    /// With `role: identity-only`.
    pub(crate) identity_only: Vec<Value>,
    /// With `role: all` and whatever can be switched on.
    pub(crate) all_features: Vec<Value>,
}

/// The rights that a role gives, each with the names of the objects that it is for; all where there
/// is none.
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
