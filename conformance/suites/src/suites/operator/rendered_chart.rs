//! The objects that the operator's chart renders.

use kube::api::{Api, DynamicObject, PostParams};
use kube::{Client, Error};
use serde_json::Value;

use crate::api_server::DynamicKind;

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

impl RenderedOperatorChart {
    /// Creates the admission policies of the role `all` and their bindings.
    pub(crate) async fn create_admission_policies(&self, client: &Client) -> Result<(), Error> {
        const GROUP: &str = "admissionregistration.k8s.io";
        for (kind, plural) in [
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ] {
            let resource = DynamicKind::from_names(GROUP, "v1", kind, plural);
            let api = Api::<DynamicObject>::all_with(client.clone(), resource.api_resource());
            for object in self.all.iter().filter(|object| object["kind"] == kind) {
                let object = serde_json::from_value(object.clone()).map_err(Error::SerdeError)?;
                api.create(&PostParams::default(), &object).await?;
            }
        }
        Ok(())
    }
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
