//! Management locks, which forbid deletions or writes at a scope and below it.

use lanyard_vocabulary::ArmResourceId;
use serde::{Deserialize, Serialize};

use crate::arm_body::ArmBody;

/// A management lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementLockBody {
    /// The id; Azure sets it. A lock of a management group has an id without a subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Level and notes.
    pub properties: ManagementLockProperties,
}

/// The properties of a [`ManagementLockBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementLockProperties {
    /// What the lock forbids.
    pub level: ManagementLockLevel,
    /// Notes for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

/// What a management lock forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManagementLockLevel {
    /// Deletions.
    CanNotDelete,
    /// Deletions, writes and actions.
    ReadOnly,
}

impl ArmBody for ManagementLockBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Authorization/locks";
    const API_VERSION: &'static str = "2020-05-01";
}

impl ManagementLockBody {
    /// A lock.
    pub fn new(level: ManagementLockLevel, notes: Option<String>) -> Self {
        Self { id: None, properties: ManagementLockProperties { level, notes } }
    }

    /// The id of the lock `name` at a scope.
    pub fn id(scope: &ArmResourceId, name: &str) -> ArmResourceId {
        scope.provider_resource(Self::RESOURCE_TYPE, name)
    }

    /// The path of the list of locks at and below a scope; with the filter `atScope()`, at and above it.
    pub fn list_path(scope: &ArmResourceId) -> String {
        format!("{scope}/providers/{}", Self::RESOURCE_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn lock_has_this_json_and_id() {
        let lock = ManagementLockBody::new(ManagementLockLevel::CanNotDelete, None);
        assert_body(&lock, json!({ "properties": { "level": "CanNotDelete" } }));
        let scope = resource_id("Microsoft.Network/virtualNetworks/v");
        let id = ManagementLockBody::id(&scope, "l");
        assert_eq!(id.as_str(), format!("{scope}/providers/Microsoft.Authorization/locks/l"));
    }
}
