//! Finds role definitions by their display names, as `CredentialsRequest` objects name them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, RoleDefinition, RoleDefinitionBody};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};

/// The roles of a subscription by their display names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleNames {
    /// The roles of each name, in lower case: Azure compares names without case.
    roles: BTreeMap<String, Vec<RoleDefinitionId>>,
}

/// The reason why a name does not select exactly one role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoleNameError {
    /// No role has the name.
    #[error("the subscription has no role `{name}`")]
    Unknown {
        /// The name.
        name: String,
    },
    /// Several roles have the name.
    #[error("the subscription has {count} roles with the name `{name}`")]
    Ambiguous {
        /// The name.
        name: String,
        /// The number of roles.
        count: usize,
    },
}

impl ErrorHint for RoleNameError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unknown { .. } => {
                "correct `spec.providerSpec.roleBindings` of the CredentialsRequest, or create the role; a new custom role takes some minutes to appear"
            }
            Self::Ambiguous { .. } => "rename all custom roles with this name but one",
        }))
    }
}

impl RoleNames {
    /// Reads the roles that can be assigned in a subscription.
    ///
    /// # Errors
    ///
    /// The error of the request.
    pub async fn read(
        arm: &ArmClient,
        subscription: &SubscriptionId,
    ) -> Result<Self, AzureCallError> {
        let scope = ArmResourceId::subscription_scope(subscription);
        let path = RoleDefinitionBody::list_path(&scope);
        let listed = arm.list(&path, RoleDefinitionBody::API_VERSION, &[]).await?;
        let definitions = listed.into_iter().filter_map(|body| serde_json::from_value(body).ok());
        Ok(definitions.collect())
    }

    /// The role with this name; `None` if no role has it.
    ///
    /// # Errors
    ///
    /// [`RoleNameError::Ambiguous`]
    pub fn find(&self, name: &str) -> Result<Option<RoleDefinitionId>, RoleNameError> {
        match self.roles.get(&name.to_ascii_lowercase()).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([role]) => Ok(Some(*role)),
            Some(roles) => {
                Err(RoleNameError::Ambiguous { name: name.to_owned(), count: roles.len() })
            }
        }
    }

    /// The role with this name.
    ///
    /// # Errors
    ///
    /// [`RoleNameError`] if no role or several roles have the name.
    pub fn require(&self, name: &str) -> Result<RoleDefinitionId, RoleNameError> {
        self.find(name)?.ok_or_else(|| RoleNameError::Unknown { name: name.to_owned() })
    }
}

impl FromIterator<RoleDefinition> for RoleNames {
    fn from_iter<I: IntoIterator<Item = RoleDefinition>>(definitions: I) -> Self {
        let mut names = Self::default();
        for RoleDefinition { name, properties } in definitions {
            let roles = names.roles.entry(properties.role_name.to_ascii_lowercase()).or_default();
            roles.push(RoleDefinitionId(name));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn role_is_found_by_its_unique_name() {
        let role = |id: u128, name: &str| -> RoleDefinition {
            serde_json::from_value(json!({
                "name": Uuid::from_u128(id),
                "properties": { "roleName": name, "type": "CustomRole" },
            }))
            .unwrap()
        };
        let names: RoleNames =
            [role(1, "Reader"), role(2, "Own"), role(3, "own")].into_iter().collect();
        assert_eq!(names.require("reader"), Ok(RoleDefinitionId(Uuid::from_u128(1))));
        assert_eq!(names.find("Writer"), Ok(None));
        assert_eq!(
            names.require("Writer"),
            Err(RoleNameError::Unknown { name: "Writer".to_owned() })
        );
        assert_eq!(
            names.require("Own"),
            Err(RoleNameError::Ambiguous { name: "Own".to_owned(), count: 2 })
        );
    }
}
