//! The settings of a running emulator, as one document.
//!
//! The document is read as a whole and changed by a JSON merge patch (RFC 7396): a missing field stays as it
//! is, and `null` resets a field to its default.

mod fields;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::fields::{SettingField, setting_fields};
use crate::authorization::{PropagationDelay, RoleAssignmentLimits};
use crate::directory::DirectoryDelays;
use crate::json_error::{JsonError, from_json_value};
use crate::resources::arm_settings::{ArmSettings, ResourceDelays};
use crate::token_policy::TokenPolicy;

/// The settings that can change at run time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EmulatorSettings {
    pub resource_manager: ArmSettings,
    pub(crate) role_assignment_limits: RoleAssignmentLimits,
    pub propagation: PropagationSettings,
    /// The lifetimes of tokens.
    pub tokens: TokenPolicy,
}

/// The delays until changes take effect, in seconds of emulated time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PropagationSettings {
    /// Role assignments.
    pub role_assignments: PropagationDelay,
    /// New and deleted objects of the directory, and federated credentials.
    pub directory: DirectoryDelays,
    /// Deleted resources in lists across types.
    pub resources: ResourceDelays,
}

/// A settings document is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A field is unknown, or its value is invalid.
    #[error("the settings are invalid: {0}")]
    Json(#[source] JsonError),
    /// The settings cannot be written as JSON.
    #[error("the settings could not be written as JSON")]
    Write(#[source] serde_json::Error),
    /// The document is not an object.
    #[error("the settings are not an object")]
    NotAnObject,
    /// Azure has no such namespace.
    #[error(
        "`resourceManager.unregisteredNamespaces`: a name is not the namespace of a resource provider"
    )]
    UnknownNamespace,
    /// Azure has no such limit.
    #[error(
        "`resourceManager.quotas`: a `name` is not that of a limit; the usages of Microsoft.Network and Microsoft.Compute list all names"
    )]
    UnknownQuota,
}

/// A change of the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsChange(Value);

impl SettingsChange {
    /// Parses a change: the fields to set, and `null` for fields to reset. Names of namespaces and limits are
    /// checked when the change is applied.
    ///
    /// # Errors
    ///
    /// Returns an error that names an unknown field or an invalid value.
    pub fn from_json(json: Value) -> Result<Self, SettingsError> {
        EmulatorSettings::default().with_change(&json)?;
        Ok(Self(json))
    }

    /// Returns `settings` with this change.
    pub fn applied_to(
        &self,
        settings: &EmulatorSettings,
    ) -> Result<EmulatorSettings, SettingsError> {
        settings.with_change(&self.0)
    }
}

impl<'de> Deserialize<'de> for SettingsChange {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        Self::from_json(json).map_err(serde::de::Error::custom)
    }
}

impl Serialize for SettingsChange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Applies a JSON merge patch. An array replaces an array.
fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(known) = target else { return };
    for (name, value) in fields {
        if value.is_null() {
            known.remove(name);
        } else {
            merge_patch(known.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

impl EmulatorSettings {
    /// The settings after a change: a JSON object with the fields to set, and `null` for fields to reset.
    pub fn with_change(&self, change: &Value) -> Result<Self, SettingsError> {
        if !change.is_object() {
            return Err(SettingsError::NotAnObject);
        }
        let mut document = serde_json::to_value(self).map_err(SettingsError::Write)?;
        merge_patch(&mut document, change);
        from_json_value(document).map_err(SettingsError::Json)
    }

    /// The settings as JSON, without the kubeconfig, which may contain credentials.
    pub fn displayed(&self) -> Result<Value, serde_json::Error> {
        let mut json = serde_json::to_value(self)?;
        if let Some(fields) = json.get_mut("resourceManager").and_then(Value::as_object_mut) {
            fields.remove("kubeconfig");
        }
        Ok(json)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(json: Value) -> Result<EmulatorSettings, SettingsError> {
        SettingsChange::from_json(json)?.applied_to(&EmulatorSettings::default())
    }

    #[test]
    fn change_sets_named_fields_and_null_resets_them() {
        let first = change(json!({
            "resourceManager": { "pageSize": 2, "longRunning": [{ "resourceType": "*", "polls": 3 }] },
            "propagation": { "directory": { "graphSeconds": 30 } },
        }))
        .unwrap();
        assert_eq!(first.resource_manager.page_size.map(usize::from), Some(2));
        assert_eq!(first.propagation.directory.graph_seconds, 30);
        let reset = json!({ "resourceManager": { "pageSize": null } });
        let second = SettingsChange::from_json(reset).unwrap().applied_to(&first).unwrap();
        assert_eq!(second.resource_manager.page_size, None);
        assert_eq!(second.resource_manager.long_running, first.resource_manager.long_running);
        assert_eq!(second.propagation, first.propagation);
    }

    #[test]
    fn known_fields_and_the_field_of_an_invalid_value_are_named() {
        for (json, named) in [
            (json!({ "pageSize": 1 }), "unknown field, expected one of `resourceManager`"),
            (json!({ "resourceManager": { "pagesize": 1 } }), "`resourceManager`: unknown field"),
            (json!({ "resourceManager": { "pageSize": 0 } }), "`resourceManager.pageSize`"),
            (
                json!({ "roleAssignmentLimits": { "inSubscription": -1 } }),
                "`roleAssignmentLimits.inSubscription`",
            ),
            (
                json!({ "propagation": { "directory": { "graphSeconds": -1 } } }),
                "`propagation.directory.graphSeconds`",
            ),
            (json!({ "resourceManager": { "longRunning": [{ "polls": 1 }] } }), "resourceType"),
            (json!([]), "object"),
        ] {
            let error = change(json.clone()).unwrap_err().to_string();
            assert!(error.contains(named), "{json}: {error}");
        }
    }

    #[test]
    fn displayed_settings_contain_no_kubeconfig() {
        let with = json!({ "resourceManager": { "kubeconfig": "apiVersion: v1", "pageSize": 4 } });
        let shown = change(with).unwrap().displayed().unwrap();
        assert_eq!(shown["resourceManager"]["pageSize"], 4);
        assert!(!shown.to_string().contains("apiVersion"));
    }
}
